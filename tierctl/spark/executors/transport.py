"""The one way to send work to executors: a function and its inputs go out, results or errors come back.

    for result in Executors(spark).run(check, inputs): ...

`run` is for functions that only read. Side effects use `run_tasks`, which also tells which inputs an earlier
attempt may have processed. Only the DataFrame API is used, so that it works over Spark Connect as well.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar

import pyarrow as pa

import tierctl
from tierctl import kernel
from tierctl.errors import EngineError, ExitCode, TierctlError, UsageError
from tierctl.in_order import in_background
from tierctl.report.bars import task_bar
from tierctl.spark.executors.task import (
    RESULTS,
    TASKS,
    DivideTask,
    Opened,
    SparkTask,
    decoded,
    decoded_outcome,
    gathered,
    plain,
    with_host,
)
from tierctl.spark.session.jvm import engine_error, failures, is_connect, is_spark
from tierctl.storage.throttle import Transfers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEAST_EVENTS = 20_000
"""The number of events that are folded in the time that a task takes to start."""
POLL_S = 0.05
_RESULTS_MAX = "spark.driver.maxResultSize"
_PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
CANCELLED_WAIT_S = 30.0
"""How long to wait for the end of a cancelled job."""


class JobFailedError(EngineError):
    """A job ended without a result: the effects of its tasks are unknown."""


class JobStoppedError(JobFailedError):
    """The job was cancelled, because the run was told to stop."""


class ResultsTooLargeError(JobFailedError):
    """The results of a job are larger than Spark's setting for its driver allows."""

    exit_code = ExitCode.USAGE


def collect(frame: DataFrame, *, stopped: Callable[[], bool], title: str = "tierctl") -> pa.Table:
    """Return the rows of `frame`; cancel the job as soon as `stopped()` is True. Raise JobFailedError.

    The job runs on another thread, so that this thread receives signals. Spark shows it with `title`.
    """
    job = _started(frame, title)
    try:
        return _awaited(job, partial(_cancel, frame.sparkSession), stopped)
    finally:
        if not job.done():
            _cancel(frame.sparkSession)


def _awaited(job: Future[pa.Table], cancel: Callable[[], None], stopped: Callable[[], bool]) -> pa.Table:
    deadline_s: float | None = None
    while not job.done():
        time.sleep(POLL_S)
        if not stopped():
            continue
        if deadline_s is None:
            deadline_s = time.monotonic() + CANCELLED_WAIT_S
        # Cancel in each round, because Spark can't cancel a job that has not begun yet.
        cancel()
        if time.monotonic() > deadline_s:
            raise JobStoppedError(f"the job was cancelled and has not ended within {CANCELLED_WAIT_S:.0f} s")
    error = job.exception()
    if error is None:
        return job.result()
    if not _is_of_spark(error):
        raise error
    if stopped():
        raise JobStoppedError("the job was cancelled, because the run was told to stop")
    found = engine_error(error, None)
    kind = ResultsTooLargeError if _RESULTS_MAX in str(error) else JobFailedError
    raise kind(found.message, hint=found.hint)


@contextmanager
def parallelism(session: SparkSession, tasks: int) -> Iterator[None]:
    """Let Spark split local rows into `tasks` tasks during the block, without a shuffle.

    Jobs that run side by side must have one task each: the setting belongs to the session.
    """
    if tasks <= 1:
        # A job with one row has one task, whatever the setting is.
        yield
        return
    before = session.conf.get(_PARALLELISM, None)
    session.conf.set(_PARALLELISM, str(tasks))
    try:
        yield
    finally:
        session.conf.unset(_PARALLELISM)
        if before is not None:
            session.conf.set(_PARALLELISM, before)


def _started(frame: DataFrame, title: str) -> Future[pa.Table]:
    def run() -> pa.Table:
        describe_jobs(frame.sparkSession, title)
        return frame.toArrow()

    return in_background(run, "spark-job")


def describe_jobs(session: SparkSession, title: str) -> None:
    """Let Spark show `title` with the jobs of this thread; their group is the title up to its first colon.

    SparkContext.cancelJobGroup ends the jobs of a group. On Spark Connect the group is a tag, with hyphens.
    """
    group = title.partition(":")[0]
    if is_connect(session):
        session.addTag(group.replace(" ", "-"))
    else:
        session.sparkContext.setJobGroup(group, title)


def _cancel(session: SparkSession) -> None:
    try:
        # All jobs of the session, because Spark 4.3 does not tag jobs that collect rows.
        session.interruptAll()
    except Exception as e:
        # The driver or the server may have ended, and the job with it.
        if not _is_of_spark(e):
            raise


