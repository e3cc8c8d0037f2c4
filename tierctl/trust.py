"""Who may change a file: judge files that decide what a run does, before anything in them is believed."""

import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

_ROOT = 0
_ACCESS_LIST = "system.posix_acl_access"


def why_distrusted(path: Path, *, sticky_folder: bool = False) -> str | None:
    """Return why somebody other than this user and root may change the file at `path`; None if nobody may.

    Nobody else may write the file or its folder, and both belong to this user or root. For a link, its target
    and the target's folder are judged, too. With `sticky_folder`, others may write a folder in which they
    can't replace a file of this user, such as /tmp. Raise OSError if a folder can't be examined.
    """
    for each in dict.fromkeys((path.absolute(), path.resolve())):
        found = each.lstat()
        if stat.S_ISLNK(found.st_mode):
            reason = _of_owner(found)
        elif stat.S_ISREG(found.st_mode):
            reason = _of_owner(found) or _of_writers(each, found)
        else:
            reason = "is no regular file"
        if reason is not None:
            return f"{each} {reason}"
        reason = why_folder_distrusted(each.parent, sticky=sticky_folder)
        if reason is not None:
            return f"its folder {reason}"
    return None


def why_folder_distrusted(folder: Path, *, sticky: bool = False) -> str | None:
    """Return why somebody else may change the entries of `folder`; None if only this user and root may.

    With `sticky`, others may write the folder if its sticky bit keeps them from replacing entries.
    """
    found = folder.stat()
    reason = _of_owner(found)
    if reason is None and not (sticky and found.st_mode & stat.S_ISVTX):
        reason = _of_writers(folder, found)
    return None if reason is None else f"{folder} {reason}"


def why_foreign(fd: int) -> str | None:
    """Return why this run must not append to the open file `fd`; None for a regular file of this user."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    if found.st_uid != os.geteuid():
        return f"belongs to {user_name(found.st_uid)}"
    if found.st_nlink > 1:
        return f"has {found.st_nlink} names (hard links)"
    return _of_writers(fd, found)


def user_name(uid: int) -> str:
    """Return the name of a user, or the number of one without a name."""
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"


def _of_owner(found: os.stat_result) -> str | None:
    if found.st_uid in {os.geteuid(), _ROOT}:
        return None
    return f"belongs to {user_name(found.st_uid)}"


def _of_writers(path: Path | int, found: os.stat_result) -> str | None:
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH:
        return f"can be written by every user (mode {mode:04o})"
    if not mode & stat.S_IWGRP:
        return None
    # With an access list, the bits of the group are those of every user and group in the list.
    if _has_access_list(path):
        return f"can be written by others, by its access list (mode {mode:04o})"
    return None if _is_own_group(found.st_gid) else f"can be written by its group (mode {mode:04o})"


def _has_access_list(path: Path | int) -> bool:
    with suppress(OSError):
        return _ACCESS_LIST in os.listxattr(path)
    return False


def _is_own_group(gid: int) -> bool:
    """Return whether nobody but this user and root is in a group; a group without an entry is unknown."""
    try:
        names = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        return False
    names |= {user.pw_name for user in pwd.getpwall() if user.pw_gid == gid}
    return names <= {user_name(os.geteuid()), user_name(_ROOT)}
