"""Forecast what a tier holds with given settings, now and at the observed growth (`report --what-if`)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from tierctl.model import TopicConfig, Uuid
from tierctl.plan.decisions import EXPIRED, KEPT, STOPPED, DecisionColumns
from tierctl.plan.reasons import ReasonKind
from tierctl.plan.steps import Skip
from tierctl.state.table_arrays import FINISHED, TXN_INDEX_EMPTY
from tierctl.state.tier_state import PartitionState

HORIZONS_DAYS = (0, 30, 60, 90)
"""The days from now for which the plans decide what is left of the present data."""
DAY_MS = 24 * 60 * 60 * 1000
_Int64s = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_DECIDED = STOPPED | KEPT | EXPIRED | {ReasonKind.OFF_LINEAGE, ReasonKind.DOUBLED_SEGMENT}
"""Reasons by which retention decides; any other reason states why nothing was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCounts:
    """The number of objects of a segment in the store: per segment, and for its transaction index."""

    always: int
    transactions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A number of segments, the size of their log files, and the number of their objects in the store."""

    segments: int = 0
    log_bytes: int = 0
    objects: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(
            segments=self.segments + other.segments,
            log_bytes=self.log_bytes + other.log_bytes,
            objects=self.objects + other.objects,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The finished segments of a partition that remain under one set of settings.

    `left` has an element for each of HORIZONS_DAYS: without new data, after the deletes of retention.ms; the
    first element (now) also after those of retention.bytes and the log start. `is_held` states that a
    timestamp or a hole of the tier stops retention.ms. `log_start_offset` is the new one, None if it does not
    change. If the plan does not decide about the partition, `is_undecided` is true and `left` is meaningless.
    If `is_copied` is False, the tier gets no new data (remote.log.copy.disable). If `is_age_stated` is False,
    the plan has no retention.ms, but brokers may have a default.
    """

    retention_ms: int
    retention_bytes: int
    left: tuple[Holding, ...]
    is_held: bool = False
    is_undecided: bool = False
    log_start_offset: int | None = None
    is_copied: bool = True
    is_age_stated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFacts:
    """The replicas of a partition in the log directories: their size, and what the changed settings leave.

    `active_bytes` has the size of the active segment of each replica, which a limit of the size leaves.
    `left_bytes` is the size that local retention leaves now; `later_bytes` is the size of the same segments
    after retention by time at the last of HORIZONS_DAYS. A limit below 0 means no limit.
    """

    active_bytes: tuple[int, ...]
    log_bytes: int
    retention_ms: int
    retention_bytes: int
    left_bytes: int
    later_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One partition of the tier: its contents, its growth, and what remains under each set of settings.

    `first_ms` is the time of the oldest finished segment, None without one; `later` sums up the segments
    after it. The time of a segment is its largest timestamp, or that of its last event if the timestamp is
    unset or in the future. `local_only_bytes` is the size of the local segments above the tier's end, None if
    unknown.
    """

    topic: str
    topic_id: Uuid
    partition: int
    now: Holding
    first_ms: int | None
    later: Holding
    local_only_bytes: int | None
    unchanged: Outlook
    changed: Outlook
    local: LocalFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredFacts:
    """The facts by partition, the reasons for partitions without a decision, and those being deleted.

    `damaged` counts the metadata records that could not be used, the gaps of missing events, and the logs
    that could not be read. Unless `counts_objects`, the object counts in the facts are meaningless.
    """

    facts: tuple[PartitionFacts, ...]
    skipped: tuple[Skip, ...]
    removed: int
    damaged: int
    counts_objects: bool


class PartitionColumns:
    """The finished segments of one partition as columns, in the order of the partition's segments."""

    def __init__(self, part: PartitionState, objects: ObjectCounts | None) -> None:
        live = part.segments.columns
        self.is_finished: _Bools = live.states == FINISHED
        self.sizes = live.column("size").astype(np.int64)
        self.times_ms = live.column("max_timestamp").astype(np.int64)
        self.event_times_ms = live.column("event_timestamp").astype(np.int64)
        counts = ObjectCounts(always=0, transactions=0) if objects is None else objects
        has_transactions = ~live.flags(TXN_INDEX_EMPTY)
        self.objects: _Int64s = counts.always + counts.transactions * has_transactions.astype(np.int64)

    def holding(self, chosen: _Bools) -> Holding:
        """Return the sums of those selected segments that are finished."""
        chosen = chosen & self.is_finished
        return Holding(
            segments=int(np.count_nonzero(chosen)),
            log_bytes=int(self.sizes[chosen].sum()),
            objects=int(self.objects[chosen].sum()),
        )

    def growth(self, now_ms: int) -> tuple[int | None, Holding]:
        """Return the time of the oldest finished segment, and the sums of the later segments."""
        has_age = (self.times_ms > 0) & (self.times_ms <= now_ms)
        times_ms = np.where(has_age, self.times_ms, self.event_times_ms)
        if not self.is_finished.any():
            return None, Holding()
        first_ms = int(times_ms[self.is_finished].min())
        return first_ms, self.holding(times_ms > first_ms)


def outlook(
    columns: PartitionColumns,
    decided: DecisionColumns,
    config: TopicConfig,
    *,
    now_ms: int,
    is_known: bool,
    log_start_offset: int | None = None,
) -> Outlook:
    """Return the outlook of a partition of which retention with `config` has `decided`.

    It is undecided unless its log `is_known`: readable and, with retention.bytes, of a known size.
    """
    is_undecided = decided.is_decided & ~decided.has(_DECIDED) & columns.is_finished
    return Outlook(
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        left=tuple(columns.holding(decided.due_ms > now_ms + days * DAY_MS) for days in HORIZONS_DAYS),
        is_held=bool((decided.has(STOPPED) & columns.is_finished).any()),
        is_undecided=not is_known or bool(is_undecided.any()),
        log_start_offset=log_start_offset,
        is_copied=not config.is_copy_disabled,
        is_age_stated=config.is_age_stated,
    )


# The growth of each partition, and what its tier and disks hold in so many days: exact for what is there.
#
# What is there now leaves the tier as the plan decides. New data are added at the observed growth:
#
#     growth = the segments after the oldest one / the time since the oldest one, at least a day
#     new(d) = growth * min(d, retention.ms), or growth * d if nothing expires by time
#     tier(d) = min(left(d) + new(d), retention.bytes - bytes that only the log has)
#
# With remote.log.copy.disable, the tier gets no new data.
#
# All amounts are whole numbers of millionths, so that sums do not depend on the order of the partitions.

MICRO = 1_000_000
MONTH_DAYS = 30
_LAST = HORIZONS_DAYS[-1]


class Flow(Holding):
    """A holding whose amounts are in millionths."""

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
    local, span_ms = facts.local, _LAST * DAY_MS
    if local.retention_ms >= 0:
        span_ms = min(span_ms, local.retention_ms)
    total = local.later_bytes * MICRO + len(local.active_bytes) * grown(facts, span_ms, now_ms).log_bytes
    if local.retention_bytes >= 0:
        most = sum(max(local.retention_bytes, active) for active in local.active_bytes)
        total = min(total, most * MICRO)
    return total


def sum_of(flows: Sequence[Flow]) -> Holding:
    """Return the sum of the amounts as whole numbers."""
    return sum(flows, Flow()).whole
