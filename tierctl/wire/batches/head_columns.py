"""The batch heads of a whole segment as NumPy columns, with the results of `batch_heads.walk`.

Only the walk over the length fields is a loop. Batches that fail a check here are checked again by
`batch_heads.scan_at`, so one function decides which batches are good.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tierctl.wire.batches.batch_crcs import count_before_wrong_crc
from tierctl.wire.batches.batch_heads import (
    COMPRESSION_MASK,
    CONTROL,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    BadRange,
    BatchHead,
    Buffer,
    CompressionType,
    TornTail,
    is_cut,
    scan_at,
)
from tierctl.wire.batches.legacy import is_message

Int64s = npt.NDArray[np.int64]

HEAD_DTYPE = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp_ms", ">i8"),
        ("max_timestamp_ms", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""The fields of a batch head at their positions, big-endian."""

_NATIVE = HEAD_DTYPE.newbyteorder("=")
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_NO_BATCHES = (np.empty(0, np.int64), np.empty(0, _NATIVE))
_CHUNK_MIN = 16
_CHUNK_FIRST = 1024
_CHUNK_MAX = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadColumns:
    """The good batches of a segment, one row per batch, and the damage beside them.

    `positions` are the batches' positions in the buffer; `fields` are HEAD_DTYPE's fields in native order.
    """

    positions: Int64s
    fields: npt.NDArray[np.void]
    bad: tuple[BadRange, ...]
    torn: TornTail | None

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def sizes_bytes(self) -> Int64s:
        """Return the bytes of each batch, head included."""
        sizes: Int64s = self.fields["length"].astype(np.int64) + LENGTH_END
        return sizes

    @property
    def base_offsets(self) -> Int64s:
        """Return the first offset of each batch."""
        return self.fields["base_offset"].astype(np.int64)

    @property
    def next_offsets(self) -> Int64s:
        """Return the first offset after each batch."""
        offsets: Int64s = self.base_offsets + self.fields["last_offset_delta"] + 1
        return offsets

    @property
    def is_control(self) -> npt.NDArray[np.bool_]:
        """Return which batches hold control records."""
        return self._has(CONTROL)

    @property
    def is_compressed(self) -> npt.NDArray[np.bool_]:
        """Return which batches have compressed records."""
        return self._has(COMPRESSION_MASK)

    def _has(self, mask: int) -> npt.NDArray[np.bool_]:
        flags: npt.NDArray[np.bool_] = (self.fields["attributes"] & mask) != 0
        return flags

    def head(self, row: int) -> BatchHead:
        """Return one row as a BatchHead."""
        return BatchHead(int(self.positions[row]), *(int(value) for value in self.fields[row].item()))


def scan_heads(
    buf: Buffer,
    *,
    position: int = 0,
    expected_offset: int | None = None,
    check_crc: bool = True,
    is_window: bool = False,
) -> HeadColumns:
    """Return the items that `batch_heads.walk` yields from `position` on, as columns; never raise.

    With `is_window` the bytes go on after the buffer: a batch after the first item that the buffer's end may
    have cut is torn, without a search for good batches in it. The caller scans again from there.
    """
    start = position
    parts: list[tuple[Int64s, npt.NDArray[np.void]]] = [_NO_BATCHES]
    bad: list[BadRange] = []
    torn = None
    expected = expected_offset
    chunk = _CHUNK_FIRST
    while position < len(buf) and torn is None:
        positions, fields = _NO_BATCHES
        # Messages of magic 0 and 1 are read one by one.
        if not is_message(buf, position):
            positions, fields = _good_prefix(buf, position, expected, chunk, check_crc)
        if len(positions):
            parts.append((positions, fields))
            position, expected = _after(positions, fields)
            chunk = min(4 * chunk, _CHUNK_MAX)
            continue
        chunk = _CHUNK_MIN
        if is_window and position > start and is_cut(buf, position, expected):
            torn = TornTail(position=position, size_bytes=len(buf) - position, next_offset=expected)
            continue
        item = scan_at(buf, position, expected, check_crc=check_crc)
        if isinstance(item, TornTail):
            torn = item
        elif isinstance(item, BadRange):
            bad.append(item)
            position = item.end
        else:
            parts.append(_row(item))
            position, expected = item.end, item.next_offset
    return HeadColumns(
        positions=np.concatenate([p for p, _ in parts]),
        # Concatenated as bytes: NumPy would concatenate structured arrays field by field, which is slower.
        fields=np.concatenate([f.view(np.uint8) for _, f in parts]).view(_NATIVE),
        bad=tuple(bad),
        torn=torn,
    )


