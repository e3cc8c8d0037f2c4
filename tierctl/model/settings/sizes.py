"""Numbers of bytes, and values of settings with a unit, as operators type them."""

import re

from tierctl.errors import UsageError
from tierctl.model.times import parse_duration_ms

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_SIZE = re.compile(r"([0-9]{1,18})(\.[0-9]+)?\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE | re.ASCII)


def parse_size(text: str) -> int:
    """Return the bytes in `text`, as 50M, 1.5 GiB (rounded down) or 1048576; UsageError for another form."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is no number of bytes", hint="expected as 50M: K, M, G, T and P are powers of 1024"
        )
    unit = _UNITS[match[3].lower()]
    return int(match[1]) * unit + int(float(match[2] or 0) * unit)


def without_unit(setting: str, text: str) -> str:
    """Return the value `text` of the setting with that name as Kafka reads it, without a unit.

    The name tells whether the value is a number of milliseconds, as 7d, or of bytes, as 50G. Other values,
    and numbers without a unit, are returned unchanged. Raise UsageError for a unit that is unknown.
    """
    if not text.isascii() or not text[-1:].isalpha():
        return text
    if setting.endswith(".ms"):
        return str(parse_duration_ms(text))
    is_size = setting.endswith((".bytes", ".bytes.per.second"))
    return str(parse_size(text)) if is_size else text
