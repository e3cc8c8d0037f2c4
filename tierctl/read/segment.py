"""Read the record batches of one segment, in the tier or in a log directory: ranges, positions by indexes,
damage.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    NotFoundError,
    ObjectUnreadable,
    RemoteResourceNotFound,
    SafetyRefusal,
    TierctlError,
    UnsupportedFormatError,
)
from tierctl.files import open_regular, read_regular
from tierctl.model import IndexType, LocalSegment, RemoteLogSegmentMetadata
from tierctl.storage.remote_storage_manager import RemoteStorageManager, SegmentReader, index_bytes
from tierctl.wire.batches.batch_head import HEAD, HEAD_SIZE, LENGTH_END, MAGIC, MAGIC_AT, BatchHead
from tierctl.wire.batches.record_batch import RecordBatch
from tierctl.wire.batches.scan import ANY_OFFSETS, scan_at
from tierctl.wire.batches.segment_file import BATCH_BYTES_MAX, Window, highest_offset_of, scan_windows
from tierctl.wire.files.checkpoints import LEADER_EPOCHS_FILE
from tierctl.wire.files.indexes import (
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
    build_indexes,
    trimmed,
)


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment of the remote tier."""

    metadata: RemoteLogSegmentMetadata
    remote: RemoteStorageManager

    @property
    def name(self) -> str:
        """The segment in messages to operators: its partition, base offset and id."""
        m = self.metadata
        return f"remote segment {m.segment_id} of {m.topic}-{m.partition} from offset {m.start_offset}"

    @property
    def start_offset(self) -> int:
        """The segment's base offset."""
        return self.metadata.start_offset

    @property
    def end_offset(self) -> int | None:
        """The last offset that the segment may contain, inclusive."""
        return self.metadata.end_offset

    @property
    def size_bytes(self) -> int:
        """The size of the log; by the metadata, the actual log may be shorter."""
        return self.metadata.segment_size_in_bytes

    def read(self, position: int, length: int) -> bytes:
        """Return `length` bytes from `position` on, fewer only if the log ends before.

        Raise RemoteResourceNotFound if the log does not exist.
        """
        length = min(length, self.size_bytes - position)
        if length <= 0:
            return b""
        with self.remote.fetch_log_segment(self.metadata, position, position + length - 1) as stream:
            return stream.read(length)


@dataclass(frozen=True, slots=True)
class LocalSegmentFile:
    """A segment of a broker's log directory."""

    segment: LocalSegment

    @property
    def name(self) -> str:
        """The segment in messages to operators: its path."""
        return str(self.segment.log)

    @property
    def start_offset(self) -> int:
        """The segment's base offset."""
        return self.segment.base_offset

    @property
    def end_offset(self) -> int | None:
        """The last offset that the segment may contain, inclusive; None for the active segment."""
        following = self.segment.next_base_offset
        return None if following is None else following - 1

    @property
    def size_bytes(self) -> int:
        """The size of the log by its file system; the actual log may be shorter."""
        return self.segment.size_bytes

    def read(self, position: int, length: int) -> bytes:
        """Return bytes as `RemoteSegment.read` does; raise NotFoundError if the log does not exist."""
        try:
            with os.fdopen(open_regular(self.segment.log), "rb") as stream:
                stream.seek(position)
                return stream.read(max(length, 0))
        except FileNotFoundError:
            raise NotFoundError(
                f"{self.segment.log} does not exist any more",
                hint="if a broker runs on this folder, read a copy of it",
            ) from None

    def index(self, index_type: IndexType) -> bytes | None:
        """Return the index file beside the log; None if there is none of that type."""
        path = self._index_path(index_type)
        try:
            return None if path is None else read_regular(path)
        except FileNotFoundError:
            return None

    def _index_path(self, index_type: IndexType) -> Path | None:
        match index_type:
            case IndexType.OFFSET:
                return self.segment.offset_index
            case IndexType.TIMESTAMP:
                return self.segment.time_index
            case IndexType.TRANSACTION:
                return self.segment.transaction_index
            case IndexType.PRODUCER_SNAPSHOT:
                return self.segment.producer_snapshot
            case IndexType.LEADER_EPOCH:
                return self.segment.log.with_name(LEADER_EPOCHS_FILE)


