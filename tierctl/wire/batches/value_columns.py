"""Reads the values of a log's records as one Arrow column; made for the metadata topic.

A metadata log has one record per batch, uncompressed, and few distinct batch lengths. If a batch has the same
length and the same structural bytes (lengths, deltas, counts) as a batch that the scalar decoder decoded, its
value is at the same position: such batches are copied as columns. The scalar decoder decodes all other
batches. Control batches are skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.wire.arrays import windows
from tierctl.wire.batches.batch_heads import (
    HEAD_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    BadRange,
    BatchHead,
    Buffer,
    CompressionType,
    TornTail,
)
from tierctl.wire.batches.head_columns import HeadColumns, Int64s, scan_heads
from tierctl.wire.batches.record_batch import batch_at
from tierctl.wire.batches.records import Record, read_varint
from tierctl.wire.primitives import METADATA_RECORD_BYTES, at_most, limits

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
