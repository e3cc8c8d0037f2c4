"""A store in memory: the smallest implementation of the contract, with errors on request."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

from tierctl.errors import RemoteResourceNotFound, TierctlError
from tierctl.storage.layouts.kafka import KafkaLayout, SegmentLayout
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import FolderListing, ObjectStore, RemoteObject, Source, chunks


def folder_listing(found: Iterable[RemoteObject], prefix: str) -> FolderListing:
    """Return the objects directly below `prefix`, and the folders there."""
    folders, objects = {}, []
    for each in found:
        name, slash, _ = each.key.removeprefix(prefix).partition("/")
        if slash:
            folders[f"{prefix}{name}/"] = True
        else:
            objects.append(each)
    return FolderListing(tuple(folders), tuple(objects))


class MemoryStore(ObjectStore):
    """An ObjectStore over a dict."""

    delete_batch = 12

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_all(self, objects: Mapping[str, Source | None]) -> None:
        for key, source in objects.items():
            self.objects.pop(key, None)
            if source is not None:
                self.objects[key] = b"".join(chunks(source))

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        if key not in self.objects:
            raise RemoteResourceNotFound(f"{key} is missing")
        return io.BytesIO(self.objects[key][start:end])

    def create(self, key: str, body: bytes) -> bool:
        return self.objects.setdefault(key, body) is body

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        return {key: len(self.objects[key]) for key in keys if key in self.objects}

    def name_of(self, key: str) -> str:
        return f"memory:{key}"

    def list_objects(self, prefix: str) -> Iterator[RemoteObject]:
        for key, data in sorted(self.objects.items()):
            if key.startswith(prefix):
                yield RemoteObject(key, len(data))

    def list_folder(self, prefix: str) -> FolderListing:
        return folder_listing(self.list_objects(prefix), prefix)

    def delete(self, keys: Sequence[str]) -> dict[str, TierctlError]:
        for key in keys:
            self.objects.pop(key, None)
        return {}


class FailingStore(MemoryStore):
    """A store in memory whose next operations raise `errors`, one each, before they take effect."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.errors:
            raise self.errors.pop(0)

    def put_all(self, objects: Mapping[str, Source | None]) -> None:
        self._call("put_all")
        super().put_all(objects)

    def verify_all(self, objects: Mapping[str, Source | None]) -> None:
        self._call("verify_all")
        super().verify_all(objects)

    def copy(self, key: str, new_key: str) -> None:
        self._call("copy")
        self.objects[new_key] = self.objects[key]

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        self._call("open")
        return super().open(key, start, end)

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        self._call("sizes_bytes")
        return super().sizes_bytes(keys)

    def list_objects(self, prefix: str) -> Iterator[RemoteObject]:
        self._call("list_objects")
        return super().list_objects(prefix)

    def list_folder(self, prefix: str) -> FolderListing:
        self._call("list_folder")
        return folder_listing(super().list_objects(prefix), prefix)

    def delete(self, keys: Sequence[str]) -> dict[str, TierctlError]:
        self._call("delete")
        return super().delete(keys)

    def close(self) -> None:
        self.calls.append("close")


class MemoryStorage(RemoteStorageManager):
    """A tier in memory whose store raises errors on request."""

    def __init__(self, layout: SegmentLayout | None = None) -> None:
        self.failing = FailingStore()
        super().__init__(self.failing, layout or KafkaLayout())
