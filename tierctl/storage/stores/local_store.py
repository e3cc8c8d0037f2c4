"""Objects as files in a folder of the local disk."""

import errno
import io
import os
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

from tierctl.errors import (
    NOT_ALLOWED,
    AuthenticationError,
    ObjectUnreadable,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteTierMissing,
    SafetyRefusal,
    StoreWriteFailed,
    StoreWriteUnknown,
    TierctlError,
    disk_message,
    hint_of,
)
from tierctl.files import PLAIN, TEMP_SUFFIX, FileSystem, exists, is_dir, temp_of, write_durably
from tierctl.model.checked_values import require_no_file
from tierctl.storage.stores.base import (
    CompleteRange,
    FolderListing,
    ObjectStore,
    RemoteObject,
    Source,
    StoreAddress,
    by_folder,
    copy_file,
    sent_chunks,
    walk,
)
from tierctl.storage.throttle import UNLIMITED, Throttle

_ATTEMPTS = 20
_HINTS = {
    errno.ELOOP: "a symbolic link has the name of an object; tierctl does not follow links in a tier",
    errno.EISDIR: "a folder has the name of an object",
}


_NO_FILE = {errno.ELOOP, errno.ENXIO}
"""Errors of opening a symbolic link or a socket."""


@contextmanager
def _translated(doing: str, error: type[RemoteStorageError] = RemoteStorageError) -> Iterator[None]:
    """Raise an OSError as `error`; when reading, as RemoteResourceNotFound for a missing object.

    What this user may not read or delete raises AuthenticationError: trying again does not help.
    """
    try:
        yield
    except OSError as e:
        is_read = error is RemoteStorageError
        if is_read and isinstance(e, PermissionError):
            raise AuthenticationError(disk_message(doing, e), hint=NOT_ALLOWED) from e
        if is_read and isinstance(e, FileNotFoundError):
            error = RemoteResourceNotFound
        elif is_read and e.errno in _NO_FILE:
            error = ObjectUnreadable
        raise error(disk_message(doing, e), hint=_HINTS.get(e.errno or 0, hint_of(e))) from e


