"""The contract of a store, which keeps bytes by key, and functions that several stores share."""

import difflib
import io
import re
import shutil
import socket
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, Protocol, runtime_checkable
from urllib.parse import unquote

from tierctl.errors import (
    AuthenticationError,
    RemoteObjectDiffers,
    RemoteResourceNotFound,
    RemoteStorageError,
    SafetyRefusal,
    StoreWriteFailed,
    TierctlError,
    UsageError,
)
from tierctl.files import PLAIN, FileSystem
from tierctl.model import HashedFile
from tierctl.model.location import folder_of, is_uri, path_in_uri, require_no_credentials, split_uri
from tierctl.storage.throttle import UNLIMITED, Direction, Throttle
from tierctl.wire.primitives import crc32c, crc32c_extend

CHUNK_BYTES = 1 << 20

Source = HashedFile | bytes
"""The content of an object. A store must refuse the bytes of a file that have another checksum by now."""


ChecksumUse = Literal["when_supported", "when_required"]


@dataclass(frozen=True, slots=True, order=True)
class RemoteObject:
    """One object in a store's listing; `key` is relative to the tier's root and separated by `/`.

    `modified_ms` is the time of the last write by the store's clock; None if the store does not report it.
    With `problem` the entry is no object that can be read, for this reason: a link, a device, or a folder
    that can't be listed, whose key ends with `/`. `archive_class` is the storage class of an object that
    can't be read before it is restored; None for an object of another class.
    """

    key: str
    size_bytes: int
    modified_ms: int | None = field(default=None, compare=False)
    problem: str | None = None
    archive_class: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The objects directly in one folder, and its subfolders; both are sorted by key.

    A subfolder is the prefix that the keys of its objects share, with a `/` at its end.
    """

    folders: tuple[str, ...]
    objects: tuple[RemoteObject, ...]

    def by_key(self) -> list[str | RemoteObject]:
        """Return subfolders and objects together, sorted by prefix or key."""
        if not self.folders:
            return [*self.objects]
        return sorted(
            (*self.folders, *self.objects), key=lambda each: each if isinstance(each, str) else each.key
        )


def plain_objects(listed: Iterable[RemoteObject]) -> Iterator[RemoteObject]:
    """Yield the objects of a listing without links.

    Raise RemoteStorageError for a folder that can't be listed.
    """
    for each in listed:
        if each.problem is None:
            yield each
        elif each.key.endswith("/"):
            raise RemoteStorageError(f"{each.key}: {each.problem}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The server of a store, where its URI does not name it, and botocore's checksums. None: not set."""

    url: str | None = None
    region: str | None = None
    request_checksums: ChecksumUse | None = None
    response_checksums: ChecksumUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """Where a store begins, as its URI names the place.

    `authority` is the bucket, container or namenode; `folder` is the folder in it that keys are relative to:
    "" or a path that ends with `/` and begins without. A local store requires `required_folder`, relative to
    `folder`, to exist, and makes its changes through `files`. `named_by` is the option with the URI.
    Transfers of objects are limited by `throttle`.
    """

    scheme: str
    authority: str
    folder: str
    endpoint: Endpoint | None = None
    required_folder: str = ""
    files: FileSystem = PLAIN
    named_by: str = "--remote"
    throttle: Throttle = UNLIMITED