def _is_of_spark(error: BaseException) -> TypeGuard[Exception]:
    """Return True if the job failed, or if its driver or server was lost."""
    return isinstance(error, Exception) and (is_spark(error) or isinstance(error, (OSError, EOFError)))


# Show how many tasks of a Spark job are done.
#
# with progress(session, "listing the store"):
#     frame.toArrow()
#
# The numbers come from the status tracker, or over Spark Connect from the server.

EVERY_S = 0.25


OnTasks = Callable[[int, int], None]
"""Receives how many tasks of the stages that have begun are done, and how many these have."""


@contextmanager
def progress(session: SparkSession, title: str) -> Iterator[None]:
    """Show a bar of tasks while the block runs jobs, if stderr is a terminal."""
    with task_bar(title) as show:
        if show is None:
            yield
            return
        with watched(session, show):
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
                    on_tasks(*_sum(stages.values()))

    thread = threading.Thread(target=poll, name="spark-progress", daemon=True)
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
            on_tasks(*_sum((stage.num_completed_tasks, stage.num_tasks) for stage in stages))

    handler: Any = on_progress
    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)


def _sum(stages: Iterable[tuple[int, int]]) -> tuple[int, int]:
    pairs = list(stages)
    return sum(done for done, _ in pairs), sum(total for _, total in pairs)


def no_check() -> None:
    """Accept every executor that can import tierctl."""


def _version_of(check: Callable[[], object]) -> str:
    """Return the version of tierctl on this executor, which can do the work that `check` asks for."""
    check()
    return tierctl.__version__


def _probed(check: Callable[[], Any], batches: Iterator[pa.RecordBatch]) -> Any:
    for _ in batches:
        pass
    return check()


def require_usable(found: InputResult[str]) -> None:
    """Raise the error of a probe, or UsageError for another version of tierctl."""
    if found.error is not None:
        raise with_host(found.error, found.host)
    if found.value != tierctl.__version__:
        raise UsageError(
            f"executor {found.host} has tierctl {found.value}, not {tierctl.__version__}",
            hint="install the same version, or none, on the executors",
        )


Input = TypeVar("Input")
Item = TypeVar("Item")
Result = TypeVar("Result")

_TASKS_PER_SLOT = 2
# Distributed items may take minutes each, so that a lost executor should lose few.
_SPREAD_PER_SLOT = 4
# With this number of rows Spark creates as many tasks as it can run at the same time.
_PROBE_ROWS = 1 << 12

Tasks = Sequence[Sequence[tuple[int, Input]]]
"""The inputs of each task, every input with its number."""


def _equal_cost(_input: object) -> int:
    return 1


def _never() -> bool:
    return False


def _no_transfers(_transfers: Transfers) -> None:
    pass


def _no_note(_text: str) -> None:
    pass


