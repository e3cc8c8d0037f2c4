"""Find positions in segments by their indexes, or by their batches if indexes are missing or damaged."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    ObjectArchived,
    RemoteResourceNotFound,
    TierctlError,
)
from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.read.batch_stream import SEARCH_BYTES_MAX, BatchStream, Damage
from tierctl.read.segment_bytes import LocalSegmentFile, RemoteSegment
from tierctl.storage.base import RemoteStorageManager, SegmentReader
from tierctl.wire.batches.batch_heads import (
    HEAD,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    BatchHead,
    scan_at,
)
from tierctl.wire.batches.record_batch import RecordBatch
from tierctl.wire.files.indexes import OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset, build_indexes

Segment = RemoteSegment | LocalSegmentFile
Report = Callable[[TierctlError], None]
I = TypeVar("I", OffsetIndex, TimeIndex)  # noqa: E741


class IndexFetcher(Protocol):
    """Fetches indexes of remote segments, from the bounded cache on disk or from the store."""

    def get(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return one whole index; a missing transaction index is empty.

        Raise RemoteResourceNotFound for another missing index, and CorruptInputError if the cache detects
        that the index is damaged.
        """
        ...


class UncachedIndexes:
    """IndexFetcher that fetches from the store every time."""

    def __init__(self, remote: SegmentReader) -> None:
        self._remote = remote

    def get(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Implement `IndexFetcher.get`."""
        try:
            with self._remote.fetch_index(metadata, index_type) as stream:
                return stream.read()
        except RemoteResourceNotFound:
            if index_type is IndexType.TRANSACTION:
                return b""
            raise


class Indexes:
    """Looks up offsets and timestamps in local and remote segments.

    A missing or damaged index is rebuilt from the segment's batches, as KIP-405 requires of callers of
    fetchIndex. Damage is reported once per segment.
    """

    def __init__(self, fetcher: IndexFetcher, report: Report) -> None:
        self._fetcher = fetcher
        self._report = report
        self._rebuilt: tuple[Segment, OffsetIndex, TimeIndex] | None = None

    def raw(self, segment: Segment, index_type: IndexType) -> bytes | None:
        """Return the stored bytes of an index; None if the segment has none of that type."""
        if isinstance(segment, LocalSegmentFile):
            return segment.index(index_type)
        try:
            return self._fetcher.get(segment.metadata, index_type)
        except RemoteResourceNotFound:
            return None

    def position_for(self, segment: Segment, offset: int) -> int:
        """Return the position of the batch with `offset`, or of an earlier batch."""
        if offset <= segment.start_offset:
            return 0
        rebuilt = self._rebuilt_of(segment)
        if rebuilt is None:
            index = self._stored(segment, IndexType.OFFSET, OffsetIndex.decode)
            entry = index.lookup(offset) if index else None
            if entry is not None and self._is_batch_of(segment, entry):
                return entry.position
            rebuilt = self._rebuild(segment)
        return rebuilt[0].lookup(offset).position

    def position_for_time(self, segment: Segment, timestamp_ms: int, from_offset: int) -> int:
        """Return the position of a batch before which all records from `from_offset` on are earlier."""
        rebuilt = self._rebuilt_of(segment)
        if rebuilt is None:
            index = self._stored(segment, IndexType.TIMESTAMP, TimeIndex.decode)
            entry = index.lookup(timestamp_ms) if index else None
            if entry is not None and self._is_time_of(segment, entry):
                return self.position_for(segment, max(from_offset, entry.offset))
            rebuilt = self._rebuild(segment)
        offset = max(from_offset, rebuilt[1].lookup(timestamp_ms).offset)
        return rebuilt[0].lookup(offset).position

    def _stored(self, segment: Segment, index_type: IndexType, decode: Callable[[bytes, int], I]) -> I | None:
        """Return the decoded index; report damage, and return None for a damaged or missing index."""
        try:
            data = self.raw(segment, index_type)
            return None if data is None else decode(data, segment.start_offset)
        except CorruptInputError as e:
            self._report(e.within(f"the {index_type.value} index of {segment.name}"))
        except (AuthenticationError, ObjectArchived) as e:
            self._report(e)
        return None

    def _rebuilt_of(self, segment: Segment) -> tuple[OffsetIndex, TimeIndex] | None:
        if self._rebuilt is None or self._rebuilt[0] != segment:
            return None
        return self._rebuilt[1:]

    def _rebuild(self, segment: Segment) -> tuple[OffsetIndex, TimeIndex]:
        offsets, times = rebuilt_indexes(segment)
        self._rebuilt = (segment, offsets, times)
        return offsets, times

    def _is_batch_of(self, segment: Segment, entry: OffsetPosition) -> bool:
        """Return whether a batch begins at the entry's position that is not after the entry's offset.

        The first batch is right for every entry.
        """
        raw = segment.read(entry.position, HEAD_SIZE) if 0 <= entry.position < segment.size_bytes else b""
        if not raw and entry.position == 0:
            return True
        base_offset = _base_offset(segment, entry.position, raw)
        # Compaction may have removed the first batches, so the first one that is left may be after the entry.
        if (
            base_offset is None
            or base_offset < segment.start_offset
            or (entry.position and base_offset > entry.offset)
        ):
            self._report(self._wrong_entry(segment, IndexType.OFFSET, entry))
            return False
        return True

    def _is_time_of(self, segment: Segment, entry: TimestampOffset) -> bool:
        """Return whether the batch at the entry's offset has the entry's timestamp."""
        if entry.timestamp_ms < 0:
            return True
        position = self.position_for(segment, entry.offset)
        for piece in BatchStream(segment, position=position):
            if isinstance(piece, RecordBatch) and piece.head.last_offset >= entry.offset:
                if piece.head.max_timestamp_ms == entry.timestamp_ms:
                    return True
                break
            if isinstance(piece, Damage):
                # The segment is damaged here, so the index entry may be right.
                return True
        self._report(self._wrong_entry(segment, IndexType.TIMESTAMP, entry))
        return False

    def _wrong_entry(
        self, segment: Segment, index_type: IndexType, entry: OffsetPosition | TimestampOffset
    ) -> CorruptInputError:
        return CorruptInputError(
            f"{index_type.value} index",
            expected="entries that agree with the segment",
            found=str(tuple(entry)),
            source=segment.name,
            hint="the index was rebuilt from the segment; copy the segment again to repair the tier",
        )


def _base_offset(segment: Segment, position: int, raw: bytes) -> int | None:
    """Return the first offset of the batch or message that begins with `raw`; None if none begins there."""
    if len(raw) <= MAGIC_AT:
        return None
    if raw[MAGIC_AT] == MAGIC and len(raw) == HEAD_SIZE:
        return BatchHead(0, *HEAD.unpack(raw)).base_offset
    # The offset of a compressed message is that of its last one.
    length = int.from_bytes(raw[LENGTH_END - 4 : LENGTH_END], "big", signed=True)
    if not 0 < length <= min(SEARCH_BYTES_MAX, segment.size_bytes - position - LENGTH_END):
        return None
    found = scan_at(segment.read(position, LENGTH_END + length), 0, None)
    return found.base_offset if isinstance(found, BatchHead) else None


def rebuilt_indexes(segment: Segment) -> tuple[OffsetIndex, TimeIndex]:
    """Return offset and time index by the segment's readable batches."""
    pieces = BatchStream(segment)
    heads = (piece.head for piece in pieces if isinstance(piece, RecordBatch))
    return build_indexes(heads, segment.start_offset)


def stored_or_rebuilt(
    remote: RemoteStorageManager,
    segment: RemoteLogSegmentMetadata,
    index: IndexType,
    note: Callable[[str], object],
) -> bytes:
    """Return the index as stored; rebuild a missing offset or time index from the segment's log."""
    try:
        with remote.fetch_index(segment, index) as stream:
            return stream.read()
    except RemoteResourceNotFound:
        if index not in {IndexType.OFFSET, IndexType.TIMESTAMP}:
            raise
    note(f"the {index.value} index of {segment.segment_id} is missing; rebuilt from the segment")
    offsets, times = rebuilt_indexes(RemoteSegment(segment, remote))
    return offsets.data if index is IndexType.OFFSET else times.data