class ObjectStore(Protocol):
    """Keeps whole objects by key; keys are separated by `/` and relative to the store's folder.

    Implementations are safe to call from several threads for different keys. All methods raise
    RemoteStorageError if the store fails, and AuthenticationError if it rejects the credentials. Stores
    inherit the methods with a body, which suit a store without checksums of its own and without copies.
    """

    @property
    def endpoint(self) -> Endpoint | None:
        """The server that another process must use to open the same store; None if the URI names it."""
        return None

    @property
    def delete_batch(self) -> int:
        """The number of keys that one call of `delete` should have, so that several threads share the work.

        A store with bulk deletes deletes so many objects by one request.
        """
        ...

    def put_all(self, objects: Mapping[str, Source | None]) -> None:
        """Store each source under its key durably, the last one last; delete the keys with source None.

        The others may be stored in any order and at the same time. Each object replaces an earlier one of its
        key, and is never partly visible. Raise StoreWriteFailed if an object was not stored, and
        StoreWriteUnknown if the outcome of one is unknown; the others may be stored. No write is in progress
        when the method ends.
        """
        ...

    def verify_all(self, objects: Mapping[str, Source | None]) -> None:
        """Compare size and checksum of every stored object with its source.

        Raise RemoteResourceNotFound if an object does not exist, and RemoteObjectDiffers if one differs, or
        if one exists whose source is None.
        """
        for key, source in objects.items():
            if source is not None:
                with self.open(key) as stored:
                    verify_stream(key, stored, source)
        absent = [key for key, source in objects.items() if source is None]
        for key in self.sizes_bytes(absent) if absent else ():
            raise RemoteObjectDiffers(f"{key} is in the tier, but the segment has no such file")

    def copy(self, key: str, new_key: str) -> None:
        """Store the bytes of an object durably under `new_key`, too; nothing if it has them already.

        A server that can copy does it without sending the bytes here. An object at `new_key` with other bytes
        is replaced. Raise RemoteResourceNotFound if there is no object `key`, and RemoteObjectDiffers if the
        new object differs afterwards.
        """
        with tempfile.NamedTemporaryFile(prefix="tierctl-copy-") as file, self.open(key) as stored:
            shutil.copyfileobj(stored, file, CHUNK_BYTES)
            file.flush()
            copy_file(self, Path(file.name), new_key)

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Return the bytes from `start` to `end` (exclusive) or to the object's end, in bounded memory.

        Raise RemoteResourceNotFound if the object does not exist.
        """
        ...

    def create(self, key: str, body: bytes) -> bool:
        """Store the small object whole and durably unless its key exists; return whether it was stored.

        Of several programs that create the same key at the same time, one stores it; a store that is no
        ConditionalStore does not guarantee this. Raise RemoteStorageError if the outcome is unknown.
        """
        ...

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Return the size of each object that exists, by key; a store that lists lists once for all keys."""
        ...

    def name_of(self, key: str) -> str:
        """Return the URI or path of the object outside tierctl."""
        ...

    def list_objects(self, prefix: str) -> Iterator[RemoteObject]:
        """Yield every object whose key begins with `prefix`, by key; `prefix` need not end with `/`.

        Entries that are no plain objects have a `problem`; they do not end the listing.
        """
        ...

    def list_folder(self, prefix: str) -> FolderListing:
        """Return the objects and subfolders directly in `prefix`'s folder whose keys begin with `prefix`."""
        ...

    def delete(self, keys: Sequence[str]) -> dict[str, TierctlError]:
        """Delete the objects with exactly these keys; missing objects are no error.

        Return the error of each key that the store refused to delete, or whose outcome is unknown. Only
        errors that concern all keys are raised.
        """
        ...

    def close(self) -> None:
        """Release connections and files; a store that keeps none open has nothing to do."""
        return


@dataclass(frozen=True, slots=True)
class TaggedObject:
    """A small object; `tag` changes with each write, `age_s` is the time since it by the store's clock."""

    tag: str
    body: bytes
    age_s: float


@runtime_checkable
class ConditionalStore(ObjectStore, Protocol):
    """A store that can write an object on the condition that no other program changed it."""

    def put_if(self, key: str, body: bytes, tag: str | None) -> str | None:
        """Write the object if it does not exist (`tag` None) or still has `tag`; return its new tag.

        Return None if the condition does not hold; raise RemoteStorageError if the outcome is unknown.
        """
        ...

    def get_tagged(self, key: str) -> TaggedObject | None:
        """Return the object with its tag; None if it does not exist."""
        ...

    def delete_if(self, key: str, tag: str) -> None:
        """Delete the object if it still has `tag`."""
        ...


