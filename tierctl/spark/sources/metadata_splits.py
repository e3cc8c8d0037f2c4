"""Filters that Spark pushes down to the data sources, and the columns and windows that they leave to read.

Read the metadata topic for its data source: splits, pruning by offsets and partitions, rows as Arrow batches.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import product
from math import ceil
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import UsageError
from tierctl.kernel import expect
from tierctl.metadata.parallel_fold import misplaced
from tierctl.metadata.topic import MetadataSplit, MetadataTopic, open_topic, read_chunks
from tierctl.metadata.topic.open_topic import RECORDS_PER_SPLIT, TASKS_MAX
from tierctl.model import Uuid
from tierctl.model.location import TopicLocation
from tierctl.model.times import TIME_MS_MAX
from tierctl.report.formatters.templates import id_text
from tierctl.state.fold_kernels import numbered
from tierctl.state.table import SegmentTable
from tierctl.wire.arrays import array_of
from tierctl.wire.batches.segment_file import DamagedRange, RecordChunk
from tierctl.wire.metadata.decode import decode_values
from tierctl.wire.metadata.schema import FIELD_NAMES
from tierctl.wire.metadata.values import EVENT_SCHEMA, metadata_partition

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Predicate:
    """The condition `column operator value`, or its negation.

    `operator` is one of = < <= > >= in `is null`. `value` is a tuple without None for `in`, and None for
    `is null`.
    """

    column: str
    operator: str
    value: Any = None
    is_negated: bool = False

    def negated(self) -> Self:
        """Return the negation; it is unknown (null) for the same rows."""
        return replace(self, is_negated=not self.is_negated)

    def mask(self, column: pa.Array) -> pa.Array:
        """Return true, false or null (unknown) for each row of `column`."""
        if pa.types.is_integer(column.type):
            # The value may exceed the range of the column's type.
            column = column.cast(pa.int64())
        if self.operator == "is null":
            found = pc.is_null(column)
        elif self.operator == "in":
            among = pc.is_in(column, value_set=pa.array(self.value, column.type))
            found = pc.if_else(pc.is_valid(column), among, None)
        else:
            found = _COMPARE[self.operator](column, pa.scalar(self.value, column.type))
        return pc.invert(found) if self.is_negated else found


def mask_of(predicates: Sequence[Predicate], column: Callable[[str], pa.Array]) -> pa.Array | None:
    """Return a mask of the rows for which all predicates are true; None without predicates.

    `column` returns the column of a name.
    """
    masks = [predicate.mask(column(predicate.column)) for predicate in predicates]
    return pc.fill_null(reduce(pc.and_kleene, masks), False) if masks else None


_END = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Window:
    """Inclusive bounds of the offsets and timestamps for which predicates can be true."""

    offsets: tuple[int, int]
    first_ms: int | None
    last_ms: int | None

    @classmethod
    def of(cls, predicates: Sequence[Predicate], offset_column: str) -> Self:
        """Return the bounds of `predicates` on `offset_column`, `timestamp` and `timestamp_ms`.

        Rows outside the bounds cannot satisfy the predicates; rows inside may not satisfy them either.
        """
        first_ms, last_ms = _bounds(predicates, "timestamp_ms", int)
        first_us, last_us = _bounds(predicates, "timestamp", _microseconds)
        first = max(first_ms, -(-first_us // 1000))
        last = min(last_ms, last_us // 1000)
        return cls(
            offsets=_bounds(predicates, offset_column, int),
            first_ms=min(first, _END) if first > -(_END // 1000) else None,
            last_ms=last if last < _END // 1000 else None,
        )


def _bounds(predicates: Iterable[Predicate], column: str, number: Callable[[Any], int]) -> tuple[int, int]:
    low, high = -_END, _END
    for each in predicates:
        if each.column != column or each.is_negated:
            continue
        match each.operator:
            case "=" | ">" | ">=":
                low = max(low, number(each.value) + (each.operator == ">"))
            case "in":
                low = max(low, min(map(number, each.value)))
        match each.operator:
            case "=" | "<" | "<=":
                high = min(high, number(each.value) - (each.operator == "<"))
            case "in":
                high = min(high, max(map(number, each.value)))
    return low, high


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


_TRIED_PARTITIONS = 8
_TRIED_RECORDS = 100


def wanted_partitions(
    topic: MetadataTopic,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    predicates: Collection[Predicate],
) -> list[int]:
    """Return the metadata partitions in which brokers look for the events for which `predicates` are true."""
    numbers = _by_number(predicates, sorted(ends))
    by_id = _by_id(predicates, topic.partition_count)
    if by_id is None or not are_in_place(topic, begins, ends):
        return numbers
    return [number for number in numbers if number in by_id]


def are_in_place(topic: MetadataTopic, begins: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """Return True if events are in the metadata partition that the partition count assigns.

    Only the first events of some partitions are checked. Events are elsewhere if the partition count was
    changed, or if a folder contains only some of the partitions.
    """
    filled = [number for number in sorted(ends) if begins[number] < ends[number]]
    for number in filled[:: len(filled) // _TRIED_PARTITIONS + 1]:
        begin = begins[number]
        for chunk in topic.read(number, begin, min(begin + _TRIED_RECORDS, ends[number])):
            table = SegmentTable()
            numbered(table, decode_values(chunk.slices))
            if len(misplaced(table, range(len(table.partitions)), number, topic.partition_count)):
                return False
    return True


def _by_number(predicates: Iterable[Predicate], numbers: Sequence[int]) -> list[int]:
    """Return the metadata partitions that satisfy the conditions on `metadata_partition`."""
    conditions = [p for p in predicates if p.column == "metadata_partition"]
    column = pa.array(numbers, pa.int32())
    mask = mask_of(conditions, lambda _: column)
    return list(numbers) if mask is None else column.filter(mask).to_pylist()


def _by_id(predicates: Collection[Predicate], partition_count: int) -> set[int] | None:
    """Return the metadata partitions of the selected user partitions.

    None unless the conditions name both topic ids and partitions.
    """
    ids, partitions = _values(predicates, "topic_id"), _values(predicates, "partition")
    if ids is None or partitions is None:
        return None
    known = [each for each in map(_uuid, ids) if each is not None]
    return {metadata_partition(each, number, partition_count) for each, number in product(known, partitions)}


def wanted_offsets(
    topic: MetadataTopic,
    numbers: Collection[int],
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    predicates: Sequence[Predicate],
) -> dict[int, tuple[int, int]]:
    """Return, for each of `numbers`, the metadata offsets [start, end) that can satisfy `predicates`.

    Metadata partitions without such offsets are left out.
    """
    window = Window.of(predicates, "metadata_offset")
    low, high = window.offsets
    starts: Mapping[int, int] = begins
    if window.first_ms is not None:
        # A condition on time gives only a lower bound of offsets, because timestamps need not increase.
        starts = topic.offsets_for_time(numbers, window.first_ms)
    ranges = {n: (max(low, begins[n], starts[n]), min(high + 1, ends[n])) for n in numbers if n in starts}
    return {number: (start, end) for number, (start, end) in ranges.items() if start < end}


def _values(predicates: Iterable[Predicate], column: str) -> set[Any] | None:
    """Return the values that the conditions allow for `column`, or None if they allow any."""
    conditions = [p for p in predicates if p.column == column and not p.is_negated]
    sets = [{p.value} if p.operator == "=" else set(p.value) for p in conditions if p.operator in {"=", "in"}]
    return reduce(set.intersection, sets) if sets else None


def _uuid(text: str) -> Uuid | None:
    try:
        return Uuid.parse(text)
    except UsageError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSplit(MetadataSplit):
    """A split, the predicates that its rows must satisfy, and the names of the wanted columns (`()`: all)."""

    predicates: tuple[Predicate, ...] = ()
    columns: tuple[str, ...] = ()


EventTask = tuple[EventSplit, ...]
"""What one task reads: offsets of one metadata partition, or of several that follow each other."""


def event_tasks(
    location: TopicLocation,
    ranges: Mapping[int, tuple[int, int]],
    *,
    records_per_task: int | None = None,
    predicates: tuple[Predicate, ...] = (),
    columns: tuple[str, ...] = (),
) -> list[EventTask]:
    """Return tasks that read the offsets [start, end) of each metadata partition in `ranges`, in order.

    All tasks read equally many offsets, except the last one: at most `records_per_task`, by default
    RECORDS_PER_SPLIT, and more where there would be over TASKS_MAX tasks: offsets may have wide gaps. Each
    task takes Spark about 0.12 s of processor time, the time of 40,000 records.
    """
    total = sum(end - start for start, end in ranges.values())
    count = ceil(total / (records_per_task or RECORDS_PER_SPLIT))
    size = ceil(total / max(min(count, TASKS_MAX), 1))
    return [
        tuple(
            EventSplit(
                location=location,
                metadata_partition=number,
                start_offset=start,
                end_offset=end,
                predicates=predicates,
                columns=columns,
            )
            for number, start, end in task
        )
        for task in _cut(ranges, size)
    ]


def _cut(ranges: Mapping[int, tuple[int, int]], size: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield lists of (metadata partition, start, end), each with `size` offsets, the last one with fewer."""
    task: list[tuple[int, int, int]] = []
    room = size
    for number, (start, end) in sorted(ranges.items()):
        at = start
        while at < end:
            stop = min(end, at + room)
            task.append((number, at, stop))
            room -= stop - at
            at = stop
            if not room:
                yield task
                task, room = [], size
    if task:
        yield task