_SLOWNESS = {
    kernel.COMPILING: f"executors: {kernel.COMPILING}",
    kernel.WITHOUT_NUMBA: f"executors: {kernel.WITHOUT_NUMBA}: put it into their Python, or into the archive "
    "of submit (tierctl-spark(7))",
}
"""What the operator reads of the reasons why executors are slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputResult(Generic[Result]):
    """The result of one input: `value`, or the `error` that the function raised.

    `is_retried` is True if an earlier attempt may have processed the input, and may still be running.
    `processed_bytes` is what the function reported, `host` the executor's host name.
    """

    value: Result | None = None
    error: TierctlError | None = None
    is_retried: bool = False
    processed_bytes: int = 0
    host: str = ""


@dataclass(slots=True)
class Executors:
    """The executors of a Spark session.

    `on_transfers` receives the transfers of each task: its waits for limits, and its reads of tiers. Attempts
    that returned no result do not count. Spark shows jobs with the name of `command`. `on_note` receives
    lines of text for the operator, perhaps more than once.
    """

    session: SparkSession
    command: str = ""
    on_transfers: Callable[[Transfers], None] = _no_transfers
    on_note: Callable[[str], None] = _no_note
    _slots: int = field(default=0, init=False)

    @property
    def slots(self) -> int:
        """Return how many tasks run at a time, by a probe at the first call."""
        return self._slots or self.probe()

    def probe(self, check: Callable[[], None] = no_check, *, stopped: Callable[[], bool] = _never) -> int:
        """Call `check` on every executor, and return how many tasks run at a time.

        Raise the error of `check`, UsageError for an executor with another version of tierctl, and
        EngineError if the job fails or is cancelled because `stopped` returned True.
        """
        for each in self.probe_each(partial(_version_of, check), stopped=stopped):
            require_usable(each)
        return self._slots

    def probe_each(
        self, check: Callable[[], Result], *, stopped: Callable[[], bool] = _never
    ) -> list[InputResult[Result]]:
        """Return what `check` returned or raised on every executor, once for each task that runs at a time.

        Executors with another version of tierctl are included. Raise EngineError if the job fails or is
        cancelled because `stopped` returned True.
        """
        runner = SparkTask(opened=partial(plain, partial(_probed, check)), takes_rows=True)
        frame = self.session.range(_PROBE_ROWS)
        found = self._collect(runner, frame, stopped=stopped, title=None, what="checking executors")
        probes = list(input_results(found).values())
        self._slots = max(1, len(probes))
        return probes

    def titled(self, what: str) -> str:
        """Return the title of a job: the command, and what it does."""
        return f"{f'tierctl {self.command}'.strip()}: {what}"

    def rows(self, frame: DataFrame, *, title: str, what: str) -> list[dict[str, Any]]:
        """Return the rows of a small frame; a terminal shows `title`, and Spark the job as `what`."""
        with progress(self.session, title):
            rows: list[dict[str, Any]] = collect(frame, stopped=_never, title=self.titled(what)).to_pylist()
        return rows

    def run_on_rows(
        self, function: Callable[[Iterator[pa.RecordBatch]], Result], frame: DataFrame, *, title: str
    ) -> Iterator[Result]:
        """Yield the results of `function` for the rows of each task of `frame`, in the order of tasks.

        `function` is as that of `run`. Raise the error of the first task that failed, and EngineError.
        """
        runner = SparkTask(opened=partial(plain, function), takes_rows=True)
        found = self._collect(runner, frame, stopped=_never, title=title, what=title)
        for _number, result in sorted(input_results(found).items()):
            yield _value(result)

    def run(
        self,
        function: Callable[[Input], Result],
        inputs: Sequence[Input],
        *,
        cost: Callable[[Input], int] = _equal_cost,
        min_task_cost: int = 1,
        stopped: Callable[[], bool] = _never,
    ) -> Iterator[Result]:
        """Yield the result of `function` for each input, in the order of `inputs`.

        Spark may call `function` twice for an input, so it must only read. It must be importable by name, and
        its results must be of the classes that `task.loads` decodes. Inputs are combined into tasks of
        about equal cost, and of at least `min_task_cost`. Raise the TierctlError that `function` raised when
        its input is reached, and EngineError if the job fails or is cancelled because `stopped` returned
        True. All results are in memory before the first is yielded.
        """
        if not inputs:
            return
        tasks = self._tasks(inputs, [cost(each) for each in inputs], min_task_cost)
        runner = SparkTask(opened=partial(plain, function))
        results = self._run(runner, tasks, stopped=stopped, title="reading", what="reading")
        yield from _values(results, len(inputs))

    def run_spread(
        self,
        divide: Callable[[Input], Iterable[Item]],
        inputs: Sequence[Input],
        gather: Callable[[Iterator[Item]], Result],
        *,
        title: str,
    ) -> Iterator[Result]:
        """Yield the results of `gather`, in no order, each for some of the items that `divide` returns.

        Spark distributes the items of all inputs evenly: they go from one executor to another, and only the
        results come here. Both functions are as that of `run`; raise as `run`.
        """
        if not inputs:
            return
        function = partial(plain, partial(gathered, gather))
        runner = SparkTask(opened=function, takes_rows=True)
        tasks = self._tasks(inputs, [1] * len(inputs), 1)
        results = self._run(
            runner, tasks, stopped=_never, title=title, what=title, divide=DivideTask(function=divide)
        )
        for result in input_results(results).values():
            yield _value(result)

    def _tasks(self, inputs: Sequence[Input], costs: Sequence[int], min_task_cost: int) -> Tasks[Input]:
        count = min(len(inputs), -(-sum(costs) // min_task_cost))
        if count > 1:
            count = min(count, _TASKS_PER_SLOT * self.slots)
        tasks: list[list[tuple[int, Input]]] = [[] for _ in range(max(count, 1))]
        for number, task in enumerate(balanced(costs, len(tasks))):
            tasks[task].append((number, inputs[number]))
        return tasks

    def run_tasks(
        self,
        opened: Opened,
        tasks: Tasks[Any],
        *,
        stopped: Callable[[], bool],
        is_retried: bool,
        title: str | None,
        what: str,
    ) -> dict[int, InputResult[Any]]:
        """Run one Spark job with the given tasks, and return the results by the number of their input.

        An input without an entry has no known outcome. `is_retried` states that an earlier job may have
        processed the inputs. With `title` a terminal shows the progress of the tasks; Spark shows the job as
        `what`. Raise JobFailedError if the job fails, and JobStoppedError if it is cancelled because
        `stopped` returned True.
        """
        runner = SparkTask(opened=opened, is_retried=is_retried)
        return input_results(self._run(runner, tasks, stopped=stopped, title=title, what=what))

    def _run(
        self,
        runner: SparkTask,
        tasks: Tasks[Any],
        *,
        stopped: Callable[[], bool],
        title: str | None,
        what: str,
        divide: DivideTask | None = None,
    ) -> pa.Table:
        """Return the rows of RESULTS of one Spark job; with `divide`, `runner` receives what that yields."""
        rows = pa.table({TASKS: pa.array([pickle.dumps(task) for task in tasks], pa.binary())})
        with parallelism(self.session, len(tasks)):
            frame = self.session.createDataFrame(rows)
            if divide is not None:
                items = frame.mapInArrow(divide, f"{TASKS} BINARY")
                frame = items.repartition(_SPREAD_PER_SLOT * self.slots)
            return self._collect(runner, frame, stopped=stopped, title=title, what=what)

    def _collect(
        self,
        runner: SparkTask,
        frame: DataFrame,
        *,
        stopped: Callable[[], bool],
        title: str | None,
        what: str,
    ) -> pa.Table:
        """Return the rows of RESULTS that `runner` yields for the tasks of `frame`."""
        # Imported here, because a driver without PySpark also imports this module.
        from pyspark.sql.pandas.types import from_arrow_schema

        frame = frame.mapInArrow(runner, from_arrow_schema(RESULTS))
        with nullcontext() if title is None else progress(self.session, title):
            results = collect(frame, stopped=stopped, title=self.titled(what))
        self._report(results)
        return results

    def _report(self, results: pa.Table) -> None:
        """Report what the rows of RESULTS tell of the executors."""
        for transfers in results.column("transfers").drop_null().to_pylist():
            self.on_transfers(decoded(transfers, Transfers))
        self.note_slowness(results.column("slowness").unique().to_pylist())

    def note_slowness(self, reasons: Collection[str | None]) -> None:
        """Note why executors were slow, for each reason of `kernel` in `reasons`."""
        for why, text in _SLOWNESS.items():
            if why in reasons:
                self.on_note(text)


def grouped(
    inputs: Iterable[Input], cost: Callable[[Input], int], cost_per_group: int
) -> Iterator[list[Input]]:
    """Yield the inputs in order, as groups for one `run` each: it holds all results of its inputs in memory.

    A group ends with the input by which its cost reaches `cost_per_group`.
    """
    group: list[Input] = []
    total = 0
    for each in inputs:
        group.append(each)
        total += cost(each)
        if total >= cost_per_group:
            yield group
            group, total = [], 0
    if group:
        yield group


def balanced(costs: Sequence[int], tasks: int) -> list[int]:
    """Return a task for each input so that the tasks cost about the same.

    The most expensive inputs are assigned first, each to the task with the lowest cost so far.
    """
    load = [(0, task) for task in range(tasks)]
    heapify(load)
    chosen = [0] * len(costs)
    for number in sorted(range(len(costs)), key=lambda each: -costs[each]):
        cost, task = load[0]
        chosen[number] = task
        heapreplace(load, (cost + max(costs[number], 1), task))
    return chosen


def input_results(results: pa.Table) -> dict[int, InputResult[Any]]:
    """Return the results in `results`, rows of RESULTS, by the number of their input."""
    return {number: _input_result(results, rows) for number, rows in _rows_by_number(results).items()}


def _values(results: pa.Table, count: int) -> Iterator[Any]:
    """Yield the results of inputs 0 to `count` - 1; raise the error of the first one that failed."""
    rows = _rows_by_number(results)
    for number in range(count):
        if number not in rows:
            raise EngineError(f"Spark returned no result for input {number} of {count}")
        # Results are decoded one at a time, because all of them together may not fit in memory.
        yield _value(_input_result(results, rows[number]))


def _value(result: InputResult[Result]) -> Any:
    if result.error is not None:
        raise result.error
    return result.value


def _rows_by_number(results: pa.Table) -> dict[int, list[int]]:
    # The rows of one input are in order, but rows of other inputs may be between them.
    rows: dict[int, list[int]] = {}
    for row, number in enumerate(results.column("number").to_pylist()):
        rows.setdefault(number, []).append(row)
    return rows


def _input_result(results: pa.Table, rows: Sequence[int]) -> InputResult[Any]:
    def fact(name: str) -> Any:
        return results.column(name)[rows[0]].as_py()

    data = b"".join(results.column("data")[row].as_py() for row in rows)
    value, error = decoded_outcome(data, is_error=fact("is_error"))
    return InputResult(
        value=value,
        error=error,
        is_retried=fact("is_retried"),
        processed_bytes=fact("processed_bytes"),
        host=fact("host"),
    )
