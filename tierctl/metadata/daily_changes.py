"""Daily sums, deleted segments and recent writers, from the events of the whole metadata topic."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from tierctl.kernel import expect
from tierctl.metadata.parallel_fold import misplaced
from tierctl.metadata.topic.base import MetadataTopic
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.model.progress import Advance, no_op
from tierctl.state.fold import fold
from tierctl.state.fold_kernels import numbered
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import STATES, SegmentIds
from tierctl.state.tier_state import Quarantined, TierState
from tierctl.wire.arrays import Int64s
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.metadata.decode import (
    ADD,
    DIALECT,
    EVENT_TIMESTAMP,
    KIND,
    SEGMENT_ID,
    SEGMENT_ID_LOW,
    SIZE,
    SNAPSHOT,
    STATE,
    UPDATE,
    WRITER,
    DecodedEvents,
    decode_values,
)


def deleted_segments(topic: MetadataTopic) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield every segment whose last state is DELETE_SEGMENT_FINISHED in the events up to now.

    Reads the whole topic even if a state directory exists, and skips records that cannot be read.
    """
    state = TierState(keep_deleted=True)
    for chunk in record_chunks(topic, topic.end_offsets()):
        fold(
            decode_values(chunk.slices),
            state,
            metadata_partition=chunk.partition,
            metadata_offsets=chunk.offsets,
        )
    return state.deleted_segments()


SegmentsOf = Callable[[TopicIdPartition], Iterable[RemoteLogSegmentMetadata]]
"""Returns the segments of a partition."""


def deleted_of(read: Callable[[], Iterable[RemoteLogSegmentMetadata]]) -> SegmentsOf:
    """Return the segments that `read` returns by partition; it is called at the first call."""

    @cache
    def by_partition() -> dict[TopicIdPartition, list[RemoteLogSegmentMetadata]]:
        found: dict[TopicIdPartition, list[RemoteLogSegmentMetadata]] = defaultdict(list)
        for segment in read():
            found[segment.topic_id_partition].append(segment)
        return found

    return lambda partition: by_partition().get(partition, ())


def record_chunks(topic: MetadataTopic, end_offsets: Mapping[int, int]) -> Iterator[RecordChunk]:
    """Yield all records of the metadata topic before `end_offsets`, one metadata partition at a time."""
    begins = topic.beginning_offsets()
    spans = {number: (begins.get(number, 0), end) for number, end in sorted(end_offsets.items())}
    expect(sum(end - begin for begin, end in spans.values()))
    for number, span in spans.items():
        yield from topic.read(number, *span)


def deleted_segment_ids(topic: MetadataTopic, end_offsets: Mapping[int, int]) -> SegmentIds:
    """Return the ids of all segments with a DELETE_SEGMENT_FINISHED event before `end_offsets`.

    Reads the whole topic. The result takes about 24 bytes per id.
    """
    found = SegmentIds()
    for chunk in record_chunks(topic, end_offsets):
        rows = decode_values(chunk.slices).rows
        found.add(_ids_of(rows[(rows[:, KIND] == UPDATE) & (rows[:, STATE] == _DELETED)]))
    return found


def _ids_of(rows: Int64s) -> Int64s:
    """Return the segment ids of decoded rows."""
    return rows[:, SEGMENT_ID : SEGMENT_ID_LOW + 1]


DAY_MS = 24 * 60 * 60 * 1000
DAY_MAX = 2_932_896
"""9999-12-31: a later timestamp of a damaged or hostile event counts for this day."""
_S = RemoteLogSegmentState
_COPIED, _DELETED = STATES.index(_S.COPY_SEGMENT_FINISHED), STATES.index(_S.DELETE_SEGMENT_FINISHED)

Day = tuple[str, Uuid, int]
"""Topic, topic id, and the day as a number of days since 1970-01-01 UTC."""


@dataclass(slots=True)
class DayChanges:
    """The segments of one topic id whose copy, or whose deletion after a copy, finished on one day."""

    copied_segments: int = 0
    copied_bytes: int = 0
    deleted_segments: int = 0
    deleted_bytes: int = 0


