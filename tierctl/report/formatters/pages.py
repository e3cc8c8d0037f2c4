"""Pages: the lines that a formatter writes for the records that a filter accepts."""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.in_order import one_ahead
from tierctl.model import TopicIdPartition, TopicPartition, Uuid
from tierctl.model.selection import admits_topic, is_glob
from tierctl.report.formatters.records import Formatter, Records, TextLines, as_array, is_true


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The accepted values of each field; an empty collection and None accept all. Bounds are inclusive.

    `topics` has names and globs. A record passes if its partition's number is in `partitions`, or if it is of
    one of `named_partitions`. Times are event times. A tombstone has no event, so it passes only if no
    field of events is restricted. An unreadable record passes if its metadata partition and offset do,
    because its event is unknown.
    """

    topics: Collection[str] = ()
    partitions: Collection[int] = ()
    named_partitions: Collection[TopicPartition] = ()
    topic_ids: Collection[Uuid] = ()
    segment_ids: Collection[Uuid] = ()
    states: Collection[str] = ()
    types: Collection[str] = ()
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    metadata_partitions: Collection[int] = ()
    from_offset: int | None = None
    until: int | None = None

    @property
    def restricts_partitions(self) -> bool:
        """Whether only records of some user partitions are shown."""
        return bool(self.topics or self.partitions or self.named_partitions or self.topic_ids)

    @property
    def restricts_events(self) -> bool:
        """Whether only some events of the offsets that are read are shown."""
        bounds = (self.from_time_ms, self.to_time_ms)
        is_bounded = any(bound is not None for bound in bounds)
        return self.restricts_partitions or is_bounded or bool(self.segment_ids or self.states or self.types)

    def of(self, records: Records) -> Records:
        """Return the records that the filter accepts."""
        if self.metadata_partitions and records.metadata_partition not in self.metadata_partitions:
            return records.where(pa.array([False] * len(records)))
        if self.from_offset is not None:
            records = records.where(pc.greater_equal(records.offsets, self.from_offset))
        if self.until is not None:
            records = records.where(pc.less(records.offsets, self.until))
        masks = list(self._masks(records))
        if not masks:
            return records
        is_bad = pc.is_valid(as_array(records.events.column("error")))
        wanted = reduce(pc.and_, map(is_true, masks))
        return records.where(is_true(pc.or_(wanted, is_bad)))

    def _masks(self, records: Records) -> Iterator[pa.Array]:
        events = records.events
        topics = self.topics
        if any(map(is_glob, topics)):
            present = as_array(events.column("topic")).unique().to_pylist()
            topics = [topic for topic in present if topic is not None and admits_topic(self.topics, topic)]
            if not topics:
                yield pa.array([False] * len(records))
        for name, texts in (("topic", topics), ("state", self.states), ("type", self.types)):
            if texts:
                yield pc.is_in(_utf8_of(events, name), pa.array(map(_utf8, texts), pa.binary()))
        if self.partitions or self.named_partitions:
            column = as_array(events.column("partition"))
            of_topic = _utf8_of(events, "topic")
            masks = [
                pc.and_(pc.equal(of_topic, _utf8(each.topic)), pc.equal(column, each.partition))
                for each in self.named_partitions
            ]
            yield reduce(pc.or_, masks, pc.is_in(column, pa.array(sorted(self.partitions), column.type)))
        for name, ids in (("topic_id", self.topic_ids), ("segment_id", self.segment_ids)):
            if ids:
                column = as_array(events.column(name))
                yield pc.is_in(column, pa.array([each.bytes for each in ids], column.type))
        time_ms = as_array(events.column("event_timestamp_ms"))
        if self.from_time_ms is not None:
            yield pc.greater_equal(time_ms, self.from_time_ms)
        if self.to_time_ms is not None:
            yield pc.less_equal(time_ms, self.to_time_ms)


def _utf8_of(events: pa.Table, name: str) -> pa.BinaryArray:
    """Return a column of text as bytes, with which any argument of a command line can be compared."""
    return as_array(events.column(name)).cast(pa.string()).cast(pa.binary())


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


NO_TIME = -1

# A page costs 1 ms, however few lines it has; larger pages take more memory.
_LINES_PER_PAGE = 1 << 13
_RECORDS_PER_TASK = 1 << 14
# The values of a task, whose text may take ten times as much.
_BYTES_PER_TASK = 4 << 20

Position = tuple[int, int, int]
"""The sort key of a line among those of several partitions: time, metadata partition, offset."""


@dataclass(frozen=True, slots=True)
class Page:
    """Lines in their order; `bad_rows` are the indexes of unreadable records' lines, ascending.

    `positions` has one entry per line, or is empty if the lines are not merged with others. `partitions` are
    the user partitions of all records, also of those that the filter leaves out; it is empty if the filter
    does not restrict them.
    """

    lines: TextLines
    bad_rows: Sequence[int] = ()
    positions: Sequence[Position] = ()
    partitions: frozenset[TopicIdPartition] = frozenset()

    def first(self, count: int) -> "Page":
        """Return the first `count` lines."""
        bad_rows = [row for row in self.bad_rows if row < count]
        return Page(self.lines.first(count), bad_rows, self.positions[:count], self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Printer:
    """Filters and formats records."""

    formatter: Formatter
    chosen: Filter
    with_positions: bool = False

    def pages(self, encoded: Records) -> Iterator[Page]:
        """Yield pages of bounded size with one line for each record that the filter accepts."""
        for some in _slices(encoded):
            yield from self.pages_of(some)

    def pages_of(self, records: Records) -> Iterator[Page]:
        """Yield the pages of records that are few enough to be decoded together."""
        _ = records.events
        for start in range(0, len(records), _LINES_PER_PAGE):
            yield self._page(records.slice(start, _LINES_PER_PAGE))

    def _page(self, records: Records) -> Page:
        shown = self.chosen.of(records)
        return Page(
            lines=TextLines.of(self.formatter.lines(shown)),
            bad_rows=_bad_rows(shown) if shown.bad_count else [],
            positions=_positions(shown) if self.with_positions else (),
            partitions=records.user_partitions() if self.chosen.restricts_partitions else frozenset(),
        )


def render_ahead(printer: Printer, records: Iterable[Records]) -> Iterator[Page]:
    """Yield the pages of `records`; a thread renders them while the caller's reads, decodes and writes.

    An error of `records` is raised after the pages of all records before it.
    """
    for pages in one_ahead(lambda some: list(printer.pages_of(some)), _decoded(records)):
        yield from pages


def _decoded(records: Iterable[Records]) -> Iterator[Records]:
    """Yield the records as tasks of bounded size, decoded."""
    for encoded in records:
        for some in _slices(encoded):
            # Decoded here, and rendered by the other thread.
            _ = some.events
            yield some


def _slices(encoded: Records) -> Iterator[Records]:
    """Yield the records as tasks of bounded size; a record that is larger has its own."""
    for start in range(0, len(encoded), _RECORDS_PER_TASK):
        yield from _of_bounded_bytes(encoded.slice(start, _RECORDS_PER_TASK))


def _of_bounded_bytes(encoded: Records) -> Iterator[Records]:
    half = len(encoded) // 2
    if half and encoded.values.nbytes > _BYTES_PER_TASK:
        yield from _of_bounded_bytes(encoded.slice(0, half))
        yield from _of_bounded_bytes(encoded.slice(half, len(encoded) - half))
    else:
        yield encoded


def merge_pages(streams: Sequence[Iterator[Page]], *, by_time: bool) -> Iterator[Page]:
    """Yield the pages of each stream in turn, or with `by_time` pages of all lines merged by position.

    Within a partition the order stays that of the offsets, whatever the clocks of the producers were.
    """
    if not by_time:
        for stream in streams:
            yield from stream
        return
    merged = heapq.merge(*map(_positioned_lines, streams), key=_position_of)
    for rows in _of_bounded_text(merged):
        lines = TextLines.of(line for _, line, _ in rows)
        yield Page(lines, [row for row, (_, _, is_bad) in enumerate(rows) if is_bad])


_PositionedLine = tuple[Position, str, bool]


def _of_bounded_text(lines: Iterable[_PositionedLine]) -> Iterator[list[_PositionedLine]]:
    """Yield the lines in groups of bounded size."""
    group: list[_PositionedLine] = []
    chars = 0
    for line in lines:
        group.append(line)
        chars += len(line[1])
        if len(group) == _LINES_PER_PAGE or chars >= _BYTES_PER_TASK:
            yield group
            group, chars = [], 0
    if group:
        yield group


def _positioned_lines(stream: Iterator[Page]) -> Iterator[_PositionedLine]:
    for page in stream:
        bad_rows = frozenset(page.bad_rows)
        for row, (position, line) in enumerate(zip(page.positions, page.lines, strict=True)):
            yield position, line, row in bad_rows


def _position_of(line: _PositionedLine) -> Position:
    return line[0]


def first_lines(pages: Iterable[Page], count: int | None) -> Iterator[Page]:
    """Yield pages with the first `count` lines in all (None: every line); read no page beyond them."""
    left = count
    for page in pages:
        if left is None:
            yield page
            continue
        yield page.first(left)
        left -= len(page.lines)
        if left <= 0:
            return


def _bad_rows(shown: Records) -> list[int]:
    errors = shown.events.column("error").is_valid().to_numpy()
    rows: list[int] = np.flatnonzero(errors).tolist()
    return rows


def _positions(shown: Records) -> list[Position]:
    columns = zip(shown.timestamps_ms.to_pylist(), shown.offsets.to_pylist(), strict=True)
    return [
        (NO_TIME if time_ms is None else time_ms, shown.metadata_partition, offset)
        for time_ms, offset in columns
    ]
