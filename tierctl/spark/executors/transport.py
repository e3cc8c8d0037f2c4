"""Pieces of reading done on executors by a plain function; what comes of each, in the order of the pieces.

    for result in Executors(spark).run(check, pieces): ...

Written on DataFrames only, so that it runs on Spark Connect as well.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tierctl.errors import EngineError, TierctlError
from tierctl.spark.executors.jobs import collect, parallelism
from tierctl.spark.executors.progress import progress
from tierctl.spark.executors.serialization import dumps, loads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = TypeVar("Work")
Result = TypeVar("Result")

SLICE_BYTES = 8 << 20
"""What comes of a piece travels in rows of so many bytes, however large it is."""

_TASKS_A_SLOT = 2
_ROWS_TO_COUNT = 1 << 12
_RESULT = pa.schema([("number", pa.int32()), ("is_error", pa.bool_()), ("data", pa.binary())])
_RESULT_DDL = "number INT, is_error BOOLEAN, data BINARY"


def _alike(_work: object) -> int:
    return 1


def _never() -> bool:
    return False


@dataclass(slots=True)
class Executors:
    """A session's executors, for reading: what they do may be done twice, and changes nothing.

    `tasks_max` is how many tasks a job has at most; default: twice as many as run at a time.
    """

    session: "SparkSession"
    tasks_max: int | None = None
    _slots: int = field(default=0, init=False)

    @property
    def slots(self) -> int:
        """How many tasks run at a time, as far as Spark says when it is first asked."""
        if not self._slots:
            rows = self.session.range(_ROWS_TO_COUNT).mapInArrow(_one_row, "n INT")
            self._slots = max(1, collect(rows, stopped=_never).num_rows)
        return self._slots

    def run(
        self,
        do: Callable[[Work], Result],
        pieces: Sequence[Work],
        *,
        cost: Callable[[Work], int] = _alike,
        least_cost: int = 1,
        stopped: Callable[[], bool] = _never,
    ) -> Iterator[Result]:
        """What `do` makes of each piece; both are pickled, so `do` is a function that a module has by name.

        A task does several pieces, which cost `least_cost` together at least, and all cost about the same.
        What `do` returns is facts only, see `carry`; a TierctlError it raises is raised here when its piece's
        turn comes. EngineError when the job fails, or is cancelled since `stopped` says so. All results are
        held until the last is there.
        """
        if not pieces:
            return
        costs = [cost(piece) for piece in pieces]
        tasks = min(len(pieces), -(-sum(costs) // least_cost))
        if tasks > 1:
            tasks = min(tasks, self.tasks_max or _TASKS_A_SLOT * self.slots)
        work: list[list[tuple[int, Work]]] = [[] for _ in range(max(tasks, 1))]
        for number, slot in enumerate(spread(costs, len(work))):
            work[slot].append((number, pieces[number]))
        rows = pa.table({"work": pa.array([pickle.dumps(each) for each in work], pa.binary())})
        with parallelism(self.session, len(work)), progress(self.session, "reading"):
            frame = self.session.createDataFrame(rows).mapInArrow(_Job(do), _RESULT_DDL)
            results = collect(frame, stopped=stopped)
        yield from _in_order(results, len(pieces))


def spread(costs: Sequence[int], slots: int) -> list[int]:
    """A slot for each piece so that the slots cost about the same: the dearest first, to the idlest."""
    load = [(0, slot) for slot in range(slots)]
    heapify(load)
    chosen = [0] * len(costs)
    for piece in sorted(range(len(costs)), key=lambda number: -costs[number]):
        cost, slot = load[0]
        chosen[piece] = slot
        heapreplace(load, (cost + max(costs[piece], 1), slot))
    return chosen


@dataclass(frozen=True, slots=True)
class _Job:
    """What an executor runs: rows of work in, rows of results out."""

    do: Callable[..., object]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.column("work"):
                for number, piece in pickle.loads(row.as_py()):
                    yield from self._done(number, piece)

    def _done(self, number: int, piece: object) -> Iterator[pa.RecordBatch]:
        try:
            is_error, data = False, dumps(self.do(piece))
        except TierctlError as e:
            is_error, data = True, dumps(e)
        for at in range(0, len(data), SLICE_BYTES):
            part = data[at : at + SLICE_BYTES]
            yield pa.RecordBatch.from_pydict(
                {"number": [number], "is_error": [is_error], "data": [part]}, schema=_RESULT
            )


def _in_order(results: pa.Table, count: int) -> Iterator[Result]:
    """The pieces' results; the rows of one follow each other."""
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