@dataclass(slots=True)
class DailyChanges:
    """The changes by topic id and day; `unknown_segments` counts segments whose first event is missing.

    The sizes of such segments are unknown, and they count for no day.
    """

    days: dict[Day, DayChanges] = field(default_factory=lambda: defaultdict(DayChanges))
    unknown_segments: int = 0


def read_daily_changes(
    topic: MetadataTopic,
    end_offsets: Mapping[int, int],
    selects: Callable[[TopicIdPartition], bool],
    advance: Advance = no_op,
) -> DailyChanges:
    """Return the changes of the user partitions that `selects` accepts, by the events before `end_offsets`.

    Reads the whole topic even if a state directory exists, and skips records that cannot be read. The day is
    that of the event's timestamp, in UTC; of a state that several events of a segment have, the first counts.
    The deletion of a copy that never finished counts for no day.
    `advance` receives numbers of events read.
    """
    found = DailyChanges()
    number, is_scattered, segments = -1, False, _Segments()
    for chunk in record_chunks(topic, end_offsets):
        # The events of a segment are in one metadata partition, unless the topic got more: after the first
        # event of such a topic that is not where it belongs, memory holds the segments of all partitions.
        if chunk.partition != number and not is_scattered:
            segments = _Segments()
        number, events = chunk.partition, decode_values(chunk.slices)
        owners = segments.add(events)
        named = np.unique(owners[owners >= 0])
        is_scattered |= bool(len(misplaced(segments.table, named, number, topic.partition_count)))
        _add(found, segments, events.rows, selects)
        advance(len(chunk.offsets))
    return found


_MIX = np.int64(-7046029254386353131)
"""An odd number: its products with different numbers differ."""


