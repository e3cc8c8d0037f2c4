"""Names that shells complete after an option: fixed ones, and those that the last run of a profile read.

Each profile has one file with the names of its topics below the user's cache directory,
`$XDG_CACHE_HOME/tierctl/completion` or `~/.cache/tierctl/completion`.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import typer

from tierctl.errors import TierctlError
from tierctl.files import is_dir, open_regular

NAMES_MAX: Final = 5000
"""A file has at most this number of names."""
FOLDER: Final = "tierctl/completion"
_NAME: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,248}")
"""Kafka's topic names and names of profiles that no shell expands and that are no option."""
_LINE_BYTES_MAX: Final = 250


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that the last run with this profile read."""
    return _fitting(read_topics(ctx.obj.profile_in_use, os.environ), incomplete)


def profiles(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the profiles in tierctl.toml whose names no shell expands."""
    return _fitting(filter(_NAME.fullmatch, ctx.obj.profile_names), incomplete)


def styles(incomplete: str) -> list[str]:
    """Return the styles of `format`, those of plugins included."""
    from tierctl.report.formatters.records import names

    return _fitting(names(), incomplete)


def one_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    """Return the function that completes these names."""
    return lambda incomplete: _fitting(names, incomplete)


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of the files; None if the environment names no absolute cache or home directory.

    None, too, for a home directory that does not exist.
    """
    home, base = Path(environ.get("HOME", "")), Path(environ.get("XDG_CACHE_HOME", ""))
    if base == Path():
        base = home / ".cache" if is_dir(home) else Path()
    return base / FOLDER if base.is_absolute() else None


def read_topics(profile: str, environ: Mapping[str, str]) -> list[str]:
    """Return the stored topics of a profile; empty if there are none, or if they can't be read."""
    folder = _folder(environ)
    if folder is None or not _NAME.fullmatch(profile):
        return []
    try:
        with os.fdopen(open_regular(folder / profile), "rb") as file:
            lines = file.read(NAMES_MAX * _LINE_BYTES_MAX).decode("ascii", "replace").splitlines()
    except (OSError, TierctlError):
        return []
    return [line for line in islice(lines, NAMES_MAX) if _NAME.fullmatch(line)]


def store_topics(profile: str, names: Iterable[str], environ: Mapping[str, str]) -> None:
    """Replace the stored topics of a profile, atomically; do nothing without a legal name, or if equal.

    Names after the first NAMES_MAX in their order are left out. A user's cache directory that belongs to
    another user is not used: sudo may keep HOME. Raises OSError.
    """
    folder = _folder(environ)
    legal = sorted({each for each in names if _NAME.fullmatch(each)})[:NAMES_MAX]
    if folder is None or not _NAME.fullmatch(profile) or not legal or legal == read_topics(profile, environ):
        return
    existing = next(each for each in (folder, *folder.parents) if is_dir(each))
    if existing.stat().st_uid != os.geteuid():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Not `files.write_durably`: a lost cache does no harm, and a slow disk must not delay the end of a run.
    temp = folder / f".{profile}.{os.uname().nodename}.{os.getpid()}"
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.writelines(f"{each}\n" for each in legal)
        temp.replace(folder / profile)
    except OSError:
        with suppress(OSError):
            temp.unlink()
        raise
