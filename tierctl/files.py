"""Atomic and durable changes of files: a crash leaves the old content or the new, never a part.

Every change goes through a `FileSystem`, one small method per operation, so that a test can fail or stop the
nth write, fsync or rename. Production code uses `PLAIN`.
"""

import errno
import fcntl
import grp
import os
import pwd
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Self, TypeVar

from tierctl.errors import CorruptInputError, IrregularFileError, LockedError, SafetyRefusal

TEMP_SUFFIX = ".tmp"
BACKUP_SUFFIX = ".bak"
BROKER_LOCK = ".lock"
OWN_LOCK = ".tierctl.lock"
_LOCK_POLL_S = 0.05
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

T = TypeVar("T")

Observer = Callable[[str, Path], None]


def no_op(_operation: str, _path: Path) -> None:
    """Ignore the operation; this is the observer outside of tests."""


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Give the errors of an open file its name, which Python gives to errors of opening only."""
    try:
        yield
    except OSError as e:
        e.filename = str(path)
        raise


class FileSystem:
    """The operations that change files; `observer` receives (operation, path) before each operation.

    Every method raises OSError. The operations are mkdir, create, write, fsync, rename, link,
    fsync-dir, unlink, rmdir and truncate.
    """

    def __init__(self, observer: Observer = no_op) -> None:
        self._observe = observer

    def make_folder(self, path: Path, *, like: Path | None = None, mode: int = 0o777) -> None:
        """Make a folder and its parents, each durable in its parent; do nothing if the folder exists.

        They have the `mode`, less the umask, and the last one, if root makes it, the owner of `like`.
        """
        if is_dir(path):
            return
        self.make_folder(path.parent, mode=mode)
        self._observe("mkdir", path)
        try:
            path.mkdir(mode)
        except FileExistsError:
            # Another run made the folder at the same time, and may have deleted it again since.
            with suppress(FileNotFoundError):
                if not stat.S_ISDIR(path.stat().st_mode):
                    raise
        if like is not None:
            _own_like(path, like.stat())
        self.sync_folder(path.parent)

    def create(self, path: Path) -> int:
        """Create a file that only this user can read, open for writing; replace a file of that name."""
        if exists(path, follow_symlinks=False):
            self.unlink(path)
        self._observe("create", path)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def write(self, fd: int, data: bytes | memoryview, path: Path) -> None:
        """Write all of `data` at the file's position."""
        self._observe("write", path)
        rest = memoryview(data)
        with named(path):
            while rest:
                rest = rest[os.write(fd, rest) :]

    def sync(self, fd: int, path: Path) -> None:
        """Write the file's bytes to the disk."""
        self._observe("fsync", path)
        with named(path):
            os.fsync(fd)

    def sync_folder(self, folder: Path) -> None:
        """Write the folder's entries to the disk."""
        self._observe("fsync-dir", folder)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with named(folder):
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
        with named(path):
            os.ftruncate(fd, size_bytes)


def exists(path: Path, *, follow_symlinks: bool = True) -> bool:
    """Return whether `path` exists, or what it leads to as a link; raise OSError if that can't be known.

    The methods of Path are not asked: since Python 3.14 they return False for a path that may not be read.
    """
    return _mode_of(path, follow_symlinks=follow_symlinks) is not None


def is_dir(path: Path) -> bool:
    """Return whether `path` is a folder or a link to one; raise OSError if that can't be known."""
    return stat.S_ISDIR(_mode_of(path) or 0)


def is_file(path: Path) -> bool:
    """Return whether `path` is a regular file or a link to one; raise OSError if that can't be known."""
    return stat.S_ISREG(_mode_of(path) or 0)


def is_link(path: Path) -> bool:
    """Return whether `path` is a link; raise OSError if that can't be known."""
    return stat.S_ISLNK(_mode_of(path, follow_symlinks=False) or 0)


def _mode_of(path: Path, *, follow_symlinks: bool = True) -> int | None:
    try:
        return path.stat(follow_symlinks=follow_symlinks).st_mode
    except ValueError:  # A byte 0 is in no name.
        return None
    except OSError as e:
        if e.errno in _ABSENT:
            return None
        raise


