"""The growth of each partition, and what its tier and disks hold in so many days: exact for what is there.

What is there now leaves the tier as the plan decides (`facts`). New data are added at the observed growth:

    growth = the segments after the oldest one / the time since the oldest one, at least a day
    new(d) = growth * min(d, retention.ms), or growth * d if nothing expires by time
    tier(d) = min(left(d) + new(d), retention.bytes - bytes that only the log has)

With remote.log.copy.disable, the tier gets no new data.

All amounts are whole numbers of millionths, so that sums do not depend on the order of the partitions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from tierctl.plan.forecast.facts import DAY_MS, HORIZONS_DAYS, Holding, Outlook, PartitionFacts

MICRO = 1_000_000
MONTH_DAYS = 30
_LAST = HORIZONS_DAYS[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The segments, bytes and objects of a `Holding` in millionths."""

    segments: int = 0
    log_bytes: int = 0
    objects: int = 0

    @classmethod
    def of(cls, holding: Holding) -> Self:
        """Return `holding` in millionths."""
        return cls(
            segments=holding.segments * MICRO,
            log_bytes=holding.log_bytes * MICRO,
            objects=holding.objects * MICRO,
        )

    def times(self, numerator: int, denominator: int) -> Self:
        """Return the amounts multiplied by a fraction, rounded down."""
        return type(self)(
            segments=self.segments * numerator // denominator,
            log_bytes=self.log_bytes * numerator // denominator,
            objects=self.objects * numerator // denominator,
        )

    def __add__(self, other: Self) -> Self:
        return type(self)(
            segments=self.segments + other.segments,
            log_bytes=self.log_bytes + other.log_bytes,
            objects=self.objects + other.objects,
        )

    @property
    def whole(self) -> Holding:
        """Return the amounts as whole numbers, rounded to the nearest."""
        return Holding(
            segments=rounded(self.segments), log_bytes=rounded(self.log_bytes), objects=rounded(self.objects)
        )


def rounded(millionths: int) -> int:
    """Return the nearest whole number to `millionths` / 1,000,000."""
    return (millionths + MICRO // 2) // MICRO


def growth_since_ms(facts: Iterable[PartitionFacts], now_ms: int) -> int | None:
    """Return the start of the period in which the growth of these partitions was observed, up to `now_ms`.

    Return None if the period is shorter than a day: then the growth is unknown.
    """
    first_ms = min((each.first_ms for each in facts if each.first_ms is not None), default=now_ms)
    return first_ms if now_ms - first_ms >= DAY_MS else None


def grown(facts: PartitionFacts, span_ms: int, now_ms: int) -> Flow:
    """Return the amounts that the partition's growth adds in `span_ms`."""
    if facts.first_ms is None:
        return Flow()
    return Flow.of(facts.later).times(span_ms, max(now_ms - facts.first_ms, DAY_MS))


def held(facts: PartitionFacts, outlook: Outlook, days: int, now_ms: int) -> Flow:
    """Return the contents of the partition's tier after `days`, one of HORIZONS_DAYS, under one outlook."""
    left = Flow.of(outlook.left[HORIZONS_DAYS.index(days)])
    if not days:
        return left
    span_ms = days * DAY_MS
    if outlook.retention_ms >= 0 and not outlook.is_held:
        span_ms = min(span_ms, outlook.retention_ms)
    total = left + _copied(facts, outlook, span_ms, now_ms)
    if outlook.retention_bytes < 0 or facts.local_only_bytes is None:
        return total
    room = max(outlook.retention_bytes - facts.local_only_bytes, 0) * MICRO
    return total if total.log_bytes <= room else total.times(room, total.log_bytes)


def requests(facts: PartitionFacts, outlook: Outlook, begin_days: int, now_ms: int) -> int:
    """Return the objects, in millionths, that are stored and deleted in the month after `begin_days`.

    The deleted objects follow from the contents of the tier at both ends of the month; at present the tier
    has all existing segments.
    """
    copied = _copied(facts, outlook, MONTH_DAYS * DAY_MS, now_ms).objects
    before = held(facts, outlook, begin_days, now_ms) if begin_days else Flow.of(facts.now)
    after = held(facts, outlook, begin_days + MONTH_DAYS, now_ms)
    return copied + max(before.objects + copied - after.objects, 0)


def _copied(facts: PartitionFacts, outlook: Outlook, span_ms: int, now_ms: int) -> Flow:
    return grown(facts, span_ms, now_ms) if outlook.is_copied else Flow()


def local_later(facts: PartitionFacts, now_ms: int) -> int | None:
    """Return the bytes of the local logs, in millionths, at the last of HORIZONS_DAYS after the change.

    Return None if no log directory has the partition.
    """
    if facts.local is None:
        return None
    outlook, replicas = facts.local.changed, facts.local.replicas
    span_ms = _LAST * DAY_MS
    if outlook.retention_ms >= 0:
        span_ms = min(span_ms, outlook.retention_ms)
    total = outlook.later_bytes * MICRO + replicas * grown(facts, span_ms, now_ms).log_bytes
    if outlook.retention_bytes >= 0:
        total = min(total, max(outlook.retention_bytes * replicas, 0) * MICRO)
    return total


def sum_of(flows: Sequence[Flow]) -> Holding:
    """Return the sum of the amounts as whole numbers."""
    return sum(flows, Flow()).whole
