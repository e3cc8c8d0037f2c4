"""Show how many tasks of a Spark job are done.

with progress(session, "listing the store"):
    frame.toArrow()

The numbers come from the status tracker, or over Spark Connect from the server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierctl.errors import EngineError
from tierctl.report.bars.styles import task_bar
from tierctl.spark.session.failures import failures
from tierctl.spark.session.shipping import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCount:
    """The tasks of all stages that have begun so far."""

    total: int
    done: int


OnTasks = Callable[[TaskCount], None]


@contextmanager
def progress(session: SparkSession, title: str) -> Iterator[None]:
    """Show a bar of tasks while the block runs jobs, if stderr is a terminal."""
    with task_bar(title) as show:
        if show is None:
            yield
            return
        with watched(session, lambda tasks: show(tasks.done, tasks.total)):
            yield


@contextmanager
def watched(session: SparkSession, on_tasks: OnTasks, *, every_s: float = EVERY_S) -> Iterator[None]:
    """Call `on_tasks` from another thread while the block runs jobs."""
    with _reported(session, on_tasks) if is_connect(session) else _polled(session, on_tasks, every_s):
        yield


@contextmanager
def _polled(session: SparkSession, on_tasks: OnTasks, every_s: float) -> Iterator[None]:
    tracker = session.sparkContext.statusTracker()
    before, is_over = set(tracker.getActiveStageIds()), threading.Event()

    def poll() -> None:
        stages: dict[int, tuple[int, int]] = {}
        # The end of the session ends this thread too.
        with suppress(EngineError), failures(None):
            while not is_over.wait(every_s):
                active = set(tracker.getActiveStageIds()) - before
                for stage in active:
                    info = tracker.getStageInfo(stage)
                    if info is not None:
                        stages[stage] = (info.numCompletedTasks, info.numTasks)
                # A stage that is no longer active is done.
                stages |= {
                    stage: (total, total) for stage, (_, total) in stages.items() if stage not in active
                }
                if stages:
                    on_tasks(_sum(stages.values()))

    with _thread(poll, is_over):
        yield


@contextmanager
def _thread(target: Callable[[], None], is_over: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=target, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _reported(session: SparkSession, on_tasks: OnTasks) -> Iterator[None]:
    def on_progress(*, stages: Any, **_: Any) -> None:
        if stages:
            on_tasks(_sum((stage.num_completed_tasks, stage.num_tasks) for stage in stages))

    handler: Any = on_progress
    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)


def _sum(stages: Iterable[tuple[int, int]]) -> TaskCount:
    pairs = list(stages)
    return TaskCount(done=sum(done for done, _ in pairs), total=sum(total for _, total in pairs))
