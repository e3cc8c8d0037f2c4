"""Reads the batches of one segment file, one window of bytes at a time, and its records as columns."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.kernel import prepare
from tierctl.wire.arrays import ByteSlices
from tierctl.wire.batches.batch_head import (
    COMPRESSION_MASK,
    CRC_FROM,
    HEAD,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    BatchHead,
    CompressionType,
)
from tierctl.wire.batches.records import ValueColumns, read_values
from tierctl.wire.batches.scan import (
    OFFSET_MAX,
    BadRange,
    HeadColumns,
    Int64s,
    OffsetBounds,
    TornTail,
    scan_heads,
)
from tierctl.wire.primitives import crc32c, crc32c_extend

# The columns of a window take several times its bytes.
WINDOW_BYTES = 2 << 20
BATCH_BYTES_MAX = 16 << 20
"""The length that a larger batch states is believed only if the CRC is right."""
WINDOW_BYTES_MAX = 2 * BATCH_BYTES_MAX
"""A damaged range of more bytes is skipped in windows that overlap by half: one has the next batch whole."""
# Zeros are read in larger pieces: in a store, each piece is a request.
ZEROS_BYTES = 16 << 20
_KEPT_BYTES_MIN = 64 << 10
# The batches that are scanned one by one in the time of an item that is announced to `prepare`.
_BATCHES_OF_AN_ITEM = 25

_HOP = struct.Struct(">qi")
_SPAN = struct.Struct(">qiibIhi")
"""The head of a batch of format 2 up to its last offset delta."""
_LENGTH_MIN = 49
RELATIVE_OFFSET_MAX = (1 << 31) - 1

Mark = tuple[int, int]
"""The base offset of a batch and its position in the file."""


class ReadableLog(Protocol):
    """A log that may grow while it is read; methods raise the errors of where it is stored."""

    @property
    def size_bytes(self) -> int:
        """Return the current size of the log."""
        ...

    def read(self, position: int, size_bytes: int, /) -> bytes:
        """Return `size_bytes` bytes from `position` on; fewer only at the end of the log."""
        ...


class LogBytes(ReadableLog, Protocol):
    """A file with a log, which is open until it is closed."""

    def close(self) -> None:
        """Close the file."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """The bytes of a file from `position` on, and their batches; positions in `heads` are relative to `data`.

    `expected_offset` is the offset after the last batch before the window.
    """

    data: bytes
    position: int
    heads: HeadColumns
    expected_offset: int

    @property
    def next_offset(self) -> int:
        """Return the offset after the window's last good batch."""
        return int(self.heads.next_offsets[-1]) if len(self.heads) else self.expected_offset

    @property
    def good_end(self) -> int:
        """Return the position in the file after the last good batch, or the window's position without one."""
        heads = self.heads
        return self.position + (int(heads.positions[-1] + heads.sizes_bytes[-1]) if len(heads) else 0)


def sound_end(window: Window) -> tuple[int, int, bool]:
    """Return the end of the batches before the first damage or missing offset, and whether one follows.

    The end is a position in the file, and the offset after the last of these batches. An unfinished write at
    the end of the file is no damage.
    """
    heads = window.heads
    before, has_gap, is_sparse = _holes(window)
    rows = np.flatnonzero(has_gap | is_sparse)[:1]
    ends = [*(bad.position for bad in heads.bad[:1]), *heads.positions[rows].tolist()]
    if not ends:
        return window.good_end, window.next_offset, False
    at = min(ends)
    row = int(np.searchsorted(heads.positions, at))
    next_offset = int(before[row]) if row < len(heads) else window.next_offset
    return window.position + at, next_offset, True


def newer_batch(window: Window) -> CorruptInputError | None:
    """Return the error of the first batch that only a newer Kafka can read; None without one."""
    newer = (bad.error for bad in window.heads.bad if _is_newer(window, bad))
    return next(newer, None)


