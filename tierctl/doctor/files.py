"""Facts about files and their owners."""

import pwd
import stat
from contextlib import suppress
from pathlib import Path


def owner_of(path: Path) -> str:
    """Return the name of the file's owner, or the number of one without a name."""
    uid = path.stat().st_uid
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def is_reachable(path: Path) -> bool:
    """Return whether every user may enter all folders above `path`, a path without links."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)


def replaceable_in(path: Path) -> Path | None:
    """Return the folder above `path` in which every user may replace entries; None if there is none.

    In a folder with the sticky bit, users may replace only their own entries.
    """
    for folder in path.parents:
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and is_reachable(folder):
            return folder
    return None
