"""Rows about one cache file: its entries, or its problems. Executors call these functions, too."""

from pathlib import Path
from typing import Any, NamedTuple

from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.metadata.cache_files.check import findings
from tierctl.metadata.cache_files.files import read_cache

Row = dict[str, Any]


class FileRows(NamedTuple):
    """The rows of one file, and whether one of them reports damage."""

    rows: list[Row]
    is_damaged: bool


def entry_rows(path: Path) -> FileRows:
    """Return the header and every entry of the file; one that can't be decoded has a row with its `error`."""
    name = {"file": str(path)}
    try:
        cache = read_cache(path)
    except CorruptInputError as error:
        return FileRows([name | {"position": error.at, "type": None, "error": error.message}], True)
    rows = [name | cache.header()]
    rows += [name | {"position": entry.position} | entry.fields() for entry in cache.entries]
    if cache.torn is not None:
        rows.append(name | {"position": cache.torn.at, "type": None, "error": cache.torn.message})
    return FileRows(rows, any(True for _ in cache.errors))


def check_rows(path: Path) -> FileRows:
    """Return one row for a good file, and one row for each problem of a bad file."""
    row: Row = {"file": str(path), "form": None, "entries": None, "size_bytes": path.stat().st_size}
    found: list[CorruptInputError] = []
    try:
        cache = read_cache(path)
        row |= {"form": str(cache.form), "entries": len(cache.entries)}
        found.extend(findings(cache))
    except CorruptInputError as unreadable:
        found.append(unreadable)
    if not found:
        return FileRows([row | {"status": "ok", "position": None, "detail": None}], False)
    return FileRows([row | _problem(error) for error in found], True)


def _problem(error: CorruptInputError) -> Row:
    status = "unsupported" if isinstance(error, UnsupportedFormatError) else "corrupt"
    return {"status": status, "position": error.at, "detail": error.message}
