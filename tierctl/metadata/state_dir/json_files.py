"""Small JSON files of the state directory: how they are read, and written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tierctl.errors import CorruptInputError, UsageError
from tierctl.files import PLAIN, FileSystem, read_regular, replace_durably

T = TypeVar("T")
_MALFORMED = (ValueError, KeyError, TypeError, IndexError, AttributeError, UsageError)


def read_json(
    path: Path, parse: Callable[[Any], T], *, if_missing: T, what: str, expected: str, hint: str
) -> T:
    """Return what `parse` makes of the file's content, or `if_missing` without a file.

    Raise CorruptInputError, with `what`, `expected` and `hint`, for content that is not JSON or that `parse`
    refuses; OSError.
    """
    try:
        return parse(json.loads(read_regular(path)))
    except FileNotFoundError:
        return if_missing
    except _MALFORMED as e:
        raise CorruptInputError(what, expected=expected, found=str(e), source=str(path), hint=hint) from None


def write_json(path: Path, content: object, *, fs: FileSystem = PLAIN) -> None:
    """Replace the file by `content` as JSON; durable on return. Raise OSError."""
    replace_durably(path, json.dumps(content, indent=1).encode() + b"\n", fs=fs)