def open_regular(path: Path, *, follows_links: bool = True) -> int:
    """Open a regular file for reading and return its descriptor; raise OSError for any other kind of file.

    Files that are found in folders are opened by this function: opening a pipe would wait for a writer, and
    a device may never end. Without `follows_links`, a symbolic link is such another kind.
    """
    # O_NONBLOCK has no effect on regular files; without it, the open itself would wait.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags if follows_links else flags | os.O_NOFOLLOW)
    except FileNotFoundError:
        if is_link(path):
            # Not "there is none": what a checkpoint on a disk that is not mounted states is unknown.
            raise IrregularFileError(errno.EINVAL, "it is a symbolic link to nothing", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        if is_dir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise IrregularFileError(errno.EINVAL, "it is no plain file", str(path))
    return fd


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file; raise OSError as `open_regular`."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read()


def read_decoded(path: Path, decode: Callable[[bytes], T]) -> T | None:
    """Return what `decode` makes of a file's content; None if there is no such file.

    A CorruptInputError that `decode` raises gets the path; raise OSError as `open_regular`.
    """
    try:
        return decode(read_regular(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except CorruptInputError as e:
        raise e.within(str(path)) from None


class FileBytes:
    """A file that is read at positions, without mapping it into memory; every method raises OSError.

    A writer may truncate the file meanwhile.
    """

    def __init__(self, path: Path, *, follows_links: bool = True) -> None:
        self._fd = open_regular(path, follows_links=follows_links)

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

    def chunks(self, size_bytes: int = 1 << 20) -> Iterator[bytes]:
        """Yield the content in chunks of `size_bytes`."""
        position = 0
        while chunk := self.read(position, size_bytes):
            yield chunk
            position += len(chunk)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


PLAIN = FileSystem()


@cache
def _umask() -> int:
    # The umask can be read only by setting it. Until it is restored, new files get no rights for others.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def make_like(fd: int, target: Path, *, private: bool = False) -> None:
    """Give the new file the mode and owner of `target`, or the default mode and the owner of its folder.

    The file may replace `target`, and may be in a broker's folder: the broker must be able to open it. If
    `private`, only its owner may write it.
    """
    try:
        old = target.stat(follow_symlinks=False)
    except FileNotFoundError:
        old = target.parent.stat()
    mode = stat.S_IMODE(old.st_mode) if stat.S_ISREG(old.st_mode) else 0o666 & ~_umask()
    os.fchmod(fd, mode & 0o755 if private else mode)
    _own_like(fd, old)


def _own_like(made: int | Path, pattern: os.stat_result) -> None:
    if os.geteuid() == 0:
        # The owner of a folder could have put a link in the place of what was made there.
        os.chown(made, pattern.st_uid, pattern.st_gid, follow_symlinks=isinstance(made, int))


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
    private: bool = False,
    mode: int | None = None,
) -> None:
    """Replace or make `path` with the joined `chunks`, atomically and durably.

    Only one writer may use a path at a time. On failure the temporary file is removed and `path` is the same,
    unless the error is from the last step, the folder's fsync; without `sync_folder` the caller does it, once
    for several files. The file has the mode and owner of `like`, by default of the file that it replaces (see
    `make_like`, also for `private`). With `mode`, which is for files that users name, it has that mode, less
    the umask, and the owner of the process, and no other file is replaced: the temporary one has a name of
    its own, and stays if the process is killed. Raises OSError, also if `path` is a device, a named pipe, or
    a link to one or to a file of a process, such as /dev/stdout.
    """
    require_plain(path)
    # Without `mode`, it is a file of a broker or of tierctl, in whose folder the next run replaces, or
    # finds by its name, what a killed run left.
    temp = temp_of(path if mode is None else path.with_name(f"{path.name}.{os.urandom(8).hex()}"))
    renamed = False
    fd = fs.create(temp)
    try:
        try:
            for chunk in chunks:
                fs.write(fd, chunk, temp)
            if mode is None:
                make_like(fd, path if like is None else like, private=private)
            else:
                os.fchmod(fd, mode & ~_umask())
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


def require_plain(path: Path) -> None:
    """Raise IsADirectoryError for a folder at `path`, and FileExistsError for what else must not be replaced.

    A link is replaced, also one to a folder.
    """
    try:
        is_linked = is_link(path)
        is_of_process = is_linked and path.readlink().is_relative_to("/proc")
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode) and not is_linked:
        # The rename would refuse it, too, with the name of the temporary file, when all is written.
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if is_of_process or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise FileExistsError(errno.EEXIST, "it is no regular file", str(path))


def replace_durably(
    path: Path,
    data: bytes | Iterable[bytes],
    *,
    backup: bool = False,
    private: bool = False,
    mode: int | None = None,
    fs: FileSystem = PLAIN,
) -> None:
    """Replace `path` by `data`, or by its chunks, as `write_durably`; with `backup` keep the old as `.bak`.

    The `.bak` file has the mode and owner of the old one. `private` and `mode` as there. Raise SafetyRefusal
    if the file to keep is a symbolic link, and OSError.
    """
    if backup and exists(path):
        with open_itself(path) as old:
            kept = path.with_name(path.name + BACKUP_SUFFIX)
            write_durably(kept, old.chunks(), fs=fs, like=path, private=private)
    chunks = [data] if isinstance(data, bytes) else data
    write_durably(path, chunks, private=private, mode=mode, fs=fs)


def backups(path: Path) -> Iterator[Path]:
    """Yield the names under which the file at `path` may be kept: `.bak`, `.2.bak` and so on."""
    yield path.with_name(path.name + BACKUP_SUFFIX)
    yield from (path.with_name(f"{path.name}.{number}{BACKUP_SUFFIX}") for number in count(2))


def backup_of(path: Path) -> Path:
    """Return the first of `backups` that is free."""
    return next(each for each in backups(path) if not exists(each, follow_symlinks=False))


def open_itself(path: Path) -> FileBytes:
    """Open a file that is copied for the owner of its folder; raise SafetyRefusal for a link, and OSError.

    Whoever made a link there could otherwise read, in the copy, a file that only this user can read.
    """
    try:
        return FileBytes(path, follows_links=False)
    except OSError as e:
        if e.errno != errno.ELOOP:
            raise
        raise SafetyRefusal(
            f"{path} is a symbolic link: expected the file itself, because it is copied",
            hint="put the file in place of the link, or name the file to which it leads",
        ) from None


@contextmanager
def exclusive(folder: Path, name: str = OWN_LOCK, *, timeout_s: float = 0) -> Iterator[None]:
    """Hold an flock on the file `name` in `folder`.

    Raise LockedError if another tierctl holds the lock longer than `timeout_s`.
    """
    fd = _locked_file(folder / name, time.monotonic() + timeout_s)
    try:
        yield
    finally:
        os.close(fd)


REPLACEMENT_TIMEOUT_S = 10.0
"""How long a run waits while another one replaces the same file, which takes milliseconds."""


@contextmanager
def exclusive_replacement(path: Path, *, timeout_s: float = REPLACEMENT_TIMEOUT_S) -> Iterator[None]:
    """Hold an flock on a file beside `path`, which is removed at the end, while `path` is replaced.

    A file with content stays: another program made it. Raise LockedError as `exclusive`. All processes that
    use the lock must use this function.
    """
    lock = path.with_name(f".{path.name}.lock")
    fd = _locked_file(lock, time.monotonic() + timeout_s)
    try:
        yield
    finally:
        # The file is removed while the lock is held. A process that waits for the lock then gets it on a
        # removed file, finds that out in `_locked_file`, and opens the new file.
        with suppress(OSError):
            if not os.fstat(fd).st_size:
                lock.unlink()
        os.close(fd)


def _locked_file(path: Path, deadline_s: float) -> int:
    """Return what `_locked` returns, of the file that `path` names while the lock is held."""
    fd = _locked(path, deadline_s)
    # The previous holder may have removed the file before this process got the lock of it.
    while not _is_file_of(fd, path):
        os.close(fd)
        fd = _locked(path, deadline_s)
    return fd


def _locked(path: Path, deadline_s: float) -> int:
    """Return a descriptor of `path` that holds an flock; LockedError if none is free before `deadline_s`."""
    fd = _lock_file(path)
    try:
        while True:
            try:
                with named(path):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    raise LockedError(
                        f"{path.parent} is being written by another tierctl",
                        hint="wait for it to end, then run again",
                    ) from None
            else:
                return fd
            time.sleep(_LOCK_POLL_S)
    except BaseException:
        os.close(fd)
        raise


def _lock_file(path: Path) -> int:
    """Return a descriptor of the file `path`, which is created if it is missing.

    If root creates the file, it has the owner of its folder, who must be able to take the lock, too. A file
    that exists keeps its owner: it may have another name, as a hard link.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        with suppress(FileExistsError):
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            break
    _own_like(fd, path.parent.stat())
    return fd


def _is_file_of(fd: int, path: Path) -> bool:
    """Return whether `path` still names the open file `fd`."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


@dataclass(slots=True)
class _BrokerLock:
    """A broker's lock that this process holds through `fd`, for `blocks` blocks of `broker_kept_out`."""

    fd: int
    blocks: int = 0


_broker_locks: dict[tuple[int, int], _BrokerLock] = {}
"""The brokers' locks that this process holds, by device and inode of the file."""
_broker_locks_guard = threading.Lock()
# A forked child does not hold its parent's POSIX locks.
os.register_at_fork(after_in_child=_broker_locks.clear)


@contextmanager
def broker_kept_out(
    folder: Path, *, hint: str = "stop the broker, or work on a copy of the folder"
) -> Iterator[None]:
    """Hold the lock of a broker on its log directory; raise SafetyRefusal with `hint` if a broker holds it.

    Several blocks of this process may hold the same lock; the last to end releases it. Without a `.lock` file
    no broker has ever run there, and none is created, because the broker's user might be unable to open it.
    The lock is a POSIX lock, as Java's FileChannel.tryLock takes it.
    """
    with _broker_locks_guard:
        key = _take_broker_lock(folder, hint)
    try:
        yield
    finally:
        if key is not None:
            with _broker_locks_guard:
                _release_broker_lock(key)


def holds_broker_lock(folder: Path) -> bool:
    """Return whether this process holds the broker's lock on `folder`; the lock file is not opened.

    Closing any descriptor of the file would release the lock (fcntl(2)).
    """
    with _broker_locks_guard:
        return _lock_key(folder / BROKER_LOCK) in _broker_locks


def _take_broker_lock(folder: Path, hint: str) -> tuple[int, int] | None:
    """Take the lock, or count one more block of a lock that this process holds; None without a lock file."""
    path = folder / BROKER_LOCK
    key = _lock_key(path)
    if key is None:
        return None
    if key not in _broker_locks:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            with named(path):
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(fd)
            if not isinstance(e, BlockingIOError | PermissionError):
                raise
            raise SafetyRefusal(
                f"a broker is running on {folder}: it holds {BROKER_LOCK}", hint=hint
            ) from None
        _broker_locks[key] = _BrokerLock(fd)
    _broker_locks[key].blocks += 1
    return key


def _release_broker_lock(key: tuple[int, int]) -> None:
    lock = _broker_locks[key]
    lock.blocks -= 1
    if not lock.blocks:
        del _broker_locks[key]
        os.close(lock.fd)


def _lock_key(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


_ROOT = 0
_ACCESS_LIST = "system.posix_acl_access"


def why_distrusted(path: Path, *, sticky_folder: bool = False, fd: int | None = None) -> str | None:
    """Return why somebody other than this user and root may change the file at `path`; None if nobody may.

    Nobody else may write the file or its folder, and both belong to this user or root. For a link, its target
    and the target's folder are judged, too. With `sticky_folder`, others may write a folder in which they
    can't replace a file of this user, such as /tmp. To read the file, open it before, and judge it as `fd`:
    the path may name another file later. Raise OSError if a folder can't be examined.
    """
    for each in dict.fromkeys((path.absolute(), path.resolve())):
        found = each.lstat()
        if stat.S_ISLNK(found.st_mode):
            reason = _of_owner(found)
        elif fd is not None:
            found = os.fstat(fd)
            reason = _of_owner(found) or _of_writers(fd, found)
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


def why_below_others(folder: Path) -> str | None:
    """Return why root must not keep code in `folder`, which need not exist: a folder above it is not root's.

    Its owner may replace what is below it. Return None for other users, and if all are root's.
    """
    if os.geteuid() != _ROOT:
        return None
    above = (each for each in (folder, *folder.absolute().resolve().parents) if exists(each))
    found = ((each, _of_owner(each.stat())) for each in above)
    return next((f"{each} {reason}" for each, reason in found if reason is not None), None)


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
    """Return whether only this user and root are in a group, as far as its entry shows; False without one.

    A directory service may hide members. Therefore the entry must list them, or be that of the group that was
    made for this user or root: the primary one, with the same name.
    """
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    owners = []
    for uid in {os.geteuid(), _ROOT}:
        with suppress(KeyError):
            owners.append(pwd.getpwuid(uid))
    is_made_for_one = any((user.pw_gid, user.pw_name) == (gid, group.gr_name) for user in owners)
    found = {*group.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)}
    return bool(group.gr_mem or is_made_for_one) and found <= {user.pw_name for user in owners}