def chunks(source: Source, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the source in chunks; raise StoreWriteFailed if its file can't be read or has changed."""
    if isinstance(source, bytes):
        for position in range(0, len(source), size_bytes):
            yield source[position : position + size_bytes]
        return
    crc = 0
    try:
        with source.path.open("rb", buffering=0) as stream:
            while chunk := stream.read(size_bytes):
                crc = crc32c_extend(crc, chunk)
                yield chunk
    except OSError as e:
        raise unreadable(source.path, e) from e
    if crc != source.crc32c:
        raise changed(source.path)


def sent_chunks(source: Source, throttle: Throttle) -> Iterator[bytes]:
    """Yield the source in chunks, as `chunks`, each when `throttle` allows its transfer."""
    for chunk in chunks(source, throttle.part_bytes(Direction.COPY, CHUNK_BYTES)):
        throttle.wait(Direction.COPY, len(chunk))
        yield chunk


def unreadable(path: Path, error: OSError) -> StoreWriteFailed:
    """Return the error of a file that was to be stored and can't be read."""
    return StoreWriteFailed(
        f"reading {path}, which was to be copied: {error.strerror or error}",
        hint="the broker may have deleted it; make the plan again",
    )


def changed(path: Path) -> StoreWriteFailed:
    """Return the error of a file that has other bytes than when it was hashed."""
    return StoreWriteFailed(
        f"{path} changed or was deleted while it was being copied", hint="run the command again"
    )


def hashed_file(path: Path) -> HashedFile:
    """Read the file and return it with its size and checksum; raise StoreWriteFailed if it can't be read."""
    size_bytes = crc = 0
    try:
        with path.open("rb", buffering=0) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                crc, size_bytes = crc32c_extend(crc, chunk), size_bytes + len(chunk)
    except OSError as e:
        raise unreadable(path, e) from e
    return HashedFile(path=path, size_bytes=size_bytes, crc32c=crc)


def source_size_bytes(source: Source) -> int:
    """Return the number of bytes of the source."""
    return len(source) if isinstance(source, bytes) else source.size_bytes


def source_crc32c(source: Source) -> int:
    """Return the CRC-32C of the complete source."""
    return crc32c(source) if isinstance(source, bytes) else source.crc32c


_OBJECT = re.compile(r"(?:^|/)[0-9]{20}-[A-Za-z0-9_-]{22}\.[a-z_-]+/\Z")


def walk(
    list_folder: Callable[[str], FolderListing],
    prefix: str,
    *,
    is_tolerated: Callable[[str, TierctlError], bool],
) -> Iterator[RemoteObject]:
    """Yield the objects that `ObjectStore.list_objects` yields, by listing one folder at a time.

    A folder that can't be listed is an entry with a problem if `is_tolerated(folder, error)`; otherwise the
    error is raised. A folder with the name of a segment's object is an entry with a problem, too.
    """

    def listed(folder: str) -> FolderListing:
        try:
            return list_folder(folder)
        except (RemoteStorageError, AuthenticationError, SafetyRefusal) as e:
            if not is_tolerated(folder, e):
                raise
            problem = f"the folder can't be listed: {e.message}"
            return FolderListing((), (RemoteObject(folder, 0, problem=problem),))

    depths: list[Iterator[str | RemoteObject]] = [iter([prefix])]
    while depths:
        for found in depths[-1]:
            if not isinstance(found, str):
                yield found
                continue
            if _OBJECT.search(found):
                yield RemoteObject(found.removesuffix("/"), 0, problem="a folder has the name of an object")
                continue
            listing = listed(found)
            if listing.folders:
                depths.append(iter(listing.by_key()))
                break
            # Most folders have only objects: yield them together, without a Python step for each.
            yield from listing.objects
        else:
            depths.pop()


def delete_all(store: ObjectStore, keys: Sequence[str]) -> None:
    """Delete the objects with exactly these keys; raise the first error, after the others were tried."""
    for error in store.delete(keys).values():
        raise error


def by_folder(keys: Iterable[str]) -> dict[str, list[str]]:
    """Group `keys` by the folder that they are in: "" or a path without `/` at its end."""
    folders: dict[str, list[str]] = {}
    for key in keys:
        folders.setdefault(key.rpartition("/")[0], []).append(key)
    return folders


def common_prefix(keys: Sequence[str]) -> str:
    """Return the longest prefix that all keys share."""
    if not keys:
        return ""
    first, last = min(keys), max(keys)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((at for at, (a, b) in pairs if a != b), len(first))]


def verify_stream(name: str, stored: BinaryIO, source: Source) -> None:
    """Raise RemoteObjectDiffers, with `name`, if size or checksum of `stored` differ from the source's."""
    size_bytes = crc = 0
    while chunk := stored.read(CHUNK_BYTES):
        crc, size_bytes = crc32c_extend(crc, chunk), size_bytes + len(chunk)
    expected = source_size_bytes(source), source_crc32c(source)
    if (size_bytes, crc) != expected:
        raise differs(name, f"{size_bytes} bytes with CRC-32C {crc:#010x}", expected)


def differs(name: str, found: str, expected: tuple[int, int]) -> RemoteObjectDiffers:
    """Return the error of an object that has other bytes than its source; `expected` is size and CRC-32C."""
    return RemoteObjectDiffers(
        f"{name} differs from its source: it has {found}, expected {expected[0]} bytes with CRC-32C "
        f"{expected[1]:#010x}",
        hint="the copy is not published as finished: run again to copy the segment again",
    )


def copy_file(store: ObjectStore, path: Path, new_key: str) -> None:
    """Store the bytes of the file under `new_key`, unless the object has them, and verify the object."""
    source = hashed_file(path)
    with suppress(RemoteResourceNotFound, RemoteObjectDiffers):
        store.verify_all({new_key: source})
        return
    store.put_all({new_key: source})
    store.verify_all({new_key: source})


