"""The contract of a remote tier (KIP-405 RemoteStorageManager, KIP-917)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, Protocol

from tierctl.errors import AuthenticationError, RemoteStorageError, TierctlError
from tierctl.model import (
    IndexType,
    ListedSet,
    LogSegmentData,
    ObjectSet,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from tierctl.storage.stores.base import FolderListing, ObjectStore, RemoteObject

if TYPE_CHECKING:
    # It loads NumPy, which `tierctl --help` must not wait for.
    from tierctl.storage.layouts.base import SegmentLayout


class SegmentReader(Protocol):
    """The two methods of RemoteStorageManager that read a segment."""

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        """Return the segment's bytes, see `RemoteStorageManager.fetch_log_segment`."""
        ...

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """Return one complete index, see `RemoteStorageManager.fetch_index`."""
        ...


class RemoteStorageManager(Protocol):
    """Stores, reads and deletes remote segments and their indexes.

    Every attempt to copy a segment has a new segment id. Implementations are safe to call from several
    threads for different segments. All methods raise RemoteStorageError if the store fails.
    """

    store: ObjectStore
    """The store of the tier's objects, whose calls are not repeated."""
    layout: "SegmentLayout"
    """The names and encodings of the objects."""

    def own_key(self, name: str) -> str:
        """Return the key of an object of tierctl's own, which is not listed among the tier's objects."""
        ...

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Store the segment and its indexes durably; return KIP-917's custom metadata or None.

        The operation is idempotent: it overwrites the objects of an earlier call with the same segment id.
        """
        ...

    def verify_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        """Compare size and checksum of every stored object of the segment with `data`.

        Raise RemoteStorageError for the first object that is missing or differs.
        """
        ...

    def check_indexes(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        """Raise the SafetyRefusal that `store_indexes` would raise for these indexes; store nothing."""
        ...

    def store_indexes(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        """Store these indexes of a finished segment durably; each replaces a stored one.

        No other index, and not the log, is changed. Raise SafetyRefusal before anything is stored if the
        layout can't hold them. The operation is idempotent.
        """
        ...

    def renamed(
        self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition
    ) -> RemoteLogSegmentMetadata:
        """Return the metadata of the copy that `copy_objects` makes of the segment for another partition."""
        ...

    def copy_objects(self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition) -> None:
        """Copy the objects of the segment durably to the keys of `renamed`, and verify them.

        A server that can copy does it. The segment's own objects are not changed. Raise
        RemoteResourceNotFound if it has none. The operation is idempotent.
        """
        ...

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        """Return the segment's bytes from `start_position` to `end_position`, both inclusive.

        The stream ends at the segment's end if `end_position` is None or beyond it.
        Raise RemoteResourceNotFound if the segment does not exist.
        """
        ...

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """Return one whole index. Raise RemoteResourceNotFound if the segment has no index of that type."""
        ...

    @property
    def delete_batch(self) -> int:
        """The number of segments that one call of `delete_log_segments` should have.

        It follows from the number of objects that the store deletes by one request.
        """
        ...

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[TierctlError | None]:
        """Delete every object of the segments by its exact key (KIP-405 deleteLogSegmentData, in bulk).

        Return, for each segment, the error of an object that was not deleted; None if the store reported
        none. Only `objects_of_each` proves that the objects are gone. The operation is idempotent: missing
        objects are no error. Errors that concern all segments are raised.
        """
        ...

    def objects_of_each(
        self, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> list[list[RemoteObject] | TierctlError]:
        """Return what `objects_of` returns, or raises, for each segment; list each folder once.

        Errors that concern all segments are raised.
        """
        ...

    def objects_of(self, metadata: RemoteLogSegmentMetadata) -> list[RemoteObject]:
        """Return the objects of the segment that the store has now, sorted by key."""
        ...

    def name_of(self, metadata: RemoteLogSegmentMetadata) -> str:
        """Return the URI or path of the segment's first object, whether or not the object exists."""
        ...

    def list_objects(self, folder: str = "") -> Iterator[RemoteObject]:
        """Yield every object below `folder`, sorted by key, also objects that belong to no segment.

        Entries that are no plain objects have a `problem`; they do not end the listing.
        `folder` is a prefix from `list_folder`, or "" for the whole tier.
        """
        ...

    def list_folder(self, folder: str = "") -> FolderListing:
        """Return the contents of one folder of the tier, so that several threads can list the tier."""
        ...

    def derived(self, listed: ListedSet) -> ObjectSet:
        """Return a set of objects with the metadata derived from them, see `SegmentLayout.derived`.

        A set that is incomplete, or that is not understood, has no metadata, but the reason.
        """
        ...

    def close(self) -> None:
        """Release connections and files."""
        ...


def require_store(remote: RemoteStorageManager, error: TierctlError) -> None:
    """Raise `error`, which is about one object, if the store itself does not respond any more."""
    try:
        remote.list_folder()
    except (RemoteStorageError, AuthenticationError):
        raise error from None