def plan_tasks(
    location: TopicLocation,
    *,
    records_per_task: int | None = None,
    predicates: tuple[Predicate, ...] = (),
    columns: tuple[str, ...] = (),
) -> list[EventTask]:
    """Return tasks that read the topic's current records, ordered by metadata partition and offset.

    Ranges in which no record can satisfy `predicates` are left out. Those on user partitions leave out none:
    the events may be in any metadata partition, also of a topic that got more. Raises as `open_topic`.
    """
    with closing(open_topic(location)) as topic:
        ends = topic.end_offsets()
        begins = topic.beginning_offsets()
        numbers = _by_number(predicates, sorted(ends))
        ranges = wanted_offsets(topic, numbers, begins, ends, predicates)
    return event_tasks(
        location, ranges, records_per_task=records_per_task, predicates=predicates, columns=columns
    )


EPOCH = pa.struct([("leader_epoch", pa.int32()), ("offset", pa.int64())])


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column of decoded events has in Spark."""
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_dictionary(kind):
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

COLUMNS = SCHEMA.append(pa.field("record", pa.binary()))
"""The columns that `.schema(...)` may select: `record` has the bytes of the record, null in a tombstone."""
_POSITION = frozenset({"metadata_partition", "metadata_offset", "timestamp_ms", "timestamp"})
# How many rows of a task the JVM has in memory at a time.
_BATCH_ROWS = 20_000


def read_task(task: EventTask | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of SCHEMA for which the predicates of their split are true; raises as `read_chunks`.

    `task` is None in the empty task that Spark creates if there is no other.
    """
    expect(sum(split.end_offset - split.start_offset for split in task or ()))
    for split in task or ():
        for chunk in read_chunks(split):
            batch = batch_of(chunk, split)
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.slice(start, _BATCH_ROWS)


