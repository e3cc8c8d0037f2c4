"""The contract of a remote tier (KIP-405 RemoteStorageManager, KIP-917)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from tierctl.model import IndexType, LogSegmentData, RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True, order=True)
class RemoteObject:
    """One object as the store lists it; `key` is relative to the tier's root, `/`-separated.

    `modified_ms` is when the store says it was written, None where it doesn't tell.
    """

    key: str
    size_bytes: int
    modified_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class FolderListing:
    """What lies in one folder: objects, and folders by what the keys of all in them begin with.

    A folder's ends with `/`. Both are in order.
    """

    folders: tuple[str, ...]
    objects: tuple[RemoteObject, ...]

    def by_key(self) -> "list[str | RemoteObject]":
        """Folders and objects in the order of the keys of all that is in them."""
        return sorted(
            (*self.folders, *self.objects), key=lambda each: each if isinstance(each, str) else each.key
        )


class RemoteStorageManager(Protocol):
    """Lifecycle of remote segments and their indexes.

    Every attempt to copy a segment has a fresh segment id. Implementations are safe to call from several
    threads for different segments. All methods raise RemoteStorageError when the store fails.
    """

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Store the segment and its indexes; returns KIP-917's custom metadata or None.

        Idempotent: what an earlier call with the same id left behind is overwritten.
        Durable when it returns.
        """
        ...

    def verify_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        """Read back what the store holds and compare size and checksum of every object with the source.

        Raises RemoteStorageError naming the first object that is missing or differs.
        """
        ...

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        """The segment's bytes from `start_position` to `end_position`, both inclusive.

        Ends at the end of the segment when `end_position` is None or beyond it.
        Raises RemoteResourceNotFound when the segment is not there.
        """
        ...

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """One index, whole. Raises RemoteResourceNotFound when there is none of that type."""
        ...

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete every object of the segment, by exact key, and see that they are gone.

        Idempotent: objects already gone are no error. Returns only when nothing is left.
        """
        ...

    def objects_of(self, metadata: RemoteLogSegmentMetadata) -> list[RemoteObject]:
        """The objects the store holds for this segment now, sorted by key; empty when none."""
        ...

    def name_of(self, metadata: RemoteLogSegmentMetadata) -> str:
        """Where the segment's first object lies, or would: as whoever runs the store would look for it."""
        ...

    def list_objects(self, folder: str = "") -> Iterator[RemoteObject]:
        """Every object of the tier, known or not, by key; of `folder`, as `list_folder` has it, all below."""
        ...

    def list_folder(self, folder: str = "") -> FolderListing:
        """What lies in one of the tier's folders, or in the tier itself: where to begin listing in parts."""
        ...

    def close(self) -> None:
        """Release connections and files."""
        ...
