"""Flat keys to bytes: what every store offers, whatever the objects are named or hold."""

import io
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import google_crc32c

from tierctl.errors import (
    RemoteObjectDiffers,
    RemoteResourceNotFound,
    RemoteStorageError,
    StoreWriteFailed,
)
from tierctl.files import PLAIN, FileSystem
from tierctl.storage.base import FolderListing, RemoteObject

CHUNK_BYTES = 1 << 20

Source = Path | bytes


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The server that a store's requests go to, where the store's URI does not name it. None: not set."""

    url: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """Where a store begins, as its URI names the place.

    `authority` is the bucket, container or namenode; `folder` is the folder in it that keys are relative to:
    "" or a path that ends with `/` and begins without. A local store requires `required_folder`, relative to
    `folder`, to exist, and makes its changes through `files`.
    """

    scheme: str
    authority: str
    folder: str
    endpoint: Endpoint | None = None
    required_folder: str = ""
    files: FileSystem = PLAIN


class ObjectStore(Protocol):
    """A store of whole objects. Keys are `/`-separated and relative to the tier's root.

    Safe to call from several threads for different keys. All methods raise RemoteStorageError when the
    store fails, AuthenticationError when it refuses who we are.
    """

    @property
    def endpoint(self) -> Endpoint | None:
        """The server that another process must use to open the same store; None if the URI names it."""
        ...

    def put_all(self, objects: Mapping[str, Source | None]) -> None:
        """Store each source under its key, in order; None removes what is there. Durable on return.

        Each object is there whole or not at all, and replaces what was there. StoreWriteFailed when an
        object was not stored, StoreWriteUnknown when that can't be told; those before it may be there.
        """
        ...

    def verify(self, key: str, source: Source) -> None:
        """Compare size and checksum, or the bytes, of what is stored with `source`.

        RemoteResourceNotFound when there is no such object, RemoteObjectDiffers when it is another one.
        """
        ...

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Bytes from `start` up to, not including, `end` or the end of the object; memory is bounded.

        RemoteResourceNotFound when there is no such object.
        """
        ...

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """The sizes of those of the keys that are there."""
        ...

    def name_of(self, key: str) -> str:
        """The object's name from outside, where it has one: a URI or a path."""
        ...

    def list_objects(self, prefix: str) -> Iterator[RemoteObject]:
        """Every object whose key begins with `prefix`, by key.

        `prefix` is "" or ends with `/`, or names the beginning of a folder's names.
        """
        ...

    def list_folder(self, prefix: str) -> FolderListing:
        """Those of them that lie in the folder that `prefix` ends in, and the folders there."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete exactly these keys; those already gone are no error.

        Raises when the store reports an error for any of them, naming it: the others may be gone.
        """
        ...

    def close(self) -> None:
        """Release connections and files."""
        ...


@dataclass(frozen=True, slots=True)
class Stamped:
    """A small object as it is: its tag changes with each write; its age is by the store's own clock."""

    tag: str
    body: bytes
    age_s: float


@runtime_checkable
class ConditionalStore(ObjectStore, Protocol):
    """A store that can write an object only if it is unchanged, which a lease needs."""

    def copy(self, source_key: str, key: str) -> None:
        """Replace the object `key` by a copy of the object `source_key`, within the store."""
        ...

    def put_if(self, key: str, body: bytes, tag: str | None) -> str | None:
        """Write when the object is not there (`tag` None) or still has `tag`; its new tag, else None.

        RemoteStorageError when that can't be told.
        """
        ...

    def stamped(self, key: str) -> Stamped | None:
        """The object, None when there is none."""
        ...

    def delete_if(self, key: str, tag: str) -> None:
        """Delete the object when it still has `tag`."""
        ...


def chunks(source: Source, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The source's bytes in pieces; StoreWriteFailed when it can't be read."""
    if isinstance(source, bytes):
        for position in range(0, len(source), size_bytes):
            yield source[position : position + size_bytes]
        return
    try:
        with source.open("rb") as stream:
            while chunk := stream.read(size_bytes):
                yield chunk
    except OSError as e:
        raise StoreWriteFailed(
            f"reading {source}, which was to be copied: {e.strerror or e}",
            hint="has the broker rolled or deleted it? plan again",
        ) from e


def source_size_bytes(source: Source) -> int:
    """How many bytes the source has now; StoreWriteFailed when it can't be told."""
    if isinstance(source, bytes):
        return len(source)
    try:
        return source.stat().st_size
    except OSError as e:
        raise StoreWriteFailed(f"looking at {source}, which was to be copied: {e.strerror or e}") from e


def crc32c(source: Source) -> int:
    """CRC-32C of the whole source."""
    crc = 0
    for chunk in chunks(source):
        crc = google_crc32c.extend(crc, chunk)
    return crc


def walk(list_folder: Callable[[str], FolderListing], prefix: str) -> Iterator[RemoteObject]:
    """ObjectStore.list_objects, from listings of one folder at a time."""
    depths = [iter(list_folder(prefix).by_key())]
    while depths:
        match next(depths[-1], None):
            case None:
                depths.pop()
            case str(folder):
                depths.append(iter(list_folder(folder).by_key()))
            case found:
                yield found


def common_prefix(keys: Sequence[str]) -> str:
    """What all the keys begin with, character by character."""
    if not keys:
        return ""
    first, last = min(keys), max(keys)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((at for at, (a, b) in pairs if a != b), len(first))]


def verify_stream(name: str, stored: BinaryIO, source: Source) -> None:
    """RemoteObjectDiffers, with `name` and place, unless `stored` has exactly the source's bytes."""
    position = 0
    for chunk in chunks(source):
        if stored.read(len(chunk)) != chunk:
            raise RemoteObjectDiffers(
                f"{name} differs from its source at or after byte {position}",
                hint="the copy is not finished: run again, a new attempt copies it anew",
            )
        position += len(chunk)
    if stored.read(1):
        raise RemoteObjectDiffers(f"{name} is longer than its source, which has {position} bytes")


def verify_bytes(store: ObjectStore, key: str, source: Source) -> None:
    """ObjectStore.verify, byte by byte: for stores that tell no checksum of their own."""
    size_bytes, expected = store.sizes_bytes([key]).get(key), source_size_bytes(source)
    if size_bytes is None:
        raise RemoteResourceNotFound(f"{key} is not there")
    if size_bytes != expected:
        raise RemoteObjectDiffers(f"{key} has {size_bytes} bytes, its source {expected}")
    with store.open(key) as stored:
        verify_stream(key, stored, source)


class WholeRange(io.RawIOBase):
    """A range of an object that must come whole: an early end is an error, never a short result."""

    def __init__(self, name: str, size_bytes: int) -> None:
        self._name = name
        self._size_bytes = size_bytes
        self._left_bytes = size_bytes

    @abstractmethod
    def take(self, size_bytes: int) -> bytes:
        """The next bytes, at most `size_bytes` and never 0 before the end; RemoteStorageError."""
        ...

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See io.RawIOBase; RemoteStorageError when the object ends early."""
        view = memoryview(buffer).cast("B")
        data = self.take(min(len(view), self._left_bytes)) if self._left_bytes else b""
        if len(view) and not data and self._left_bytes:
            raise RemoteStorageError(f"{self._name} ended {self._left_bytes} bytes early")
        view[: len(data)] = data
        self._left_bytes -= len(data)
        return len(data)