Segment = RemoteSegment | LocalSegmentFile

UNREADABLE = (CorruptInputError, SafetyRefusal, AuthenticationError, ObjectUnreadable)
"""Errors of the objects of one segment, or of a name in its metadata; others can be read."""

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes [position, end) of a segment that contain no readable batch.

    `first_offset` is the first offset that may be lost, `next_offset` the base offset of the next readable
    batch (None: this segment has none). `error` names segment and byte.
    """

    position: int
    end: int
    first_offset: int
    next_offset: int | None
    error: CorruptInputError


def with_lost_offsets(error: TierctlError, first: int, last: int) -> TierctlError:
    """Return `error`; if it reports what can't be read, with the unreadable offsets in its hint."""
    if isinstance(error, UnsupportedFormatError | AuthenticationError | ObjectUnreadable):
        return error.advised(f"offsets {first} to {last} were not read, and reading continued after them")
    if not isinstance(error, CorruptInputError):
        return error
    return type(error)(
        error.what,
        expected=error.expected,
        found=error.found,
        at=error.at,
        source=error.source,
        hint=f"offsets {first} to {last} may be lost there; reading continued after them",
    )


def read_batches(
    segment: Segment, position: int = 0, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[RecordBatch | Damage]:
    """Yield the batches of a segment from `position` on, in offset order, after checking their CRCs.

    Batch heads contain positions in the segment. Each read requests `chunk_bytes` or more. Damaged bytes
    yield a `Damage`, after which reading goes on; so does a log that ends before the segment's size, except
    for an incomplete last batch of an active segment. Raise RemoteStorageError or NotFoundError if the bytes
    can't be read at all.
    """
    reached, expected, last = position, segment.start_offset, segment.end_offset
    highest = highest_offset_of(expected) if last is None else last
    for window in scan_windows(segment, position, expected, window_bytes=chunk_bytes, highest_offset=highest):
        for piece in _pieces(window, segment):
            yield piece
            reached = piece.end if isinstance(piece, Damage) else piece.head.end
        expected = window.next_offset
        if window.heads.torn is not None and last is None:
            return
    if reached < segment.size_bytes:
        yield Damage(
            position=reached,
            end=segment.size_bytes,
            first_offset=expected,
            next_offset=None,
            error=CorruptInputError(
                "segment",
                expected=f"{segment.size_bytes} bytes of whole batches",
                found=f"{reached}",
                at=reached,
                source=segment.name,
            ),
        )


def _pieces(window: Window, segment: Segment) -> Iterator[RecordBatch | Damage]:
    """Yield the batches and the damage of a window in their order."""
    heads, row = window.heads, 0
    for bad in (*heads.bad, None):
        end = len(heads) if bad is None else int(np.searchsorted(heads.positions, bad.position))
        for head in map(heads.head, range(row, end)):
            payload = window.data[head.payload_position : head.end]
            yield RecordBatch(head._replace(position=window.position + head.position), payload)
        row = end
        if bad is not None:
            assert bad.first_offset is not None, "the offset of the segment's first batch is known"
            yield Damage(
                position=window.position + bad.position,
                end=segment.size_bytes if bad.next_offset is None else window.position + bad.end,
                first_offset=bad.first_offset,
                next_offset=bad.next_offset,
                error=bad.error.within(segment.name, base=window.position),
            )


Report = Callable[[TierctlError], None]
I = TypeVar("I", OffsetIndex, TimeIndex)  # noqa: E741


class IndexFetcher(Protocol):
    """Fetches indexes of remote segments, from the bounded cache on disk or from the store."""

    def get(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return one whole index; a missing transaction index is empty.

        Raise RemoteResourceNotFound for another missing index, and CorruptInputError for one of more than
        INDEX_BYTES_MAX bytes or one that the cache detects to be damaged.
        """
        ...


class UncachedIndexes:
    """IndexFetcher that fetches from the store every time."""

    def __init__(self, remote: SegmentReader) -> None:
        self._remote = remote

    def get(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Implement `IndexFetcher.get`."""
        return index_bytes(self._remote, metadata, index_type)


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
            if data is not None and isinstance(segment, LocalSegmentFile):
                data = trimmed(data, index_type)
            return None if data is None else decode(data, segment.start_offset)
        except CorruptInputError as e:
            self._report(e.within(f"the {index_type.value} index of {segment.name}"))
        except (AuthenticationError, ObjectUnreadable) as e:
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
        for piece in read_batches(segment, position):
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
    if not 0 < length <= min(BATCH_BYTES_MAX, segment.size_bytes - position - LENGTH_END):
        return None
    found = scan_at(segment.read(position, LENGTH_END + length), 0, ANY_OFFSETS)
    return found.base_offset if isinstance(found, BatchHead) else None


def rebuilt_indexes(segment: Segment) -> tuple[OffsetIndex, TimeIndex]:
    """Return offset and time index by the segment's readable batches."""
    heads = (piece.head for piece in read_batches(segment) if isinstance(piece, RecordBatch))
    return build_indexes(heads, segment.start_offset)


def stored_or_rebuilt(
    remote: RemoteStorageManager,
    segment: RemoteLogSegmentMetadata,
    index: IndexType,
    note: Callable[[str], object],
) -> bytes:
    """Return the index as stored; rebuild a missing offset or time index from the segment's log.

    A missing transaction index is empty if the metadata state that it is.
    """
    try:
        with remote.fetch_index(segment, index) as stream:
            return stream.read()
    except RemoteResourceNotFound as e:
        if index is IndexType.TRANSACTION and segment.txn_index_empty:
            return b""
        if index is IndexType.TRANSACTION:
            e.advised("no transaction was aborted, or the index is lost: tierctl verify --deep tells which")
        if index not in {IndexType.OFFSET, IndexType.TIMESTAMP}:
            raise
    note(f"the {index.value} index of {segment.segment_id} is missing; rebuilt from the segment")
    offsets, times = rebuilt_indexes(RemoteSegment(segment, remote))
    return offsets.data if index is IndexType.OFFSET else times.data


_REFUSALS_MAX = 5


class _TopicRefused(Exception):  # noqa: N818
    """Ends the reading of a topic."""


class Refusals:
    """Passes errors to `report`, and ends the reading of a topic of which nothing may be read.

    That is a topic of which no record was read when its fifth error is reported, if all five are refusals for
    lack of rights. One error replaces them; otherwise they are reported late, but in order.
    """

    def __init__(self, report: Callable[[TierctlError], None]) -> None:
        self._report = report
        self._topic = ""
        self._held: list[AuthenticationError] = []
        self._holds = False
        self.has_records = False
        """Whether a record of any topic was read."""

    @contextmanager
    def within(self, topic: str) -> Iterator[None]:
        """Read `topic` during the block, which ends early, without an error, if nothing may be read."""
        self._topic, self._holds = topic, True
        try:
            yield
        except _TopicRefused:
            pass
        finally:
            self._release()

    def has_read(self) -> None:
        """State that a record of the topic was read."""
        if self._holds:
            self._release()
        self.has_records = True

    def report(self, error: TierctlError) -> None:
        """Report an error of the topic's data, or end its reading."""
        if not self._holds or not isinstance(error, AuthenticationError):
            self._release()
            self._report(error)
            return
        self._held.append(error)
        if len(self._held) == _REFUSALS_MAX:
            first, *_ = self._held
            self._held.clear()
            self._report(
                AuthenticationError(
                    f"{self._topic}: the first {_REFUSALS_MAX} objects are all refused, and no record was "
                    f"read, so the others were not tried; the first: {first.message}",
                    hint="give this user the right to read the objects of the topic",
                )
            )
            raise _TopicRefused

    def _release(self) -> None:
        held, self._held, self._holds = self._held, [], False
        for error in held:
            self._report(error)