class _Segments:
    """The sizes of segments of one or several metadata partitions, and the states that were counted.

    As in brokers, a segment is one of a user partition: others may have segments with the same id.
    """

    def __init__(self) -> None:
        self.table = SegmentTable()
        self.ids = SegmentIds()
        self.sizes = np.empty(0, np.int64)
        self.counted = {code: np.empty(0, np.bool_) for code in (_COPIED, _DELETED)}
        self.names = np.empty(0, np.int64)
        self._keys = np.empty((0, 2), np.int64)

    def add(self, events: DecodedEvents) -> Int64s:
        """Add the segments that ADD events name first; return the number in `table` of each event's owner.

        `names` has a number for each event's owner and topic name then; it is negative without one.
        """
        owners, topics = numbered(self.table, events)
        self.names = np.where(owners < 0, -1, (owners << 32) + topics)
        self._keys = _ids_of(events.rows).copy()
        self._keys[:, 0] ^= self.names * _MIX
        at = np.flatnonzero(events.rows[:, KIND] == ADD)
        known = len(self.ids)
        numbers, firsts = np.unique(self.ids.add(self._keys[at]), return_index=True)
        is_new = numbers >= known
        self.sizes = np.concatenate([self.sizes, events.rows[at[firsts[is_new]], SIZE]])
        for code, counted in self.counted.items():
            self.counted[code] = np.concatenate([counted, np.zeros(len(self.ids) - known, np.bool_)])
        return owners

    def topic_of(self, name: int, selects: Callable[[TopicIdPartition], bool]) -> tuple[str, Uuid] | None:
        """Return the topic of a name if `selects` accepts its user partition."""
        whose = self.table.topic_id_partition(name >> 32, name & 0xFFFF_FFFF) if name >= 0 else None
        return (whose.topic, whose.topic_id) if whose is not None and selects(whose) else None

    def first_in(self, code: int, events: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return the rows of added events that first bring a segment to state `code`, and the sizes of these.

        Only segments that were copied can be deleted: call it for the copies of the same events first.

        The third value are the rows of events whose segment is not known.
        """
        rows = np.flatnonzero((events[:, KIND] == UPDATE) & (events[:, STATE] == code))
        at = self.ids.find_many(self._keys[rows])
        unknown, rows, at = rows[at < 0], rows[at >= 0], at[at >= 0]
        new = ~self.counted[code][at]
        if code == _DELETED:
            new &= self.counted[_COPIED][at]
        rows, at = rows[new], at[new]
        at, firsts = np.unique(at, return_index=True)
        self.counted[code][at] = True
        return rows[firsts], self.sizes[at], unknown


def _add(
    found: DailyChanges, segments: _Segments, events: Int64s, selects: Callable[[TopicIdPartition], bool]
) -> None:
    """Count the changes by events that were added to `segments`."""
    names, owners = np.unique(segments.names, return_inverse=True)
    topics = [segments.topic_of(name, selects) for name in names.tolist()]
    is_selected = np.array([topic is not None for topic in topics], np.bool_)
    for code in (_COPIED, _DELETED):
        rows, sizes, unknown = segments.first_in(code, events)
        found.unknown_segments += int(np.count_nonzero(is_selected[owners[unknown]]))
        days = np.clip(events[rows, EVENT_TIMESTAMP] // DAY_MS, 0, DAY_MAX)
        keys, which = np.unique((owners[rows] << 32) + days, return_inverse=True)
        counts, sums = np.bincount(which, minlength=len(keys)), np.zeros(len(keys), np.int64)
        np.add.at(sums, which, sizes)
        for key, count, size_bytes in zip(keys.tolist(), counts.tolist(), sums.tolist(), strict=True):
            topic = topics[key >> 32]
            if topic is not None:
                _count(found.days[*topic, key & 0xFFFF_FFFF], code, count, size_bytes)


def _count(day: DayChanges, code: int, segments: int, size_bytes: int) -> None:
    if code == _COPIED:
        day.copied_segments += segments
        day.copied_bytes += size_bytes
    else:
        day.deleted_segments += segments
        day.deleted_bytes += size_bytes


_WINDOW_RECORDS = 256


class RecentWriters(NamedTuple):
    """The time of the last event of each broker id, and a record among those events that can't be used."""

    latest: dict[int, int]
    unusable: Quarantined | None


def recent_writers(
    topic: MetadataTopic, partition: int, begin: int, end_offset: int, since_ms: int
) -> RecentWriters:
    """Return the broker ids of events later than `since_ms`, each with the time of its last event.

    The time of an event is the later one of its own and its record's timestamp. The partition is read in
    growing windows back from `end_offset` to the first record that is older, or to `begin`, the partition's
    first offset. The first record that cannot be decoded is returned, too: its writer is not known.
    """
    length = _WINDOW_RECORDS
    while True:
        start = max(begin, end_offset - length)
        (found, unusable), oldest_ms = _writers(topic, partition, start, end_offset)
        if start == begin or (oldest_ms is not None and oldest_ms < since_ms):
            latest = {broker: at_ms for broker, at_ms in found.items() if at_ms > since_ms}
            return RecentWriters(latest, unusable)
        length *= 8


def _writers(
    topic: MetadataTopic, partition: int, start_offset: int, end_offset: int
) -> tuple[RecentWriters, int | None]:
    """Return the last time of each broker id in a range of offsets, and the timestamp of its first record."""
    latest: dict[int, int] = {}
    unusable: Quarantined | None = None
    oldest_ms: int | None = None
    for chunk in topic.read(partition, start_offset, end_offset):
        times = chunk.timestamps_ms.tolist()
        if times and oldest_ms is None:
            oldest_ms = times[0]
        decoded = decode_values(chunk.slices)
        damaged = ((each.offset, each.error) for each in chunk.damage)
        odd = ((int(chunk.offsets[row]), error) for row, error in decoded.errors.items())
        if unusable is None:
            unusable = next((Quarantined(partition, *bad) for bad in chain(damaged, odd)), None)
        rows = decoded.rows
        is_written = (rows[:, KIND] <= SNAPSHOT) & (rows[:, DIALECT] == 0)
        events = rows[:, (WRITER, EVENT_TIMESTAMP)][is_written].tolist()
        for written_ms, (broker_id, event_ms) in zip(
            chunk.timestamps_ms[is_written].tolist(), events, strict=True
        ):
            at_ms = max(written_ms, event_ms)
            latest[broker_id] = max(at_ms, latest.get(broker_id, at_ms))
    return RecentWriters(latest, unusable), oldest_ms


def others(writers: dict[int, int], own: Collection[int]) -> dict[int, int]:
    """Return `writers` without the broker ids `own`, which tierctl itself uses."""
    return {broker: at_ms for broker, at_ms in writers.items() if broker not in own}
