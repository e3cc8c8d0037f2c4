"""retention.ms and retention.bytes of a topic: which segments breach them, and why the others stay."""

from dataclasses import dataclass

import numpy as np

from tierctl.model import RemoteLogSegmentMetadata, TopicConfig
from tierctl.plan.decisions import NEVER, DecisionColumns
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.state.queries import LiveSegments
from tierctl.wire.arrays import Int64s


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
        """The unfinished copy at which brokers stop, before every live segment that stays."""

    def breach(self, segment: RemoteLogSegmentMetadata) -> Reason | None:
        """Return the limit that `segment` breaches, None without one; a breach reduces the excess."""
        size_bytes = segment.segment_size_in_bytes
        excess_bytes = self._excess_bytes
        sweep = {} if self._sweep is None else {"sweep": self._sweep}
        if self._is_too_old(segment):
            self._excess_bytes = max(0, excess_bytes - size_bytes)
            limit_ms = self._config.retention_ms
            return Reason(
                ReasonKind.RETENTION_MS, retention_ms=limit_ms, cutoff_ms=self.now_ms - limit_ms, **sweep
            )
        # A segment larger than the rest of the excess stays, so that the remaining size is not below the
        # limit.
        if 0 < excess_bytes >= size_bytes:
            self._excess_bytes = excess_bytes - size_bytes
            limit_bytes = self._config.retention_bytes
            facts = {"retention_bytes": limit_bytes, "excess_bytes": excess_bytes}
            return Reason(ReasonKind.RETENTION_BYTES, **facts, **self._unknown_size, **sweep)
        return None

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

    def why_kept(self, live: LiveSegments) -> "WhyKept":
        """Return why `live` segments stay, which no limit deletes now; the oldest comes first."""
        count, times_ms = len(live), live.column("max_timestamp")
        has_no_age = np.flatnonzero(times_ms > self.now_ms)
        if self.holder is not None and self.holder.max_timestamp_ms > self.now_ms:
            has_no_age = np.zeros(1, np.int64)
        is_latest = times_ms >= np.maximum.accumulate(times_ms)
        latest = np.maximum.accumulate(np.where(is_latest, np.arange(count), 0))
        return WhyKept(self, live, staller=int(has_no_age[0]) if len(has_no_age) else count, latest=latest)

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


@dataclass(frozen=True, slots=True)
class WhyKept:
    """Why live segments stay that no limit deletes now.

    From index `staller` on they stay because of the timestamp of the one there. Before it, they stay as long
    as the one at their index in `latest`, which has the largest timestamp of them and the older ones. If
    brokers stop at an unfinished copy (`limits.holder`), that is older than all of them.
    """

    limits: Limits
    live: LiveSegments
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
        holder = self.limits.holder
        oldest_ms = 0 if holder is None else max(holder.max_timestamp_ms, 0)
        times_ms = np.maximum(self.live.column("max_timestamp")[self.latest[: self.staller]], oldest_ms)
        found.fill(slice(self.staller), ReasonKind.WILL_EXPIRE, times_ms + lifetime_ms)
        found.fill(slice(self.staller, None), ReasonKind.STALLED)
        return found

    def reason(self, at: int) -> Reason:
        """Return why the live segment at an index stays."""
        segment, holder = self.live.metadata(at), self.limits.holder
        if self.limits.lifetime_ms is None:
            first = self.live.metadata(0) if at else None
            return self.limits.why_size_keeps(segment, holder or first)
        if at >= self.staller:
            staller = self._other(at, segment, self.staller)
            if holder is not None and holder.max_timestamp_ms > self.limits.now_ms:
                staller = holder
            return self.limits.why_stalled(segment, staller)
        latest = self._other(at, segment, int(self.latest[at]))
        if holder is not None and holder.max_timestamp_ms > latest.max_timestamp_ms:
            latest = holder
        return self.limits.why_young(segment, latest)

    def _other(self, at: int, segment: RemoteLogSegmentMetadata, other: int) -> RemoteLogSegmentMetadata:
        return segment if other == at else self.live.metadata(other)
