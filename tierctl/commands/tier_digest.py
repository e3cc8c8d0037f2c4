"""What a report shows of the segments in the tier: sums that are made where the segments are."""

import heapq
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Annotated, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tierctl.metadata.daily_changes import DAY_MAX, DAY_MS, Day
from tierctl.model import RemoteLogSegmentState, TopicIdPartition, TopicPartition, Uuid
from tierctl.plan.decisions import EXPIRED, KEPT, NEVER, STOPPED, DecisionColumns
from tierctl.plan.expiry import PartitionDecisions
from tierctl.plan.reasons import ReasonKind
from tierctl.report import columns as f
from tierctl.report.columns import Field, Kind, Shown
from tierctl.report.html_lanes import LaneItems, LaneSegments, SegmentKind
from tierctl.report.html_page import AGES
from tierctl.state.queries import LiveSegments
from tierctl.state.table_arrays import FINISHED, STATES
from tierctl.state.tier_state import PartitionState
from tierctl.wire.arrays import Int64s

EXPIRATIONS_MAX = 1000
"""A report has this many of the next expirations at most."""
_K = SegmentKind
_OF_REASONS = (
    (KEPT, _K.CURRENT),
    (STOPPED, _K.HELD),
    (EXPIRED, _K.DUE),
    ({ReasonKind.OFF_LINEAGE, ReasonKind.DOUBLED_SEGMENT}, _K.OFF_LINEAGE),
    ({ReasonKind.TOPIC_DELETED, ReasonKind.LEAKED}, _K.GONE),
    ({ReasonKind.COPY_STARTED, ReasonKind.COPY_MAY_RUN}, _K.COPYING),
    ({ReasonKind.DELETE_STARTED}, _K.DELETING),
)
"""The kind of a segment in the tier by the reason of its decision; of two, the later one counts."""
_S = RemoteLogSegmentState
_OF_STATES = {
    STATES.index(_S.COPY_SEGMENT_STARTED): _K.COPYING,
    STATES.index(_S.DELETE_SEGMENT_STARTED): _K.DELETING,
}


def segment_kinds(decided: DecisionColumns, states: npt.NDArray[np.uint8]) -> Int64s:
    """Return the codes of SegmentKind of a partition's segments; states count where nothing was decided."""
    kinds = np.full(len(states), _K.UNDECIDED.code, np.int64)
    for state, kind in _OF_STATES.items():
        kinds[(states == state) & ~decided.is_decided] = kind.code
    for reasons, kind in _OF_REASONS:
        kinds[decided.has(reasons)] = kind.code
    return kinds


HOUR_MS = 60 * 60 * 1000
_LIMITS_MS = (HOUR_MS, DAY_MS, 7 * DAY_MS, 30 * DAY_MS, 90 * DAY_MS, 365 * DAY_MS)

Topic = tuple[str, Uuid]


@dataclass(slots=True)
class AgeSums:
    """The sums by topic id and age as of `now_ms`."""

    now_ms: int
    _sums: dict[Topic, Int64s] = field(default_factory=dict)

    def __getstate__(self) -> tuple[int, dict[Topic, list[list[int]]]]:
        # The decoder of executors' results knows no arrays of NumPy.
        return self.now_ms, {topic: sums.tolist() for topic, sums in self._sums.items()}

    def __setstate__(self, state: tuple[int, dict[Topic, list[list[int]]]]) -> None:
        self.now_ms, sums = state
        self._sums = {topic: np.array(each, np.int64) for topic, each in sums.items()}

    def add(self, topic: Topic, sizes: Int64s, times_ms: Int64s) -> None:
        """Add segments with these sizes and largest timestamps."""
        if not len(sizes):
            return
        ages = np.searchsorted(_LIMITS_MS, self.now_ms - times_ms, side="right")
        ages[(times_ms <= 0) | (times_ms > self.now_ms)] = len(AGES) - 1
        sums = self._sums.setdefault(topic, _empty_sums())
        np.add.at(sums[0], ages, 1)
        np.add.at(sums[1], ages, sizes)
        np.minimum.at(sums[2], ages, times_ms)
        np.maximum.at(sums[3], ages, times_ms)

    def merge(self, other: Self) -> None:
        """Add the segments of `other`."""
        for topic, more in other._sums.items():
            sums = self._sums.setdefault(topic, _empty_sums())
            sums[:2] += more[:2]
            sums[2] = np.minimum(sums[2], more[2])
            sums[3] = np.maximum(sums[3], more[3])

    def rows(self) -> Iterator[tuple[Topic, list[list[int]]]]:
        """Yield each topic id, and for each of AGES: segments, bytes, lowest and highest largest timestamp.

        Without a segment that has one, the lowest is 0 or less or 2^63 - 1, and the highest 0 or less.
        """
        for topic, sums in self._sums.items():
            yield topic, sums.T.tolist()


