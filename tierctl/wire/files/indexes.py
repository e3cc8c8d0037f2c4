"""A segment's offset, time and transaction index: codecs, and Kafka's lookups.

An index file holds entries of fixed size in ascending order; lookups search its bytes without decoding them
all. A broker preallocates the offset and time index of the active segment: `trimmed` removes the zeros after
the last entry. A broker that fetches an index from a tier takes such zeros for entries.

Source: org.apache.kafka.storage.internals.log.{OffsetIndex, TimeIndex, TransactionIndex, AbortedTxn}.
"""

import io
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.model import IndexType
from tierctl.wire.batches.batch_head import CONTROL, TRANSACTIONAL, BatchHead, Buffer
from tierctl.wire.batches.record_batch import ControlType, batch_at, control_record
from tierctl.wire.batches.scan import Int64s
from tierctl.wire.batches.segment_file import RELATIVE_OFFSET_MAX, Window
from tierctl.wire.files.checkpoints import ProducerEntry

INDEX_INTERVAL_BYTES = 4096
"""Kafka's default for `index.interval.bytes`."""
INDEX_BYTES_MAX = 1 << 28
"""Limit of one index: Kafka's segment.index.bytes is 10 MiB by default."""

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED = struct.Struct(">hqqqq")
_OFFSET_DTYPE = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_DTYPE = np.dtype([("timestamp_ms", ">i8"), ("offset", ">i4")])


class OffsetPosition(NamedTuple):
    """An offset, and the position of its batch in the segment."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A timestamp that no earlier record exceeds, and the offset of its record."""

    timestamp_ms: int
    offset: int


