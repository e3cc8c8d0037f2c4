"""Times as operators type them."""

import re
import time
from datetime import UTC, datetime

from tierctl.errors import UsageError

_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d|)\Z")


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


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of a duration: 500ms, 90s, 30m, 24h, 7d, or a number of milliseconds."""
    found = _DURATION.match(text)
    if found is None:
        raise UsageError(f"not a duration: {text!r}", hint="expected as 90s, 30m, 24h or 7d")
    return int(found[1]) * _UNITS_MS[found[2]]


def system_clock_ms() -> int:
    """Return the system clock's milliseconds since 1970."""
    return time.time_ns() // 1_000_000
