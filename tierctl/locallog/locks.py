"""Detects a running broker by its lock on the file `.lock` in a log directory."""

import errno
import fcntl
import os
import struct
import sys
from pathlib import Path

from tierctl.errors import SafetyRefusal
from tierctl.files import BROKER_LOCK, holds_broker_lock, open_regular

# struct flock: on Linux (type, whence, start, length, pid), on macOS and the BSDs type and whence come last.
_FLOCK, _TYPE_AT = ("hhqqi4x", 0) if sys.platform == "linux" else ("qqihh", 3)


def is_locked(directory: Path) -> bool:
    """Return whether another process holds LogManager's lock on the directory, without taking the lock.

    SafetyRefusal if the lock can't be queried.
    """
    if holds_broker_lock(directory):
        # Querying opens and closes the file, which would release this process's own lock.
        return False
    path = directory / BROKER_LOCK
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            answer = fcntl.fcntl(file.fileno(), fcntl.F_GETLK, _whole_file_write_lock())
    except FileNotFoundError:
        return False
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, str(error))
        raise SafetyRefusal(
            f"it is unknown whether a broker uses {directory}: {path} can't be queried: {reason}",
            hint="run as the broker's user, or work on a copy of the directory",
        ) from error
    return bool(struct.unpack(_FLOCK, answer)[_TYPE_AT] != fcntl.F_UNLCK)


def _whole_file_write_lock() -> bytes:
    fields = [0, 0, 0, 0, 0]
    fields[_TYPE_AT] = fcntl.F_WRLCK
    return struct.pack(_FLOCK, *fields)


def ensure_stopped(directory: Path) -> None:
    """Raise SafetyRefusal if a running broker holds the directory, since its files may change at any time."""
    if is_locked(directory):
        raise SafetyRefusal(
            f"a running broker holds {directory / BROKER_LOCK}",
            hint="stop the broker, or work on a copy of the directory",
        )
