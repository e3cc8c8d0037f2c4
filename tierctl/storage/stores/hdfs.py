"""Objects as files in HDFS, through hdfs-native, a client that needs neither Java nor libhdfs."""

import io
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import BinaryIO

from hdfs_native import Client, FileReader, FileStatus, WriteOptions

from tierctl.errors import (
    AuthenticationError,
    ObjectUnreadable,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteTierMissing,
    StoreWriteFailed,
    StoreWriteUnknown,
    TierctlError,
)
from tierctl.files import TEMP_SUFFIX
from tierctl.model.checked_values import PORT_MAX, natural_number
from tierctl.storage.stores.base import (
    CompleteRange,
    ConditionalStore,
    FolderListing,
    RemoteObject,
    Source,
    StoreAddress,
    TaggedObject,
    by_folder,
    require_listening,
    sent_chunks,
    walk,
)
from tierctl.storage.throttle import UNLIMITED, Throttle

READ_BYTES = 1 << 20
WRITERS = 6
LISTED_FROM_KEYS = 16
"""Number of keys in one folder from which on it is listed, instead of one request per key."""

LEFT_MS = 600_000
"""Age at which a temporary file of a small object counts as left behind by a killed run."""

_NOT_ALLOWED = re.compile("AccessControlException|Permission denied")
"""The texts of the namenode: hdfs-native has no exception of its own for them."""


def hdfs_client(url: str) -> Client:
    """Return a client of the namenode at hdfs://host:port, or of a name service in HADOOP_CONF_DIR."""
    with _translated(f"connecting to {url}"):
        return Client(url)


@contextmanager
def _translated(doing: str, error: type[RemoteStorageError] = RemoteStorageError) -> Iterator[None]:
    """Raise hdfs-native's errors as `error`, or as RemoteResourceNotFound for a missing file.

    What this user may not do raises AuthenticationError: trying again does not help. An unknown outcome stays
    unknown, because the client repeats requests, and an earlier one may have taken effect.
    """
    try:
        yield
    except FileNotFoundError as e:
        raise RemoteResourceNotFound(f"{doing}: it does not exist") from e
    except (OSError, RuntimeError, ValueError) as e:
        if error is not StoreWriteUnknown and _NOT_ALLOWED.search(str(e)):
            hint = "check the permissions of this user on the folder and its objects"
            raise AuthenticationError(f"{doing}: {e}", hint=hint) from e
        raise error(
            f"{doing}: {e}",
            hint="check that the namenode is reachable, and that this user has the permission",
        ) from e


