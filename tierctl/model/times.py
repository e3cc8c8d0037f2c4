"""Times as operators type them."""

import time
from datetime import UTC, datetime

from tierctl.errors import UsageError


def iso_utc(at_ms: int) -> str:
    """Return a time in milliseconds since 1970 as ISO 8601 in UTC; the number if datetime can't hold it."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(at_ms)


def parse_time_ms(text: str) -> int:
    """Return milliseconds since 1970 from a number of them or ISO 8601, in UTC if it names no zone."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"not a time: {text!r}", hint="expected milliseconds since 1970, or as 2026-11-21T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def system_clock_ms() -> int:
    """Return the system clock's milliseconds since 1970."""
    return time.time_ns() // 1_000_000
