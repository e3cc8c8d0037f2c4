"""Reads the batches of one segment file, one window of bytes at a time, and its records and values as
columns.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.wire.arrays import windows
from tierctl.wire.batches.batch_head import (
    HEAD_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHead,
    Buffer,
    CompressionType,
    Record,
    read_varint,
)
from tierctl.wire.batches.batch_heads import BadRange, HeadColumns, Int64s, TornTail, scan_heads
from tierctl.wire.batches.batch_heads import BadRange as BadBytes
from tierctl.wire.batches.record_batch import batch_at
from tierctl.wire.primitives import METADATA_RECORD_BYTES, at_most, limits

# The columns of a window take several times its bytes.
WINDOW_BYTES = 2 << 20

_HOP = struct.Struct(">qi")
_LENGTH_MIN = 49

Mark = tuple[int, int]
"""The base offset of a batch and its position in the file."""


class LogBytes(Protocol):
    """A file that may grow while it is read; methods raise the errors of the file system."""

    @property
    def size_bytes(self) -> int:
        """Return the current size of the file."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return `size_bytes` bytes from `position` on; fewer only at the end of the file."""
        ...

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


def scan_windows(
    file: LogBytes, position: int, expected_offset: int, *, window_bytes: int = WINDOW_BYTES
) -> Iterator[Window]:
    """Yield the file from the batch at `position` to the end, each byte in exactly one window.

    A window has `window_bytes`, or more if a batch or a damaged range is larger. Raises the errors of `file`.
    """
    size = file.size_bytes
    span = window_bytes
    while position < size:
        data = file.read(position, min(span, size - position))
        is_window = position + len(data) < size
        heads = scan_heads(data, expected_offset=expected_offset, is_window=is_window)
        settled = len(data)
        if data and is_window:
            heads, settled = without_edge(heads, len(data))
            if settled == 0:
                span *= 2
                continue
        window = Window(data, position, heads, expected_offset)
        yield window
        if not data:
            return
        expected_offset = window.next_offset
        position += settled
        span = window_bytes


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


def skip_to(
    file: LogBytes, position: int, offset: int, *, marks: list[Mark] | None = None
) -> tuple[int, int] | None:
    """Return position and offset of the last batch from `position` on whose head has `offset` or a lower one.

    Follows the length fields without checking the batches. Return None if the first batch begins above
    `offset`, or if offsets descend, which shows that a length field is wrong. Append some of the visited
    batches to `marks`.
    """
    size = file.size_bytes
    at, data, base = position, b"", position
    found: tuple[int, int] | None = None
    while at + _HOP.size + _LENGTH_MIN <= size:
        is_read = at + _HOP.size > base + len(data)
        if is_read:
            base, data = at, file.read(at, WINDOW_BYTES)
        batch_offset, length = _HOP.unpack_from(data, at - base)
        if length < _LENGTH_MIN or at + _HOP.size + length > size or batch_offset > offset:
            return found
        if found is not None and batch_offset <= found[1]:
            return None
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


# Reads the values of a log's records as one Arrow column; made for the metadata topic.
#
# A metadata log has one record per batch, uncompressed, and few distinct batch lengths. If a batch has the
# same length and the same structural bytes (lengths, deltas, counts) as a batch that the scalar decoder
# decoded, its value is at the same position: such batches are copied as columns. The scalar decoder decodes
# all other batches. Control batches are skipped.

_GROUP_MIN = 4
_COLUMN_MAX_BYTES = (1 << 31) - 1


class ValueColumns(NamedTuple):
    """Offsets, timestamps and values of the records, and the damage beside them.

    `next_offset` is the offset after the last batch; `bad` are the unreadable ranges, in order; `torn` is an
    unfinished write at the end.
    """

    offsets: Int64s
    timestamps_ms: Int64s
    values: pa.BinaryArray
    next_offset: int
    bad: tuple[BadRange, ...]
    torn: TornTail | None


@dataclass(frozen=True, slots=True)
class _Layout:
    """The byte layout of a record: the position of its value, and the bytes before it (`key` may differ)."""

    prefix: bytes
    key: slice
    value_at: int
    value_size: int
    is_null: bool
    timestamp_delta: int


@dataclass(frozen=True, slots=True)
class _Group:
    """The rows of batches whose only records have the same layout."""

    rows: Int64s
    layout: _Layout


@dataclass(frozen=True, slots=True)
class _Found:
    """The records of all rows: groups of one layout, and the records of `odd` rows by the scalar decoder.

    `counts` is the number of records per row.
    """

    groups: list[_Group]
    odd: dict[int, list[Record]]
    counts: Int64s

    @property
    def first(self) -> Int64s:
        firsts: Int64s = np.cumsum(self.counts) - self.counts
        return firsts

    def odd_places(self) -> Iterator[tuple[int, Record]]:
        """Yield the records of odd rows and their indexes in the column."""
        first = self.first
        for row, records in self.odd.items():
            yield from enumerate(records, int(first[row]))


