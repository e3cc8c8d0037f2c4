"""Times and durations as operators type and read them: the one parser and the one printer of both."""

import re
import time
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from tierctl.errors import UsageError

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = r"([0-9]{1,15})(ms|[smhdw])"
_DURATION = re.compile(rf"(?:{_PART})+\Z", re.ASCII)
_ISO_DURATION = re.compile(
    r"P(?=[0-9T])(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})(?:[.,]([0-9]{1,3})[0-9]{0,6})?S)?)?\Z",
    re.ASCII,
)
_RELATIVE = re.compile(rf"([+-]?)((?:{_PART})+)\Z", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,18}\Z", re.ASCII)
_AGES = (("s", 1000, 120), ("min", 60_000, 120), ("h", 3_600_000, 48), ("d", 86_400_000, 730))
"""Units of ages, their milliseconds, and the number from which the next unit is used; the last is years."""
_YEAR_MS = 31_557_600_000

_DISTANCE_MS_MAX = 10**18 - 1
"""The largest number of `_NUMBER`: columns of times have 64 bits."""
TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999, the last one of ISO 8601 with four digits and of `datetime`."""
DURATION_FORMS = "500ms, 90s, 1h30m, 7d, or PT90S (ISO 8601)"
"""The forms that `parse_duration_ms` accepts, for the help of options."""
TIME_FORMS = "as 2026-11-21T12:00:00Z, -2h, 3d (ago), +1d, or milliseconds since 1970"
"""The forms that `parse_time_ms` accepts, for the help of options."""


class TimeForm(StrEnum):
    """How a table prints times."""

    RELATIVE = "relative"
    ISO = "iso"
    MS = "ms"


def time_text(at_ms: int, form: TimeForm, *, now_ms: int) -> str:
    """Return a time in milliseconds since 1970 as text in `form`; `parse_time_ms` reads all but ages.

    RELATIVE is the age at `now_ms`, as `3 h ago` or `in 5 min`. ISO is the local time with its offset. Times
    before 1970, which Kafka uses for unknown ones, are printed as numbers.
    """
    if form is TimeForm.MS or at_ms < 0:
        return str(at_ms)
    return _age_text(now_ms - at_ms) if form is TimeForm.RELATIVE else _local(at_ms)


def _age_text(age_ms: int) -> str:
    size_ms = abs(age_ms)
    unit, number = "y", size_ms // _YEAR_MS
    for name, unit_ms, end in _AGES:
        if size_ms < end * unit_ms:
            unit, number = name, size_ms // unit_ms
            break
    return f"{number} {unit} ago" if age_ms >= 0 else f"in {number} {unit}"


def _local(at_ms: int) -> str:
    try:
        moment = (
            datetime.fromtimestamp(at_ms // 1000, UTC) + timedelta(milliseconds=at_ms % 1000)
        ).astimezone()
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_utc(at_ms: int) -> str:
    """Return a time in milliseconds since 1970 as ISO 8601 in UTC; the number if datetime can't hold it."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(at_ms)


def parse_time_ms(text: str) -> int:
    """Return milliseconds since 1970 from a number of them, ISO 8601, or a time relative to the clock.

    ISO 8601 without a zone is in UTC. `2h` and `-2h` are two hours ago, `+1d12h` is in the future, and `now`
    is the present.
    """
    relative = _RELATIVE.match(text)
    if relative is not None and (distance_ms := _total_ms(relative[2])) <= _DISTANCE_MS_MAX:
        return system_clock_ms() + (distance_ms if relative[1] == "+" else -distance_ms)
    if _NUMBER.match(text):
        return int(text)
    if text == "now":
        return system_clock_ms()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"not a time: {text!r}", hint=f"expected {TIME_FORMS}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of a duration, which has a unit.

    A duration is as 500ms, 90s, 30m, 1h30m, 7d or 2w, or as in ISO 8601: PT90S, PT1H30M, P7D, PT0.5S. Raise
    UsageError for other texts: for numbers, which Kafka's tools take for milliseconds and others for seconds,
    and for months and years, whose length differs.
    """
    if _DURATION.match(text) and (total_ms := _total_ms(text)) <= _DISTANCE_MS_MAX:
        return total_ms
    iso = _ISO_DURATION.match(text)
    if iso is None:
        hint = f"expected as {DURATION_FORMS}"
        if text.isascii() and text.isdigit():
            hint = f"a unit is missing: {text}s or {text}ms"
        raise UsageError(f"not a duration: {text!r}", hint=hint)
    *numbers, fraction = iso.groups(default="0")
    units_ms = (_UNITS_MS[unit] for unit in "wdhms")
    whole_ms = sum(int(number) * unit_ms for number, unit_ms in zip(numbers, units_ms, strict=True))
    return whole_ms + int(fraction.ljust(3, "0"))


def _total_ms(text: str) -> int:
    return sum(int(number) * _UNITS_MS[unit] for number, unit in re.findall(_PART, text))


def parse_duration_s(text: str) -> float:
    """Return the seconds of a duration as `parse_duration_ms`."""
    return parse_duration_ms(text) / 1000


def duration_text(duration_ms: int) -> str:
    """Return a duration as `parse_duration_ms` reads it: 1d12h, 90s as 1m30s, 0 as 0s."""
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        number, duration_ms = divmod(duration_ms, _UNITS_MS[unit])
        text += f"{number}{unit}" if number else ""
    return text or "0s"


def system_clock_ms() -> int:
    """Return the system clock's milliseconds since 1970."""
    return time.time_ns() // 1_000_000
