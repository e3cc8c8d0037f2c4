"""The contract of a layout: names and contents of the objects of a segment."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from tierctl.model import IndexType, LogSegmentData, RemoteLogSegmentMetadata
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

    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Return every key that an object of the segment can have."""
        ...

    def keys_to_delete(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Return `keys_of`; raise SafetyRefusal if the metadata name the objects of another segment."""
        ...

    def encoded(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> AbstractContextManager[Encoded]:
        """Return the segment's encoded objects; temporary files are deleted when the block ends."""
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
        """Return one whole index; raise RemoteResourceNotFound if the segment has none of that type."""
        ...
