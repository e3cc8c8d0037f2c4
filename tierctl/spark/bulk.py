"""Pieces of work done on executors by a plain function, with what comes of each in the order of the pieces.

    for result in Executors(spark).run(check, pieces): ...

Written on DataFrames only, so that it runs on Spark Connect as well.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from tierctl.errors import EngineError, TierctlError
from tierctl.spark.carry import dumps, loads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Work = TypeVar("Work")
Result = TypeVar("Result")
Do = Callable[[Work], Result]

SLICE_BYTES = 8 << 20
"""What comes of a piece travels in rows of so many bytes: neither side holds a large piece twice."""

_WORK = pa.schema([("slot", pa.int32()), ("number", pa.int32()), ("work", pa.binary())])
_RESULT = pa.schema([("number", pa.int32()), ("is_error", pa.bool_()), ("data", pa.binary())])
_RESULT_DDL = "number int, is_error boolean, data binary"
_TASKS_A_CORE = 2


def _cost_of_one(_work: object) -> int:
    return 1


@dataclass(slots=True)
class Executors:
    """A session's executors; `tasks_max` (default: twice its cores) is how many tasks a job has at most."""

    spark: "SparkSession"
    tasks_max: int | None = None
    _cores: int = field(default=0, init=False)

    @property
    def cores(self) -> int:
        """How many tasks run at a time, as Spark counts them when first asked."""
        if not self._cores:
            self._cores = self.spark.range(1 << 20).mapInArrow(_one_row, "n int").count()
        return self._cores

    def run(
        self,
        do: Do[Work, Result],
        pieces: Sequence[Work],
        *,
        cost: Callable[[Work], int] = _cost_of_one,
        least_cost: int = 1,
    ) -> Iterator[Result]:
        """What `do`, a function that a module has by name, makes of each piece; both are pickled.

        A task does several pieces, `least_cost` together at least, so that none takes much longer than
        another. A TierctlError of `do` is raised here, when its piece's turn comes. EngineError when the job
        fails. All results are held until the last is there.
        """
        if not pieces:
            return
        costs = [cost(piece) for piece in pieces]
        tasks_max = self.tasks_max or _TASKS_A_CORE * self.cores
        tasks = max(1, min(len(pieces), tasks_max, sum(costs) // max(least_cost, 1)))
        slots = spread(costs, tasks)
        table = pa.table(
            [
                pa.array(slots, pa.int32()),
                pa.array(range(len(pieces)), pa.int32()),
                pa.array([dumps(piece) for piece in pieces], pa.binary()),
            ],
            schema=_WORK,
        )
        yield from _in_order(_collected(self.spark, table, tasks, do), len(pieces))


def spread(costs: Sequence[int], slots: int) -> list[int]:
    """A slot for each piece so that the slots cost about the same: the dearest first, to the idlest."""
    load = [(0, slot) for slot in range(slots)]
    heapify(load)
    chosen = [0] * len(costs)
    for piece in sorted(range(len(costs)), key=lambda i: -costs[i]):
        cost, slot = load[0]
        chosen[piece] = slot
        heapreplace(load, (cost + max(costs[piece], 1), slot))
    return chosen


def _collected(spark: "SparkSession", table: pa.Table, tasks: int, do: Do[Work, Result]) -> pa.Table:
    from pyspark.errors import PySparkException

    job = _Job(do)
    try:
        work = _cut(spark.createDataFrame(table), tasks)
        return work.mapInArrow(job, _RESULT_DDL).toArrow()
    except PySparkException as e:
        raise EngineError(
            f"a job of Spark failed: {_first_line(e)}",
            hint="-v shows Spark's own log; running again may help",
        ) from e


def _cut(work: "DataFrame", tasks: int) -> "DataFrame":
    if tasks == 1:
        return work.coalesce(1)
    return work.repartitionById(tasks, work.slot)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # What a Python worker raised stands at the end of its traceback, in the middle of the text.
    own = [line for line in lines if line.startswith(("tierctl.", "pyarrow.", "OSError", "MemoryError"))]
    return (own or lines or [type(error).__name__])[0][:500]


class _Job(Generic[Work, Result]):
    """What an executor runs: rows of work in, rows of results out."""

    def __init__(self, do: Do[Work, Result]) -> None:
        self._do = do

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers, work = batch.column("number").to_pylist(), batch.column("work")
            for row, number in enumerate(numbers):
                yield from self._done(number, pickle.loads(work[row].as_py()))

    def _done(self, number: int, piece: Work) -> Iterator[pa.RecordBatch]:
        try:
            is_error, data = False, dumps(self._do(piece))
        except TierctlError as e:
            is_error, data = True, dumps(e)
        for at in range(0, len(data), SLICE_BYTES):
            part = data[at : at + SLICE_BYTES]
            yield pa.RecordBatch.from_pydict(
                {"number": [number], "is_error": [is_error], "data": [part]}, schema=_RESULT
            )


def _in_order(results: pa.Table, count: int) -> Iterator[Result]:
    """The pieces' results; a piece's rows follow each other."""
    rows: list[list[int]] = [[] for _ in range(count)]
    for row, number in enumerate(results.column("number").to_pylist()):
        rows[number].append(row)
    errors, data = results.column("is_error"), results.column("data")
    for number, own in enumerate(rows):
        if not own:
            raise EngineError(f"Spark gave no result for piece {number} of {count}")
        found = loads(b"".join(data[row].as_py() for row in own))
        if errors[own[0]].as_py():
            raise found
        yield found


def _one_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int32())})