class LocalStore(ObjectStore):
    """ObjectStore over the folder `root`; as long as the tier exists, its folder `base` exists, too.

    A file is written under a temporary name, and renamed once all of its bytes are on the disk. Links below
    `base` are never followed. A deletion removes only files with exact names and folders that are empty.
    """

    delete_batch = 3_000
    """More would delay a stop; one thread deletes as fast as several in the same folder."""

    def __init__(
        self, root: Path, *, base: str = "", fs: FileSystem = PLAIN, throttle: Throttle = UNLIMITED
    ) -> None:
        self._throttle = throttle
        self._root = root
        self._base = root / base.rpartition("/")[0]
        self._fs = fs

    @property
    def root(self) -> Path:
        """The folder that keys are relative to."""
        return self._root

    def put_all(self, objects: Mapping[str, Source | None]) -> None:
        """Implement `ObjectStore.put_all`; each folder is synced to the disk once."""
        folders: dict[Path, None] = {}
        for key, source in objects.items():
            path = self._root / key
            if path.parent not in folders:
                self._make_folder(path.parent)
                folders[path.parent] = None
            with _translated(f"writing {path}", StoreWriteFailed):
                if source is None:
                    self._fs.unlink(path)
                else:
                    self._write(path, source)
        for folder in folders:
            with _synced_names(folder):
                self._fs.sync_folder(folder)

    def copy(self, key: str, new_key: str) -> None:
        """Implement `ObjectStore.copy` without hard links, because brokers rewrite objects in place."""
        self.open(key).close()
        copy_file(self, self._root / key, new_key)

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Implement `ObjectStore.open`; raise ObjectUnreadable for a link, a folder, a pipe or a device."""
        self._require_base()
        # Strings: operations of Path objects would take half of the time of a small read.
        path = self._path_of(key)
        folder = path.rpartition("/")[0]
        with _translated(f"reading {path}"):
            try:
                is_there = self._is_plain(folder)
            except SafetyRefusal as e:
                raise ObjectUnreadable(f"reading {path}: {e.message}", hint=e.hint) from e
            if not is_there:
                raise FileNotFoundError(errno.ENOENT, "no such folder in the tier", folder)
            # Without O_NONBLOCK, opening a pipe waits for a writer.
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        facts = os.fstat(fd)
        size_bytes, problem = facts.st_size, _why_not_plain(facts.st_mode)
        if problem is not None:
            os.close(fd)
            raise ObjectUnreadable(f"reading {path}: {problem}", hint="look at the path, and remove it")
        last = size_bytes if end is None else min(end, size_bytes)
        return io.BufferedReader(_Range(fd, path, min(start, last), last, self._throttle))

    def create(self, key: str, body: bytes) -> bool:
        """Implement `ObjectStore.create`: a hard link is made only if its name is free."""
        path = self._root / key
        temp = path.with_name(f"{path.name}.{uuid.uuid4().hex}{TEMP_SUFFIX}")
        # The tier's folder is made first: from its first object on, the tier exists.
        self._make_folder(self._base)
        self._make_folder(path.parent)
        with _translated(f"writing {path}", StoreWriteFailed):
            write_durably(temp, [body], fs=self._fs, sync_folder=False)
            try:
                self._fs.link(temp, path)
            except FileExistsError:
                return False
            finally:
                self._fs.unlink(temp)
        with _synced_names(path.parent):
            self._fs.sync_folder(path.parent)
        return True

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Implement `ObjectStore.sizes_bytes` by the facts of each file, which a listing lacks."""
        self._require_base()
        sizes: dict[str, int] = {}
        for folder, own in by_folder(keys).items():
            if self._is_plain(self._path_of(folder)):
                with _translated(f"looking for objects in {self._root / folder}"):
                    sizes |= _sizes_bytes(self._root, own)
        return sizes

    def name_of(self, key: str) -> str:
        """Implement `ObjectStore.name_of` as a path."""
        return str(self._root / key)

    def list_objects(self, prefix: str) -> Iterator[RemoteObject]:
        """Implement `ObjectStore.list_objects`: includes temporary files of crashed runs."""
        base = f"{self._base.relative_to(self._root).as_posix()}/".removeprefix("./")
        return walk(
            self.list_folder,
            prefix,
            # If nothing of the tier can be listed, raise an error, as for a tier that does not exist.
            is_tolerated=lambda folder, error: (
                folder.startswith(base) and folder != base and not isinstance(error, RemoteTierMissing)
            ),
        )

    def list_folder(self, prefix: str) -> FolderListing:
        """Implement `ObjectStore.list_folder`; a link, a device or a pipe has a problem.

        Raise SafetyRefusal if the folder, or one that it is in, is a link.
        """
        self._require_base()
        folder, slash, begin = prefix.rpartition("/")
        folders, objects = [], []
        if not self._is_plain(self._path_of(folder)):
            return FolderListing((), ())
        with (
            _translated(f"listing {self._root / folder}"),
            # Another run may delete the folder with its last object at this moment.
            suppress(FileNotFoundError),
            _entries(self._root / folder) as entries,
        ):
            for entry in sorted(entries, key=attrgetter("name")):
                name = entry.name
                if begin and not name.startswith(begin):
                    continue
                key = f"{folder}{slash}{name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{key}/")
                    continue
                try:
                    facts = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                problem = None if stat.S_ISREG(facts.st_mode) else _why_not_plain(facts.st_mode)
                objects.append(RemoteObject(key, facts.st_size, facts.st_mtime_ns // 1_000_000, problem))
        return FolderListing(tuple(folders), tuple(objects))

    def delete(self, keys: Sequence[str]) -> dict[str, TierctlError]:
        """Implement `ObjectStore.delete`; a folder is deleted with its last object."""
        self._require_base()
        errors: dict[str, TierctlError] = {}
        for folder, own in by_folder(keys).items():
            try:
                if self._is_plain(self._path_of(folder)):
                    errors |= self._delete_in_folder(self._root / folder, own)
            except TierctlError as e:
                errors |= dict.fromkeys(own, e)
        return errors

    def _delete_in_folder(self, folder: Path, keys: Sequence[str]) -> dict[str, TierctlError]:
        errors: dict[str, TierctlError] = {}
        for key in keys:
            path = self._root / key
            try:
                with _translated(f"deleting {path}"):
                    self._fs.unlink(path)
                    if exists(temp_of(path), follow_symlinks=False):
                        self._fs.unlink(temp_of(path))
            except TierctlError as e:
                errors[key] = e
        # Another run may have deleted the empty folder meanwhile, which makes the deletions durable, too.
        with _synced_names(folder), suppress(FileNotFoundError):
            self._fs.sync_folder(folder)
        self._remove_if_empty(folder)
        return errors

    def _require_base(self) -> None:
        # A disk that is not mounted looks like a tier without objects, after which records would be deleted.
        # Therefore an empty root is no tier, while the layout's own folder in the root may be empty.
        with _translated(f"looking into {self._base}"):
            is_there = is_dir(self._base)
            if is_there and self._base == self._root:
                with os.scandir(self._root) as entries:
                    is_there = next(entries, None) is not None
        if not is_there:
            require_no_file("--remote", self._base)
            raise RemoteTierMissing(
                f"there is no tier at {self._base}", hint="check that it is mounted, and check --remote"
            )

    def _path_of(self, key: str) -> str:
        return f"{_prefix(self._root)}{key}"

    def _is_plain(self, folder: str) -> bool:
        """Return whether the folder exists; raise SafetyRefusal if it or a parent in the tier is a link."""
        base = _prefix(self._base)
        names = folder.removeprefix(base).split("/") if folder.startswith(base) else []
        with _translated(f"looking into {folder}"):
            for depth in range(1, len(names) + 1):
                above = base + "/".join(names[:depth])
                # One lstat only: between two calls another run may delete the empty folder.
                try:
                    mode = os.lstat(above).st_mode
                except FileNotFoundError:
                    return False
                if not stat.S_ISDIR(mode):
                    raise SafetyRefusal(
                        f"{above} is not a plain folder",
                        hint="tierctl does not follow links in a tier: check the target of the link",
                    )
            return bool(names) or exists(Path(folder))

    def _make_folder(self, folder: Path) -> None:
        if not self._is_plain(str(folder)):
            with _translated(f"making {folder}", StoreWriteFailed):
                self._fs.make_folder(folder)

    def _write(self, path: Path, source: Source) -> None:
        for left in reversed(range(_ATTEMPTS)):
            try:
                write_durably(path, sent_chunks(source, self._throttle), fs=self._fs, sync_folder=False)
                break
            except FileNotFoundError:
                if not left:
                    raise
                # Another run deleted the folder, which was empty, after it was made.
                self._fs.make_folder(path.parent)

    def _remove_if_empty(self, folder: Path) -> None:
        # The objects are deleted already, and an empty folder is harmless.
        with suppress(OSError):
            while folder != self._base and not _names_in(folder, 1):
                if folder.parent == self._root and len(_names_in(self._root, 2)) == 1:
                    # The last entry of the root distinguishes an empty tier from a disk that is not mounted.
                    return
                self._fs.rmdir(folder)
                folder = folder.parent
                self._fs.sync_folder(folder)


def _synced_names(folder: Path) -> AbstractContextManager[None]:
    return _translated(f"syncing the folder {folder} to the disk", StoreWriteUnknown)


def _prefix(folder: Path) -> str:
    """Return the begin of the paths below a folder."""
    return f"{str(folder).rstrip('/')}/"


def _names_in(folder: Path, count_max: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, count_max)]


def _sizes_bytes(root: Path, keys: Sequence[str]) -> dict[str, int]:
    """Return the size of each entry that exists; a Path for each key would take longer than its size.

    An entry that is no file counts as one that is still there.
    """
    sizes, prefix = {}, _prefix(root)
    for key in keys:
        path = f"{prefix}{key}"
        try:
            facts = os.lstat(path)
        except FileNotFoundError:
            continue
        sizes[key] = facts.st_size
    return sizes


@contextmanager
def _entries(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Open a folder's entries; the system finds the facts of each from the open folder, not by a path."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(fd) as entries:
            yield entries
    finally:
        os.close(fd)


def _why_not_plain(mode: int) -> str | None:
    """Return why a path of this mode is not read as an object; None for a plain file."""
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISLNK(mode):
        return "a symbolic link, which is not followed in a tier"
    kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or socket"
    return f"{kind} has the name of an object"


class _Range(CompleteRange):
    """The bytes of a file from `position` to `end` (exclusive); closes `fd` at the end."""

    def __init__(self, fd: int, path: str, position: int, end: int, throttle: Throttle) -> None:
        super().__init__(path, end - position, throttle)
        self._fd = fd
        self._path = path
        self._end = end

    def take(self, size_bytes: int) -> bytes:
        position = self._end - self._left_bytes
        with _translated(f"reading {self._path}"):
            found = os.pread(self._fd, size_bytes, position)
        if not found:
            raise RemoteStorageError(f"{self._path} ended at {position}, expected {self._end} bytes")
        return found

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


def open_store(address: StoreAddress) -> LocalStore:
    """Open the store in a folder of the local disk."""
    return LocalStore(
        Path("/", address.folder),
        base=address.required_folder,
        fs=address.files,
        throttle=address.throttle,
    )
