"""Objects in the file systems that pyarrow.fs supports: gs://, abfs://, viewfs://."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs as pafs

from tierctl.errors import (
    AuthenticationError,
    ObjectArchived,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteTierMissing,
    StoreRefused,
    StoreWriteFailed,
    StoreWriteUnknown,
    TierctlError,
    UsageError,
)
from tierctl.files import TEMP_SUFFIX
from tierctl.storage.stores.base import (
    CompleteRange,
    FolderListing,
    ObjectStore,
    RemoteObject,
    Source,
    StoreAddress,
    delete_all,
    sent_chunks,
    walk,
)
from tierctl.storage.throttle import UNLIMITED, Throttle

READ_BYTES = 1 << 18
# The texts of Google's and Azure's clients and of HDFS: pyarrow has no codes. Paths are in the texts, too.
_NOT_ALLOWED = re.compile(
    r"Azure Error: \[\w*\] 40[13] |AccessControlException"
    r"|Failed to get token from DefaultAzureCredential|Could not create a OAuth2 access token"
)
_ARCHIVED = re.compile(r"Azure Error: \[Blob(?:Archived|BeingRehydrated)\]")
_REFUSED = re.compile(r"\((?:UNIMPLEMENTED|INVALID_ARGUMENT):|Azure Error: \[\w*\] (?:400|405|501) ")
_GCS = frozenset({"gs", "gcs"})
_GCS_TYPE, _AZURE_TYPE = "gcs", "abfs"
_BUCKETS = frozenset({_GCS_TYPE, _AZURE_TYPE})
"""The names that pyarrow.fs gives to file systems whose paths begin with a bucket or container."""
_NO_FOLDER = ".tierctl-none"
"""A folder without objects."""
_NO_BUCKET = "google::cloud::Status(NOT_FOUND:"
"""The answer of GCS to a listing of a bucket that does not exist."""
_GCS_RETRIES_S = 20
"""How long the client of GCS repeats a failed request; its own default is 15 minutes."""


@contextmanager
def _translated(doing: str, error: type[RemoteStorageError] = RemoteStorageError) -> Iterator[None]:
    """Raise pyarrow's errors as `error`, or as RemoteResourceNotFound for a missing object.

    Refusals, which the next attempt gets, too, are AuthenticationErrors, ObjectArchived and StoreRefused.
    """
    try:
        yield
    except FileNotFoundError as e:
        raise RemoteResourceNotFound(f"{doing}: it does not exist") from e
    except (OSError, pa.ArrowException) as e:
        if isinstance(e, PermissionError) or _NOT_ALLOWED.search(str(e)):
            hint = "check the credentials of this process, and their rights on the bucket and folder"
            raise AuthenticationError(f"{doing}: {e}", hint=hint) from e
        if _ARCHIVED.search(str(e)):
            hint = "set its tier to Hot or Cool (az storage blob set-tier), and run again when that is done"
            raise ObjectArchived(f"{doing}: {e}", hint=hint) from e
        if isinstance(e, NotImplementedError) or _REFUSED.search(str(e)):
            raise StoreRefused(f"{doing}: {e}", hint="no retry helps: the store lacks the operation") from e
        raise error(f"{doing}: {e}") from e


class ArrowStore(ObjectStore):
    """ObjectStore over a pyarrow FileSystem; `root` is "" or ends with `/`.

    Object stores make an object visible when its stream closes, at the latest when it is released: no stream
    can be aborted. Azure's also empty an earlier object when they open. Therefore objects that exist are
    replaced by a copy inside the store, and what a failed write left under its own key is deleted.
    """

    delete_batch = 100

    def __init__(self, filesystem: Any, root: str = "", throttle: Throttle = UNLIMITED) -> None:
        self._throttle = throttle
        self._fs = filesystem
        self._root = root

    def put_all(self, objects: Mapping[str, Source | None]) -> None:
        """Implement `ObjectStore.put_all`."""
        for key, source in objects.items():
            if source is not None:
                self._put(key, source)
            elif self._sizes_bytes([key]):
                delete_all(self, [key])

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Implement `ObjectStore.open`."""
        path = self._root + key
        with _translated(f"reading {path}"):
            file = self._fs.open_input_file(path)
            size_bytes = file.size()
        last = size_bytes if end is None else min(end, size_bytes)
        return io.BufferedReader(_Range(file, path, min(start, last), last, self._throttle), READ_BYTES)

    def create(self, key: str, body: bytes) -> bool:
        """Implement `ObjectStore.create` by a check first: pyarrow.fs has no conditional writes."""
        if self._sizes_bytes([key]):
            return False
        self.put_all({key: body})
        return True

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Implement `ObjectStore.sizes_bytes`."""
        found = self._sizes_bytes(keys)
        if not found:
            self._require_root()
        return found

    def _sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        with _translated(f"looking for objects below {self._root}"):
            infos = self._fs.get_file_info([self._root + key for key in keys])
        found = zip(keys, infos, strict=True)
        return {key: info.size for key, info in found if info.type is pafs.FileType.File}

    def name_of(self, key: str) -> str:
        """Implement `ObjectStore.name_of` as the file system's type and the path in it."""
        return f"{self._fs.type_name}:{self._root}{key}"

    def list_objects(self, prefix: str) -> Iterator[RemoteObject]:
        """Implement `ObjectStore.list_objects`; pyarrow.fs returns the whole listing at once.

        Azure's is made folder by folder: pyarrow.fs lists a folder with an empty name for ever.
        """
        if self._fs.type_name == _AZURE_TYPE:
            return walk(self.list_folder, prefix, is_tolerated=lambda *_: False)
        infos = self._infos(prefix, recursive=True)
        return iter(sorted(_object(key, info) for key, info in infos if info.type is pafs.FileType.File))

    def list_folder(self, prefix: str) -> FolderListing:
        """Implement `ObjectStore.list_folder`.

        In Google's store pyarrow.fs lists only folders that have an empty object of their own; brokers write
        none. There the folders are derived from all objects below.
        """
        folder = prefix[: prefix.rfind("/") + 1]
        folders, objects = set(), []
        for key, info in self._infos(prefix, recursive=self._fs.type_name == _GCS_TYPE):
            name, slash, _ = key.removeprefix(folder).partition("/")
            if key == f"{folder}/":
                problem = "names of objects in this folder have // and can't be listed"
                objects.append(RemoteObject(key, 0, problem=problem))
            elif slash or info.type is pafs.FileType.Directory:
                folders.add(f"{folder}{name}/")
            elif info.type is pafs.FileType.File:
                objects.append(_object(key, info))
        return FolderListing(tuple(sorted(folders)), tuple(sorted(objects)))

    def _require_root(self) -> None:
        """Raise RemoteTierMissing if the bucket, or a file system's folder, does not exist.

        A tier that is not there must not look like one whose objects are deleted.
        """
        root = self._top if self._fs.type_name in _BUCKETS else self._root.rstrip("/") or "/"
        with _translated(f"looking for {root}"):
            if self._fs.type_name == _GCS_TYPE:
                # Rights on objects need not include the right to look at their bucket.
                self._listed(f"{root}/{_NO_FOLDER}", recursive=True)
            elif self._fs.get_file_info(root).type is pafs.FileType.NotFound:
                raise self._missing(root)

    @property
    def _top(self) -> str:
        return self._root.partition("/")[0]

    def _missing(self, root: str) -> RemoteTierMissing:
        return RemoteTierMissing(
            f"there is no tier at {self.name_of('')}: {root} does not exist", hint="check --remote"
        )

    def _listed(self, folder: str, *, recursive: bool) -> list[Any]:
        """Return what is in a folder, nothing if it does not exist.

        In a folder of a bucket, the error tells whether the bucket was there until the last page. In place of
        it, a bucket without objects would be asked for its data, which rights on objects need not allow.
        """
        is_silent = folder == self._top or self._fs.type_name not in _BUCKETS
        selector = pafs.FileSelector(folder, recursive=recursive, allow_not_found=is_silent)
        try:
            found: list[Any] = self._fs.get_file_info(selector)
        except OSError as e:
            # pyarrow.fs states a missing folder of GCS without a code.
            if not isinstance(e, FileNotFoundError) and not str(e).startswith("No such file or directory '"):
                raise
            if _NO_BUCKET in str(e):
                raise self._missing(self._top) from e
            return []
        return found

    def _infos(self, prefix: str, *, recursive: bool) -> Iterator[tuple[str, Any]]:
        own = prefix[: prefix.rfind("/") + 1]
        folder = (self._root + own).rstrip("/")
        with _translated(f"listing {folder}"):
            infos = self._listed(folder, recursive=recursive)
        if not infos or folder == self._top:
            self._require_root()
        # Azure's folder with an empty name has the path of the folder that it is in.
        keyed = (
            (f"{own}/" if info.path == folder else info.path.removeprefix(self._root), info) for info in infos
        )
        return ((key, info) for key, info in keyed if key.startswith(prefix))

    def delete(self, keys: Sequence[str]) -> dict[str, TierctlError]:
        """Implement `ObjectStore.delete` with one request per object."""
        errors: dict[str, TierctlError] = {}
        for key in self.sizes_bytes(keys):
            try:
                with _translated(f"deleting {self._root}{key}"), suppress(FileNotFoundError):
                    self._fs.delete_file(self._root + key)
            except TierctlError as e:
                errors[key] = e
        return errors

    def _put(self, key: str, source: Source) -> None:
        path = self._root + key
        if self._fs.type_name not in _BUCKETS:
            # In a bucket this would create an object for each folder, and a bucket that does not exist.
            with _translated(f"writing {path}", StoreWriteFailed):
                self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        elif self._sizes_bytes([key]):
            self._write(path + TEMP_SUFFIX, source)
            with _translated(f"replacing {path}", StoreWriteUnknown):
                self._fs.copy_file(path + TEMP_SUFFIX, path)
            delete_all(self, [key + TEMP_SUFFIX])
            return
        self._write(path, source)

    def _write(self, path: str, source: Source) -> None:
        """Write a file; after an error, delete what was written, or raise StoreWriteUnknown."""
        with _translated(f"writing {path}", StoreWriteFailed):
            out = self._fs.open_output_stream(path, compression=None)
        try:
            with _translated(f"writing {path}", StoreWriteFailed):
                for chunk in sent_chunks(source, self._throttle):
                    out.write(chunk)
            with _translated(f"finishing {path}", StoreWriteUnknown):
                out.close()
        except Exception as e:
            # The traceback keeps the stream, which would store the bytes sent so far when it is released.
            with suppress(OSError, pa.ArrowException):
                out.close()
            del out
            try:
                with suppress(FileNotFoundError):
                    self._fs.delete_file(path)
            except (OSError, pa.ArrowException) as left:
                raise StoreWriteUnknown(
                    f"{e}; deleting what was sent to {path}: {left}", hint=f"delete {path} if it is there"
                ) from e
            raise


def _object(key: str, info: Any) -> RemoteObject:
    return RemoteObject(key, info.size, info.mtime_ns // 1_000_000 if info.mtime_ns else None)


class _Range(CompleteRange):
    def __init__(self, file: Any, path: str, position: int, end: int, throttle: Throttle) -> None:
        super().__init__(path, end - position, throttle)
        self._file = file
        with _translated(f"reading {path}"):
            file.seek(position)

    def take(self, size_bytes: int) -> bytes:
        with _translated(f"reading {self._name}"):
            data: bytes = self._file.read(size_bytes)
        return data

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def open_store(address: StoreAddress) -> ArrowStore:
    """Open the store at `address`. Raise UsageError if this build of pyarrow does not support its scheme."""
    uri = f"{address.scheme}://{address.authority}/{quote(address.folder)}"
    if address.scheme in _GCS:
        uri += f"?retry_limit_seconds={_GCS_RETRIES_S}"
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError) as e:
        raise UsageError(f"pyarrow does not open {uri}: {e}", hint="check the URI") from e
    return ArrowStore(filesystem, path.rstrip("/") + "/" if path else "", address.throttle)