class CompleteRange(io.RawIOBase):
    """A stream of `size_bytes` bytes of an object; an early end is an error, never a short result.

    It is not read faster than `throttle` allows.
    """

    def __init__(self, name: str, size_bytes: int, throttle: Throttle = UNLIMITED) -> None:
        self._throttle = throttle
        self._name = name
        self._size_bytes = size_bytes
        self._left_bytes = size_bytes

    @abstractmethod
    def take(self, size_bytes: int) -> bytes:
        """Return the next bytes, from 1 to `size_bytes`; raise RemoteStorageError if the read fails."""
        ...

    def after_wait(self, waited_s: float) -> None:
        """Note that the next call of `take` was delayed on purpose."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Implement `io.RawIOBase.readinto`; raise RemoteStorageError if the object ends early."""
        view = memoryview(buffer).cast("B")
        wanted = self._throttle.part_bytes(Direction.FETCH, min(len(view), self._left_bytes))
        waited_s = self._throttle.wait(Direction.FETCH, wanted)
        if waited_s:
            self.after_wait(waited_s)
        data = self.take(wanted) if wanted else b""
        self._throttle.give_back(Direction.FETCH, wanted - len(data))
        if len(view) and not data and self._left_bytes:
            raise RemoteStorageError(f"{self._name} ended {self._left_bytes} bytes early")
        view[: len(data)] = data
        self._left_bytes -= len(data)
        return len(data)


ANSWER_TIMEOUT_S = 10
REFUSED_FOR_S = 1.5
"""How long a server may refuse connections before it counts as down: it may be restarting."""
_PAUSE_S = 0.3


def why_refused(host: str, port: int) -> str | None:
    """Return why a connection failed, None if it was made."""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S):
            return None
    except OSError as e:
        return e.strerror or str(e)


def require_listening(host: str, port: int, named_by: str) -> None:
    """Raise RemoteStorageError if host:port refuses every connection for REFUSED_FOR_S.

    `named_by` is the option or setting that names the server. A slow or unknown network is left to the
    client, which may reach the server in another way.
    """
    deadline_s = time.monotonic() + REFUSED_FOR_S
    while True:
        try:
            with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S):
                return
        except (ConnectionRefusedError, socket.gaierror) as e:
            if time.monotonic() + _PAUSE_S > deadline_s:
                raise RemoteStorageError(
                    f"no server accepts connections at {host}:{port} ({named_by}): {e.strerror or e}",
                    hint=f"check that the server is running, and check {named_by}",
                ) from e
        except OSError:
            return
        time.sleep(_PAUSE_S)


# The stores that tierctl opens, one row per URI scheme.
#
# The row of a scheme names the module that opens its stores. The module is imported with the first store of
# that scheme, because it may need a package that belongs to an optional extra of tierctl.

FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """One row of the table: how the stores of one URI scheme are opened.

    `module`, relative to this package, has the function `open_store(address: StoreAddress)`. If it needs the
    optional package `package`, `extra` is the extra of tierctl that installs that package.
    """

    module: str
    example: str
    package: str | None = None
    extra: str | None = None


STORES: Mapping[str, StoreKind] = MappingProxyType(
    {
        FILE: StoreKind(module="local_store", example="file:///dir"),
        "s3": StoreKind(module="s3.store", example="s3://bucket/folder", package="boto3", extra="s3"),
        "hdfs": StoreKind(
            module="hdfs", example="hdfs://host:port/folder", package="hdfs_native", extra="hdfs"
        ),
        "gs": StoreKind(module="arrow", example="gs://bucket/folder"),
        "gcs": StoreKind(module="arrow", example="gcs://bucket/folder"),
        "abfs": StoreKind(module="arrow", example="abfs://container@account.dfs.core.windows.net/folder"),
        "abfss": StoreKind(module="arrow", example="abfss://container@account.dfs.core.windows.net/folder"),
        "viewfs": StoreKind(module="arrow", example="viewfs://cluster/folder"),
    }
)

SCHEMES = tuple(STORES)


def store_uri(option: str, given: str) -> str:
    """Return `given`, the value of `option`, as a store's URI; a plain path becomes a file:/// URI.

    Raise UsageError if no store has the scheme of `given`.
    """
    require_no_credentials(option, given)
    scheme = split_uri(option, given).scheme if is_uri(given) else FILE
    if scheme == FILE:
        return folder_of(option, given).as_uri()
    if scheme not in STORES:
        raise unknown_scheme(f"{option} {given}", scheme)
    return given


