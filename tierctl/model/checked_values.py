"""Check values from outside: numbers in texts, folders that options name, and the types of JSON fields that
others may have changed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tierctl.errors import UsageError

Types = type | tuple[type, ...]
TEXT_OR_NULL = (str, type(None))
NUMBER_MAX = (1 << 63) - 1
"""The largest number of Kafka's own files and records."""
PORT_MAX = (1 << 16) - 1


def require_types(raw: Mapping[str, Any], types: Mapping[str, Types], where: str = "") -> None:
    """Raise ValueError if a field of `raw` that `types` names has another type; a bool is no int.

    A missing field is no error here. `where` is put before the field's name.
    """
    for name, expected in types.items():
        value = raw.get(name, raw)
        if value is raw:
            continue
        accepted = expected if isinstance(expected, tuple) else (expected,)
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
            names = " or ".join("null" if each is type(None) else each.__name__ for each in accepted)
            raise ValueError(f"{where}{name}: expected {names}, found {value!r}")


def natural_number(text: str, most: int = NUMBER_MAX) -> int | None:
    """Return the number from 0 to `most` that ASCII digits state; None for any other text.

    Python takes other scripts' digits for digits, and refuses to convert thousands of them.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0")
    if len(digits) > len(str(most)):
        return None
    number = int(digits or "0")
    return number if number <= most else None


def require_no_file(option: str, folder: Path) -> None:
    """Raise UsageError if the folder that `option` names, or a folder above it, is a file."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise UsageError(
            f"{option} {folder}: expected a folder, found the file {there}",
            hint=f"name a folder with {option}, or move the file away",
        )