class AbortedTxn(NamedTuple):
    """An aborted transaction with offsets [first_offset, last_offset]; the last is the abort marker's.

    `last_stable_offset` is the partition's last stable offset when the marker was appended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """An `.index` file: per entry a 4-byte offset relative to the base offset and a 4-byte position."""

    ENTRY_BYTES: ClassVar[int] = _OFFSET_ENTRY.size
    base_offset: int
    data: bytes = b""

    @classmethod
    def decode(cls, data: bytes, base_offset: int) -> Self:
        """Decode a file; raise CorruptInputError unless offsets and positions ascend to the file's end.

        A file of zeros only has no entries.
        """
        index = cls(base_offset, _entries(data, IndexType.OFFSET, "offset index"))
        rows = np.frombuffer(index.data, _OFFSET_DTYPE)
        offsets, positions = _with_first(rows["offset"], -1), _with_first(rows["position"], -1)
        rising = (offsets[1:] > offsets[:-1]) & (positions[1:] > positions[:-1])
        _require_rising("offset index", rising, offsets, positions, _OFFSET_ENTRY.size)
        return index

    @classmethod
    def encode(cls, base_offset: int, entries: Iterable[OffsetPosition]) -> Self:
        """Return the index of `entries`; its `data` is the file."""
        packed = [
            _OFFSET_ENTRY.pack(_relative(entry.offset, base_offset), entry.position) for entry in entries
        ]
        return cls(base_offset, b"".join(packed))

    def __len__(self) -> int:
        return len(self.data) // _OFFSET_ENTRY.size

    def __getitem__(self, number: int) -> OffsetPosition:
        relative, position = _OFFSET_ENTRY.unpack_from(
            self.data, range(len(self))[number] * _OFFSET_ENTRY.size
        )
        return OffsetPosition(self.base_offset + relative, position)

    def __iter__(self) -> Iterator[OffsetPosition]:
        for relative, position in _OFFSET_ENTRY.iter_unpack(self.data):
            yield OffsetPosition(self.base_offset + relative, position)

    def columns(self) -> tuple[Int64s, Int64s]:
        """Return the offsets and the positions of all entries."""
        rows = np.frombuffer(self.data, _OFFSET_DTYPE)
        return rows["offset"].astype(np.int64) + self.base_offset, rows["position"].astype(np.int64)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry at or below `offset`; the segment's beginning if there is none."""
        slot = bisect_right(range(len(self)), offset, key=lambda n: self[n].offset) - 1
        return OffsetPosition(self.base_offset, 0) if slot < 0 else self[slot]


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """A `.timeindex` file: per entry an 8-byte timestamp and a 4-byte offset relative to the base offset."""

    ENTRY_BYTES: ClassVar[int] = _TIME_ENTRY.size
    base_offset: int
    data: bytes = b""

    @classmethod
    def decode(cls, data: bytes, base_offset: int) -> Self:
        """Decode a file; raise CorruptInputError unless timestamps ascend and offsets do not descend.

        Raise it, too, for zeros after the last entry. A file of zeros only has no entries.
        """
        index = cls(base_offset, _entries(data, IndexType.TIMESTAMP, "time index"))
        rows = np.frombuffer(index.data, _TIME_DTYPE)
        times, offsets = _with_first(rows["timestamp_ms"], -1), _with_first(rows["offset"], 0)
        rising = (times[1:] > times[:-1]) & (offsets[1:] >= offsets[:-1])
        _require_rising("time index", rising, times, offsets, _TIME_ENTRY.size)
        return index

    @classmethod
    def encode(cls, base_offset: int, entries: Iterable[TimestampOffset]) -> Self:
        """Return the index of `entries`; its `data` is the file."""
        packed = [
            _TIME_ENTRY.pack(entry.timestamp_ms, _relative(entry.offset, base_offset)) for entry in entries
        ]
        return cls(base_offset, b"".join(packed))

    def __len__(self) -> int:
        return len(self.data) // _TIME_ENTRY.size

    def __getitem__(self, number: int) -> TimestampOffset:
        timestamp_ms, relative = _TIME_ENTRY.unpack_from(
            self.data, range(len(self))[number] * _TIME_ENTRY.size
        )
        return TimestampOffset(timestamp_ms, self.base_offset + relative)

    def __iter__(self) -> Iterator[TimestampOffset]:
        for timestamp_ms, relative in _TIME_ENTRY.iter_unpack(self.data):
            yield TimestampOffset(timestamp_ms, self.base_offset + relative)

    def columns(self) -> tuple[Int64s, Int64s]:
        """Return the timestamps and the offsets of all entries."""
        rows = np.frombuffer(self.data, _TIME_DTYPE)
        return rows["timestamp_ms"].astype(np.int64), rows["offset"].astype(np.int64) + self.base_offset

    @property
    def last(self) -> TimestampOffset:
        """Return the last entry, which has the largest timestamp; (-1, base offset) if there is none."""
        return self[-1] if len(self) else TimestampOffset(-1, self.base_offset)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """Return the last entry at or before `timestamp_ms`; (-1, base offset) if there is none."""
        slot = bisect_right(range(len(self)), timestamp_ms, key=lambda n: self[n].timestamp_ms) - 1
        return TimestampOffset(-1, self.base_offset) if slot < 0 else self[slot]


@dataclass(frozen=True, slots=True)
class TransactionIndex:
    """A `.txnindex` file: the aborted transactions whose markers are in the segment, in marker order."""

    entries: tuple[AbortedTxn, ...] = ()

    @classmethod
    def decode(cls, data: bytes, base_offset: int) -> Self:
        """Decode a file; raise CorruptInputError for a cut entry, descending offsets or several versions.

        Raise it, too, for a marker below `base_offset`: the file is that of an earlier segment.
        Raise UnsupportedFormatError, which is one, if the first entry has an unknown version.

        Kafka ignores a cut entry; with read_committed it would return the records of an aborted transaction.
        """
        what = "transaction index"
        if len(data) % _ABORTED.size:
            raise _wrong_size(what, len(data), _ABORTED.size)
        entries: list[AbortedTxn] = []
        lowest = base_offset
        for number, (version, *fields) in enumerate(_ABORTED.iter_unpack(data)):
            at = number * _ABORTED.size
            if version != 0:
                # A program writes all entries of a file in its version: another one behind is damage.
                kind = CorruptInputError if number else UnsupportedFormatError
                raise kind(what, expected="version 0", found=f"version {version}", at=at)
            entry = AbortedTxn(*fields)
            if not (0 <= entry.first_offset <= entry.last_offset and lowest <= entry.last_offset):
                found = f"offsets {entry.first_offset} to {entry.last_offset}"
                raise CorruptInputError(what, expected=f"last offset from {lowest}", found=found, at=at)
            lowest = entry.last_offset + 1
            entries.append(entry)
        return cls(tuple(entries))

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return b"".join(_ABORTED.pack(0, *entry) for entry in self.entries)