def _after(positions: Int64s, fields: npt.NDArray[np.void]) -> tuple[int, int]:
    last = fields[-1]
    end = int(positions[-1]) + LENGTH_END + int(last["length"])
    return end, int(last["base_offset"]) + int(last["last_offset_delta"]) + 1


def _row(head: BatchHead) -> tuple[Int64s, npt.NDArray[np.void]]:
    return np.array([head.position], np.int64), np.array([tuple(head[1:])], _NATIVE)


def _good_prefix(
    buf: Buffer, position: int, expected: int | None, count: int, check_crc: bool
) -> tuple[Int64s, npt.NDArray[np.void]]:
    """Return up to `count` good batches from `position` on, up to the first batch that fails a check."""
    positions = _follow_lengths(buf, position, count)
    if not len(positions):
        return positions, np.empty(0, _NATIVE)
    end = min(int(positions[-1]) + HEAD_SIZE, len(buf))
    rows = np.lib.stride_tricks.sliding_window_view(
        np.frombuffer(buf, np.uint8, end - position, position), HEAD_SIZE
    )[positions - position]
    fields = rows.view(HEAD_DTYPE)[:, 0].astype(_NATIVE)
    good = _plausible(fields, expected)
    # If a base offset is too high, the next batch seems to go back. So neither of the two is accepted here,
    # and `scan_at` decides on both.
    good[:-1] &= good[1:]
    good[-1] &= expected is not None and _has_no_gap(fields, expected)
    keep = len(good) if good.all() else int(np.argmin(good))
    if check_crc:
        ends = positions + LENGTH_END + fields["length"]
        keep = count_before_wrong_crc(buf, positions[:keep], ends[:keep], fields["crc"][:keep])
    return positions[:keep], fields[:keep]


def _follow_lengths(buf: Buffer, position: int, count: int) -> Int64s:
    """Return the positions of up to `count` complete batches, found by their length fields."""
    edges = np.fromiter(_walk_lengths(buf, position, count), np.int64)
    positions, ends = edges[:-1], edges[1:]
    good = (ends - positions >= HEAD_SIZE) & (ends <= len(buf))
    return positions if good.all() else positions[: int(np.argmin(good))]


def _walk_lengths(buf: Buffer, position: int, count: int) -> Iterator[int]:
    """Yield `position`, and the end of each of up to `count` batches, without checking the lengths."""
    unpack = _LENGTH.unpack_from
    at = position + _LENGTH_AT
    yield position
    try:
        for _ in range(count):
            at += unpack(buf, at)[0] + LENGTH_END
            yield at - _LENGTH_AT
    except struct.error:
        return


def _plausible(fields: npt.NDArray[np.void], expected: int | None) -> npt.NDArray[np.bool_]:
    base = fields["base_offset"]
    delta = fields["last_offset_delta"].astype(np.int64)
    count = fields["record_count"]
    # With this bound on `base`, sums of offsets can't overflow. `scan_at` checks the exact, higher bound.
    good: npt.NDArray[np.bool_] = (fields["magic"] == MAGIC) & (delta >= 0) & (base < 1 << 62)
    good &= (fields["attributes"] & COMPRESSION_MASK) <= CompressionType.ZSTD
    good &= (count >= 0) & (count <= delta + 1)
    lowest = np.empty(len(fields), np.int64)
    lowest[0] = expected or 0
    lowest[1:] = base[:-1] + delta[:-1] + 1
    good &= base >= lowest
    return good


def _has_no_gap(fields: npt.NDArray[np.void], expected: int) -> bool:
    """Return whether the last row begins where the row before it ends.

    After a gap, only the batch after it shows whether its base offset is right.
    """
    if len(fields) > 1:
        expected = int(fields["base_offset"][-2]) + int(fields["last_offset_delta"][-2]) + 1
    return int(fields["base_offset"][-1]) == expected
