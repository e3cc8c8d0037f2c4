"""The contract of a layout: names and contents of a segment's objects; facts that a log itself has."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import numpy as np

from tierctl.errors import AuthenticationError, CorruptInputError, TierctlError, TruncatedInputError
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
from tierctl.wire.batches.scan import HeadColumns
from tierctl.wire.batches.segment_file import scan_windows


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


_WINDOW_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The last offset (inclusive) and largest timestamp of a complete log; -1 without a timestamp.

    `last_base_offset` and `last_producer_id` are those of the last batch. `has_gaps` states that offsets
    between the segment's start and the last one have no record.
    """

    end_offset: int
    last_base_offset: int
    last_producer_id: int
    max_timestamp_ms: int
    has_gaps: bool


OpenRange = Callable[[int, int], BinaryIO]
"""Opens the bytes of a log from a position to another one, exclusive."""


class _StoredLog:
    """A log in a tier as LogBytes: one request for each range."""

    def __init__(self, open_range: OpenRange, size_bytes: int) -> None:
        self._open_range = open_range
        self.size_bytes = size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        end = min(position + size_bytes, self.size_bytes)
        if position >= end:
            return b""
        with self._open_range(position, end) as stream:
            return stream.read(end - position)

    def close(self) -> None:
        """Implement `LogBytes.close`; no file or stream is open between reads."""


def read_log_facts(open_range: OpenRange, key: str, size_bytes: int, start_offset: int) -> LogFacts:
    """Read a whole log, the object `key`, and check every batch with its CRC.

    The last offset is the last batch's, control batches included; the largest timestamp is that of all
    batches. The first batch may begin above `start_offset`: compaction removes records, also at the head of a
    segment. Raise TruncatedInputError if the log is empty or ends within a batch, and CorruptInputError if it
    begins below `start_offset`, or has bytes that are no good batch.
    """
    end_offset, last_base, producer_id, latest_ms, has_gaps = -1, -1, -1, -1, False
    for heads in _heads(open_range, key, size_bytes, start_offset):
        bases, following = heads.base_offsets, heads.next_offsets
        if end_offset < 0 and bases[0] < start_offset:
            raise CorruptInputError(
                "log",
                expected=f"a first batch at offset {start_offset} or above",
                found=f"{bases[0]}",
                source=key,
            )
        previous = np.concatenate([[start_offset if end_offset < 0 else end_offset + 1], following[:-1]])
        has_gaps |= bool((bases != previous).any()) or _lacks_records(heads)
        end_offset, last_base = int(following[-1]) - 1, int(bases[-1])
        producer_id = int(heads.fields["producer_id"][-1])
        latest_ms = max(latest_ms, int(heads.fields["max_timestamp_ms"].max()))
    if end_offset < 0:
        raise TruncatedInputError("log", expected="at least one batch", found="none", source=key)
    return LogFacts(end_offset, last_base, producer_id, latest_ms, has_gaps)


def _heads(open_range: OpenRange, key: str, size_bytes: int, start_offset: int) -> Iterator[HeadColumns]:
    log = _StoredLog(open_range, size_bytes)
    for window in scan_windows(log, 0, start_offset, window_bytes=_WINDOW_BYTES):
        heads = window.heads
        if heads.bad:
            raise heads.bad[0].error.within(key, base=window.position)
        if heads.torn is not None:
            raise TruncatedInputError(
                "log",
                expected="a whole batch",
                found=f"{heads.torn.size_bytes} bytes of one that was cut",
                at=window.position + heads.torn.position,
                source=key,
            )
        if len(heads):
            yield heads


def _lacks_records(heads: HeadColumns) -> bool:
    """Return whether a batch has fewer records than offsets: compaction keeps a batch's offsets."""
    return bool((heads.fields["record_count"] != heads.fields["last_offset_delta"] + 1).any())
