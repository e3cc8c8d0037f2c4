"""Convert metadata records into rows for Spark: one row per event, and one per range that is unreadable."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.metadata.topic import MetadataSplit, read_chunks
from tierctl.report.formatters.column_texts import id_text
from tierctl.spark.sources.metadata.splits import EventSplit, EventTask
from tierctl.spark.sources.predicates import Predicate, mask_of
from tierctl.wire.batches.chunks import DamagedRange, RecordChunk, joined
from tierctl.wire.metadata.arrow_types import EVENT_SCHEMA, UuidType
from tierctl.wire.metadata.decode_columns import KnownLayouts, decode_column
from tierctl.wire.metadata.schema import FIELD_NAMES

EPOCH = pa.struct([("leader_epoch", pa.int32()), ("offset", pa.int64())])


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column of decoded events has in Spark."""
    if isinstance(kind, UuidType) or pa.types.is_dictionary(kind):
        return pa.string()
    return pa.list_(pa.field("element", EPOCH)) if pa.types.is_list(kind) else kind


SCHEMA = pa.schema(
    [
        ("metadata_partition", pa.int32()),
        ("metadata_offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        *((name, _spark_type(EVENT_SCHEMA.field(name).type)) for name in FIELD_NAMES),
        ("dialect", pa.string()),
        ("error", pa.string()),
        ("value", pa.binary()),
        ("next_offset", pa.int64()),
        ("is_gap", pa.bool_()),
    ]
)
"""The columns of the data source.

A record that decodes has null in `error` and `value`; a tombstone also has null in `type`. A record that does
not decode has an `error`, and its bytes in `value`. A row without a record has the `error` of the offsets
[`metadata_offset`, `next_offset`), which could not be read; `is_gap` is true if these have no bytes at all.
In other rows `next_offset` is null. `timestamp` is `timestamp_ms` as a timestamp of Spark, or null without
one.
"""
_POSITION = frozenset({"metadata_partition", "metadata_offset", "timestamp_ms", "timestamp"})
# How many rows of a task the JVM has in memory at a time.
_BATCH_ROWS = 20_000
# The last millisecond of the year 9999, after which Python has no datetime.
_LAST_TIME_MS = 253_402_300_799_999


def read_task(task: EventTask | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of SCHEMA for which the predicates of their split are true; raises as `read_chunks`.

    `task` is None in the empty task that Spark creates if there is no other.
    """
    known = KnownLayouts()
    for split in task or ():
        for chunk in joined(read_chunks(split)):
            batch = batch_of(chunk, split, known=known)
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.slice(start, _BATCH_ROWS)


def batch_of(
    chunk: RecordChunk,
    split: EventSplit,
    events: pa.Table | None = None,
    *,
    known: KnownLayouts | None = None,
) -> pa.RecordBatch:
    """Return the rows of a chunk of the split, in the order of offsets.

    `events` are the decoded values of the whole chunk, if the caller has decoded them already; otherwise
    `known` are the byte layouts that earlier chunks taught.
    """
    predicates = split.predicates
    rows = _Rows.of_chunk(chunk)
    # Rows that conditions on offset or time exclude need not be decoded.
    rows = rows.where([p for p in predicates if p.column in _POSITION])
    ranges = _ranges(chunk, split)
    names = split.columns or SCHEMA.names
    needed = SCHEMA.names if ranges else [*names, *(p.column for p in predicates)]
    rows = rows.decoded(needed, known) if events is None else replace(rows, events=events.combine_chunks())
    rows = rows.where([p for p in predicates if p.column not in _POSITION])
    if not ranges:
        return rows.batch(names)
    lost = _lost(chunk.partition, ranges)
    mask = mask_of(predicates, lost.column)
    both = pa.concat_batches([rows.batch(SCHEMA.names), lost if mask is None else lost.filter(mask)])
    return both.take(pc.sort_indices(both, sort_keys=[("metadata_offset", "ascending")])).select(names)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The records of a chunk as columns; `events` are the decoded values, None until they are decoded."""

    metadata_partition: int
    offsets: pa.Array
    timestamps_ms: pa.Array
    values: pa.Array
    events: Any = None

    @classmethod
    def of_chunk(cls, chunk: RecordChunk) -> Self:
        offsets, timestamps_ms = pa.array(chunk.offsets), pa.array(chunk.timestamps_ms)
        return cls(chunk.partition, offsets, timestamps_ms, chunk.values)

    def decoded(self, names: Collection[str], known: KnownLayouts | None) -> Self:
        """Return the rows with the events' columns that the columns `names` of SCHEMA need."""
        needed = {*names, "error"} if "value" in names else set(names)
        columns = [name for name in EVENT_SCHEMA.names if name in needed]
        if not columns:
            return self
        return replace(self, events=decode_column(self.values, known, columns=columns).combine_chunks())

    def where(self, predicates: Sequence[Predicate]) -> Self:
        mask = mask_of(predicates, self.column)
        if mask is None or pc.all(mask).as_py():
            return self
        return type(self)(
            self.metadata_partition,
            self.offsets.filter(mask),
            self.timestamps_ms.filter(mask),
            self.values.filter(mask),
            None if self.events is None else self.events.filter(mask).combine_chunks(),
        )

    def batch(self, names: Sequence[str]) -> pa.RecordBatch:
        """Return the columns `names`, in this order."""
        arrays = [self.column(name) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(name) for name in names]))

    def column(self, name: str) -> pa.Array:
        """Return a column of SCHEMA."""
        return _MAKERS[name](self) if name in _MAKERS else _plain(self.event_column(name))

    def event_column(self, name: str) -> pa.Array:
        column = self.events.column(name)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def repeated(self, value: Any, name: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, SCHEMA.field(name).type), len(self.offsets))

    def bad_values(self) -> pa.Array:
        is_bad = self.event_column("error").is_valid()
        return pc.if_else(is_bad, self.values, None)


