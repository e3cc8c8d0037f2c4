"""A lease on a folder of the local disk: a lock that the kernel releases when its process ends."""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tierctl.errors import LockedError, SafetyRefusal
from tierctl.storage.lease.owner import WITHOUT_LEASE

_CANNOT_LOCK = {errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL}
"""Errors of a file system without locks, or (NFS) without locks of folders, which supports no lease."""


class FolderLease:
    """Context manager that holds the lease; raise LockedError if another run holds it.

    The lock is on the folder itself, because a lock file would be among the tier's objects. A folder that
    does not exist yet is created, so that only one of two first copies runs. Raise SafetyRefusal if the file
    system has no locks, unless the lease `is_optional`.
    """

    def __init__(self, folder: Path, *, is_optional: bool = False) -> None:
        self._folder = folder
        self._is_optional = is_optional
        self._fd = -1

    def __enter__(self) -> Self:
        with suppress(OSError):
            # If the folder can't be made, neither can the tier: the copy reports the error.
            self._folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError, NotADirectoryError):
            self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._close()
                raise LockedError(
                    f"another tierctl changes the tier in {self._folder}", hint="wait for it to end"
                ) from None
            except OSError as e:
                self._close()
                if e.errno not in _CANNOT_LOCK:
                    raise
                if not self._is_optional:
                    raise SafetyRefusal(
                        f"{self._folder} can't be locked ({e.strerror}), so another tierctl could change the "
                        "tier at the same time",
                        hint=WITHOUT_LEASE,
                    ) from e
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def is_lost(self) -> bool:
        """Return False: the lock is held as long as this process has the folder open."""
        return False

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