def build_indexes(
    heads: Iterable[BatchHead], base_offset: int, *, interval_bytes: int = INDEX_INTERVAL_BYTES
) -> tuple[OffsetIndex, TimeIndex]:
    """Build the offset and time index of a segment from its batch heads, as LogSegment.recover does.

    The offset index has an entry for the first batch after every `interval_bytes`; the time index ends with
    the largest timestamp.
    """
    offsets: list[OffsetPosition] = []
    largest = TimeIndex(base_offset).last
    times = [largest]
    indexed = 0
    for head in heads:
        if head.max_timestamp_ms > largest.timestamp_ms:
            largest = TimestampOffset(head.max_timestamp_ms, head.last_offset)
        if head.position - indexed > interval_bytes:
            offsets.append(OffsetPosition(head.last_offset, head.position))
            _append_time(times, largest)
            indexed = head.position
    _append_time(times, largest)
    return OffsetIndex.encode(base_offset, offsets), TimeIndex.encode(base_offset, times[1:])


def _append_time(times: list[TimestampOffset], largest: TimestampOffset) -> None:
    if largest.timestamp_ms > times[-1].timestamp_ms:
        times.append(largest)


_ENTRY_BYTES = {IndexType.OFFSET: _OFFSET_ENTRY.size, IndexType.TIMESTAMP: _TIME_ENTRY.size}


