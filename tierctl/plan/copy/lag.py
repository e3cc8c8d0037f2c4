"""How long a rolled segment waits before it is copied: Kafka 4.4's copy lag (KIP-1241)."""

from tierctl.model import LocalSegment
from tierctl.model.configs import CopyLag
from tierctl.plan.reasons import Reason, ReasonKind


def why_waiting(candidate: LocalSegment, following_bytes: int, lag: CopyLag, now_ms: int) -> Reason | None:
    """Return why `candidate` is not copied yet; None if it may be copied.

    `following_bytes` is the size of all segments of the log after it, the active one included. The age counts
    from the largest record timestamp; a segment with a timestamp in the future may be copied. Source: Kafka
    4.4's RLMCopyTask and UnifiedLog.
    """
    if lag.ms == 0 or lag.bytes == 0:
        return None
    age_ms = now_ms - candidate.max_timestamp_ms
    if lag.ms is not None and (age_ms < 0 or age_ms >= lag.ms):
        return None
    if lag.bytes is not None and following_bytes >= lag.bytes:
        return None
    return Reason(
        ReasonKind.COPY_LAG,
        from_offset=candidate.base_offset,
        lag_ms=lag.ms,
        age_ms=age_ms,
        lag_bytes=lag.bytes,
        following_bytes=following_bytes,
    )