def read_values(
    buf: Buffer,
    start_offset: int,
    end_offset: int,
    *,
    position: int = 0,
    expected_offset: int | None = None,
    check_crc: bool = True,
    max_bytes: int | None = None,
    heads: HeadColumns | None = None,
) -> ValueColumns:
    """Return the records with offsets in [start_offset, end_offset), from the batch at `position` on.

    Bad bytes, and batches that decompress to more than `max_bytes`, or with those before them to more than
    `Limits.metadata_window_bytes`, raise no error: they are in `bad`, and the batches after them are read.
    Raise LimitExceeded if the values exceed 2 GiB. `heads` is the result of an earlier scan of `buf`,
    if there is one.
    """
    if heads is None:
        heads = scan_heads(buf, position=position, expected_offset=expected_offset, check_crc=check_crc)
    base, following = heads.base_offsets, heads.next_offsets
    wanted = (following > start_offset) & (base < end_offset) & ~heads.is_control
    whole = wanted & (base >= start_offset) & (following <= end_offset)
    groups = list(_groups(buf, heads, np.flatnonzero(whole & _is_simple(heads))))
    grouped = np.zeros(len(heads), np.bool_)
    for group in groups:
        grouped[group.rows] = True
    odd, damaged = _decode_rows(buf, heads, np.flatnonzero(wanted & ~grouped), max_bytes)
    counts = grouped.astype(np.int64)
    for row, records in odd.items():
        odd[row] = [record for record in records if start_offset <= record.offset < end_offset]
        counts[row] = len(odd[row])
    bad = [b for b in heads.bad if _concerns(b, start_offset, end_offset)]
    last = int(following[-1]) if len(heads) else start_offset
    return ValueColumns(
        *_assemble(buf, heads, _Found(groups, odd, counts)),
        next_offset=min(max(last, start_offset), end_offset),
        bad=tuple(sorted([*bad, *damaged], key=lambda b: b.position)),
        torn=heads.torn,
    )


def _concerns(bad: BadRange, start_offset: int, end_offset: int) -> bool:
    before = bad.next_offset is not None and bad.next_offset <= start_offset
    return not before and (bad.first_offset is None or bad.first_offset < end_offset)


def _is_simple(heads: HeadColumns) -> npt.NDArray[np.bool_]:
    fields = heads.fields
    simple: npt.NDArray[np.bool_] = (fields["record_count"] == 1) & (fields["last_offset_delta"] == 0)
    simple &= fields["magic"] == MAGIC
    return simple & ~heads.is_compressed


def _groups(buf: Buffer, heads: HeadColumns, rows: Int64s) -> Iterator[_Group]:
    """Yield groups of rows with the same layout; rows with a rare layout are in no group."""
    lengths = heads.fields["length"][rows]
    order = np.argsort(lengths, kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[order])) + 1
    for same_length in np.split(rows[order], bounds):
        left = same_length
        while len(left) >= _GROUP_MIN:
            layout = _learn_layout(buf, heads.head(int(left[0])))
            matches = np.zeros(len(left), np.bool_)
            if layout is not None:
                matches = _match(buf, heads.positions[left] + HEAD_SIZE, layout)
                yield _Group(left[matches], layout)
            matches[0] = True
            left = left[~matches]


def _learn_layout(buf: Buffer, head: BatchHead) -> _Layout | None:
    """Return the layout of a batch's only record; None if it is damaged or has headers."""
    data = batch_at(buf, head).payload
    try:
        (record,) = batch_at(buf, head).records()
    except CorruptInputError:
        return None
    if record.headers:
        return None
    _, at = read_varint(data, 0)
    timestamp_delta, at = read_varint(data, at + 1)
    _, at = read_varint(data, at)
    _, key_at = read_varint(data, at)
    key = slice(key_at, key_at + len(record.key or b""))
    _, value_at = read_varint(data, key.stop)
    return _Layout(
        prefix=data[:value_at],
        key=key,
        value_at=value_at,
        value_size=len(record.value or b""),
        is_null=record.value is None,
        timestamp_delta=timestamp_delta,
    )


def _windows(buf: Buffer, starts: Int64s, size: int) -> npt.NDArray[np.uint8]:
    """Return a matrix whose row i has the `size` bytes at `starts[i]`."""
    whole = np.frombuffer(buf, np.uint8)
    found: npt.NDArray[np.uint8] = windows(whole, size)[starts]
    return found


