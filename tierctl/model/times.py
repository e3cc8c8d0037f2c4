"""Times as operators type them."""

from datetime import UTC, datetime

from tierctl.errors import UsageError


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
