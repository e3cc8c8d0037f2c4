"""The one way to send work to executors: a function and its inputs go out, results or errors come back.

    for result in Executors(spark).run(check, inputs): ...

`run` is for functions that only read. Side effects use `run_tasks`, which also tells which inputs an earlier
attempt may have processed. Only the DataFrame API is used, so that it works over Spark Connect as well.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from tierctl.errors import EngineError, TierctlError
from tierctl.spark.executors.jobs import collect, parallelism
from tierctl.spark.executors.probe import (
    PROBES_DDL,
    Probed,
    ProbeExecutor,
    no_check,
    probed,
    require_usable,
)
from tierctl.spark.executors.progress import progress
from tierctl.spark.executors.serialization import decoded_outcome, decoded_transfers
from tierctl.spark.executors.shuffle import PIECES_DDL, SHARE, Combine, CombineTask, Divide, DivideTask
from tierctl.spark.executors.task import RESULTS_DDL, TASKS, PlainFunction, SparkTask, TaskFunction
from tierctl.storage.observed import Transfers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Input = TypeVar("Input")
Result = TypeVar("Result")

_TASKS_PER_SLOT = 2
# With this number of rows Spark creates as many tasks as it can run at the same time.
_PROBE_ROWS = 1 << 12

Stages = Callable[["DataFrame"], "DataFrame"]
"""The work of a job: from the rows of its tasks to rows of RESULTS."""

Tasks = Sequence[Sequence[tuple[int, Input]]]
"""The inputs of each task, every input with its number."""


def _equal_cost(_input: object) -> int:
    return 1


def _never() -> bool:
    return False


def _no_transfers(_transfers: Transfers) -> None:
    pass


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

    `tasks_max` limits the tasks of one `run`; the default is twice the number that run at a time.
    `on_transfers` receives the transfers of each task: its waits for limits and, with `measures`, its reads
    of tiers. Attempts that returned no result do not count.
    """

    session: SparkSession
    tasks_max: int | None = None
    measures: bool = False
    on_transfers: Callable[[Transfers], None] = _no_transfers
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
        for each in self.probe_each(check, stopped=stopped):
            require_usable(each)
        return self._slots

    def probe_each(
        self, check: Callable[[], Result], *, stopped: Callable[[], bool] = _never
    ) -> list[Probed[Result]]:
        """Return what `check` returned or raised on every executor, once for each task that runs at a time.

        Executors with another version of tierctl are included. Raise EngineError if the job fails or is
        cancelled because `stopped` returned True.
        """
        frame = self.session.range(_PROBE_ROWS).mapInArrow(ProbeExecutor(check), PROBES_DDL)
        probes = [probed(row) for row in collect(frame, stopped=stopped).to_pylist()]
        self._slots = max(1, len(probes))
        return probes

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
        its results must be of the classes that `serialization` decodes. Inputs are combined into tasks of
        about equal cost, and of at least `min_task_cost`. Raise the TierctlError that `function` raised when
        its input is reached, and EngineError if the job fails or is cancelled because `stopped` returned
        True. All results are in memory before the first is yielded.
        """
        if not inputs:
            return
        tasks = self._tasks(inputs, [cost(each) for each in inputs], min_task_cost)
        runner = SparkTask(function=PlainFunction(function), measures=self.measures)
        results = self._collect(_one_stage(runner), tasks, stopped=stopped, title="reading")
        yield from _values(results, len(inputs))

    def run_shuffled(
        self,
        divide: Divide,
        inputs: Sequence[Any],
        combine: Callable[[Iterator[bytes]], Result],
        *,
        shares: int,
        cost: Callable[[Any], int] = _equal_cost,
    ) -> Iterator[Result]:
        """Yield the result of `combine` for each of `shares` shares, into which `divide` divides all inputs.

        Every share must get a piece. All else is as for `run`, for both functions.
        """
        tasks = self._tasks(inputs, [cost(each) for each in inputs], 1)
        results = self._collect(
            partial(_two_stages, divide, combine, shares), tasks, stopped=_never, title="reading"
        )
        yield from _values(results, shares)

    def _tasks(self, inputs: Sequence[Input], costs: Sequence[int], min_task_cost: int) -> Tasks[Input]:
        count = min(len(inputs), -(-sum(costs) // min_task_cost))
        if count > 1:
            count = min(count, self.tasks_max or _TASKS_PER_SLOT * self.slots)
        tasks: list[list[tuple[int, Input]]] = [[] for _ in range(max(count, 1))]
        for number, task in enumerate(balanced(costs, len(tasks))):
            tasks[task].append((number, inputs[number]))
        return tasks

    def run_tasks(
        self,
        function: TaskFunction[Input, Result],
        tasks: Tasks[Input],
        *,
        stopped: Callable[[], bool] = _never,
        is_retried: bool = False,
        title: str | None = None,
    ) -> dict[int, InputResult[Result]]:
        """Run one Spark job with the given tasks, and return the results by the number of their input.

        An input without an entry has no known outcome. `is_retried` states that an earlier job may have
        processed the inputs. With `title` a terminal shows the progress of the tasks. Raise JobFailedError if
        the job fails, and JobStoppedError if it is cancelled because `stopped` returned True.
        """
        runner = SparkTask(function=function, is_retried=is_retried, measures=self.measures)
        results = self._collect(_one_stage(runner), tasks, stopped=stopped, title=title)
        return input_results(results)

    def _collect(
        self, work: Stages, tasks: Tasks[Any], *, stopped: Callable[[], bool], title: str | None
    ) -> pa.Table:
        """Return the rows of RESULTS of one Spark job."""
        rows = pa.table({TASKS: pa.array([pickle.dumps(task) for task in tasks], pa.binary())})
        bar = nullcontext() if title is None else progress(self.session, title)
        with parallelism(self.session, len(tasks)), bar:
            results = collect(work(self.session.createDataFrame(rows)), stopped=stopped)
        for transfers in results.column("transfers").drop_null().to_pylist():
            self.on_transfers(decoded_transfers(transfers))
        return results


def _one_stage(runner: SparkTask) -> Stages:
    return lambda tasks: tasks.mapInArrow(runner, RESULTS_DDL)


def _two_stages(divide: Divide, combine: Combine, shares: int, tasks: DataFrame) -> DataFrame:
    pieces = tasks.mapInArrow(DivideTask(divide), PIECES_DDL)
    return pieces.repartitionById(shares, SHARE).mapInArrow(CombineTask(combine), RESULTS_DDL)


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
        result = _input_result(results, rows[number])
        if result.error is not None:
            raise result.error
        yield result.value


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