def event_rows(chunk: RecordChunk, events: pa.Table) -> pa.RecordBatch:
    """Return the rows of SCHEMA of a chunk without damage, whose values are decoded as `events`."""
    return replace(_Rows.of_chunk(chunk), events=events).batch(SCHEMA.names)


def batch_of(chunk: RecordChunk, split: EventSplit) -> pa.RecordBatch:
    """Return the rows of a chunk of the split, in the order of offsets."""
    predicates = split.predicates
    rows = _Rows.of_chunk(chunk)
    # Rows that conditions on offset or time exclude need not be decoded.
    rows = rows.where([p for p in predicates if p.column in _POSITION])
    ranges = _ranges(chunk, split)
    names = split.columns or SCHEMA.names
    all_names = list(dict.fromkeys([*SCHEMA.names, *names]))
    needed = all_names if ranges else [*names, *(p.column for p in predicates)]
    rows = rows.decoded(needed)
    rows = rows.where([p for p in predicates if p.column not in _POSITION])
    if not ranges:
        return rows.batch(names)
    lost = _lost(chunk.partition, ranges, all_names)
    mask = mask_of(predicates, lost.column)
    # The sort is stable: damage stands before the record at its offset, as its bytes do.
    both = pa.concat_batches([lost if mask is None else lost.filter(mask), rows.batch(all_names)])
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
        # `pa.array` would import pandas, which takes 40 MB in each worker.
        columns = (np.ascontiguousarray(each) for each in (chunk.offsets, chunk.timestamps_ms))
        offsets, timestamps_ms = (array_of(pa.int64(), each) for each in columns)
        return cls(chunk.partition, offsets, timestamps_ms, chunk.values)

    def decoded(self, names: Collection[str]) -> Self:
        """Return the rows with the events' columns that the columns `names` of SCHEMA need."""
        needed = {*names, "error"} if "value" in names else set(names)
        columns = [name for name in EVENT_SCHEMA.names if name in needed]
        if not columns:
            return self
        return replace(self, events=decode_values(self.values).table(columns))

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
        return pa.RecordBatch.from_arrays(arrays, schema=_schema(names))

    def column(self, name: str) -> pa.Array:
        """Return a column of SCHEMA."""
        return _MAKERS[name](self) if name in _MAKERS else plain_column(self.event_column(name))

    def event_column(self, name: str) -> pa.Array:
        column = self.events.column(name)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def repeated(self, value: Any, name: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, COLUMNS.field(name).type), len(self.offsets))

    def bad_values(self) -> pa.Array:
        is_bad = self.event_column("error").is_valid()
        return pc.if_else(is_bad, self.values, None)


