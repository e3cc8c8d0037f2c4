"""Names that shells complete: written when a run ends, read by the completion scripts without Python.

There is one file per kind of name, one name per line, below the user's cache directory:
`$XDG_CACHE_HOME/tierctl/completion`, or `~/.cache/tierctl/completion`.
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from pathlib import Path

NAMES_MAX = 5000
"""A file has at most this number of names, and a script reads at most this number of lines."""
FIRST, LEGAL = "A-Za-z0-9._", "A-Za-z0-9._-"
"""The first and the other characters of a name, in brackets of regular expressions and of shells' patterns.

They are those of Kafka's topic names, which no shell expands. A name that begins with - would be an option.
"""
FOLDER = "tierctl/completion"
_NAME = re.compile(rf"[{FIRST}][{LEGAL}]{{0,248}}")
_LINE_BYTES_MAX = 250


class StoredNames(StrEnum):
    """The kinds of names; each value is the name of a file."""

    TOPICS = "topics"
    PROFILES = "profiles"


def stored_names_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of the files; None if the environment names no absolute cache or home directory.

    None, too, for a home directory that does not exist.
    """
    home, base = Path(environ.get("HOME", "")), Path(environ.get("XDG_CACHE_HOME", ""))
    if base == Path():
        base = home / ".cache" if home.is_dir() else Path()
    return base / FOLDER if base.is_absolute() else None


def read_names(kind: StoredNames, environ: Mapping[str, str]) -> list[str]:
    """Return the stored names; empty if there are none, or if they can't be read."""
    folder = stored_names_folder(environ)
    if folder is None:
        return []
    try:
        with (folder / kind).open("rb") as file:
            lines = file.read(NAMES_MAX * _LINE_BYTES_MAX).decode("ascii", "replace").splitlines()
    except OSError:
        return []
    return [line for line in islice(lines, NAMES_MAX) if _NAME.fullmatch(line)]


def store_names(kind: StoredNames, names: Iterable[str], environ: Mapping[str, str]) -> None:
    """Replace the stored names of a kind, atomically; do nothing without a legal name, or if they are equal.

    Names with other characters than LEGAL are left out, and names after the first NAMES_MAX in their order.
    A user's cache directory that belongs to another user is not used: sudo may keep HOME. Raises OSError.
    """
    folder = stored_names_folder(environ)
    legal = sorted({name for name in names if _NAME.fullmatch(name)})[:NAMES_MAX]
    if folder is None or not legal or legal == read_names(kind, environ):
        return
    existing = next(each for each in (folder, *folder.parents) if each.is_dir())
    if existing.stat().st_uid != os.geteuid():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Not `files.write_durably`: a lost cache does no harm, and a slow disk must not delay the end of a run.
    temp = folder / f"{kind}.{os.uname().nodename}.{os.getpid()}"
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.writelines(f"{name}\n" for name in legal)
        temp.replace(folder / kind)
    except OSError:
        with suppress(OSError):
            temp.unlink()
        raise