def _match(buf: Buffer, starts: Int64s, layout: _Layout) -> npt.NDArray[np.bool_]:
    """Return which records at `starts` have the layout, and no headers after the value."""
    prefixes = _windows(buf, starts, layout.value_at)
    same = prefixes == np.frombuffer(layout.prefix, np.uint8)
    same[:, layout.key] = True
    no_headers = _windows(buf, starts + layout.value_at + layout.value_size, 1)[:, 0] == 0
    matches: npt.NDArray[np.bool_] = same.all(axis=1) & no_headers
    return matches


def _decode_rows(
    buf: Buffer, heads: HeadColumns, rows: Int64s, max_bytes: int | None
) -> tuple[dict[int, list[Record]], list[BadRange]]:
    """Decode the batches of `rows` with the scalar decoder; return records by row, and damaged batches."""
    decoded: dict[int, list[Record]] = {}
    damaged = []
    size = 0
    left = limits().metadata_window_bytes
    max_bytes = limits().metadata_batch_bytes if max_bytes is None else max_bytes
    for row in rows.tolist():
        head = heads.head(row)
        is_packed = head.compression is not CompressionType.NONE
        cost = METADATA_RECORD_BYTES * head.record_count if is_packed else 0
        allowed = max(min(max_bytes, left - cost), 0)
        try:
            decoded[row] = list(batch_at(buf, head).records(max_bytes=allowed))
        except CorruptInputError as error:
            damaged.append(_damaged(head, error))
            continue
        except LimitExceeded as error:
            bomb = CorruptInputError(
                "record batch", expected=at_most(allowed, "bytes of records"), found=error.message
            )
            damaged.append(_damaged(head, bomb))
            continue
        size_bytes = sum(len(record.value or b"") for record in decoded[row])
        size += size_bytes
        left -= size_bytes + cost if is_packed else 0
        if size > _COLUMN_MAX_BYTES:
            raise LimitExceeded(
                "the values of one log segment pass 2 GiB", hint="read fewer offsets at a time"
            )
    return decoded, damaged


def _damaged(head: BatchHead, error: CorruptInputError) -> BadRange:
    return BadRange(
        position=head.position,
        end=head.end,
        first_offset=head.base_offset,
        next_offset=head.next_offset,
        error=error,
    )


def _assemble(buf: Buffer, heads: HeadColumns, found: _Found) -> tuple[Int64s, Int64s, pa.BinaryArray]:
    """Return offsets, timestamps and values of all records in the order of the log."""
    total = int(found.counts.sum())
    offsets, timestamps, sizes = (np.zeros(total, np.int64) for _ in range(3))
    nulls = np.zeros(total, np.bool_)
    first, base_offsets = found.first, heads.base_offsets
    for group in found.groups:
        places = first[group.rows]
        offsets[places] = base_offsets[group.rows]
        timestamps[places] = _timestamps(heads, group)
        sizes[places] = group.layout.value_size
        nulls[places] = group.layout.is_null
    for place, record in found.odd_places():
        offsets[place], timestamps[place] = record.offset, record.timestamp_ms
        sizes[place], nulls[place] = len(record.value or b""), record.value is None
    return offsets, timestamps, _binary(_fill(buf, heads, found, sizes), sizes, nulls)


def _timestamps(heads: HeadColumns, group: _Group) -> Int64s:
    attributes, created, appended = (
        heads.fields[name][group.rows] for name in ("attributes", "base_timestamp_ms", "max_timestamp_ms")
    )
    is_appended = (attributes & LOG_APPEND_TIME) != 0
    return np.where(is_appended, appended, created + group.layout.timestamp_delta)


def _fill(buf: Buffer, heads: HeadColumns, found: _Found, sizes: Int64s) -> npt.NDArray[np.uint8]:
    """Return the bytes of all values, concatenated."""
    total = int(sizes.sum())
    if total > _COLUMN_MAX_BYTES:
        raise LimitExceeded("the values of one log segment pass 2 GiB", hint="read fewer offsets at a time")
    first = found.first
    starts = np.cumsum(sizes) - sizes
    data = np.empty(total, np.uint8)
    for group in found.groups:
        size = group.layout.value_size
        if size:
            values = _windows(buf, heads.positions[group.rows] + HEAD_SIZE + group.layout.value_at, size)
            windows(data, size)[starts[first[group.rows]]] = values
    for place, record in found.odd_places():
        value = np.frombuffer(record.value or b"", np.uint8)
        data[starts[place] : starts[place] + len(value)] = value
    return data


