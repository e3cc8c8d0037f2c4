"""Segments whose timestamp does not show their age, and which therefore stop retention.ms of a partition."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from tierctl.model import RemoteLogSegmentMetadata, TopicConfig
from tierctl.model.settings import topic
from tierctl.model.times import iso_utc
from tierctl.plan.reasons import no_age_text


def has_age(segment: RemoteLogSegmentMetadata, now_ms: int) -> bool:
    """Return whether the largest timestamp of `segment` shows its age: it is set, and not in the future."""
    return 0 < segment.max_timestamp_ms <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledRetention:
    """The segment that stops retention.ms of its partition, and since when; None if nothing is due yet."""

    segment: RemoteLogSegmentMetadata
    since_ms: int | None
    is_in_future: bool

    @classmethod
    def by(
        cls,
        blocking: RemoteLogSegmentMetadata | None,
        behind: Iterable[RemoteLogSegmentMetadata],
        config: TopicConfig,
        now_ms: int,
    ) -> Self | None:
        """Return the stall if `blocking`, the oldest segment that stays, stays because of its timestamp.

        Kafka never expires a segment by time whose largest timestamp is 0 or less, or in the future, and it
        does not examine the segments after the first one that stays (`behind`).
        """
        if blocking is None or config.retention_ms < 0 or has_age(blocking, now_ms):
            return None
        times_ms = (s.max_timestamp_ms for s in behind if has_age(s, now_ms))
        since_ms = min((at_ms + config.retention_ms for at_ms in times_ms), default=now_ms)
        return cls(
            segment=blocking,
            since_ms=since_ms if since_ms < now_ms else None,
            is_in_future=blocking.max_timestamp_ms > now_ms,
        )

    @property
    def message(self) -> str:
        """The stall in words, with the segment's id and the time since which segments behind it are due."""
        since, due = "no segment behind it is due yet", ""
        if self.since_ms is not None:
            since = f"since {iso_utc(self.since_ms)}"
            due = f"; the first segment behind it has been due since {iso_utc(self.since_ms)}"
        segment = self.segment
        return (
            f"{topic.RETENTION_MS.name} is stalled ({since}) by segment {segment.segment_id} from offset "
            f"{segment.start_offset}: its {no_age_text(segment.max_timestamp_ms, self.is_in_future)}, "
            f"so neither this segment nor any behind it expires by time{due}"
        )
