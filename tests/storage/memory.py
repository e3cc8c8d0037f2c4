"""A remote tier in memory: the smallest thing that keeps the contract, and fails when told to."""

import io
from collections.abc import Iterator
from typing import BinaryIO

from tierctl.errors import RemoteObjectDiffers, RemoteResourceNotFound
from tierctl.model import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from tierctl.storage.base import RemoteObject
from tierctl.storage.layout import INDEX_SUFFIXES, LOG_SUFFIX, key_stem, keys_of


class MemoryStorage:
    """RemoteStorageManager; `errors` are raised one by one by the next calls before they do anything."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.errors: list[Exception] = []
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.errors:
            raise self.errors.pop(0)

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        self._call("copy")
        for key in keys_of(metadata):
            self.objects.pop(key, None)
        self.objects |= _objects(metadata, data)
        return None

    def verify_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        self._call("verify")
        expected = _objects(metadata, data)
        for key in keys_of(metadata):
            if key in expected and key not in self.objects:
                raise RemoteResourceNotFound(f"{key} is missing")
            if self.objects.get(key) != expected.get(key):
                raise RemoteObjectDiffers(f"{key} differs")

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        self._call("fetch")
        if start_position < 0 or (end_position is not None and end_position < start_position):
            raise ValueError("not a range")
        data = self._get(key_stem(metadata) + LOG_SUFFIX)
        return io.BytesIO(data[start_position : None if end_position is None else end_position + 1])

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        self._call("fetch_index")
        return io.BytesIO(self._get(key_stem(metadata) + INDEX_SUFFIXES[index_type]))

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._call("delete")
        for key in keys_of(metadata):
            self.objects.pop(key, None)

    def objects_of(self, metadata: RemoteLogSegmentMetadata) -> list[RemoteObject]:
        self._call("objects_of")
        return [o for o in self._list() if o.key in keys_of(metadata)]

    def list_objects(self) -> Iterator[RemoteObject]:
        self._call("list")
        yield from self._list()

    def close(self) -> None:
        self.calls.append("close")

    def _list(self) -> list[RemoteObject]:
        return sorted(RemoteObject(key, len(data)) for key, data in self.objects.items())

    def _get(self, key: str) -> bytes:
        if key not in self.objects:
            raise RemoteResourceNotFound(f"{key} is missing")
        return self.objects[key]


def _objects(metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> dict[str, bytes]:
    stem = key_stem(metadata)
    files = {
        LOG_SUFFIX: data.log_segment,
        INDEX_SUFFIXES[IndexType.OFFSET]: data.offset_index,
        INDEX_SUFFIXES[IndexType.TIMESTAMP]: data.time_index,
        INDEX_SUFFIXES[IndexType.TRANSACTION]: data.transaction_index,
        INDEX_SUFFIXES[IndexType.PRODUCER_SNAPSHOT]: data.producer_snapshot_index,
    }
    found = {stem + suffix: path.read_bytes() for suffix, path in files.items() if path is not None}
    return found | {stem + INDEX_SUFFIXES[IndexType.LEADER_EPOCH]: data.leader_epoch_index}
