"""Check the permissions of the state directory, and the space on its disk."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result, fault, not_checked, ok
from tierctl.doctor.files import owner_of
from tierctl.doctor.result import Outcome
from tierctl.report.texts import bytes_text

SPARE_BYTES = 64 << 20
"""Free space that a run needs besides a second copy of the directory."""
_FILES_MIN = 1000


def check_access(folder: Path) -> Iterator[Result]:
    """Yield the results about owner, mode and files of the directory."""
    subject = str(folder)
    if not folder.exists():
        yield from _missing(folder)
        return
    if not folder.is_dir():
        yield fault(Check.STATE_DIR_ACCESS, subject, "is no folder", fix="name a folder, or remove the file")
        return
    found = list(_faults(folder))
    yield from found
    if not found:
        mode = stat.S_IMODE(folder.stat().st_mode)
        yield ok(
            Check.STATE_DIR_ACCESS, subject, f"can be written, mode {mode:04o}, owner {owner_of(folder)}"
        )


def _missing(folder: Path) -> Iterator[Result]:
    above = next(each for each in folder.absolute().parents if each.exists())
    if os.access(above, os.W_OK | os.X_OK):
        yield ok(Check.STATE_DIR_ACCESS, str(folder), "does not exist; the first run makes it")
    else:
        found = f"does not exist, and {above} can't be written"
        yield fault(Check.STATE_DIR_ACCESS, str(folder), found, fix=f"make it: install -d -m 0700 {folder}")


def _faults(folder: Path) -> Iterator[Result]:
    subject = str(folder)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        found = f"can't be read and written by this user; its owner is {owner_of(folder)}"
        yield fault(Check.STATE_DIR_ACCESS, subject, found)
        return
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH:
        yield fault(
            Check.STATE_DIR_ACCESS, subject, f"every user may write it: mode {stat.S_IMODE(mode):04o}"
        )
    elif mode & stat.S_IWGRP:
        found = f"its group may write it: mode {stat.S_IMODE(mode):04o}"
        yield fault(Check.STATE_DIR_ACCESS, subject, found, outcome=Outcome.WARNING)
    for file in sorted(folder.iterdir()):
        if file.is_file() and not os.access(file, os.R_OK | os.W_OK):
            found = f"can't be read and written by this user; its owner is {owner_of(file)}"
            yield fault(Check.STATE_DIR_ACCESS, str(file), found)
            return


def check_space(folder: Path) -> Iterator[Result]:
    """Yield the results about free space and free files of the disk with the directory."""
    subject = str(folder)
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    disk = os.statvfs(there)
    if not os.access(there, os.R_OK | os.X_OK):
        yield not_checked(Check.STATE_DIR_SPACE, subject, "its files can't be listed")
        return
    used = sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) if folder.is_dir() else 0
    free, needed = disk.f_bavail * disk.f_frsize, used + SPARE_BYTES
    found = f"{bytes_text(free)} free; the directory has {bytes_text(used)}"
    if free < needed:
        yield fault(Check.STATE_DIR_SPACE, subject, f"{found}, so a run needs {bytes_text(needed)}")
    elif disk.f_files and disk.f_favail < _FILES_MIN:
        yield fault(
            Check.STATE_DIR_SPACE, subject, f"only {disk.f_favail} more files (inodes) fit on the disk"
        )
    else:
        yield ok(Check.STATE_DIR_SPACE, subject, found)
