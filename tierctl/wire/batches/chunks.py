"""Chunks: consecutive records of a partition as columns, and the offset ranges without readable records."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.wire.batches.head_columns import Int64s
from tierctl.wire.batches.record_batch import BadRange as BadBytes
from tierctl.wire.batches.segment_file import Window
from tierctl.wire.batches.value_columns import ValueColumns, read_values

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