class HdfsStore(ConditionalStore):
    """ObjectStore below `root`, an absolute path that ends with `/`.

    A file is written under a temporary name, and renamed once the datanodes have all of its bytes.
    """

    delete_batch = 1_500

    def __init__(self, client: Client, root: str, throttle: Throttle = UNLIMITED) -> None:
        self._throttle = throttle
        self._client = client
        self._root = root

    def put_all(self, objects: Mapping[str, Source | None]) -> None:
        """Implement `ObjectStore.put_all`.

        Files are written by several threads, because each takes up to half a second, and renamed in order.
        """
        sources = {self._root + key: source for key, source in objects.items()}
        writing = [(path, source) for path, source in sources.items() if source is not None]
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda pair: self._write(*pair), writing))
        for path, source in sources.items():
            if source is None:
                self._remove(path)
            else:
                with _translated(f"naming {path}", StoreWriteUnknown):
                    self._client.rename(path + TEMP_SUFFIX, path, overwrite=True)

    def create(self, key: str, body: bytes) -> bool:
        """Implement `ObjectStore.create`: a rename fails if its target exists."""
        path = self._root + key
        temp = self._written(path, body)
        with _translated(f"naming {path}", StoreWriteUnknown):
            try:
                self._client.rename(temp, path)
            except FileExistsError:
                self._remove(temp)
                return False
        return True

    def put_if(self, key: str, body: bytes, tag: str | None) -> str | None:
        """Implement `ConditionalStore.put_if` by a chain of files `key`.1, `key`.2, …; the tag is the number.

        HDFS replaces no file on a condition. Therefore each write creates the file of the next number, which
        only one program can do, and removes the earlier files afterwards. The newest file is never removed:
        it is what makes a late write with an old number fail.
        """
        newest = self._newest(key)
        if tag is None and newest is not None and newest.length:
            return None
        number = int(tag) + 1 if tag is not None else 1 if newest is None else _number_of(newest) + 1
        if not self.create(f"{key}.{number}", body):
            return None
        newest = self._newest(key)
        if newest is None or _number_of(newest) > number:
            self._remove(f"{self._root}{key}.{number}")
            return None
        self._remove_older(key, newest)
        return str(number)

    def _remove_older(self, key: str, newest: FileStatus) -> None:
        """Remove the files before `newest`, and temporary files that a killed run left."""
        for status in self._files_of(key):
            if status.path.endswith(TEMP_SUFFIX):
                is_old = newest.modification_time - status.modification_time > LEFT_MS
            else:
                is_old = _number_of(status) < _number_of(newest)
            if is_old:
                self._remove(status.path)

    def get_tagged(self, key: str) -> TaggedObject | None:
        """Implement `ConditionalStore.get_tagged`; the namenode's clock is the time of a file made now."""
        while (newest := self._newest(key)) is not None and newest.length:
            temp = self._written(self._root + key, b"")
            with _translated(f"looking at {temp}"):
                now_ms = self._client.get_file_info(temp).modification_time
            self._remove(temp)
            with suppress(RemoteResourceNotFound), self.open(newest.path.removeprefix(self._root)) as stream:
                body = stream.read()
                return TaggedObject(str(_number_of(newest)), body, (now_ms - newest.modification_time) / 1000)
        return None

    def delete_if(self, key: str, tag: str) -> None:
        """Implement `ConditionalStore.delete_if` by an empty file of the next number."""
        self.put_if(key, b"", tag)

    def _newest(self, key: str) -> FileStatus | None:
        numbered = [status for status in self._files_of(key) if not status.path.endswith(TEMP_SUFFIX)]
        return max(numbered, key=_number_of, default=None)

    def _files_of(self, key: str) -> list[FileStatus]:
        """Return the numbered files of `key` and their temporary files."""
        folder, _, name = f"{self._root}{key}.".rpartition("/")
        found = [status for status in self._listed(folder) if not status.isdir]
        return [status for status in found if status.path.rpartition("/")[2].startswith(name)]

    def _written(self, path: str, body: bytes) -> str:
        """Write a new temporary file for `path`; return its path."""
        temp = f"{path}.{uuid.uuid4().hex}{TEMP_SUFFIX}"
        self._write_file(temp, body)
        return temp

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Implement `ObjectStore.open`."""
        path = self._root + key
        with _translated(f"reading {path}"):
            reader = self._client.read(path)
            size_bytes = len(reader)
        last = size_bytes if end is None else min(end, size_bytes)
        return io.BufferedReader(_Range(reader, path, min(start, last), last, self._throttle), READ_BYTES)

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Implement `ObjectStore.sizes_bytes`, with a listing if that needs fewer requests."""
        self._require_root()
        sizes: dict[str, int] = {}
        for folder, own in by_folder(keys).items():
            sizes |= {key: status.length for key, status in self._found_in_folder(folder, own).items()}
        return sizes

    def _found_in_folder(self, folder: str, keys: Sequence[str]) -> dict[str, FileStatus]:
        """Return the entry of each key that exists; as in LocalStore, also a folder of that name."""
        if len(keys) < LISTED_FROM_KEYS:
            found = {key: self._status(self._root + key) for key in keys}
            return {key: status for key, status in found.items() if status is not None}
        wanted, listed = frozenset(keys), self._listed(self._root + folder)
        by_key = ((status.path.removeprefix(self._root), status) for status in listed)
        return {key: status for key, status in by_key if key in wanted}

    def _listed(self, folder: str) -> list[FileStatus]:
        """Return the entries of a folder, by name; none if it does not exist."""
        with _translated(f"listing {folder}"), suppress(FileNotFoundError):
            return list(self._client.list_status(folder.rstrip("/") or "/"))
        return []

    def name_of(self, key: str) -> str:
        """Implement `ObjectStore.name_of` as a path in HDFS."""
        return self._root + key

    def list_objects(self, prefix: str) -> Iterator[RemoteObject]:
        """Implement `ObjectStore.list_objects`; temporary files of a crashed run are included."""
        self._require_root()
        return walk(self._folder, prefix, is_tolerated=_is_forbidden)

    def list_folder(self, prefix: str) -> FolderListing:
        """Implement `ObjectStore.list_folder`."""
        self._require_root()
        return self._folder(prefix)

    def _folder(self, prefix: str) -> FolderListing:
        folders, objects = [], []
        for status in self._listed(self._root + prefix.rpartition("/")[0]):
            key = status.path.removeprefix(self._root)
            if status.isdir and key.startswith(prefix):
                folders.append(f"{key}/")
            elif key.startswith(prefix):
                objects.append(RemoteObject(key, status.length, status.modification_time))
        return FolderListing(tuple(folders), tuple(objects))

    def delete(self, keys: Sequence[str]) -> dict[str, TierctlError]:
        """Implement `ObjectStore.delete` with one request per object; delete folders that become empty."""
        self._require_root()
        errors: dict[str, TierctlError] = {}
        for folder, own in by_folder(keys).items():
            try:
                errors |= self._delete_in_folder(folder, own)
            except AuthenticationError as e:
                # Rights differ by folder.
                errors |= dict.fromkeys(own, e)
        return errors

    def _delete_in_folder(self, folder: str, keys: Sequence[str]) -> dict[str, TierctlError]:
        errors: dict[str, TierctlError] = {}
        temporary = {key + TEMP_SUFFIX: key for key in keys}
        for found, status in self._found_in_folder(folder, [*keys, *temporary]).items():
            try:
                if status.isdir:
                    problem = f"deleting {self._root}{found}: a folder has the name of an object"
                    raise ObjectUnreadable(problem, hint="look at the path, and remove it")
                self._remove(self._root + found)
            except (RemoteStorageError, AuthenticationError) as e:
                errors[temporary.get(found, found)] = e
        if folder:
            # The call is not recursive, so HDFS refuses to delete a folder that still has objects.
            with suppress(OSError, RuntimeError):
                self._client.delete(self._root + folder)
        return errors

    def _require_root(self) -> None:
        # A folder that does not exist must not look like a tier whose objects are deleted.
        try:
            with _translated(f"looking for {self._root}"):
                self._client.get_file_info(self._root.rstrip("/") or "/")
        except RemoteResourceNotFound:
            raise RemoteTierMissing(f"there is no tier at {self._root}", hint="check --remote") from None

    def _status(self, path: str) -> FileStatus | None:
        with _translated(f"looking for {path}"), suppress(FileNotFoundError):
            return self._client.get_file_info(path)
        return None

    def _write(self, path: str, source: Source) -> None:
        self._write_file(path + TEMP_SUFFIX, source, self._throttle)

    def _write_file(self, path: str, source: Source, throttle: Throttle = UNLIMITED) -> None:
        options = WriteOptions(overwrite=True, create_parent=True)
        with _translated(f"writing {path}", StoreWriteFailed), self._client.create(path, options) as out:
            for chunk in sent_chunks(source, throttle):
                out.write(chunk)
            out.hsync()

    def _remove(self, path: str) -> None:
        with _translated(f"deleting {path}"), suppress(FileNotFoundError):
            self._client.delete(path)


def _number_of(status: FileStatus) -> int:
    """Return the number at the end of the name; 0 for a name without a number."""
    return natural_number(status.path.rpartition(".")[2]) or 0


def _is_forbidden(_folder: str, error: TierctlError) -> bool:
    """Return whether the namenode refused this user one folder; other errors concern the whole store."""
    return isinstance(error, AuthenticationError)


class _Range(CompleteRange):
    def __init__(self, reader: FileReader, path: str, position: int, end: int, throttle: Throttle) -> None:
        super().__init__(path, end - position, throttle)
        self._reader = reader
        with _translated(f"reading {path}"):
            reader.seek(position, os.SEEK_SET)

    def take(self, size_bytes: int) -> bytes:
        with _translated(f"reading {self._name}"):
            return self._reader.read(size_bytes)


def open_store(address: StoreAddress) -> HdfsStore:
    """Open the store in a folder of HDFS."""
    host, colon, port = address.authority.rpartition(":")
    number = natural_number(port, PORT_MAX)
    if colon and number is not None:
        require_listening(host, number, address.named_by)
    return HdfsStore(hdfs_client(f"hdfs://{address.authority}"), f"/{address.folder}", address.throttle)