def trimmed(data: bytes, index_type: IndexType) -> bytes:
    """Return an index file without preallocated entries, as AbstractIndex.trimToValidSize leaves it.

    Only offset and time indexes have them. A file that does not have whole entries is returned unchanged.
    """
    entry_bytes = _ENTRY_BYTES.get(index_type)
    if entry_bytes is None or len(data) % entry_bytes:
        return data
    used = len(data.rstrip(b"\x00"))
    return data[: -(-used // entry_bytes) * entry_bytes]


def _entries(data: bytes, index_type: IndexType, what: str) -> bytes:
    """Return the entries of a file; raise CorruptInputError for a cut one, or for zeros after the last one.

    TimeIndex.sanityCheck refuses such zeros; in an offset index, each lookup finds the segment's beginning.
    """
    entry_bytes = _ENTRY_BYTES[index_type]
    if len(data) % entry_bytes:
        raise _wrong_size(what, len(data), entry_bytes)
    used = trimmed(data, index_type)
    if used and len(used) < len(data):
        zeros = f"{len(data) - len(used)} bytes of zeros"
        raise CorruptInputError(what, expected="nothing after the last entry", found=zeros, at=len(used))
    return used


def _relative(offset: int, base_offset: int) -> int:
    relative = offset - base_offset
    if not 0 <= relative <= RELATIVE_OFFSET_MAX:
        raise ValueError(f"offset {offset} can't be indexed relative to {base_offset}")
    return relative


def _wrong_size(what: str, size: int, entry_size: int) -> CorruptInputError:
    whole = size - size % entry_size
    return CorruptInputError(
        what, expected=f"a multiple of {entry_size} bytes", found=f"{size} bytes", at=whole
    )


def _with_first(column: npt.NDArray[np.signedinteger], first: int) -> Int64s:
    """Return `column` in native order after the value `first`, which no entry may precede."""
    return np.concatenate((np.array([first], np.int64), column.astype(np.int64)))


def _require_rising(
    what: str, rising: npt.NDArray[np.bool_], keys: Int64s, values: Int64s, entry_size: int
) -> None:
    """Raise CorruptInputError for the first entry that is not `rising`: row 1 of the columns is entry 0."""
    if rising.all():
        return
    at = int(np.argmin(rising))
    last, entry = ((int(keys[row]), int(values[row])) for row in (at, at + 1))
    raise CorruptInputError(what, expected=f"an entry after {last}", found=str(entry), at=at * entry_size)


# Compare a segment's transaction index and producer snapshot with the batches in its log.


@dataclass(slots=True)
class SegmentWriters:
    """The transactions and the producers of one segment, as its batches show them.

    `follow` receives the windows of the log.
    """

    _begun: dict[int, int] = field(default_factory=dict)
    """First offset in this segment of each open transaction, by producer id."""
    _aborts: dict[int, int] = field(default_factory=dict)
    """Producer id of each abort marker, by the marker's offset."""
    _undone: dict[int, int] = field(default_factory=dict)
    """First offset in this segment of each aborted transaction, by the offset of its abort marker."""
    _last_offsets: dict[int, int] = field(default_factory=dict)
    """Last offset of each producer's last batch of data."""

    def follow(self, window: Window) -> None:
        """Apply the batches of the next window."""
        heads = window.heads
        fields = heads.fields
        for row in np.flatnonzero(fields["attributes"] & TRANSACTIONAL).tolist():
            self._append(window.data, heads.head(row))
        is_data = (fields["producer_id"] >= 0) & (fields["attributes"] & CONTROL == 0)
        ids, lasts = fields["producer_id"][is_data], heads.next_offsets[is_data] - 1
        self._last_offsets.update(zip(ids.tolist(), lasts.tolist(), strict=True))

    def _append(self, data: Buffer, head: BatchHead) -> None:
        if not head.is_control:
            self._begun.setdefault(head.producer_id, head.base_offset)
            return
        # Compaction may remove the marker from its batch; an empty batch ends no transaction.
        if not head.record_count:
            return
        first = self._begun.pop(head.producer_id, None)
        try:
            kinds = [control_record(record).type for record in batch_at(data, head).records()]
        except CorruptInputError:
            return
        if ControlType.ABORT in kinds:
            self._aborts[head.base_offset] = head.producer_id
            if first is not None:
                self._undone[head.base_offset] = first

    def why_index_is_missing(self) -> str | None:
        """Return why the segment must have a transaction index; None if it may have none.

        A marker alone is no proof: brokers write no entry for a transaction without records.
        """
        if not self._undone:
            return None
        return f"there is no transaction index, though {len(self._undone)} transactions were aborted"

    def differences(self, index: TransactionIndex) -> Iterator[str]:
        """Yield each difference between the transaction index and the log."""
        known = {entry.last_offset: entry for entry in index.entries}
        for entry in index.entries:
            # The last stable offset may be any lower value, because older transactions may have been open
            # then.
            stable = 0 <= entry.last_stable_offset <= entry.last_offset + 1
            if self._aborts.get(entry.last_offset) != entry.producer_id or not stable:
                yield f"the log has no aborted transaction for the entry {tuple(entry)}"
        for marker, first in self._undone.items():
            if marker not in known:
                yield f"the transaction from {first} that was aborted at {marker} is missing"
            elif known[marker].first_offset > first:
                yield f"the entry of the transaction aborted at {marker} begins after {first}"

    def older_entries(self, snapshot: Iterable[ProducerEntry]) -> Iterator[str]:
        """Yield each entry of the snapshot at the segment's end that is older than the log's batches.

        A producer may be missing, because brokers remove those that expired, and may have no last offset,
        because a transaction marker with a new producer epoch removes it.
        """
        for entry in snapshot:
            last = self._last_offsets.get(entry.producer_id, -1)
            if 0 <= entry.last_offset < last:
                yield (
                    f"producer {entry.producer_id} wrote last at {entry.last_offset}, the log has a batch of "
                    f"it up to {last}"
                )


class IndexStream(io.RawIOBase):
    """The bytes of `stream`; a read after INDEX_BYTES_MAX bytes that finds more raises CorruptInputError.

    The error names the index by `index_type` and `source`.
    """

    def __init__(self, stream: BinaryIO, index_type: IndexType, source: str) -> None:
        self._stream = stream
        self._index_type = index_type
        self._source = source
        self._left_bytes = INDEX_BYTES_MAX

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Implement `io.RawIOBase.readinto`."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self._stream.read(min(len(view), self._left_bytes + 1))
        if len(data) > self._left_bytes:
            raise CorruptInputError(
                f"{self._index_type.value} index",
                expected=f"at most {INDEX_BYTES_MAX} bytes",
                found="more",
                source=self._source,
            )
        view[: len(data)] = data
        self._left_bytes -= len(data)
        return len(data)

    def close(self) -> None:
        """Close the stream, too."""
        self._stream.close()
        super().close()
