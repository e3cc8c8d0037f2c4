"""A store in memory whose calls fail before, during or after their effect, or take effect later."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from tierctl.errors import (
    AuthenticationError,
    RemoteResourceNotFound,
    RemoteStorageError,
    StoreWriteFailed,
    StoreWriteUnknown,
    TierctlError,
)
from tierctl.storage.stores.base import (
    ConditionalStore,
    FolderListing,
    RemoteObject,
    Source,
    TaggedObject,
    chunks,
)

from tests.storage.memory import folder_listing


class Environment(Protocol):
    """The interface to the simulated world that the store and the topic call."""

    @property
    def clock_ms(self) -> int: ...

    def step(self, name: str, *, may_wait: bool = True) -> None:
        """Let time pass, let others run if the call `may_wait`, and perhaps crash the calling process."""
        ...

    def fault(self, *kinds: str, weight: int = 1) -> str | None:
        """Return the fault of this call, one of `kinds`, `weight` times as often; None if it succeeds."""
        ...

    def object_put(self, key: str, body: bytes) -> None:
        """Check an object that is about to be stored."""
        ...

    def object_deleted(self, key: str) -> None:
        """Check an object that is about to be deleted."""
        ...

    def is_deleted(self, key: str) -> bool:
        """Return whether the segment of an object is being deleted, or was."""
        ...

    def has_lost_lease(self) -> bool:
        """Return whether the calling process had a lease that another one may have taken over."""
        ...

    def chosen(self, keys: Sequence[str]) -> Sequence[str]:
        """Return some of `keys`, at least one."""
        ...

    def later(self, do: Callable[[], None]) -> None:
        """Carry out an effect at a later step: that of a request which the client has given up."""
        ...


@dataclass(slots=True)
class _Stored:
    body: bytes
    tag: str
    written_ms: int


@dataclass(slots=True)
class ModelStore(ConditionalStore):
    """Implement ConditionalStore over a dict; every call is a step of the simulation."""

    world: Environment
    stored: dict[str, _Stored] = field(default_factory=dict)
    delete_batch: int = 12
    """Two segments, so that a wave has several calls."""
    _writes: int = 0

    def put(self, key: str, body: bytes) -> str:
        """Store an object without faults, also one of the model broker."""
        self.world.object_put(key, body)
        self._writes += 1
        self.stored[key] = _Stored(body, f"tag-{self._writes}", self.world.clock_ms)
        return self.stored[key].tag

    def remove(self, keys: Iterable[str]) -> None:
        """Delete objects without faults, as the model broker does."""
        for key in keys:
            self._remove(key)

    def _remove(self, key: str) -> None:
        if key in self.stored:
            self.world.object_deleted(key)
            del self.stored[key]

    def _read_step(self, name: str) -> None:
        self.world.step(name)
        match self.world.fault("failed", "refused"):
            case "failed":
                raise RemoteStorageError(f"{name}: 503")
            case "refused":
                raise AuthenticationError(f"{name}: 403")

    def put_all(self, objects: Mapping[str, Source | None]) -> None:
        for key, source in objects.items():
            self.world.step("put")
            body = None if source is None else b"".join(chunks(source))
            match self.world.fault("failed", "unknown", "lost", "late"):
                case "failed":
                    raise StoreWriteFailed(f"put {key}: 503")
                case "lost":
                    raise StoreWriteUnknown(f"put {key}: connection reset")
                case "late":
                    if body is not None:
                        self.world.later(lambda key=key, body=body: self._put_late(key, body))  # type: ignore[misc]
                    raise StoreWriteUnknown(f"put {key}: timeout")
                case "unknown":
                    self._store(key, body)
                    raise StoreWriteUnknown(f"put {key}: connection reset after the commit")
            self._store(key, body)
            # A crash after the effect differs from one before it.
            self.world.step("put done")

    def _store(self, key: str, body: bytes | None) -> None:
        if body is None:
            self._remove(key)
        # A run that was suspended for longer than its lease may store an object after the next run withdrew
        # its copy. This leak can't be prevented; `verify` reports it.
        elif not (self.world.is_deleted(key) and self.world.has_lost_lease()):
            self.put(key, body)

    def _put_late(self, key: str, body: bytes) -> None:
        # A write of which the client heard nothing may take effect after its segment was deleted: if the
        # retry succeeded and the copy failed later, or if the next run withdrew the copy. This leak can't be
        # prevented; `verify` reports it.
        if key not in self.stored and not self.world.is_deleted(key):
            self.put(key, body)

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        self._read_step("open")
        if key not in self.stored:
            raise RemoteResourceNotFound(f"{key} is missing")
        return io.BytesIO(self.stored[key].body[start:end])

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        self._read_step("sizes")
        return {key: len(self.stored[key].body) for key in keys if key in self.stored}

    def name_of(self, key: str) -> str:
        return f"s3://sim/{key}"

    def list_objects(self, prefix: str) -> Iterator[RemoteObject]:
        self._read_step("list")
        for key, stored in sorted(self.stored.items()):
            if key.startswith(prefix):
                yield RemoteObject(key, len(stored.body), stored.written_ms)

    def list_folder(self, prefix: str) -> FolderListing:
        return folder_listing(self.list_objects(prefix), prefix)

    def delete(self, keys: Sequence[str]) -> dict[str, TierctlError]:
        self.world.step("delete")
        # One call deletes whole segments, while a copy makes one call per object.
        fault = self.world.fault("failed", "some", "silent", "unknown", "late", "refused", weight=20)
        kept = set(self.world.chosen(keys)) if fault in {"some", "silent"} else set()
        match fault:
            case "failed":
                return dict.fromkeys(keys, RemoteStorageError("delete: 503"))
            case "refused":
                raise AuthenticationError("delete: 403")
            case "late":
                self.world.later(lambda: self.remove(keys))
                return dict.fromkeys(keys, RemoteStorageError("delete: timeout"))
        self.remove(key for key in keys if key not in kept)
        if fault == "unknown":
            return dict.fromkeys(keys, RemoteStorageError("delete: connection reset after the commit"))
        self.world.step("delete done")
        return dict.fromkeys(kept, RemoteStorageError("InternalError")) if fault == "some" else {}

    def create(self, key: str, body: bytes) -> bool:
        self.world.step("create")
        fault = self.world.fault("failed", "unknown")
        if fault == "failed":
            raise RemoteStorageError(f"create {key}: 503")
        is_new = key not in self.stored
        if is_new:
            self.put(key, body)
        if fault == "unknown":
            raise RemoteStorageError(f"create {key}: connection reset after the commit")
        return is_new

    def put_if(self, key: str, body: bytes, tag: str | None) -> str | None:
        self.world.step("put_if")
        fault = self.world.fault("failed", "unknown")
        if fault == "failed":
            raise RemoteStorageError(f"put_if {key}: 503")
        found = self.stored.get(key)
        if (None if found is None else found.tag) != tag:
            return None
        written = self.put(key, body)
        if fault == "unknown":
            raise RemoteStorageError(f"put_if {key}: connection reset after the commit")
        return written

    def get_tagged(self, key: str) -> TaggedObject | None:
        self._read_step("get_tagged")
        found = self.stored.get(key)
        if found is None:
            return None
        return TaggedObject(found.tag, found.body, (self.world.clock_ms - found.written_ms) / 1000)

    def delete_if(self, key: str, tag: str) -> None:
        self.world.step("delete_if")
        found = self.stored.get(key)
        if found is not None and found.tag == tag:
            self._remove(key)
