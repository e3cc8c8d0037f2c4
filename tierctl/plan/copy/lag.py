"""How long a rolled segment waits before it is copied: Kafka 4.4's copy lag (KIP-1241)."""

from tierctl.model import LocalSegment
from tierctl.model.configs import CopyLag
from tierctl.model.settings import topic


def why_waiting(candidate: LocalSegment, following_bytes: int, lag: CopyLag, now_ms: int) -> str | None:
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
    limits = []
    if lag.ms is not None:
        limits.append(f"its newest record is {age_ms} of {lag.ms} ms old ({topic.COPY_LAG_MS.name})")
    if lag.bytes is not None:
        limits.append(f"{following_bytes} of {lag.bytes} bytes follow it ({topic.COPY_LAG_BYTES.name})")
    return " and ".join(limits) or "both copy lags are unlimited, so no segment is ever copied"
