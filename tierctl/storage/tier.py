"""RemoteStorageManager as a layout of segments on a store of objects."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import BinaryIO

from tierctl.errors import (
    CorruptInputError,
    LimitExceeded,
    RemoteResourceNotFound,
    RemoteTierMissing,
    TierctlError,
    TruncatedInputError,
)
from tierctl.model import (
    IndexType,
    ListedSet,
    LogEnd,
    LogSegmentData,
    ObjectPart,
    ObjectSet,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from tierctl.storage.base import FolderListing, RemoteObject
from tierctl.storage.layouts.base import SegmentLayout, incomplete, not_understood
from tierctl.storage.layouts.kafka import ROOT_FOLDER
from tierctl.storage.observed import FetchObserver, ObservedStream
from tierctl.storage.stores.base import ObjectStore, by_folder

_OWN_PREFIX = ".tierctl-"
"""Begin of the names of tierctl's own objects, which are not listed among the tier's objects."""


_THREADS = 8


class ObjectTier:
    """RemoteStorageManager that names and encodes objects by `layout`, and keeps them in `store`."""

    def __init__(self, store: ObjectStore, layout: SegmentLayout) -> None:
        self.store = store
        self.layout = layout
        self.observer: FetchObserver | None = None
        """Receives reports of reads of segments, if it is set."""

    @property
    def lease_key(self) -> str:
        """The key of the lease that a run holds while it changes this tier."""
        return f"{self._own_prefix}lease"

    @property
    def identity_key(self) -> str:
        """The key of the object with the identity of the tier."""
        return f"{self._own_prefix}identity"

    def own_key(self, name: str) -> str:
        """Return the key of another object of tierctl's own."""
        return f"{self._own_prefix}{name}"

    @property
    def _own_prefix(self) -> str:
        # The object is beside LocalTieredStorage's folder, at the prefix of Aiven's keys.
        return self.layout.base.removesuffix(f"{ROOT_FOLDER}/") + _OWN_PREFIX

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Implement `RemoteStorageManager.copy_log_segment_data`."""
        with self.layout.encoded(metadata, data) as encoded:
            self.store.put_all(encoded.objects)
            return encoded.custom_metadata

    def verify_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        """Implement `RemoteStorageManager.verify_log_segment_data`; an object too many differs, too."""
        with self.layout.encoded(metadata, data) as encoded:
            self.store.verify_all(encoded.objects)

    def check_indexes(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        """Implement `RemoteStorageManager.check_indexes`."""
        self.layout.index_objects(self.store, metadata, indexes)

    def store_indexes(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        """Implement `RemoteStorageManager.store_indexes`."""
        self.store.put_all(self.layout.index_objects(self.store, metadata, indexes))

    def renamed(
        self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition
    ) -> RemoteLogSegmentMetadata:
        """Implement `RemoteStorageManager.renamed`."""
        return self.layout.renamed(metadata, partition)

    def copy_objects(self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition) -> None:
        """Implement `RemoteStorageManager.copy_objects`; readers open the last object first."""
        keys, new_keys = self.layout.keys_of(metadata), self.layout.keys_of(self.renamed(metadata, partition))
        present = self.store.sizes_bytes(keys)
        if not present:
            raise RemoteResourceNotFound(f"{self.name_of(metadata)} does not exist")
        for key, new_key in zip(keys, new_keys, strict=True):
            if key in present:
                self.store.copy(key, new_key)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        """Implement `RemoteStorageManager.fetch_log_segment`; memory is bounded for every range.

        Raise ValueError for a negative or reversed range.
        """
        if start_position < 0 or (end_position is not None and end_position < start_position):
            raise ValueError(f"not a range of positions: {start_position} to {end_position}")
        end = None if end_position is None else end_position + 1
        if self.observer is None:
            return self.layout.open_log(self.store, metadata, start_position, end)
        self.observer.begun(metadata.topic)
        try:
            stream = self.layout.open_log(self.store, metadata, start_position, end)
        except TierctlError:
            self.observer.failed(metadata.topic)
            raise
        return io.BufferedReader(ObservedStream(stream, metadata.topic, self.observer))

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """Implement `RemoteStorageManager.fetch_index`."""
        return self.layout.open_index(self.store, metadata, index_type)

    @property
    def delete_batch(self) -> int:
        """Implement `RemoteStorageManager.delete_batch`."""
        return max(1, self.store.delete_batch // self.layout.keys_per_segment)

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[TierctlError | None]:
        """Implement `RemoteStorageManager.delete_log_segments` by one call of the store."""
        each = [_keys(self.layout.keys_to_delete, segment) for segment in segments]
        failed = self.store.delete([key for keys in each if isinstance(keys, tuple) for key in keys])
        return [
            next((failed[key] for key in keys if key in failed), None) if isinstance(keys, tuple) else keys
            for keys in each
        ]

    def objects_of_each(
        self, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> list[list[RemoteObject] | TierctlError]:
        """Implement `RemoteStorageManager.objects_of_each`; several threads list some folders each."""
        each = [_keys(self.layout.keys_of, segment) for segment in segments]
        folders = by_folder(key for keys in each if isinstance(keys, tuple) for key in keys)
        ordered = [folders[folder] for folder in sorted(folders)]
        size = -(-len(ordered) // _THREADS) or 1
        shares = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        found: dict[str, int | TierctlError] = {}
        with ThreadPoolExecutor(len(shares) or 1) as pool:
            for share in pool.map(self._sizes_or_errors, shares):
                found |= share
        return [_objects(keys, found) if isinstance(keys, tuple) else keys for keys in each]

    def _sizes_or_errors(self, folders: Sequence[Sequence[str]]) -> Mapping[str, int | TierctlError]:
        """Return the size of each object, or the error of its folder, for the keys of some folders."""
        try:
            return self.store.sizes_bytes([key for keys in folders for key in keys])
        except RemoteTierMissing:
            raise
        except TierctlError as e:
            if len(folders) == 1:
                return dict.fromkeys(folders[0], e)
        # If one folder can't be listed, the others are still listed.
        each = [self._sizes_or_errors([keys]) for keys in folders]
        return {key: size_or_error for found in each for key, size_or_error in found.items()}

    def objects_of(self, metadata: RemoteLogSegmentMetadata) -> list[RemoteObject]:
        """Implement `RemoteStorageManager.objects_of`."""
        sizes = self.store.sizes_bytes(self.layout.keys_of(metadata))
        return [RemoteObject(key, size_bytes) for key, size_bytes in sorted(sizes.items())]

    def name_of(self, metadata: RemoteLogSegmentMetadata) -> str:
        """Implement `RemoteStorageManager.name_of`."""
        return self.store.name_of(self.layout.keys_of(metadata)[0])

    def list_objects(self, folder: str = "") -> Iterator[RemoteObject]:
        """Implement `RemoteStorageManager.list_objects`; temporary files of a crashed run are included."""
        prefix, own = folder or self.layout.base, self._own_prefix
        listed = self.store.list_objects(prefix)
        # Most folders can't contain tierctl's own objects, and their listings are long.
        if not (own.startswith(prefix) or prefix.startswith(own)):
            return listed
        return (found for found in listed if not found.key.startswith(own))

    def list_folder(self, folder: str = "") -> FolderListing:
        """Implement `RemoteStorageManager.list_folder`."""
        found = self.store.list_folder(folder or self.layout.base)
        return replace(
            found, objects=tuple(obj for obj in found.objects if not obj.key.startswith(self._own_prefix))
        )

    def derived(self, listed: ListedSet) -> ObjectSet:
        """Implement `RemoteStorageManager.derived`.

        A set without its log is incomplete. One that lacks another object, maybe because it is being deleted,
        is not understood: its log may have the only copy of its records.
        """
        required = self.layout.required_objects
        missing = [suffix for part, suffix in required.items() if not listed.parts & part]
        try:
            if not missing:
                return self.layout.derived(self.store, listed)
            reason = f"it has no {', '.join(missing)}"
        except RemoteResourceNotFound as e:
            reason = e.message
        except (CorruptInputError, LimitExceeded) as e:
            return _damaged(listed, e)
        try:
            if not listed.parts & ObjectPart.LOG:
                return incomplete(listed, reason)
            end_offset = self.layout.log_end_offset(self.store, listed)
        except RemoteResourceNotFound:
            return incomplete(listed, reason)
        except (CorruptInputError, LimitExceeded) as e:
            return _damaged(listed, e)
        return ObjectSet(listed=listed, why_not_understood=reason, log_end=LogEnd(offset=end_offset))

    def close(self) -> None:
        """Implement `RemoteStorageManager.close`."""
        self.store.close()


def _damaged(listed: ListedSet, error: CorruptInputError | LimitExceeded) -> ObjectSet:
    if isinstance(error, TruncatedInputError):
        return incomplete(listed, error.message)
    return not_understood(listed, error)


def _keys(
    keys_of: Callable[[RemoteLogSegmentMetadata], tuple[str, ...]], segment: RemoteLogSegmentMetadata
) -> tuple[str, ...] | TierctlError:
    """Return the keys of `segment`, or the error for metadata whose keys would lead out of the tier."""
    try:
        return keys_of(segment)
    except TierctlError as e:
        return e


def _objects(
    keys: Sequence[str], found: Mapping[str, int | TierctlError]
) -> list[RemoteObject] | TierctlError:
    objects = []
    for key in sorted(keys):
        size_or_error = found.get(key)
        if isinstance(size_or_error, TierctlError):
            return size_or_error
        if size_or_error is not None:
            objects.append(RemoteObject(key, size_or_error))
    return objects
