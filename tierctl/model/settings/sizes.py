"""Numbers of bytes as operators type them."""

import re

from tierctl.errors import UsageError

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
