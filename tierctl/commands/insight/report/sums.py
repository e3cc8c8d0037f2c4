"""The sums of the report: sizes by age, what expires on each day, and the segments that expire next."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from tierctl.commands.insight.explain import Location
from tierctl.commands.insight.report.rows import EXPIRATIONS_MAX, AgeSize, DayGrowth, Expiration
from tierctl.commands.insight.report.verdicts import NEVER
from tierctl.metadata.daily_changes import DAY_MAX, DAY_MS, DailyChanges, Day, DayChanges
from tierctl.model import Uuid
from tierctl.report.html.content import AGES
from tierctl.report.html.lanes import Int64s
from tierctl.state.tier import PartitionState, TierState

HOUR_MS = 60 * 60 * 1000
_LIMITS_MS = (HOUR_MS, DAY_MS, 7 * DAY_MS, 30 * DAY_MS, 90 * DAY_MS, 365 * DAY_MS)

Topic = tuple[str, Uuid]


@dataclass(slots=True)
class AgeSums:
    """The sums by topic id, location and age as of `now_ms`."""

    now_ms: int
    _sums: dict[tuple[str, Uuid, Location], Int64s] = field(default_factory=dict)

    def add(self, topic: Topic, location: Location, sizes: Int64s, times_ms: Int64s) -> None:
        """Add segments with these sizes and largest timestamps."""
        if not len(sizes):
            return
        ages = np.searchsorted(_LIMITS_MS, self.now_ms - times_ms, side="right")
        ages[(times_ms <= 0) | (times_ms > self.now_ms)] = len(AGES) - 1
        sums = self._sums.setdefault((*topic, location), _empty_sums())
        np.add.at(sums[0], ages, 1)
        np.add.at(sums[1], ages, sizes)
        np.minimum.at(sums[2], ages, times_ms)
        np.maximum.at(sums[3], ages, times_ms)

    def rows(self) -> Iterator[AgeSize]:
        """Yield a row for each topic id, location and age that has segments, the youngest age first."""
        for (topic, topic_id, location), sums in sorted(self._sums.items(), key=lambda item: item[0]):
            for age, (count, size_bytes, oldest_ms, newest_ms) in zip(AGES, sums.T.tolist(), strict=True):
                if count:
                    yield AgeSize(
                        topic=topic,
                        topic_id=topic_id,
                        location=location,
                        age=age,
                        segments=count,
                        log_bytes=size_bytes,
                        oldest_ms=oldest_ms if oldest_ms > 0 else None,
                        newest_ms=newest_ms if newest_ms > 0 else None,
                    )


def _empty_sums() -> Int64s:
    """Return the columns count, bytes, lowest and highest time, with one value per age."""
    sums = np.zeros((4, len(AGES)), np.int64)
    sums[2:] = [[np.iinfo(np.int64).max], [-1]]
    return sums


@dataclass(slots=True)
class Expirations:
    """The segments that brokers delete by day and topic id, and the next ones of all."""

    days: dict[Day, tuple[int, int]] = field(default_factory=dict)
    """Number and size of the segments that become due."""
    _next: list[tuple[int, str, Uuid, int, int]] = field(default_factory=list)
    """Due time, topic, topic id, partition, and row in the partition's columns."""
    _latest_ms: int = np.iinfo(np.int64).max
    """The time after which a segment is not among the next ones."""

    def add(self, part: PartitionState, due_ms: Int64s, sizes: Int64s) -> int | None:
        """Add the segments of a partition that have a due time; return the first such time."""
        rows = np.flatnonzero(due_ms != NEVER)
        if not len(rows):
            return None
        partition = part.topic_id_partition
        days, which = np.unique(np.clip(due_ms[rows] // DAY_MS, 0, DAY_MAX), return_inverse=True)
        sums = np.zeros(len(days), np.int64)
        np.add.at(sums, which, sizes[rows])
        for day, count, size_bytes in zip(
            days.tolist(), np.bincount(which).tolist(), sums.tolist(), strict=True
        ):
            key = (partition.topic, partition.topic_id, day)
            before = self.days.get(key, (0, 0))
            self.days[key] = before[0] + count, before[1] + size_bytes
        order = rows[np.argsort(due_ms[rows], kind="stable")][:EXPIRATIONS_MAX]
        for row, at_ms in zip(order.tolist(), due_ms[order].tolist(), strict=True):
            if at_ms <= self._latest_ms:
                self._next.append((at_ms, partition.topic, partition.topic_id, partition.partition, row))
        if len(self._next) > 8 * EXPIRATIONS_MAX:
            self._next = heapq.nsmallest(EXPIRATIONS_MAX, self._next)
            self._latest_ms = self._next[-1][0]
        return int(due_ms[rows].min())

    def rows(self, state: TierState) -> Iterator[Expiration]:
        """Yield the segments that become due next, at most EXPIRATIONS_MAX."""
        for due_ms, _, topic_id, number, row in heapq.nsmallest(EXPIRATIONS_MAX, self._next):
            live = state.partitions[topic_id, number].segments.columns
            segment = live.columns.metadata(int(live.rows[row]))
            yield Expiration(
                topic=segment.topic,
                topic_id=segment.topic_id,
                partition=segment.partition,
                segment_id=segment.segment_id,
                start_offset=segment.start_offset,
                end_offset=segment.end_offset,
                segment_size_in_bytes=segment.segment_size_in_bytes,
                max_timestamp_ms=segment.max_timestamp_ms,
                due_ms=due_ms,
            )


def growth_rows(changes: DailyChanges, expirations: Expirations) -> Iterator[DayGrowth]:
    """Yield a row for each day and topic id with a copy, a deletion or an expiration, by day and topic."""
    days = changes.days.keys() | expirations.days.keys()
    for topic, topic_id, day in sorted(days, key=lambda key: (key[2], key[0], key[1])):
        changed = changes.days.get((topic, topic_id, day), DayChanges())
        expiring = expirations.days.get((topic, topic_id, day), (0, 0))
        yield DayGrowth(
            day=datetime.fromtimestamp(day * 86400, UTC).date().isoformat(),
            topic=topic,
            topic_id=topic_id,
            copied_segments=changed.copied_segments,
            copied_bytes=changed.copied_bytes,
            deleted_segments=changed.deleted_segments,
            deleted_bytes=changed.deleted_bytes,
            expiring_segments=expiring[0],
            expiring_bytes=expiring[1],
        )
