"""UnifiedLog.deleteOldSegments for a tiered topic: which segments local retention deletes from a disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from tierctl.model import LocalLog, LocalSegment, TopicConfig
from tierctl.model.configs import UNLIMITED
from tierctl.model.settings import topic

_AS_RETENTION = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRetention:
    """The effective local.retention.ms and local.retention.bytes of a topic; a limit below 0 is none.

    With `needs_copy`, only what is in the tier is deleted.
    """

    ms: int
    size_bytes: int
    needs_copy: bool = True

    @classmethod
    def of(cls, config: TopicConfig) -> Self:
        """Return the local retention of a topic; -2 is its retention (LogConfig.localRetentionMs).

        With remote.log.copy.disable, retention.ms and retention.bytes count instead, also for what is not in
        the tier (KIP-950, UnifiedLog.localRetentionMs). Without cleanup.policy=delete there is no limit.
        """
        if "delete" not in config.cleanup_policy:
            return cls(ms=UNLIMITED, size_bytes=UNLIMITED)
        if config.is_copy_disabled:
            return cls(ms=config.retention_ms, size_bytes=config.retention_bytes, needs_copy=False)
        stated = {name: each.value for name, each in config.stated.items()}
        own_ms = topic.LOCAL_RETENTION_MS.value(stated)
        own_bytes = topic.LOCAL_RETENTION_BYTES.value(stated)
        return cls(
            ms=config.retention_ms if own_ms == _AS_RETENTION else own_ms,
            size_bytes=config.retention_bytes if own_bytes == _AS_RETENTION else own_bytes,
        )

    def left(self, log: LocalLog, highest_copied: int, now_ms: int) -> tuple[LocalSegment, ...]:
        """Return the segments of `log` that local retention keeps at `now_ms`.

        As in UnifiedLog.deletableSegments, segments are deleted from the oldest on, as long as a segment ends
        at or below the high watermark, and at or below the last offset in the tier (`highest_copied`) or
        below the log start. Segments below the log start are deleted in any case; then size deletes segments
        that are wholly inside the excess, and then time. The active segment stays.
        """
        deletable = list(self._deletable(log, highest_copied))
        deleted = sum(_is_below_start(log, segment) for segment in deletable)
        if self.size_bytes >= 0:
            excess_bytes = sum(segment.size_bytes for segment in log.segments[deleted:]) - self.size_bytes
            while deleted < len(deletable) and excess_bytes >= deletable[deleted].size_bytes:
                excess_bytes -= deletable[deleted].size_bytes
                deleted += 1
        if self.ms >= 0:
            while deleted < len(deletable) and now_ms - deletable[deleted].max_timestamp_ms > self.ms:
                deleted += 1
        return log.segments[deleted:]

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


def _is_below_start(log: LocalLog, segment: LocalSegment) -> bool:
    return segment.next_base_offset is not None and segment.next_base_offset <= log.log_start_offset