def unknown_scheme(where: str, scheme: str) -> UsageError:
    """Return the error for a scheme that no store has; `where` is the beginning of its message."""
    nearest = difflib.get_close_matches(scheme, STORES, n=1, cutoff=0.5)
    known = f"known schemes: {', '.join(STORES)}"
    return UsageError(
        f"{where}: unknown scheme {scheme!r}",
        hint=f"did you mean {nearest[0]}://? {known}" if nearest else known,
    )


ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes whose objects can't be read before they are restored."""


class Versioning(StrEnum):
    """Whether a bucket keeps earlier versions of objects that are replaced or deleted."""

    ENABLED = "enabled"
    SUSPENDED = "suspended"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRule:
    """One enabled rule by which the store deletes or moves objects.

    `prefix` is relative to the bucket. `expires_after` says when current objects are deleted, None if they
    are not; `transitions` are the storage classes that objects are moved to.
    """

    name: str
    prefix: str
    is_filtered: bool = False
    """Whether the rule also requires tags or a size, so that it may spare the objects of a tier."""
    expires_after: str | None = None
    transitions: tuple[str, ...] = ()
    expires_noncurrent: bool = False


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A multipart upload that was neither completed nor aborted; `key` is relative to the bucket."""

    key: str
    begun_ms: int


@runtime_checkable
class InspectableStore(ObjectStore, Protocol):
    """A store in a bucket that reports the settings of the bucket; each call reads them again.

    The methods raise RemoteStorageError if the store fails, and AuthenticationError if the login may not see
    the setting.
    """

    @property
    def folder(self) -> str:
        """The prefix of the store's keys in the bucket."""
        ...

    def clock_ms(self) -> int:
        """Return the store's time in milliseconds since 1970, rounded down to a second."""
        ...

    def versioning(self) -> Versioning | None:
        """Return whether the bucket keeps versions; None if the store does not implement the question."""
        ...

    def lifecycle_rules(self) -> list[LifecycleRule] | None:
        """Return the enabled rules of the whole bucket; None if the store does not implement the question."""
        ...

    def unfinished_uploads(self) -> Iterator[UnfinishedUpload]:
        """Yield the unfinished uploads to keys in the store's folder, by key."""
        ...


def open_store(uri: str, *, endpoint: Endpoint | None = None, named_by: str = "--remote") -> ObjectStore:
    """Open the store below the folder that `uri` names, without creating or reading anything.

    `endpoint` is `ObjectStore.endpoint` of the same store in another process; `named_by` is the option with
    the URI. Raise UsageError for an unknown scheme, a malformed URI or a missing package, and
    RemoteStorageError for a server that refuses connections.
    """
    return open_store_at(replace(parse_store_uri(uri, endpoint=endpoint), named_by=named_by))


def open_store_at(address: StoreAddress) -> ObjectStore:
    """Open the store at `address`. Raise UsageError if the package that its scheme needs is missing."""
    kind = STORES[address.scheme]
    if kind.package is not None and find_spec(kind.package) is None:
        raise UsageError(
            f"{address.scheme}:// needs {kind.package}, which is not installed",
            hint=f"pip install tierctl[{kind.extra}]",
        )
    module = import_module(f"tierctl.storage.stores.{kind.module}")
    store: ObjectStore = module.open_store(address)
    return store


def parse_store_uri(uri: str, *, endpoint: Endpoint | None = None, files: FileSystem = PLAIN) -> StoreAddress:
    """Return the address that `uri` names.

    `endpoint` is as for `open_store`; `files` makes the changes of a store on local disk.
    """
    require_no_credentials("the store", uri)
    parts = split_uri("the store", uri)
    kind = STORES.get(parts.scheme)
    if kind is None:
        raise unknown_scheme(repr(uri), parts.scheme)
    is_file = parts.scheme == FILE
    is_complete = parts.path and parts.netloc in {"", "localhost"} if is_file else parts.netloc
    _, at, host = parts.netloc.partition("@")
    # pyarrow takes a host without a dot for the container, and what is before it for the account.
    if not is_complete or parts.query or parts.fragment or (at and "." not in host):
        raise UsageError(f"not the URI of a store: {uri!r}", hint=f"expected {kind.example}")
    # pyarrow decodes its URIs; in S3 and HDFS a percent code is part of the name.
    path = unquote(parts.path) if kind.module == "arrow" else parts.path
    path = path_in_uri(parts.path).absolute().as_posix() if is_file else path
    folder = path.strip("/")
    return StoreAddress(
        scheme=parts.scheme,
        authority="" if is_file else parts.netloc,
        folder=f"{folder}/" if folder else "",
        endpoint=endpoint,
        files=files,
    )