def _binary(data: npt.NDArray[np.uint8], sizes: Int64s, nulls: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


JOINED_RECORDS = 250_000
JOINED_BYTES = 64 << 20


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

    def __str__(self) -> str:
        if self.offset == self.next_offset:
            return f"before offset {self.offset}: {self.error}"
        return f"offsets {self.offset} to {self.next_offset - 1}: {self.error}"


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Consecutive records of partition `partition` of one topic, as columns of equal length.

    `values` is a binary Arrow array, null for tombstones. Control records are left out. `next_offset` is
    the offset after all offsets that the chunk covers, control records and gaps included. `damage` names
    each range of these offsets that has no readable record, by offset.
    """

    partition: int
    offsets: Int64s
    timestamps_ms: Int64s
    values: pa.BinaryArray
    next_offset: int
    damage: tuple[DamagedRange, ...] = field(default=())


def chunk_of(window: Window, partition: int, start_offset: int, end_offset: int, source: str) -> RecordChunk:
    """Return the window's records with offsets in [start_offset, end_offset); `source` names the file."""
    values = read_values(window.data, start_offset, end_offset, heads=window.heads)
    gaps = _gaps(window, values, (start_offset, end_offset), source)
    bad = [*_unreadable(window, values, source), *gaps]
    # If the damaged bytes have no offset, the damage is reported at the offset after them.
    concerned = (b for b in bad if max(b.next_offset, b.offset + 1) > start_offset and b.offset < end_offset)
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
    nothing = np.empty(0, np.int64)
    return RecordChunk(partition, nothing, nothing, pa.array([], pa.binary()), next_offset, (bad,))


def joined(
    chunks: Iterable[RecordChunk], *, records_max: int = JOINED_RECORDS, bytes_max: int = JOINED_BYTES
) -> Iterator[RecordChunk]:
    """Yield the chunks of one partition, concatenated up to `records_max` records and `bytes_max` bytes.

    Large chunks decode twice as fast as small ones, because each byte layout is learned once per chunk.
    """
    kept: list[RecordChunk] = []
    records = size_bytes = 0
    for chunk in chunks:
        records += len(chunk.offsets)
        size_bytes += chunk.values.nbytes
        if kept and (records > records_max or size_bytes > bytes_max):
            yield _one_of(kept)
            kept, records, size_bytes = [], len(chunk.offsets), chunk.values.nbytes
        kept.append(chunk)
    if kept:
        yield _one_of(kept)


def _one_of(chunks: Sequence[RecordChunk]) -> RecordChunk:
    if len(chunks) == 1:
        return chunks[0]
    return RecordChunk(
        chunks[0].partition,
        np.concatenate([chunk.offsets for chunk in chunks]),
        np.concatenate([chunk.timestamps_ms for chunk in chunks]),
        pa.concat_arrays([chunk.values for chunk in chunks]),
        chunks[-1].next_offset,
        tuple(bad for chunk in chunks for bad in chunk.damage),
    )


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
    known = {bad.position for bad in window.heads.bad}
    for bad in values.bad:
        if bad.position not in known:
            # The position in an error of a record is relative to its batch.
            error = bad.error.within(source, base=window.position + bad.position)
            yield _lost(bad, window.next_offset, error)


def _lost(bad: BadBytes, next_offset: int, error: CorruptInputError) -> DamagedRange:
    first = next_offset if bad.first_offset is None else bad.first_offset
    # The number of offsets in unreadable bytes at the end of the log is unknown, but at least one is missing.
    return DamagedRange(first, first + 1 if bad.next_offset is None else max(bad.next_offset, first), error)


def _gaps(
    window: Window, values: ValueColumns, wanted: tuple[int, int], source: str
) -> Iterator[DamagedRange]:
    """Yield the offset ranges without a record, between the batches and, within `wanted`, inside them."""
    heads = window.heads
    if not len(heads):
        return
    base, following = heads.base_offsets, heads.next_offsets
    unreadable = {b.first_offset for b in (*heads.bad, *values.bad)}
    before = np.concatenate([[window.expected_offset], following[:-1]])
    for row in np.flatnonzero(base > before).tolist():
        if int(before[row]) not in unreadable:
            yield gap(int(before[row]), int(base[row]), source)
    sparse = (heads.fields["record_count"] < following - base) & ~heads.is_control
    for row in np.flatnonzero(sparse).tolist():
        if int(base[row]) not in unreadable:
            low, high = max(int(base[row]), wanted[0]), min(int(following[row]), wanted[1])
            yield from _missing(low, high, values.offsets, source)


def _missing(offset: int, next_offset: int, offsets: Int64s, source: str) -> Iterator[DamagedRange]:
    """Yield the ranges of [offset, next_offset) that are not among the sorted `offsets`."""
    present = offsets[np.searchsorted(offsets, offset) : np.searchsorted(offsets, next_offset)]
    edges = [offset - 1, *present.tolist(), next_offset]
    for low, high in pairwise(edges):
        if high > low + 1:
            yield gap(low + 1, high, source)
