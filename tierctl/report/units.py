"""Sizes as a person reads them, and shares as a person writes them."""

import re

from tierctl.errors import UsageError

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?")
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def bytes_text(size_bytes: int) -> str:
    """Return a size in binary units with one decimal: 512 B, 1.5 KiB, 12.4 GiB."""
    size, unit = float(size_bytes), "B"
    for larger in _UNITS:
        # 1023.95 KiB rounded to one decimal would be printed as 1024.0 KiB.
        if abs(size) < (1023.95 if unit != "B" else 1024):
            break
        size, unit = size / 1024, larger
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def parse_percent(text: str) -> float:
    """Return the percentage in `text`, as 1%, 0.5% or 1; UsageError unless it is above 0 and at most 100."""
    match = _PERCENT.fullmatch(text.strip())
    percent = float(match[1]) if match else 0.0
    if not 0 < percent <= 100:
        raise UsageError(f"{text!r} is no percentage", hint="expected for example 1%: above 0, at most 100")
    return percent
