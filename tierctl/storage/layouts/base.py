"""How a segment lies in a store: the names of its objects and what is in them."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from tierctl.model import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from tierctl.storage.stores.base import ObjectStore, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A segment's objects by key, in the order they are to be stored.

    None for one that must not be there. `custom_metadata` is KIP-917's.
    """

    objects: Mapping[str, Source | None]
    custom_metadata: bytes | None = None


class SegmentLayout(Protocol):
    """Names and form of objects, on whichever store; keeps nothing of a segment.

    Names come from metadata, which is data: every method raises SafetyRefusal for what could lead out of
    the tier.
    """

    @property
    def base(self) -> str:
        """What every key begins with: "" or a name that usually ends with `/`."""
        ...

    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Every key that the segment's objects can have."""
        ...

    def keys_to_delete(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """`keys_of`, which must be the segment's own; SafetyRefusal for those of another one."""
        ...

    def encoded(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> AbstractContextManager[Encoded]:
        """The segment as it is to be stored, the same each time; files of ours go with the block."""
        ...

    def open_log(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int | None
    ) -> BinaryIO:
        """The log's bytes from `start` up to, not including, `end` or its end; RemoteResourceNotFound."""
        ...

    def open_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> BinaryIO:
        """One index, whole; RemoteResourceNotFound."""
        ...
