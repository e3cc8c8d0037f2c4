"""The table of decisions: what brokers do next with each segment, of the tier or of a log, why and when.

The rules of copying (`plan.copy`), of retention (`plan.expiry`) and of partition deletes decide. `copy`,
`sweep` and `delete` carry out the steps of their plans; `explain`, `status`, `report` and `report --what-if`
read the rows of the same plans, which also state why a segment stays, and from when on brokers delete it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tierctl.model import (
    LocalLog,
    LocalSegment,
    RemoteLogSegmentMetadata,
    TopicConfig,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.settings import topic
from tierctl.model.settings.scopes import LATEST, KafkaVersion, Setting
from tierctl.model.settings.topic import UNLIMITED
from tierctl.plan.reasons import Reason, ReasonKind, no_age_text
from tierctl.state.lineage import Lineage, find_highest_remote_offset
from tierctl.state.queries import LiveSegments, PartitionSegments
from tierctl.state.tier_state import PartitionState
from tierctl.wire.arrays import Int64s

_K = ReasonKind
WAITING = frozenset(
    {_K.OPEN_TRANSACTION, _K.NOT_REPLICATED, _K.COPY_LAG, _K.NOT_COPYABLE, _K.CUSTOM_METADATA}
)
"""Why rolled segments of an enabled topic are not in the tier yet."""
NEEDING_OPERATOR = frozenset({_K.OPEN_TRANSACTION, _K.CUSTOM_METADATA})
"""Why copies may continue only after an operator acted; `status` prints these kinds."""
ON_DISK = frozenset(
    {_K.LOCAL_RETENTION_MS, _K.LOCAL_RETENTION_BYTES, _K.LOCAL_LOG_START, _K.LOCAL_HELD, _K.LOCAL_ROLL}
)
"""Why segments are deleted from the disk, should be gone from it, or are rolled so that they can be."""
STOPPED = frozenset({_K.STALLED})
"""Why segments of the tier do not expire although they are old enough: a timestamp in the future."""
EXPIRED = frozenset(
    {_K.RETENTION_MS, _K.RETENTION_BYTES, _K.LOG_START_OFFSET, _K.UNREFERENCED_EPOCHS, _K.DELETE_STARTED}
)
"""Why retention deletes segments now."""
KEPT = frozenset({_K.WILL_EXPIRE, _K.BEHIND_OLDER, _K.NO_LIMIT_REACHED})
"""Why retention keeps segments of the lineage for now."""
NEVER = np.iinfo(np.int64).max
"""The due time of a segment that is not deleted at a known time."""
_KINDS = {kind: number for number, kind in enumerate(ReasonKind)}
_NO_KIND = -1


def is_decided(reason: Reason) -> bool:
    """Return whether a plan that skips a partition for `reason` knows what happens to its segments."""
    return reason.kind in WAITING or reason.kind is _K.BEHIND_HOLE or bool(reason.facts.get("is_note"))


def needs_operator(reason: Reason, limit_ms: int) -> bool:
    """Return whether copies that wait for `reason` continue only after an operator acted.

    KIP-917's limit stops them, or a transaction that is open since before `limit_ms`, while a segment that
    was complete at that time waits for its end.
    """
    if reason.kind is _K.OPEN_TRANSACTION:
        return bool(max(reason.facts["oldest_ms"], reason.facts["since_ms"] or 0) < limit_ms)
    return reason.kind in NEEDING_OPERATOR


class NextAction(StrEnum):
    """The next action of brokers for a segment."""

    COPY = "copy"
    DELETE = "delete"
    DELETE_LOCAL = "delete_local"
    """A broker deletes the segment from its disk; the tier keeps it."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next action for one segment, and the reason.

    `segment_id` is None for a segment of the local log, which alone has `size_bytes`, and `end_offset` for
    the active one. `due_ms` is the time from which brokers may take the action, None if that is unknown.
    """

    partition: TopicIdPartition
    segment_id: Uuid | None
    start_offset: int
    end_offset: int | None
    reason: Reason
    action: NextAction = NextAction.NONE
    due_ms: int | None = None
    size_bytes: int | None = None

    @property
    def is_copy_lag(self) -> bool:
        """Whether the segment is copied next, or a rolled segment that waits to be copied."""
        return self.action is NextAction.COPY or self.reason.kind in WAITING

    @classmethod
    def kept(cls, segment: RemoteLogSegmentMetadata, reason: Reason) -> Self:
        """Return the decision that a plan does not act on the remote `segment` now."""
        return cls(
            partition=segment.topic_id_partition,
            segment_id=segment.segment_id,
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            reason=reason,
            action=NextAction.DELETE if reason.facts.get("is_deleted") else NextAction.NONE,
            due_ms=reason.facts.get("expires_at_ms"),
        )

    @classmethod
    def deleted(cls, segment: RemoteLogSegmentMetadata, reason: Reason, now_ms: int) -> Self:
        """Return the decision that brokers delete the remote `segment` now, although a plan keeps it."""
        return replace(cls.kept(segment, reason), action=NextAction.DELETE, due_ms=now_ms)


def stopped_copies(decisions: Iterable[Decision], limit_ms: int) -> dict[TopicIdPartition, Reason]:
    """Return the partitions whose copies continue only after an operator acted, with the last reason."""
    return {each.partition: each.reason for each in decisions if needs_operator(each.reason, limit_ms)}


def stops_by_kind(
    stopped: Mapping[TopicIdPartition, Reason],
) -> dict[ReasonKind, dict[TopicIdPartition, Reason]]:
    """Return the partitions of `stopped_copies` in order, for each kind of reason."""
    by_kind: dict[ReasonKind, dict[TopicIdPartition, Reason]] = defaultdict(dict)
    for partition, reason in sorted(stopped.items()):
        by_kind[reason.kind][partition] = reason
    return by_kind


def stop_lines(stopped: Mapping[TopicIdPartition, Reason]) -> list[str]:
    """Return one line for each kind of reason in `stopped`: its first partition, and how many more it has."""
    lines = []
    for found in stops_by_kind(stopped).values():
        partition, reason = next(iter(found.items()))
        more = f"; {len(found) - 1:,} more, see tierctl explain" if len(found) > 1 else ""
        lines.append(f"{partition.topic_partition}: {reason}{more}")
    return lines


@dataclass(frozen=True, slots=True)
class DecisionColumns:
    """The decisions about the segments of one partition, in the order of its columns.

    `kinds` are numbers of reasons, and `due_ms` are the times from which brokers may delete a segment, or
    NEVER.
    """

    kinds: npt.NDArray[np.int64]
    due_ms: npt.NDArray[np.int64]

    @classmethod
    def none(cls, count: int) -> Self:
        """Return columns without a decision about any of `count` segments."""
        return cls(np.full(count, _NO_KIND, np.int64), np.full(count, NEVER, np.int64))

    def with_decisions(self, segments: PartitionSegments, decisions: Iterable[Decision]) -> Self:
        """Return these decisions about `segments`, replaced by the given ones, of which the last counts."""
        found = replace(self, kinds=self.kinds.copy(), due_ms=self.due_ms.copy())
        for each in decisions:
            place = segments.place(each.segment_id)
            if place is not None:
                found.put(place, each.reason, each.due_ms)
        return found

    def fill(self, places: Any, kind: ReasonKind, due_ms: Any = NEVER) -> None:
        """Set the decisions about segments, at indexes, a slice or a mask of the order of arrival."""
        self.kinds[places] = _KINDS[kind]
        self.due_ms[places] = due_ms

    def copy(self, places: npt.NDArray[np.int64], others: Self) -> None:
        """Set the decisions about the segments at `places` to those of `others`."""
        self.kinds[places], self.due_ms[places] = others.kinds, others.due_ms

    def put(self, place: int, reason: Reason, due_ms: int | None) -> None:
        """Set the decision about the segment at a place in the order of arrival."""
        self.kinds[place] = _KINDS[reason.kind]
        self.due_ms[place] = NEVER if due_ms is None else due_ms

    @classmethod
    def alike(cls, count: int, kind: ReasonKind, due_ms: int) -> Self:
        """Return the same decision about each of `count` segments."""
        found = cls.none(count)
        found.fill(slice(None), kind, due_ms)
        return found

    def has(self, kinds: Iterable[ReasonKind]) -> npt.NDArray[np.bool_]:
        """Return for each segment whether the reason of its decision is one of `kinds`."""
        found: npt.NDArray[np.bool_] = np.isin(self.kinds, [_KINDS[kind] for kind in kinds])
        return found

    @property
    def is_decided(self) -> npt.NDArray[np.bool_]:
        """Return for each segment whether there is a decision."""
        found: npt.NDArray[np.bool_] = self.kinds != _NO_KIND
        return found


@dataclass(frozen=True, slots=True)
class KeptSegments:
    """The decisions about the segments of a partition that a plan does not act on, in order of arrival.

    `columns` have them for every segment; `decide` makes the one at a place, which takes a hundred times as
    long.
    """

    columns: DecisionColumns
    decide: Callable[[int], Decision]

    def __iter__(self) -> Iterator[Decision]:
        """Yield all decisions."""
        return map(self.decide, np.flatnonzero(self.columns.is_decided).tolist())

    def of_kinds(self, kinds: Iterable[ReasonKind]) -> Iterator[Decision]:
        """Yield the decisions whose reasons are of one of `kinds`."""
        return map(self.decide, np.flatnonzero(self.columns.has(kinds)).tolist())


# Local retention: which segments a broker deletes from its disk next, and why others that should go stay.
#
# Source: UnifiedLog.deleteOldSegments, deletableSegments, deleteRetentionSizeBreachedSegments and
# deleteRetentionMsBreachedSegments, which are the same from Kafka 3.9 to 4.4, other than for an empty
# cleanup.policy.

_AS_RETENTION = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDecision:
    """What a broker does with one rolled segment on its disk: with `is_deleted` it deletes it next."""

    segment: LocalSegment
    reason: Reason
    is_deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRetention:
    """The effective local.retention.ms and local.retention.bytes of a topic; a limit below 0 is none.

    With `needs_copy`, only what is in the tier is deleted.
    """

    ms: int
    size_bytes: int
    needs_copy: bool = True
    kafka_version: KafkaVersion = LATEST

    @classmethod
    def of(cls, config: TopicConfig) -> Self:
        """Return the local retention of a topic; -2 is its retention (LogConfig.localRetentionMs).

        If nothing is copied, because of remote.log.copy.disable or of remote.storage.enable, retention.ms and
        retention.bytes count instead, also for what is not in the tier (UnifiedLog.localRetentionMs).
        Without cleanup.policy=delete there is no limit, unless the policy is empty, the topic copies and the
        version cleans such logs.
        """
        version = config.kafka_version
        is_copying = config.remote_storage_enable is not False and not config.is_copy_disabled
        is_cleaned = not config.cleanup_policy and is_copying and version.cleans_without_policy
        if "delete" not in config.cleanup_policy and not is_cleaned:
            return cls(ms=UNLIMITED, size_bytes=UNLIMITED, kafka_version=version)
        retention_ms, retention_bytes = config.broker_retention_ms, config.broker_retention_bytes
        if not is_copying:
            return cls(ms=retention_ms, size_bytes=retention_bytes, needs_copy=False, kafka_version=version)
        stated = {name: each.value for name, each in config.stated.items()}
        own_ms = topic.LOCAL_RETENTION_MS.value(stated)
        own_bytes = topic.LOCAL_RETENTION_BYTES.value(stated)
        return cls(
            ms=retention_ms if own_ms == _AS_RETENTION else own_ms,
            size_bytes=retention_bytes if own_bytes == _AS_RETENTION else own_bytes,
            kafka_version=version,
        )

    def left(self, log: LocalLog, highest_copied: int, now_ms: int) -> tuple[LocalSegment, ...]:
        """Return the segments of `log` that local retention keeps at `now_ms`.

        The active segment is left unless a broker rolls it (`why_rolled`) and may then delete it.
        """
        may_go = log.log_end_offset - 1 <= highest_copied or not self.needs_copy
        if may_go and self.why_rolled(log, highest_copied, now_ms) is not None:
            return ()
        return log.segments[self._deleted(log, highest_copied, now_ms) :]

    def _deleted(self, log: LocalLog, highest_copied: int, now_ms: int) -> int:
        return sum(each.is_deleted for each in self.decide(log, highest_copied, now_ms))

    def why_rolled(self, log: LocalLog, highest_copied: int, now_ms: int) -> Reason | None:
        """Return the limit for which brokers roll the active segment of `log` next; None if they do not.

        They do if nothing is left before it, it breaches a limit, too, and it is replicated, copied or not
        (UnifiedLog.deletableSegments).
        """
        left = log.segments[self._deleted(log, highest_copied, now_ms) :]
        is_replicated = log.log_end_offset <= max(log.high_watermark, highest_copied + 1)
        if len(left) != 1 or left[0].next_base_offset is not None or not is_replicated:
            return None
        (active,) = left
        if active.size_bytes and self._is_excess(active.size_bytes, active):
            return self._by_size(active.size_bytes)
        return self._by_time(active, now_ms) if active.size_bytes and self._is_old(active, now_ms) else None

    def decide(self, log: LocalLog, highest_copied: int, now_ms: int) -> Iterator[LocalDecision]:
        """Yield the oldest segments of `log`: those that are deleted, then those that should be and stay.

        Segments are deleted from the oldest on, as long as a segment ends at or below the high watermark, and
        at or below the last offset in the tier (`highest_copied`) or below the log start. Segments below the
        log start are deleted in any case; then size deletes segments that are wholly inside the excess, and
        then time. The active segment stays: a broker rolls it first (`left`).
        """
        rolled = [segment for segment in log.segments if segment.next_base_offset is not None]
        deletable = sum(1 for _ in self._deletable(log, highest_copied))
        deleted = sum(_is_below_start(log, segment) for segment in rolled[:deletable])
        for segment in rolled[:deleted]:
            reason = Reason(ReasonKind.LOCAL_LOG_START, log_start_offset=log.log_start_offset)
            yield LocalDecision(segment=segment, reason=reason, is_deleted=True)
        local_bytes = sum(segment.size_bytes for segment in log.segments[deleted:])
        while deleted < deletable and self._is_excess(local_bytes, rolled[deleted]):
            yield LocalDecision(segment=rolled[deleted], reason=self._by_size(local_bytes), is_deleted=True)
            local_bytes -= rolled[deleted].size_bytes
            deleted += 1
        while deleted < deletable and self._is_old(rolled[deleted], now_ms):
            reason = self._by_time(rolled[deleted], now_ms)
            yield LocalDecision(segment=rolled[deleted], reason=reason, is_deleted=True)
            local_bytes -= rolled[deleted].size_bytes
            deleted += 1
        yield from self._held(log, rolled[deleted:], local_bytes, highest_copied, now_ms)

    def _held(
        self,
        log: LocalLog,
        left: Sequence[LocalSegment],
        local_bytes: int,
        highest_copied: int,
        now_ms: int,
    ) -> Iterator[LocalDecision]:
        """Yield the oldest of the segments that are `left` for which a limit is over, and why they stay."""
        for segment in left:
            age_ms = now_ms - segment.age_from_ms(now_ms)
            if self._is_excess(local_bytes, segment):
                rule = self._by_size(local_bytes)
            elif 0 <= self.ms < age_ms:
                rule = self._by_time(segment, now_ms)
            else:
                return
            local_bytes -= segment.size_bytes
            first = left[0]
            reason = Reason(
                ReasonKind.LOCAL_HELD,
                breach=str(rule),
                why=self._why_held(log, first, highest_copied),
                held_by_offset=first.base_offset,
                is_holder=segment is first,
                highest_copied_offset=highest_copied,
                **rule.facts,
            )
            yield LocalDecision(segment=segment, reason=reason, is_deleted=False)

    def _why_held(self, log: LocalLog, segment: LocalSegment, highest_copied: int) -> str:
        """Return why brokers do not delete `segment`, the oldest one for which a limit is over."""
        end = (segment.next_base_offset or log.log_end_offset) - 1
        if self.needs_copy and end > highest_copied:
            known = "nothing of the log is" if highest_copied < 0 else f"offsets up to {highest_copied} are"
            return f"it is not copied: {known} in the tier"
        if end >= max(log.high_watermark, highest_copied + 1):
            return f"it reaches above the high watermark {log.high_watermark}"
        # Without copies, later versions count in the same way.
        who, issue = ("Kafka before 4.5", " (KAFKA-20609)") if self.needs_copy else ("Kafka", "")
        until = no_age_text(segment.max_timestamp_ms, is_in_future=True)
        return f"its {until}, and {who} counts {self._ms_row.name} from that time on{issue}"

    def _deletable(self, log: LocalLog, highest_copied: int) -> Iterator[LocalSegment]:
        # Only replicated records are copied. So the high watermark is above the highest copied offset, also
        # if its checkpoint is older.
        high_watermark = max(log.high_watermark, highest_copied + 1)
        for segment in log.segments:
            end = segment.next_base_offset
            if end is None or end > high_watermark:
                return
            if self.needs_copy and end - 1 > highest_copied and not _is_below_start(log, segment):
                return
            yield segment

    def _is_excess(self, local_bytes: int, segment: LocalSegment) -> bool:
        """Return whether `segment` lies wholly in the part of the log, of `local_bytes`, above the limit."""
        return self.size_bytes >= 0 and local_bytes - self.size_bytes >= segment.size_bytes

    def _is_old(self, segment: LocalSegment, now_ms: int) -> bool:
        largest_ms = segment.max_timestamp_ms
        if self.needs_copy and self.kafka_version.ages_future_segments:
            largest_ms = segment.age_from_ms(now_ms)
        return self.ms >= 0 and now_ms - largest_ms > self.ms

    def _by_size(self, local_bytes: int) -> Reason:
        row = topic.LOCAL_RETENTION_BYTES if self.needs_copy else topic.RETENTION_BYTES
        facts = {"setting": row.name, "retention_bytes": self.size_bytes, "local_bytes": local_bytes}
        return Reason(ReasonKind.LOCAL_RETENTION_BYTES, **facts)

    @property
    def _ms_row(self) -> Setting[int]:
        return topic.LOCAL_RETENTION_MS if self.needs_copy else topic.RETENTION_MS

    def _by_time(self, segment: LocalSegment, now_ms: int) -> Reason:
        facts = {"setting": self._ms_row.name, "newest_ms": segment.age_from_ms(now_ms)}
        return Reason(ReasonKind.LOCAL_RETENTION_MS, **facts, retention_ms=self.ms)


def _is_below_start(log: LocalLog, segment: LocalSegment) -> bool:
    return segment.next_base_offset is not None and segment.next_base_offset <= log.log_start_offset


def with_local_retention(
    kept: Iterable[Decision], log: LocalLog, part: PartitionState | None, config: TopicConfig, now_ms: int
) -> Iterator[Decision]:
    """Yield the decisions `kept`, which a copy's plan has about segments of `log` that it does not copy.

    Those about segments in the tier, and about an active one that it rolls, have the decision of the local
    retention instead. `part` is the partition in the tier; None if nothing is.
    """
    copied = -1
    if part is not None:
        copied = find_highest_remote_offset(part.cache, Lineage(log.leader_epochs), log.log_end_offset)
    limits = LocalRetention.of(config)
    local = {d.segment.base_offset: d for d in limits.decide(log, copied, now_ms)}
    for each in kept:
        decided = local.get(each.start_offset)
        if decided is not None and decided.is_deleted:
            yield replace(each, action=NextAction.DELETE_LOCAL, reason=decided.reason, due_ms=now_ms)
        elif decided is not None and each.reason.kind in {ReasonKind.COPIED, ReasonKind.COPY_DISABLED}:
            yield replace(each, reason=decided.reason)
        elif each.end_offset is None and (rule := limits.why_rolled(log, copied, now_ms)) is not None:
            rolled = Reason(ReasonKind.LOCAL_ROLL, **each.reason.facts, breach=str(rule), **rule.facts)
            yield replace(each, reason=rolled)
        else:
            yield each


# retention.ms and retention.bytes of a topic: which segments breach them, and why the others stay.


class Limits:
    """RemoteLogRetentionHandler: time first, then size; segments that time deletes reduce the excess, too.

    `over_bytes` are the bytes above retention.bytes, negative below it; unless `is_size_known`, at least so
    many. With `sweep`, which states why `sweep` keeps a segment that brokers delete, the limits are those of
    brokers.
    """

    def __init__(
        self,
        config: TopicConfig,
        now_ms: int,
        over_bytes: int,
        *,
        is_size_known: bool = True,
        sweep: str | None = None,
    ) -> None:
        self._config = config
        self.now_ms = now_ms
        self._is_size_known = is_size_known
        self._sweep = sweep
        self._excess_bytes = max(0, over_bytes)
        self.holder: RemoteLogSegmentMetadata | None = None
        """The unfinished copy at which this run stops, before every live segment that stays."""

    def breach(self, segment: RemoteLogSegmentMetadata, *, is_counted: bool = True) -> Reason | None:
        """Return the limit that `segment` breaches, None without one; a breach reduces the excess.

        The excess stays as it is unless the segment `is_counted` in it, as an unfinished copy is not.
        """
        size_bytes = segment.segment_size_in_bytes
        excess_bytes = self._excess_bytes
        sweep = {} if self._sweep is None else {"sweep": self._sweep}
        if self._is_too_old(segment):
            self._excess_bytes = max(0, excess_bytes - size_bytes * is_counted)
            limit_ms = self._config.retention_ms
            return Reason(
                ReasonKind.RETENTION_MS, retention_ms=limit_ms, cutoff_ms=self.now_ms - limit_ms, **sweep
            )
        # A segment larger than the rest of the excess stays, so that the remaining size is not below the
        # limit.
        if 0 < excess_bytes >= size_bytes:
            self._excess_bytes = excess_bytes - size_bytes * is_counted
            limit_bytes = self._config.retention_bytes
            facts = {"retention_bytes": limit_bytes, "excess_bytes": excess_bytes}
            return Reason(ReasonKind.RETENTION_BYTES, **facts, **self._unknown_size, **sweep)
        return None

    def subtract(self, segment: RemoteLogSegmentMetadata) -> None:
        """Reduce the excess by a segment that is deleted although it breaches no limit."""
        self._excess_bytes = max(0, self._excess_bytes - segment.segment_size_in_bytes)

    @property
    def _unknown_size(self) -> dict[str, bool]:
        return {} if self._is_size_known else {"is_size_known": False}

    def _is_too_old(self, segment: RemoteLogSegmentMetadata) -> bool:
        # A segment with a timestamp in the future does not expire, and for `sweep` neither does one without
        # a timestamp.
        expires_at_ms = self._expires_at_ms(segment)
        is_age_known = segment.max_timestamp_ms > 0 or self._sweep is not None
        return expires_at_ms is not None and is_age_known and self.now_ms >= expires_at_ms

    @property
    def lifetime_ms(self) -> int | None:
        """The age at which retention.ms deletes a segment; None if it is no limit.

        One that ends after the last time that a record can have, as Long.MAX_VALUE, is none.
        """
        lifetime_ms = self._config.retention_ms + (0 if self._config.kafka_version.expires_at_cutoff else 1)
        return None if self._config.retention_ms < 0 or lifetime_ms > NEVER - self.now_ms else lifetime_ms

    def _expires_at_ms(self, segment: RemoteLogSegmentMetadata) -> int | None:
        """Return the first time at which retention.ms deletes `segment`; None if it is no limit."""
        lifetime_ms = self.lifetime_ms
        # Without a timestamp it is older than any limit that begins after 1970.
        return None if lifetime_ms is None else max(segment.max_timestamp_ms, 0) + lifetime_ms

    def why_kept(self, live: LiveSegments, copies: Sequence["CopyBefore"]) -> "WhyKept":
        """Return why `live` segments stay, which no limit deletes now; the oldest comes first.

        `copies` are the unfinished copies between them at which brokers stop, too.
        """
        times_ms = live.column("max_timestamp")
        has_no_age = np.flatnonzero(times_ms > self.now_ms)
        stallers = [each for each in copies if each.segment.max_timestamp_ms > self.now_ms]
        staller = min([*has_no_age[:1].tolist(), *(each.at for each in stallers[:1]), len(live)])
        is_latest = times_ms >= np.maximum.accumulate(times_ms)
        latest = np.maximum.accumulate(np.where(is_latest, np.arange(len(live)), 0))
        return WhyKept(self, live, copies, staller=staller, latest=latest)

    def why_size_keeps(
        self, segment: RemoteLogSegmentMetadata, first: RemoteLogSegmentMetadata | None
    ) -> Reason:
        """Return why `segment` stays if only size counts; `first` is the oldest one, None for that itself."""
        if self._config.retention_bytes >= 0 and first is not None:
            return Reason(ReasonKind.BEHIND_OLDER, held_by=first.segment_id, **self._unknown_size)
        is_age_stated = self._config.is_age_stated
        return Reason(ReasonKind.NO_LIMIT_REACHED, is_age_stated=is_age_stated, **self._size_facts(segment))

    def why_stalled(self, segment: RemoteLogSegmentMetadata, staller: RemoteLogSegmentMetadata) -> Reason:
        """Return why `segment` stays behind `staller`, or is it."""
        return Reason(
            ReasonKind.STALLED,
            held_by=staller.segment_id,
            held_by_offset=staller.start_offset,
            is_holder=segment is staller,
            timestamp_ms=staller.max_timestamp_ms,
        )

    def why_young(self, segment: RemoteLogSegmentMetadata, latest: RemoteLogSegmentMetadata) -> Reason:
        """Return when `segment` expires: `latest` has the largest timestamp of it and the older segments."""
        return Reason(
            ReasonKind.WILL_EXPIRE,
            expires_at_ms=self._expires_at_ms(latest),
            own_expiry_ms=self._expires_at_ms(segment),
            held_by=None if latest is segment else latest.segment_id,
            max_timestamp_ms=segment.max_timestamp_ms,
            retention_ms=self._config.retention_ms,
            **self._size_facts(segment),
        )

    def _size_facts(self, segment: RemoteLogSegmentMetadata) -> dict[str, int]:
        if self._config.retention_bytes < 0:
            return {}
        if not self._is_size_known:
            return {"retention_bytes": self._config.retention_bytes}
        return {
            "retention_bytes": self._config.retention_bytes,
            "excess_bytes": self._excess_bytes,
            "segment_size_in_bytes": segment.segment_size_in_bytes,
        }


class CopyBefore(NamedTuple):
    """An unfinished copy, and the index of the live segment before which brokers look at it."""

    at: int
    segment: RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class WhyKept:
    """Why live segments stay that no limit deletes now.

    From index `staller` on they stay because of the timestamp of the one there, or of a copy before it.
    Before it, they stay as long as the one at their index in `latest`, which has the largest timestamp of
    them and the older ones, or as a copy before them, if that has a larger one.
    """

    limits: Limits
    live: LiveSegments
    copies: Sequence[CopyBefore]
    staller: int
    latest: Int64s

    def columns(self) -> DecisionColumns:
        """Return the decisions about the live segments."""
        found = DecisionColumns.none(len(self.live))
        lifetime_ms = self.limits.lifetime_ms
        if lifetime_ms is None:
            for at, alike in ((0, slice(0, 1)), (1, slice(1, None))):
                if at < len(self.live):
                    found.fill(alike, self.reason(at).kind)
            return found
        times_ms = np.maximum(self.live.column("max_timestamp")[self.latest], 0)
        for at, copy in self.copies:
            times_ms[at:] = np.maximum(times_ms[at:], copy.max_timestamp_ms)
        found.fill(slice(self.staller), ReasonKind.WILL_EXPIRE, times_ms[: self.staller] + lifetime_ms)
        found.fill(slice(self.staller, None), ReasonKind.STALLED)
        return found

    def reason(self, at: int) -> Reason:
        """Return why the live segment at an index stays."""
        segment = self.live.metadata(at)
        if self.limits.lifetime_ms is None:
            first = self.live.metadata(0) if at else None
            return self.limits.why_size_keeps(segment, self.limits.holder or first)
        copies = [copy for before, copy in self.copies if before <= min(at, self.staller)]
        if at >= self.staller:
            stallers = (copy for copy in copies if copy.max_timestamp_ms > self.limits.now_ms)
            return self.limits.why_stalled(segment, next(stallers, self._other(at, segment, self.staller)))
        oldest = self._other(at, segment, int(self.latest[at]))
        return self.limits.why_young(segment, max([oldest, *copies], key=lambda s: s.max_timestamp_ms))

    def _other(self, at: int, segment: RemoteLogSegmentMetadata, other: int) -> RemoteLogSegmentMetadata:
        return segment if other == at else self.live.metadata(other)