def _is_newer(window: Window, bad: BadRange) -> bool:
    """Return whether a newer Kafka, and no damage, made the batch at the beginning of the range unreadable.

    Every format has base offset, length and magic at these positions. The CRC of magic 2 does not cover the
    magic: if it is right, an unknown magic is a damaged one, and an unknown compression is none.
    """
    if len(window.data) - bad.position < HEAD_SIZE:
        return False
    head = BatchHead(bad.position, *HEAD.unpack_from(window.data, bad.position))
    offsets = head.base_offset - (bad.first_offset or 0)
    if head.length <= 0 or not 0 <= offsets <= RELATIVE_OFFSET_MAX or head.magic in {0, 1}:
        return False
    is_right = crc32c(window.data[head.position + CRC_FROM : head.end]) == head.crc
    if head.magic == MAGIC:
        return is_right and head.attributes & COMPRESSION_MASK > CompressionType.ZSTD
    return not is_right


def _holes(window: Window) -> tuple[Int64s, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return for each batch the offset after the last one, and whether offsets lack before it, and in it."""
    heads = window.heads
    base, following = heads.base_offsets, heads.next_offsets
    before = np.concatenate([np.array([window.expected_offset], np.int64), following])[: len(heads)]
    is_sparse = (heads.fields["record_count"] < following - base) & ~heads.is_control
    return before, base > before, is_sparse


def scan_windows(
    log: ReadableLog,
    position: int,
    expected_offset: int,
    *,
    highest_offset: int,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[Window]:
    """Yield the log from the batch at `position` to the end, each byte in exactly one window.

    A window has `window_bytes`, or more if a batch or a damaged range is larger; of more than
    WINDOW_BYTES_MAX of damage, and of zeros up to the end of the file, which may be a gigabyte that a broker
    allocated ahead (`preallocate`), `data` has the first bytes only. A file that is cut meanwhile ends there.
    Batches with offsets above `highest_offset` are damage, also at the end of the log: bytes that are no log,
    such as encrypted ones, may look like a batch that was cut. Raises the errors of `log`.
    """
    size = log.size_bytes
    span, kept, doubted = window_bytes, b"", -1
    while position < size:
        wanted = min(max(span, len(kept)), size - position)
        data = log.read(position + len(kept), wanted - len(kept)) if len(kept) < wanted else b""
        data = kept + data if kept else data
        if len(data) < wanted:  # The file was cut meanwhile.
            size = position + len(data)
        bounds = OffsetBounds(expected_offset, min(highest_offset, OFFSET_MAX))
        first_bytes = _first_size(data)
        if HEAD_SIZE <= len(data) < first_bytes <= size - position and position != doubted:
            if first_bytes <= BATCH_BYTES_MAX or _is_large_batch(log, position, data, bounds):
                span, kept = first_bytes, data
                continue
            doubted = position
        is_window = position + len(data) < size
        heads, settled = scan_heads(data, bounds, is_window=is_window), len(data)
        prepare(len(heads) // _BATCHES_OF_AN_ITEM)
        if data and is_window:
            heads, settled = _settled(log, Window(data, position, heads, expected_offset), bounds, size)
            if settled == 0:
                span = min(2 * len(data), WINDOW_BYTES_MAX) if any(data) else WINDOW_BYTES_MAX
                kept = data
                continue
        window = Window(data, position, heads, expected_offset)
        yield window
        if not data:
            return
        expected_offset = window.next_offset
        position += settled
        # Few bytes are cheaper to read again than to copy a window behind them.
        kept = data[settled:] if len(data) - settled >= _KEPT_BYTES_MIN else b""
        span = window_bytes + len(kept)


def _settled(log: ReadableLog, window: Window, bounds: OffsetBounds, size: int) -> tuple[HeadColumns, int]:
    """Return what a window shows of a log that goes on up to `size`, and where that ends.

    That is 0 if more bytes are needed.
    """
    data = window.data
    heads, settled = without_edge(window.heads, len(data))
    proven = without_unproven(heads, settled, window.expected_offset)
    if proven[1] or len(data) < WINDOW_BYTES_MAX:
        heads, settled = proven
    if settled:
        return heads, settled
    if not any(data) and is_zero_from(log, window.position + len(data)):
        left = size - window.position
        return replace(heads, torn=TornTail(position=0, size_bytes=left, next_offset=bounds.expected)), left
    return _large_damage(log, window, bounds) if len(data) >= WINDOW_BYTES_MAX else (heads, 0)


def _is_large_batch(log: ReadableLog, position: int, data: bytes, bounds: OffsetBounds) -> bool:
    """Return whether the batch that begins with `data` at `position` has the CRC that it states.

    It is read in parts: a length that is wrong must not cause the rest of a log to be read into memory.
    """
    head = BatchHead(0, *HEAD.unpack_from(data))
    if not 0 <= head.magic <= MAGIC or not bounds.lowest <= head.base_offset <= bounds.highest:
        return False
    at, end = position + (CRC_FROM if head.magic == MAGIC else MAGIC_AT), position + head.size_bytes
    crc = 0
    while at < end and (part := log.read(at, min(BATCH_BYTES_MAX, end - at))):
        crc = crc32c_extend(crc, part) if head.magic == MAGIC else zlib.crc32(part, crc)
        at += len(part)
    stated = head.crc if head.magic == MAGIC else int.from_bytes(data[LENGTH_END:MAGIC_AT], "big")
    return at == end and crc == stated


def _large_damage(log: ReadableLog, window: Window, bounds: OffsetBounds) -> tuple[HeadColumns, int]:
    """Return the damage with which a window of WINDOW_BYTES_MAX begins, and its size."""
    nothing = replace(window.heads.first(0), bad=(), torn=None)
    at, found, is_last = window.position, nothing, False
    while not is_last and not (len(found) and found.positions[0] < WINDOW_BYTES_MAX // 2):
        at += WINDOW_BYTES_MAX // 2
        data = log.read(at, WINDOW_BYTES_MAX)
        is_last = len(data) < WINDOW_BYTES_MAX
        is_zero = data.count(0) == len(data)
        found = nothing if is_zero else scan_heads(data, bounds, is_window=not is_last)
    end, next_offset = at + len(data), None
    if len(found):
        end, next_offset = at + int(found.positions[0]), int(found.base_offsets[0])
    size_bytes = end - window.position
    stated_bytes = _first_size(window.data)
    if next_offset is None and window.heads.torn is not None and stated_bytes > size_bytes:
        torn = TornTail(position=0, size_bytes=size_bytes, next_offset=bounds.expected)
        return replace(nothing, torn=torn), size_bytes
    error = CorruptInputError(
        "record batch", expected="a length up to the next batch", found=str(stated_bytes - LENGTH_END), at=8
    )
    damage = BadRange(
        position=0,
        end=size_bytes,
        first_offset=bounds.expected,
        next_offset=next_offset,
        error=window.heads.bad[0].error if window.heads.bad else error,
    )
    return replace(nothing, bad=(damage,)), size_bytes


def is_zero_from(file: ReadableLog, position: int) -> bool:
    """Return whether the log has no other bytes than zeros from `position` on."""
    while data := file.read(position, ZEROS_BYTES):
        if data.count(0) != len(data):
            return False
        position += len(data)
    return True


def _first_size(data: bytes) -> int:
    """Return the size that the first batch in `data` states; 0 without its head.

    In a part of a batch, the search for good batches could find one that is the value of a record.
    """
    return _HOP.size + _HOP.unpack_from(data)[1] if len(data) >= _HOP.size else 0


def highest_offset_of(segment_base: int) -> int:
    """Return the highest offset that a segment can have, because its indexes hold 31 bits.

    Source: LogSegment.canConvertToRelativeOffset.
    """
    return segment_base + RELATIVE_OFFSET_MAX


def torn_note(file: LogBytes, source: str, position: int, size_bytes: int) -> str | None:
    """Return a message about an unfinished write at `position` of the file `source`.

    Return None for zeros that a broker allocated ahead.
    """
    if size_bytes >= HEAD_SIZE and not any(file.read(position, HEAD_SIZE)):
        return None
    return (
        f"{source} ends in {size_bytes} bytes, from byte {position} on, of a batch that was not written to "
        "its end: they are left out, as a broker leaves them out when it starts"
    )


def without_edge(heads: HeadColumns, size: int) -> tuple[HeadColumns, int]:
    """Return `heads` without an incomplete item at the end of the window, and the position after the rest.

    A batch that the window's end cuts is complete in the next window.
    """
    if heads.torn is not None:
        return replace(heads, torn=None), heads.torn.position
    if heads.bad and heads.bad[-1].end >= size:
        return replace(heads, bad=heads.bad[:-1]), heads.bad[-1].position
    return heads, size


def without_unproven(heads: HeadColumns, settled: int, expected_offset: int) -> tuple[HeadColumns, int]:
    """Return what `without_edge` returned without a last batch of which only the next one proves the offset.

    A batch above the offset after the one before it may have a damaged base offset, which its CRC does not
    cover. Without its follower it would hide all batches after it.
    """
    if not len(heads) or int(heads.positions[-1] + heads.sizes_bytes[-1]) < settled:
        return heads, settled
    before = int(heads.next_offsets[-2]) if len(heads) > 1 else expected_offset
    if int(heads.base_offsets[-1]) <= before:
        return heads, settled
    at, rest = int(heads.positions[-1]), heads.first(len(heads) - 1)
    if rest.bad and rest.bad[-1].end == at:
        # The end of the damage before the batch is not known either.
        return replace(rest, bad=rest.bad[:-1]), rest.bad[-1].position
    return rest, at


def skip_to(
    file: LogBytes, position: int, offset: int, *, marks: list[Mark] | None = None
) -> tuple[int, int] | None:
    """Return position and offset of the last batch from `position` on whose head has `offset` or a lower one.

    Follows the length fields without checking the batches. Return None if the first batch begins above
    `offset`, or if a batch begins at or below the last offset of the one before it, which shows that a length
    or an offset is wrong. A file that is cut meanwhile ends there. Append some of the visited batches to
    `marks`.
    """
    size = file.size_bytes
    at, data, base, last_offset = position, b"", position, -1
    found: tuple[int, int] | None = None
    while at + _HOP.size + _LENGTH_MIN <= size:
        is_read = min(at + _SPAN.size, size) > base + len(data)
        if is_read:
            base, data = at, file.read(at, WINDOW_BYTES)
            if len(data) < min(WINDOW_BYTES, size - at):  # The file was cut meanwhile.
                size = at + len(data)
                continue
        batch_offset, length = _HOP.unpack_from(data, at - base)
        if length < _LENGTH_MIN or at + _HOP.size + length > size or batch_offset > offset:
            return found
        if found is not None and batch_offset <= last_offset:
            return None
        last_offset = batch_offset
        if at + _SPAN.size <= size:
            *_, magic, _crc, _attributes, last_delta = _SPAN.unpack_from(data, at - base)
            # The offsets of formats 0 and 1 are those of single messages, or of the last of several.
            last_offset += last_delta if magic == MAGIC and last_delta > 0 else 0
        if is_read and marks is not None:
            marks.append((batch_offset, at))
        found = (at, batch_offset)
        at += _HOP.size + length
    return found


def first_offset_at(file: LogBytes, position: int) -> int | None:
    """Return the base offset of the batch with a correct CRC at `position`; None if there is none.

    In its head, a compressed message of format 0 or 1 has the offset of its last message.
    """
    head = file.read(position, _HOP.size)
    if len(head) < _HOP.size:
        return None
    _, length = _HOP.unpack(head)
    if not _LENGTH_MIN <= length <= file.size_bytes - position - _HOP.size:
        return None
    heads = scan_heads(file.read(position, _HOP.size + length))
    is_good = len(heads) == 1 and not heads.bad and heads.torn is None
    return int(heads.base_offsets[0]) if is_good else None


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Bytes of a metadata partition that hold no readable record.

    `offset` is the first offset that can't be read; reading went on at `next_offset`. A gap has no bytes
    at all: records were compacted away, or lost.
    """

    offset: int
    next_offset: int
    error: CorruptInputError
    is_gap: bool = False

    def reaches(self, offset: int) -> bool:
        """Return whether the range ends after `offset`; without offsets, it is at the one after its bytes."""
        return max(self.next_offset, self.offset + 1) > offset

    def __str__(self) -> str:
        if self.offset == self.next_offset:
            return f"before offset {self.offset}: {self.error}"
        return f"offsets {self.offset} to {self.next_offset - 1}: {self.error}"


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Consecutive records of partition `partition` of one topic, as columns of equal length.

    `slices` are the values, null for tombstones. Control records are left out. `next_offset` is
    the offset after all offsets that the chunk covers, control records and gaps included. `damage` names
    each range of these offsets that has no readable record, by offset.
    """

    partition: int
    offsets: Int64s
    timestamps_ms: Int64s
    slices: ByteSlices
    next_offset: int
    damage: tuple[DamagedRange, ...] = field(default=())

    @property
    def values(self) -> pa.BinaryArray:
        """Return the values as an Arrow array, which is made at the first use."""
        return self.slices.array


def chunk_of(window: Window, partition: int, start_offset: int, end_offset: int, source: str) -> RecordChunk:
    """Return the window's records with offsets in [start_offset, end_offset); `source` names the file."""
    values = read_values(window.data, window.heads, start_offset, end_offset)
    gaps = _gaps(window, values, (start_offset, end_offset), source)
    bad = [*_unreadable(window, values, source), *gaps]
    concerned = (b for b in bad if b.reaches(start_offset) and b.offset < end_offset)
    ordered = tuple(sorted(concerned, key=lambda b: b.offset))
    reached = max([window.next_offset, *(b.next_offset for b in ordered)])
    return RecordChunk(
        partition,
        values.offsets,
        values.timestamps_ms,
        values.values,
        min(max(reached, start_offset), end_offset),
        ordered,
    )


def empty_chunk(partition: int, next_offset: int, bad: DamagedRange) -> RecordChunk:
    """Return a chunk without records that ends at `next_offset` and reports `bad`."""
    nothing, none = np.empty(0, np.int64), ByteSlices.of(pa.array([], pa.binary()))
    return RecordChunk(partition, nothing, nothing, none, next_offset, (bad,))


def gap(offset: int, next_offset: int, source: str) -> DamagedRange:
    """Return the damage for offsets [offset, next_offset), which no batch has."""
    return DamagedRange(
        offset,
        next_offset,
        CorruptInputError(
            "metadata log",
            expected=f"offset {offset}",
            found=f"offset {next_offset}",
            source=source,
            hint="records were compacted away or lost: tierctl deletes nothing that depends on this metadata "
            "partition",
        ),
        is_gap=True,
    )


def _unreadable(window: Window, values: ValueColumns, source: str) -> Iterator[DamagedRange]:
    for bad in window.heads.bad:
        yield _lost(bad, window.next_offset, bad.error.within(source, base=window.position))
    for bad in values.damaged:
        # The position in an error of a record is relative to its batch.
        error = bad.error.within(source, base=window.position + bad.position)
        yield _lost(bad, window.next_offset, error)


def _lost(bad: BadRange, next_offset: int, error: CorruptInputError) -> DamagedRange:
    first = next_offset if bad.first_offset is None else bad.first_offset
    # The number of offsets in unreadable bytes at the end of the log is unknown, but at least one is missing.
    return DamagedRange(first, first + 1 if bad.next_offset is None else max(bad.next_offset, first), error)


def _gaps(
    window: Window, values: ValueColumns, wanted: tuple[int, int], source: str
) -> Iterator[DamagedRange]:
    """Yield the offset ranges without a record: between the batches, and in those that have offsets `wanted`.

    `values` are the records at these offsets. A range is whole, also where only a part of it is wanted, so
    that it is the same for each reader.
    """
    heads = window.heads
    base, following = heads.base_offsets, heads.next_offsets
    before, has_gap, is_sparse = _holes(window)
    unreadable = {b.first_offset for b in (*heads.bad, *values.damaged)}
    for row in np.flatnonzero(has_gap).tolist():
        if int(before[row]) not in unreadable:
            yield gap(int(before[row]), int(base[row]), source)
    for row in np.flatnonzero(is_sparse & (following > wanted[0]) & (base < wanted[1])).tolist():
        low, high = int(base[row]), int(following[row])
        if low in unreadable:
            continue
        is_whole = wanted[0] <= low and high <= wanted[1]
        records = values
        if not is_whole:
            records = read_values(window.data, heads.chosen(np.arange(len(heads)) == row), low, high)
        yield from _missing(low, high, records.offsets, source)


def _missing(offset: int, next_offset: int, offsets: Int64s, source: str) -> Iterator[DamagedRange]:
    """Yield the ranges of [offset, next_offset) that are not among the sorted `offsets`."""
    present = offsets[np.searchsorted(offsets, offset) : np.searchsorted(offsets, next_offset)]
    edges = [offset - 1, *present.tolist(), next_offset]
    for low, high in pairwise(edges):
        if high > low + 1:
            yield gap(low + 1, high, source)