_MAKERS: dict[str, Callable[[_Rows], pa.Array]] = {
    "metadata_partition": lambda rows: array_of(
        pa.int32(), np.full(len(rows.offsets), rows.metadata_partition, np.int32)
    ),
    "metadata_offset": lambda rows: rows.offsets,
    "timestamp_ms": lambda rows: rows.timestamps_ms,
    "timestamp": lambda rows: timestamps(rows.timestamps_ms),
    "value": _Rows.bad_values,
    "record": lambda rows: rows.values,
    "next_offset": lambda rows: rows.repeated(None, "next_offset"),
    "is_gap": lambda rows: rows.repeated(False, "is_gap"),
}


def plain_column(column: pa.Array) -> pa.Array:
    """Convert a column of decoded events into a type that Spark has."""
    if pa.types.is_fixed_size_binary(column.type):
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


def timestamps(timestamps_ms: pa.Array) -> pa.Array:
    """Convert milliseconds into timestamps of Spark; null for none, and for one after the year 9999."""
    is_time = pc.and_(pc.greater_equal(timestamps_ms, 0), pc.less_equal(timestamps_ms, TIME_MS_MAX))
    return (
        pc.if_else(is_time, timestamps_ms, None)
        .cast(pa.timestamp("ms", "UTC"))
        .cast(pa.timestamp("us", "UTC"))
    )


def _ranges(chunk: RecordChunk, split: MetadataSplit) -> list[DamagedRange]:
    """Return the damaged ranges that begin in the split, so that only one task reports each of them."""
    return [bad for bad in chunk.damage if split.start_offset <= bad.offset < split.end_offset]


def _lost(metadata_partition: int, ranges: Sequence[DamagedRange], names: Sequence[str]) -> pa.RecordBatch:
    columns = {
        "metadata_partition": [metadata_partition] * len(ranges),
        "metadata_offset": [bad.offset for bad in ranges],
        "error": [str(bad) for bad in ranges],
        "next_offset": [bad.next_offset for bad in ranges],
        "is_gap": [bad.is_gap for bad in ranges],
    }
    schema = _schema(names)
    arrays = [pa.array(columns.get(field.name, [None] * len(ranges)), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _schema(names: Sequence[str]) -> pa.Schema:
    """Return the schema of these columns."""
    return pa.schema([COLUMNS.field(name) for name in names])
