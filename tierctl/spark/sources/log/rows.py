"""Convert the records of a task into rows for Spark; in PERMISSIVE mode errors are rows as well."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import TierctlError
from tierctl.read.parallel.task import ReadTask, read_task
from tierctl.spark.executors.resources import shared_tier
from tierctl.spark.sources.log.options import Mode
from tierctl.spark.sources.predicates import Predicate, mask_of
from tierctl.storage.open import TierSpec
from tierctl.wire.batches import record_columns

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        *list(record_columns.SCHEMA)[1:],
    ]
)
"""The columns of a record as a consumer sees it.

`timestamp` is `timestamp_ms` as a timestamp of Spark: null if the record has none, or if it is out of range.
"""
ERROR = "error"
PERMISSIVE_SCHEMA = SCHEMA.append(pa.field(ERROR, pa.string()))
PARTITION_COLUMNS = frozenset({"topic", "topic_id", "partition"})
POSITION_COLUMNS = frozenset({"offset", "timestamp", "timestamp_ms"})

_TIMESTAMP_MS_MAX = ((1 << 63) - 1) // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTask:
    """The records that one task of Spark reads, and the rows and columns that it returns.

    With `read` None, the task only returns `problems`, which were found while the tasks were planned.
    """

    spec: TierSpec
    columns: tuple[str, ...]
    read: ReadTask | None = None
    predicates: tuple[Predicate, ...] = ()
    mode: Mode = Mode.FAILFAST
    problems: tuple[TierctlError, ...] = ()


def schema_of(mode: Mode) -> pa.Schema:
    """Return all columns of the data source in `mode`."""
    return PERMISSIVE_SCHEMA if mode is Mode.PERMISSIVE else SCHEMA


def rows_of(task: LogTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task; in FAILFAST mode raise the first error that makes a record unreadable."""
    errors = _Errors(task)
    for problem in task.problems:
        errors.report(problem)
    yield from errors.rows()
    if task.read is None:
        return
    remote = shared_tier(task.spec)
    for found in read_task(task.read, remote, report=errors.report, report_lost=errors.lose):
        yield from errors.rows()
        yield from _rows(task, found)
    yield from errors.rows()


def warn(message: str) -> None:
    """Print `message` to stderr of the process that runs the task: no record is lost, so the job goes on."""
    print(f"tierctl: {message}", file=sys.stderr)


class _Errors:
    """Collects errors of reading: they become rows in PERMISSIVE mode, or end the task in FAILFAST mode."""

    def __init__(self, task: LogTask) -> None:
        self._task = task
        self._found: list[tuple[str, int | None]] = []

    def report(self, error: TierctlError) -> None:
        """Add an error that makes no record unreadable."""
        if self._task.mode is Mode.FAILFAST:
            warn(error.message)
        else:
            self._found.append((error.message, None))

    def lose(self, error: TierctlError, first: int, last: int) -> None:
        """Add an error that may make the offsets [first, last] unreadable."""
        lost = f"offsets {first} to {last} may be lost there"
        if self._task.mode is Mode.FAILFAST:
            error.add_note(f"{lost}; with option mode=PERMISSIVE all others are read")
            raise error
        self._found.append((f"{error.message}; {lost}", first))

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield one row per error found since the last call; `offset` is the first that may be missing."""
        found, self._found = self._found, []
        if not found:
            return
        partition = self._task.read.topic_id_partition if self._task.read else None
        rows = [
            {
                "topic": partition and partition.topic,
                "topic_id": partition and partition.topic_id,
                "partition": partition and partition.partition,
                "offset": offset,
                ERROR: text,
            }
            for text, offset in found
        ]
        table = pa.RecordBatch.from_pylist(rows, schema=PERMISSIVE_SCHEMA)
        # Conditions on positions were applied when the tasks were planned.
        predicates = [each for each in self._task.predicates if each.column not in POSITION_COLUMNS]
        yield from _selected(self._task, table.column, predicates)


def _rows(task: LogTask, found: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    made: dict[str, pa.Array] = {}

    def column(name: str) -> pa.Array:
        if name not in made:
            made[name] = _made(task, name, found)
        return made[name]

    yield from _selected(task, column, task.predicates)


def _made(task: LogTask, name: str, found: pa.RecordBatch) -> pa.Array:
    if name in PARTITION_COLUMNS and task.read is not None:
        return pa.repeat(
            pa.scalar(getattr(task.read.topic_id_partition, name), SCHEMA.field(name).type), found.num_rows
        )
    match name:
        case "timestamp":
            return _timestamps(found.column("timestamp_ms"))
        case "error":
            return pa.nulls(found.num_rows, pa.string())
        case _:
            return found.column(name)


def _timestamps(milliseconds: pa.Array) -> pa.Array:
    there = pc.and_(pc.greater_equal(milliseconds, 0), pc.less_equal(milliseconds, _TIMESTAMP_MS_MAX))
    known = pc.if_else(there, milliseconds, pa.scalar(None, pa.int64()))
    return known.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def _selected(
    task: LogTask, column: Callable[[str], pa.Array], predicates: Sequence[Predicate]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows for which all predicates are true, with the columns of the task."""
    mask = mask_of(predicates, column)
    if mask is not None and not mask.true_count:
        return
    schema = pa.schema([PERMISSIVE_SCHEMA.field(name) for name in task.columns])
    batch = pa.RecordBatch.from_arrays([column(name) for name in task.columns], schema=schema)
    yield batch if mask is None else batch.filter(mask)
