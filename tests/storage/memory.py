"""A store in memory: the smallest implementation of the contract, with errors on request."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

from tierctl.errors import RemoteResourceNotFound, TierctlError
from tierctl.model import IndexType, LogSegmentData, RemoteLogSegmentMetadata, TopicIdPartition
from tierctl.storage.base import FolderListing, RemoteObject
from tierctl.storage.layouts.base import SegmentLayout
from tierctl.storage.layouts.kafka import KafkaLayout
from tierctl.storage.object_tier import ObjectTier
from tierctl.storage.stores.base import Source, chunks, copy_through, verify_streams


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


class MemoryStore:
    """An ObjectStore over a dict."""

    endpoint = None
    delete_batch = 12

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_all(self, objects: Mapping[str, Source | None]) -> None:
        for key, source in objects.items():
            self.objects.pop(key, None)
            if source is not None:
                self.objects[key] = b"".join(chunks(source))

    def verify_all(self, objects: Mapping[str, Source | None]) -> None:
        verify_streams(self, objects)

    def copy(self, key: str, new_key: str) -> None:
        copy_through(self, key, new_key)

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

    def close(self) -> None:
        pass


class MemoryStorage:
    """A RemoteStorageManager whose next calls raise `errors`, one each, before they take effect."""

    def __init__(self, layout: SegmentLayout | None = None) -> None:
        self.store = MemoryStore()
        self.tier = ObjectTier(self.store, layout or KafkaLayout())
        self.errors: list[Exception] = []
        self.calls: list[str] = []

    @property
    def objects(self) -> dict[str, bytes]:
        return self.store.objects

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.errors:
            raise self.errors.pop(0)

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        self._call("copy")
        return self.tier.copy_log_segment_data(metadata, data)

    def verify_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        self._call("verify")
        self.tier.verify_log_segment_data(metadata, data)

    def check_indexes(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        self.tier.check_indexes(metadata, indexes)

    def store_indexes(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        self._call("store_indexes")
        self.tier.store_indexes(metadata, indexes)

    def renamed(
        self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition
    ) -> RemoteLogSegmentMetadata:
        return self.tier.renamed(metadata, partition)

    def copy_objects(self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition) -> None:
        self._call("copy_objects")
        self.tier.copy_objects(metadata, partition)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        self._call("fetch")
        return self.tier.fetch_log_segment(metadata, start_position, end_position)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        self._call("fetch_index")
        return self.tier.fetch_index(metadata, index_type)

    @property
    def delete_batch(self) -> int:
        return self.tier.delete_batch

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[TierctlError | None]:
        self._call("delete")
        return self.tier.delete_log_segments(segments)

    def objects_of_each(
        self, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> list[list[RemoteObject] | TierctlError]:
        self._call("objects_of_each")
        return self.tier.objects_of_each(segments)

    def objects_of(self, metadata: RemoteLogSegmentMetadata) -> list[RemoteObject]:
        self._call("objects_of")
        return self.tier.objects_of(metadata)

    def name_of(self, metadata: RemoteLogSegmentMetadata) -> str:
        return self.tier.name_of(metadata)

    def list_objects(self, folder: str = "") -> Iterator[RemoteObject]:
        self._call("list")
        yield from self.tier.list_objects(folder)

    def list_folder(self, folder: str = "") -> FolderListing:
        self._call("list")
        return self.tier.list_folder(folder)

    def close(self) -> None:
        self.calls.append("close")