_MAKERS: dict[str, Callable[[_Rows], pa.Array]] = {
    "metadata_partition": lambda rows: rows.repeated(rows.metadata_partition, "metadata_partition"),
    "metadata_offset": lambda rows: rows.offsets,
    "timestamp_ms": lambda rows: rows.timestamps_ms,
    "timestamp": lambda rows: _timestamp(rows.timestamps_ms),
    "value": _Rows.bad_values,
    "next_offset": lambda rows: rows.repeated(None, "next_offset"),
    "is_gap": lambda rows: rows.repeated(False, "is_gap"),
}


def _plain(column: pa.Array) -> pa.Array:
    """Convert a column of decoded events into a type that Spark has."""
    if isinstance(column.type, UuidType):
        text = id_text(column)
        return pc.if_else(column.is_valid(), text, None) if column.null_count else text
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return _epochs(column) if pa.types.is_list(column.type) else column


def _epochs(column: pa.Array) -> pa.Array:
    """Convert lists of [epoch, offset] into lists of structs."""
    numbers = column.flatten().flatten().to_numpy()
    epochs = pa.array(numbers[0::2].astype(np.int32))
    pairs = pa.StructArray.from_arrays([epochs, pa.array(numbers[1::2])], fields=list(EPOCH))
    starts = column.offsets.to_numpy()
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(
        pa.array(starts - starts[0]), pairs, type=SCHEMA.field("segment_leader_epochs").type, mask=mask
    )


def _timestamp(timestamps_ms: pa.Array) -> pa.Array:
    """Convert into timestamps of Spark; null for a missing timestamp and for one after the year 9999."""
    is_time = pc.and_(pc.greater_equal(timestamps_ms, 0), pc.less_equal(timestamps_ms, _LAST_TIME_MS))
    return (
        pc.if_else(is_time, timestamps_ms, None)
        .cast(pa.timestamp("ms", "UTC"))
        .cast(pa.timestamp("us", "UTC"))
    )


def _ranges(chunk: RecordChunk, split: MetadataSplit) -> list[DamagedRange]:
    """Return the damaged ranges that begin in the split, so that only one task reports each of them."""
    return [bad for bad in chunk.damage if split.start_offset <= bad.offset < split.end_offset]


def _lost(metadata_partition: int, ranges: Sequence[DamagedRange]) -> pa.RecordBatch:
    columns = {
        "metadata_partition": [metadata_partition] * len(ranges),
        "metadata_offset": [bad.offset for bad in ranges],
        "error": [str(bad) for bad in ranges],
        "next_offset": [bad.next_offset for bad in ranges],
        "is_gap": [bad.is_gap for bad in ranges],
    }
    arrays = [pa.array(columns.get(field.name, [None] * len(ranges)), field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
