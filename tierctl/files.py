"""Files that survive a crash: there whole or not at all, and on the disk when a call returns.

Everything that changes a file goes through a `FileSystem`, one small method each, so that a test can fail
or kill the nth write, fsync or rename; production uses the plain one.
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

from tierctl.errors import LockedError, SafetyRefusal

TEMP_SUFFIX = ".tmp"
BACKUP_SUFFIX = ".bak"
BROKER_LOCK = ".lock"
OWN_LOCK = ".tierctl.lock"

Observer = Callable[[str, Path], None]


def unobserved(_operation: str, _path: Path) -> None:
    """The observer of production: nobody watches."""


class FileSystem:
    """The operations that change files. `observer` is told (operation, path) before each.

    All raise OSError. Operations: mkdir create write fsync rename link exchange fsync-dir unlink rmdir
    truncate.
    """

    def __init__(self, observer: Observer = unobserved) -> None:
        self._observe = observer

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents, each durable in its parent; no error when it is there."""
        if path.is_dir():
            return
        self.make_folder(path.parent)
        self._observe("mkdir", path)
        path.mkdir(exist_ok=True)
        self.sync_folder(path.parent)

    def create(self, path: Path) -> int:
        """A new file open for writing, readable by nobody else yet; what a crash left there is replaced."""
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
        """Put the file's bytes on the disk."""
        self._observe("fsync", path)
        os.fsync(fd)

    def sync_folder(self, folder: Path) -> None:
        """Put the folder's names on the disk."""
        self._observe("fsync-dir", folder)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Give `source` the name `target`, replacing what has it."""
        self._observe("rename", target)
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Give `source` the name `target` as well; FileExistsError when something has it."""
        self._observe("link", target)
        os.link(source, target, follow_symlinks=False)

    def exchange(self, path: Path, target: Path) -> None:
        """Let two folders have each other's names in one step; in several where the system knows no such."""
        self._observe("exchange", target)
        if _exchanged(path, target):
            return
        spare = path.with_name(f"{path.name}{TEMP_SUFFIX}")
        for old, new in ((target, spare), (path, target), (spare, path)):
            self.rename(old, new)

    def unlink(self, path: Path) -> None:
        """Remove a file (a link, never what it points to); no error when it is gone."""
        self._observe("unlink", path)
        path.unlink(missing_ok=True)

    def rmdir(self, path: Path) -> None:
        """Remove an empty folder."""
        self._observe("rmdir", path)
        path.rmdir()

    def truncate(self, fd: int, size_bytes: int, path: Path) -> None:
        """Cut the file at `size_bytes`."""
        self._observe("truncate", path)
        os.ftruncate(fd, size_bytes)


PLAIN = FileSystem()

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}


def _exchanged(path: Path, target: Path) -> bool:
    """renameat2(2) with RENAME_EXCHANGE; False where there is none."""
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
    # The mask can only be read by setting it; the strict value in between harms nobody.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _like(fd: int, target: Path) -> None:
    """Mode and owner of the file being replaced (a broker must still be able to open it), else by umask."""
    try:
        old = target.stat(follow_symlinks=False)
    except FileNotFoundError:
        os.fchmod(fd, 0o666 & ~_umask())
        return
    os.fchmod(fd, stat.S_IMODE(old.st_mode) if stat.S_ISREG(old.st_mode) else 0o666 & ~_umask())
    if os.geteuid() == 0:
        os.fchown(fd, old.st_uid, old.st_gid)


def temp_of(path: Path) -> Path:
    """Where the new content of `path` is written before it gets its name."""
    return path.with_name(path.name + TEMP_SUFFIX)


def write_durably(
    path: Path, chunks: Iterable[bytes | memoryview], *, fs: FileSystem = PLAIN, sync_folder: bool = True
) -> None:
    """Replace or make `path` with the joined `chunks`: a crash leaves the old content or the new.

    One writer a path at a time. On failure the temporary file is removed and `path` is as it was, unless
    the error came from the folder's fsync, the last step. Who writes several files of a folder can sync
    it once, after the last. Raises OSError.
    """
    temp = temp_of(path)
    renamed = False
    fd = fs.create(temp)
    try:
        try:
            for chunk in chunks:
                fs.write(fd, chunk, temp)
            _like(fd, path)
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
    """`write_durably` of a whole file; with `backup` the old content stays beside it as `.bak`.

    Raises OSError.
    """
    if backup and path.exists():
        write_durably(path.with_name(path.name + BACKUP_SUFFIX), [path.read_bytes()], fs=fs)
    write_durably(path, [data], fs=fs)


@contextmanager
def exclusive(folder: Path, name: str = OWN_LOCK) -> Iterator[None]:
    """Be the only tierctl that writes in `folder`, by flock on the file `name` there; LockedError else."""
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
def broker_kept_out(folder: Path) -> Iterator[None]:
    """Hold the lock a broker holds on its log directory while it runs; SafetyRefusal when one has it.

    Without a `.lock` file no broker ever ran there, and none is made: a file of ours might be one that
    the broker's user can't open. The lock is POSIX's, as Java's FileChannel.tryLock takes it.
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
                f"a broker is running on {folder}: it holds {BROKER_LOCK}",
                hint="stop the broker, or work on a copy of the folder",
            ) from None
        yield
    finally:
        os.close(fd)