def _empty_sums() -> Int64s:
    """Return the columns count, bytes, lowest and highest time, with one value per age."""
    sums = np.zeros((4, len(AGES)), np.int64)
    sums[2:] = [[np.iinfo(np.int64).max], [-1]]
    return sums


class Expiration(NamedTuple):
    """A segment of the tier that brokers delete next; from `due_ms` on they may.

    `row` is its place among the segments of its partition.
    """

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[Uuid, f.TOPIC_ID, Shown(5)]
    partition: Annotated[int, f.PARTITION, Shown(0)]
    segment_id: Annotated[Uuid, f.SEGMENT_ID, Shown(4)]
    start_offset: Annotated[int, f.START_OFFSET, Shown(1)]
    end_offset: Annotated[int, f.END_OFFSET, Shown(2)]
    segment_size_in_bytes: Annotated[int, f.SEGMENT_SIZE_IN_BYTES, Shown(1)]
    max_timestamp_ms: Annotated[int, f.MAX_TIMESTAMP_MS, Shown(3)]
    due_ms: Annotated[
        int, Field(Kind.TIME, "time from which brokers may delete the segment", "due"), Shown(0)
    ]
    row: int


_by_due_time = attrgetter("due_ms", "topic", "topic_id", "partition", "row")


@dataclass(slots=True)
class Expirations:
    """The segments that brokers delete by day and topic id, and the next ones of all."""

    days: dict[Day, tuple[int, int]] = field(default_factory=dict)
    """Number and size of the segments that become due."""
    _next: list[Expiration] = field(default_factory=list)
    """The next segments, and at most as many again that are none of these."""
    _latest_ms: int = NEVER
    """The time after which a segment is not among the next ones."""

    def add(self, partition: TopicIdPartition, live: LiveSegments, due_ms: Int64s) -> int | None:
        """Add the segments of a partition that have a due time; return the first such time."""
        rows = np.flatnonzero(due_ms != NEVER)
        if not len(rows):
            return None
        days, which = np.unique(np.clip(due_ms[rows] // DAY_MS, 0, DAY_MAX), return_inverse=True)
        sums = np.zeros(len(days), np.int64)
        np.add.at(sums, which, live.column("size")[rows].astype(np.int64))
        counts = np.bincount(which).tolist()
        for day, count, size_bytes in zip(days.tolist(), counts, sums.tolist(), strict=True):
            self._add_day((partition.topic, partition.topic_id, day), (count, size_bytes))
        order = rows[np.argsort(due_ms[rows], kind="stable")][:EXPIRATIONS_MAX]
        self._add_next(_expirations(partition, live, due_ms, order[due_ms[order] <= self._latest_ms]))
        return int(due_ms[rows].min())

    def merge(self, other: Self) -> None:
        """Add the segments of `other`."""
        for day, sums in other.days.items():
            self._add_day(day, sums)
        self._add_next(each for each in other._next if each.due_ms <= self._latest_ms)

    def next(self) -> list[Expiration]:
        """Return the segments that become due next, at most EXPIRATIONS_MAX."""
        return heapq.nsmallest(EXPIRATIONS_MAX, self._next, key=_by_due_time)

    def _add_day(self, day: Day, sums: tuple[int, int]) -> None:
        count, size_bytes = self.days.get(day, (0, 0))
        self.days[day] = count + sums[0], size_bytes + sums[1]

    def _add_next(self, expirations: Iterable[Expiration]) -> None:
        self._next += expirations
        if len(self._next) > 2 * EXPIRATIONS_MAX:
            self._next = self.next()
            self._latest_ms = self._next[-1].due_ms


def _expirations(
    partition: TopicIdPartition, live: LiveSegments, due_ms: Int64s, chosen: Int64s
) -> Iterable[Expiration]:
    """Yield the segments with the places `chosen` in `live` and `due_ms`."""
    segments = LiveSegments(live.table, live.rows[chosen])
    columns = [segments.column(name).tolist() for name in ("start", "end", "size", "max_timestamp")]
    named = partition.topic, partition.topic_id, partition.partition
    facts = zip(*columns, due_ms[chosen].tolist(), chosen.tolist(), strict=True)
    for raw, found in zip(segments.ids, facts, strict=True):
        yield Expiration(*named, Uuid.from_bytes(raw), *found)


@dataclass(slots=True, kw_only=True)
class TierDigest:
    """The `Digest` of a report as of `now_ms`: sums, and a lane of at most `limit` items per partition.

    `removed` are the partitions that are deleted as a whole. The logs of `unreadable` partitions can't be
    read, so that no step deletes their segments.
    """

    now_ms: int
    limit: int
    removed: Collection[tuple[Uuid, int]]
    unreadable: Collection[TopicPartition]
    ages: AgeSums = field(init=False)
    expirations: Expirations = field(init=False, default_factory=Expirations)
    lanes: dict[tuple[Uuid, int], tuple[LaneItems, int | None]] = field(init=False, default_factory=dict)
    """The lane of each partition with segments, and the time of its next expiration."""
    unread: list[TopicIdPartition] = field(init=False, default_factory=list)
    """The unreadable partitions of which a readable log would have had segments deleted."""

    def __post_init__(self) -> None:
        self.ages = AgeSums(self.now_ms)

    def empty(self) -> Self:
        """Implement `Digest.empty`."""
        return replace(self)

    def add(self, part: PartitionState, decisions: PartitionDecisions) -> None:
        """Implement `Digest.add`."""
        if not part.segment_count:
            return
        partition, segments = part.topic_id_partition, part.segments
        live, decided = segments.columns, self._decided(part, decisions)
        sizes, times_ms = (live.column(name).astype(np.int64) for name in ("size", "max_timestamp"))
        is_finished = live.states == FINISHED
        topic = partition.topic, partition.topic_id
        self.ages.add(topic, sizes[is_finished], times_ms[is_finished])
        lane = LaneSegments.of(
            starts=live.column("start"),
            ends=live.column("end"),
            sizes=sizes,
            times_ms=times_ms,
            epochs=segments.last_epochs,
            kinds=segment_kinds(decided, live.states),
        )
        next_ms = self.expirations.add(partition, live, decided.due_ms)
        self.lanes[partition.key] = LaneItems.of(lane, self.limit), next_ms

    def _decided(self, part: PartitionState, decisions: PartitionDecisions) -> DecisionColumns:
        """Return the decisions about the segments of a partition, without steps of an unreadable one."""
        partition = part.topic_id_partition
        is_unreadable = partition.topic_partition in self.unreadable
        if partition.key in self.removed and not is_unreadable:
            return DecisionColumns.alike(part.segment_count, ReasonKind.TOPIC_DELETED, self.now_ms)
        if decisions.steps and is_unreadable:
            self.unread.append(partition)
            return decisions.kept_columns(part)
        return decisions.columns(part, self.now_ms)

    def answer(self) -> Self:
        """Implement `Digest.answer`."""
        return self

    def merge(self, other: Self) -> None:
        """Implement `Digest.merge`."""
        self.ages.merge(other.ages)
        self.expirations.merge(other.expirations)
        self.lanes |= other.lanes
        self.unread += other.unread
