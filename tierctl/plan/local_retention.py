"""Local retention: which segments a broker deletes from its disk next, and why others that should go stay.

Source: UnifiedLog.deleteOldSegments, deletableSegments, deleteRetentionSizeBreachedSegments and
deleteRetentionMsBreachedSegments, which are the same from Kafka 3.9 to 4.4.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from tierctl.model import LocalLog, LocalSegment, TopicConfig
from tierctl.model.configs import UNLIMITED
from tierctl.model.settings import topic
from tierctl.model.settings.kafka_version import LATEST, KafkaVersion
from tierctl.plan.decisions import Decision, NextAction
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.state.lineage import Lineage, find_highest_remote_offset
from tierctl.state.tier_state import PartitionState

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

        With remote.log.copy.disable, retention.ms and retention.bytes count instead, also for what is not in
        the tier (KIP-950, UnifiedLog.localRetentionMs). Without cleanup.policy=delete there is no limit.
        """
        version = config.kafka_version
        if "delete" not in config.cleanup_policy:
            return cls(ms=UNLIMITED, size_bytes=UNLIMITED, kafka_version=version)
        retention_ms = config.broker_retention_ms
        if config.is_copy_disabled:
            return cls(
                ms=retention_ms, size_bytes=config.retention_bytes, needs_copy=False, kafka_version=version
            )
        stated = {name: each.value for name, each in config.stated.items()}
        own_ms = topic.LOCAL_RETENTION_MS.value(stated)
        own_bytes = topic.LOCAL_RETENTION_BYTES.value(stated)
        return cls(
            ms=retention_ms if own_ms == _AS_RETENTION else own_ms,
            size_bytes=config.retention_bytes if own_bytes == _AS_RETENTION else own_bytes,
            kafka_version=version,
        )

    def left(self, log: LocalLog, highest_copied: int, now_ms: int) -> tuple[LocalSegment, ...]:
        """Return the segments of `log` that local retention keeps at `now_ms`."""
        return log.segments[sum(each.is_deleted for each in self.decide(log, highest_copied, now_ms)) :]

    def decide(self, log: LocalLog, highest_copied: int, now_ms: int) -> Iterator[LocalDecision]:
        """Yield the oldest segments of `log`: those that are deleted, then those that should be and stay.

        Segments are deleted from the oldest on, as long as a segment ends at or below the high watermark, and
        at or below the last offset in the tier (`highest_copied`) or below the log start. Segments below the
        log start are deleted in any case; then size deletes segments that are wholly inside the excess, and
        then time. The active segment stays: a broker rolls it first.
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
        return (
            f"its largest timestamp {segment.max_timestamp_ms} is in the future, and Kafka before 4.5 never "
            f"deletes it by {topic.LOCAL_RETENTION_MS.name} (KAFKA-20609)"
        )

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

    def _by_time(self, segment: LocalSegment, now_ms: int) -> Reason:
        row = topic.LOCAL_RETENTION_MS if self.needs_copy else topic.RETENTION_MS
        facts = {"setting": row.name, "retention_ms": self.ms, "newest_ms": segment.age_from_ms(now_ms)}
        return Reason(ReasonKind.LOCAL_RETENTION_MS, **facts)


def _is_below_start(log: LocalLog, segment: LocalSegment) -> bool:
    return segment.next_base_offset is not None and segment.next_base_offset <= log.log_start_offset


def with_local_retention(
    kept: Iterable[Decision], log: LocalLog, part: PartitionState | None, config: TopicConfig, now_ms: int
) -> Iterator[Decision]:
    """Yield the decisions `kept`, which a copy's plan has about segments of `log` that it does not copy.

    Those about segments in the tier have the decision of the local retention instead. `part` is the
    partition in the tier; None if nothing is.
    """
    copied = -1
    if part is not None:
        copied = find_highest_remote_offset(part.cache, Lineage(log.leader_epochs), log.log_end_offset).offset
    local = {d.segment.base_offset: d for d in LocalRetention.of(config).decide(log, copied, now_ms)}
    for each in kept:
        decided = local.get(each.start_offset)
        if decided is not None and decided.is_deleted:
            yield replace(each, action=NextAction.DELETE_LOCAL, reason=decided.reason, due_ms=now_ms)
        elif decided is not None and each.reason.kind in {ReasonKind.COPIED, ReasonKind.COPY_DISABLED}:
            yield replace(each, reason=decided.reason)
        else:
            yield each
