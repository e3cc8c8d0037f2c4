"""The contract of a layout: names and contents of the objects of a segment."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from tierctl.errors import AuthenticationError, TierctlError
from tierctl.model import (
    IndexType,
    ListedSet,
    LogSegmentData,
    ObjectPart,
    ObjectSet,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from tierctl.storage.stores.base import ObjectStore, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A segment's objects by key, in the order of storing; None for an object that must not exist.

    `custom_metadata` is KIP-917's.
    """

    objects: Mapping[str, Source | None]
    custom_metadata: bytes | None = None


class SegmentLayout(Protocol):
    """Names and encodes the objects of segments, independently of the store.

    Keys are made from metadata records, which may be hostile: every method raises SafetyRefusal for a record
    whose keys would lead out of the tier.
    """

    @property
    def name(self) -> str:
        """The value of `--layout` for this layout."""
        ...

    @property
    def base(self) -> str:
        """The prefix of every key of the tier: "" or a folder's name, which usually ends with `/`."""
        ...

    @property
    def keys_per_segment(self) -> int:
        """The number of keys that `keys_of` returns."""
        ...

    @property
    def required_objects(self) -> Mapping[ObjectPart, str]:
        """The suffixes of the objects of every complete segment, in the order in which they are written."""
        ...

    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Return every key that an object of the segment can have."""
        ...

    def renamed(
        self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition
    ) -> RemoteLogSegmentMetadata:
        """Return the metadata of the same segment with its objects under the keys of another partition."""
        ...

    def keys_to_delete(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Return `keys_of`; raise SafetyRefusal if the metadata name the objects of another segment."""
        ...

    def encoded(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> AbstractContextManager[Encoded]:
        """Return the segment's encoded objects; temporary files are deleted when the block ends."""
        ...

    def index_objects(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]
    ) -> Mapping[str, Source]:
        """Return the objects to store, by key, so that the segment has these indexes and its others as now.

        Raise SafetyRefusal if other objects would have to change, too.
        """
        ...

    def open_log(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int | None
    ) -> BinaryIO:
        """Return the log's bytes from `start` to `end`, exclusive, or to the log's end if `end` is None.

        Raise RemoteResourceNotFound if the log does not exist.
        """
        ...

    def open_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> BinaryIO:
        """Return one complete index; raise RemoteResourceNotFound if the segment has none of that type."""
        ...

    def log_end_offset(self, store: ObjectStore, listed: ListedSet) -> int:
        """Return the last offset of the log of a set that lacks other objects.

        Return LARGEST_OFFSET if it is unknown. Raise TruncatedInputError if the log was not written to its
        end, another CorruptInputError if it can't be interpreted, and RemoteResourceNotFound if it was
        deleted after the listing.
        """
        ...

    def derived(self, store: ObjectStore, listed: ListedSet) -> ObjectSet:
        """Return the listed objects with the metadata that a broker published for them.

        `listed` has all of `required_objects`. Broker id and event timestamp, which brokers do not use, may
        differ from the published ones. If the objects are not those of one segment, the set has no metadata,
        but the reason. Raise TruncatedInputError for an object that was not written to its end, another
        CorruptInputError for one that can't be interpreted, and RemoteResourceNotFound for one that was
        deleted after the listing.
        """
        ...


def unknown_segment(listed: ListedSet) -> RemoteLogSegmentMetadata:
    """Return metadata with the names of `listed`, from which keys are made, and no known value."""
    return RemoteLogSegmentMetadata(
        topic=listed.partition.topic,
        topic_id=listed.partition.topic_id,
        partition=listed.partition.partition,
        segment_id=listed.segment_id,
        start_offset=listed.start_offset,
        end_offset=listed.start_offset,
        broker_id=-1,
        max_timestamp_ms=-1,
        event_timestamp_ms=-1 if listed.modified_ms is None else listed.modified_ms,
        segment_leader_epochs=(),
        segment_size_in_bytes=0,
    )


def incomplete(listed: ListedSet, reason: str) -> ObjectSet:
    """Return the set as incomplete for `reason`."""
    return ObjectSet(listed=listed, why_incomplete=reason)


def not_understood(listed: ListedSet, error: TierctlError) -> ObjectSet:
    """Return the set as not understood: `error` says why its objects can't be interpreted or read."""
    reason = error.message if error.hint is None else f"{error.message}; {error.hint}"
    refused = isinstance(error, AuthenticationError) or isinstance(error.__cause__, PermissionError)
    return ObjectSet(listed=listed, why_not_understood=reason, lacks_rights=refused)
