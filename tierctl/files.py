"""Atomic and durable changes of files: a crash leaves the old content or the new, never a part.

Every change goes through a `FileSystem`, one small method per operation, so that a test can fail or stop the
nth write, fsync or rename. Production code uses `PLAIN`.
"""

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Self

from tierctl.errors import LockedError, SafetyRefusal

TEMP_SUFFIX = ".tmp"
BACKUP_SUFFIX = ".bak"
BROKER_LOCK = ".lock"
OWN_LOCK = ".tierctl.lock"

Observer = Callable[[str, Path], None]


def no_op(_operation: str, _path: Path) -> None:
    """Ignore the operation: the observer in production."""


class FileSystem:
    """The operations that change files; `observer` receives (operation, path) before each operation.

    Every method raises OSError. The operations are mkdir, create, write, fsync, rename, link, exchange,
    fsync-dir, unlink, rmdir and truncate.
    """

    def __init__(self, observer: Observer = no_op) -> None:
        self._observe = observer

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents, each durable in its parent; do nothing if the folder exists."""
        if path.is_dir():
            return
        self.make_folder(path.parent)
        self._observe("mkdir", path)
        path.mkdir(exist_ok=True)
        self.sync_folder(path.parent)

    def create(self, path: Path) -> int:
        """Create a file that only this user can read, open for writing; replace a file of that name."""
        if path.is_symlink() or path.exists():
            self.unlink(path)
        self._observe("create", path)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def write(self, fd: int, data: bytes | memoryview, path: Path) -> None:
        """Write all of `data` at the file's position."""
        self._observe("write", path)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]

    def sync(self, fd: int, path: Path) -> None:
        """Write the file's bytes to the disk."""
        self._observe("fsync", path)
        os.fsync(fd)

    def sync_folder(self, folder: Path) -> None:
        """Write the folder's entries to the disk."""
        self._observe("fsync-dir", folder)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Rename `source` to `target`, replacing an existing `target`."""
        self._observe("rename", target)
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Make `target` a hard link to `source`; raise FileExistsError if `target` exists."""
        self._observe("link", target)
        os.link(source, target, follow_symlinks=False)

    def exchange(self, path: Path, target: Path) -> None:
        """Exchange the names of two folders: atomically where the system can, else in three renames."""
        self._observe("exchange", target)
        if _exchanged(path, target):
            return
        spare = path.with_name(f"{path.name}{TEMP_SUFFIX}")
        for old, new in ((target, spare), (path, target), (spare, path)):
            self.rename(old, new)

    def unlink(self, path: Path) -> None:
        """Remove a file, or a symbolic link but not its target; do nothing if it does not exist."""
        self._observe("unlink", path)
        path.unlink(missing_ok=True)

    def rmdir(self, path: Path) -> None:
        """Remove an empty folder."""
        self._observe("rmdir", path)
        path.rmdir()

    def truncate(self, fd: int, size_bytes: int, path: Path) -> None:
        """Truncate the file to `size_bytes`."""
        self._observe("truncate", path)
        os.ftruncate(fd, size_bytes)


class FileBytes:
    """A file that is read at positions, without mapping it into memory; every method raises OSError.

    A writer may truncate the file meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size_bytes(self) -> int:
        """Return the current size of the file."""
        return os.fstat(self._fd).st_size

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return `size_bytes` bytes from `position` on; fewer only at the end of the file."""
        parts = []
        while size_bytes and (part := os.pread(self._fd, size_bytes, position)):
            parts.append(part)
            position += len(part)
            size_bytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


PLAIN = FileSystem()

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}


def _exchanged(path: Path, target: Path) -> bool:
    """Call renameat2(2) with RENAME_EXCHANGE; return False if the system does not support it."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    names = os.fsencode(path), os.fsencode(target)
    if library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number not in _NO_EXCHANGE:
        raise OSError(number, os.strerror(number), str(target))
    return False


@cache
def _umask() -> int:
    # The umask can be read only by setting it; the temporary value is strict, therefore harmless.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _like(fd: int, target: Path) -> None:
    """Give the new file the mode and owner of `target`, which it replaces, or the default mode.

    A broker must still be able to open the file.
    """
    try:
        old = target.stat(follow_symlinks=False)
    except FileNotFoundError:
        os.fchmod(fd, 0o666 & ~_umask())
        return
    os.fchmod(fd, stat.S_IMODE(old.st_mode) if stat.S_ISREG(old.st_mode) else 0o666 & ~_umask())
    if os.geteuid() == 0:
        os.fchown(fd, old.st_uid, old.st_gid)


def temp_of(path: Path) -> Path:
    """Return the temporary path to which the new content of `path` is written before the rename."""
    return path.with_name(path.name + TEMP_SUFFIX)


def write_durably(
    path: Path,
    chunks: Iterable[bytes | memoryview],
    *,
    fs: FileSystem = PLAIN,
    sync_folder: bool = True,
    like: Path | None = None,
) -> None:
    """Replace or make `path` with the joined `chunks`, atomically and durably.

    Only one writer may use a path at a time. On failure the temporary file is removed and `path` is
    unchanged, unless the error is from the folder's fsync, the last step. With `sync_folder` False the caller
    syncs the folder, once for several files. The file has the mode and owner of `like`, by default those of
    the file that it replaces. Raises OSError.
    """
    temp = temp_of(path)
    renamed = False
    fd = fs.create(temp)
    try:
        try:
            for chunk in chunks:
                fs.write(fd, chunk, temp)
            _like(fd, path if like is None else like)
            fs.sync(fd, temp)
        finally:
            os.close(fd)
        fs.rename(temp, path)
        renamed = True
    finally:
        if not renamed:
            with suppress(OSError):
                temp.unlink(missing_ok=True)
    if sync_folder:
        fs.sync_folder(path.parent)


def replace_durably(path: Path, data: bytes, *, backup: bool = False, fs: FileSystem = PLAIN) -> None:
    """Replace `path` by `data` as `write_durably`; with `backup` keep the old content as `.bak`.

    Raises OSError.
    """
    if backup and path.exists():
        write_durably(path.with_name(path.name + BACKUP_SUFFIX), [path.read_bytes()], fs=fs)
    write_durably(path, [data], fs=fs)


@contextmanager
def exclusive(folder: Path, name: str = OWN_LOCK) -> Iterator[None]:
    """Hold an flock on the file `name` in `folder`; raise LockedError if another tierctl holds the lock."""
    fd = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"{folder} is being written by another tierctl", hint="wait for it to end, then run again"
            ) from None
        yield
    finally:
        os.close(fd)


@contextmanager
def broker_kept_out(
    folder: Path, *, hint: str = "stop the broker, or work on a copy of the folder"
) -> Iterator[None]:
    """Hold the lock of a broker on its log directory; raise SafetyRefusal with `hint` if a broker holds it.

    Without a `.lock` file no broker has ever run there, and none is created, because the broker's user might
    be unable to open it. The lock is a POSIX lock, as Java's FileChannel.tryLock takes it.
    """
    try:
        fd = os.open(folder / BROKER_LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise SafetyRefusal(
                f"a broker is running on {folder}: it holds {BROKER_LOCK}", hint=hint
            ) from None
        yield
    finally:
        os.close(fd)
