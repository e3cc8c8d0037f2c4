"""How far Spark's tasks are: from the status tracker, or from what a Spark Connect server sends along.

with progress(session, "listing the store"):
    frame.toArrow()
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierctl.errors import EngineError
from tierctl.report.tasks import task_bar
from tierctl.spark.session.failures import failures
from tierctl.spark.session.shipping import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """Those of all stages that were begun so far."""

    total: int
    done: int


Heard = Callable[[Tasks], None]


@contextmanager
def progress(session: "SparkSession", what: str) -> Iterator[None]:
    """A bar of tasks on a terminal's stderr while the block runs jobs; elsewhere nothing."""
    with task_bar(what) as show:
        if show is None:
            yield
            return
        with watched(session, lambda tasks: show(tasks.done, tasks.total)):
            yield


@contextmanager
def watched(session: "SparkSession", heard: Heard, *, every_s: float = EVERY_S) -> Iterator[None]:
    """Tell `heard` how far the jobs of the block are, on another thread."""
    with _told(session, heard) if is_connect(session) else _polled(session, heard, every_s):
        yield


@contextmanager
def _polled(session: "SparkSession", heard: Heard, every_s: float) -> Iterator[None]:
    tracker = session.sparkContext.statusTracker()
    before, is_over = set(tracker.getActiveStageIds()), threading.Event()

    def poll() -> None:
        stages: dict[int, tuple[int, int]] = {}
        # A session that ends meanwhile ends this too.
        with suppress(EngineError), failures(None):
            while not is_over.wait(every_s):
                active = set(tracker.getActiveStageIds()) - before
                for stage in active:
                    info = tracker.getStageInfo(stage)
                    if info is not None:
                        stages[stage] = (info.numCompletedTasks, info.numTasks)
                # One that is not active any more is done.
                stages |= {
                    stage: (total, total) for stage, (_, total) in stages.items() if stage not in active
                }
                if stages:
                    heard(_sum(stages.values()))

    with _thread(poll, is_over):
        yield


@contextmanager
def _thread(work: Callable[[], None], is_over: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=work, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _told(session: "SparkSession", heard: Heard) -> Iterator[None]:
    def on_progress(*, stages: Any, **_: Any) -> None:
        if stages:
            heard(_sum((stage.num_completed_tasks, stage.num_tasks) for stage in stages))

    handler: Any = on_progress
    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)


def _sum(stages: Any) -> Tasks:
    pairs = list(stages)
    return Tasks(done=sum(done for done, _ in pairs), total=sum(total for _, total in pairs))
