"""Finds and checks the record batches of a log segment by their heads (batch headers, magic 2).

A message of magic 0 or 1 is an item like a batch (`legacy`); a segment may hold all three formats. Records
are not decoded here, except compressed messages, for their first offset. Bytes without a good batch are
either the unfinished write of a stopped writer at the end (`TornTail`) or damage (`BadRange`). After damage,
the scan continues with the next batch that has a later base offset, a plausible head and a correct CRC.

Source: org.apache.kafka.common.record.DefaultRecordBatch; KIP-98.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.wire.batches import legacy
from tierctl.wire.batches.batch_head import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_AT,
    CRC_FROM,
    HEAD,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    BatchHead,
    Buffer,
    CompressionType,
)
from tierctl.wire.batches.legacy import is_message
from tierctl.wire.primitives import crc32c, crc32c_extend

_LENGTH = struct.Struct(">i")
_OFFSET_MAX = (1 << 63) - 1 - (1 << 31)
_DELTA_MAX = (1 << 31) - 1
# The search for the next good batch checks CRCs of at most this many times the searched bytes.
_SEARCH_COST_MAX = 8
# If the last batch ends in at least this number of zeros, it was not written completely: a file system may
# extend a file before it writes the data.
_UNWRITTEN_MIN = 16
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRange:
    """Damaged bytes [position, end).

    `first_offset` is the first offset that may be missing (None if unknown); `next_offset` is the base offset
    of the good batch at `end` (None if no good batch follows).
    """

    position: int
    end: int
    first_offset: int | None
    next_offset: int | None
    error: CorruptInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class TornTail:
    """The bytes of an unfinished write from `position` to the end: a cut batch, or preallocated zeros.

    `next_offset` is the offset after the last good batch (None if the buffer has no good batch).
    """

    position: int
    size_bytes: int
    next_offset: int | None


ScanItem = BatchHead | BadRange | TornTail


def walk(
    buf: Buffer,
    *,
    position: int = 0,
    expected_offset: int | None = None,
    check_crc: bool = True,
) -> Iterator[ScanItem]:
    """Yield every batch, damaged range and torn tail from `position` on; never raise for bad bytes.

    `expected_offset` is the lowest offset that the first batch may have (a segment's base offset). Offsets
    may have gaps but must ascend.
    """
    size = len(buf)
    expected = expected_offset
    while position < size:
        item = scan_at(buf, position, expected, check_crc=check_crc)
        yield item
        if isinstance(item, TornTail):
            return
        if isinstance(item, BatchHead):
            expected = item.next_offset
        position = item.end


def scan(
    buf: Buffer,
    *,
    position: int = 0,
    expected_offset: int | None = None,
    check_crc: bool = True,
    source: str | None = None,
) -> Iterator[BatchHead]:
    """Yield the heads of all batches up to the end or a torn tail; raise CorruptInputError for damage."""
    for item in walk(buf, position=position, expected_offset=expected_offset, check_crc=check_crc):
        if isinstance(item, TornTail):
            return
        if isinstance(item, BadRange):
            raise item.error.within(source) if source else item.error
        yield item


def scan_at(buf: Buffer, position: int, expected: int | None, *, check_crc: bool = True) -> ScanItem:
    """Return the item at `position`: a good batch, the damage up to the next good batch, or a torn tail."""
    found = _read_head(buf, position, expected, check_crc)
    if isinstance(found, BatchHead):
        if expected is None or found.base_offset > expected:
            found = _check_gap(buf, found, expected)
        if isinstance(found, BatchHead):
            return found
    following = _search(buf, position, expected)
    if following is None and _is_torn(buf, position, expected):
        return TornTail(position=position, size_bytes=len(buf) - position, next_offset=expected)
    return BadRange(
        position=position,
        end=len(buf) if following is None else following.position,
        first_offset=expected,
        next_offset=None if following is None else following.base_offset,
        error=found,
    )


def is_cut(buf: Buffer, position: int, expected: int | None) -> bool:
    """Return whether the buffer ends within a possible batch at `position`, and there is no other damage."""
    rest = len(buf) - position
    if legacy.is_message(buf, position):
        return False
    if rest < HEAD_SIZE:
        return True
    head = BatchHead(position, *HEAD.unpack_from(buf, position))
    if head.size_bytes <= rest:
        return False
    if head.magic in {0, 1}:
        return legacy.is_cut(buf, position, expected or 0)
    return _implausible(head._replace(length=rest - LENGTH_END), rest, expected) is None


def _read_head(
    buf: Buffer, position: int, expected: int | None, check_crc: bool
) -> BatchHead | CorruptInputError:
    head = _plausible_head(buf, position, expected)
    if isinstance(head, CorruptInputError):
        return head
    if head.magic == MAGIC:
        if check_crc:
            computed = crc32c(buf[position + CRC_FROM : head.end])
            if computed != head.crc:
                return _wrong(position + CRC_AT, f"CRC-32C {computed:#010x}", f"{head.crc:#010x}")
        return head
    if check_crc and (wrong := legacy.wrong_crc(buf, head)) is not None:
        return wrong
    opened = legacy.opened(buf, head)
    if isinstance(opened, BatchHead) and opened.base_offset < (expected or 0):
        return _wrong(position, f"a base offset from {expected} on", str(opened.base_offset))
    return opened


def _plausible_head(buf: Buffer, position: int, expected: int | None) -> BatchHead | CorruptInputError:
    """Return the head at `position`, or an error for an impossible field; the CRC is not checked.

    The base offset of a compressed message is that of its last one.
    """
    if legacy.is_message(buf, position):
        head = legacy.head_at(buf, position)
        if isinstance(head, BatchHead) and not (expected or 0) <= head.base_offset <= _OFFSET_MAX:
            return _wrong(position, f"an offset from {expected or 0} to {_OFFSET_MAX}", str(head.base_offset))
        return head
    if len(buf) - position < HEAD_SIZE:
        return _wrong(position, f"{HEAD_SIZE} bytes of a head", f"{len(buf) - position}")
    head = BatchHead(position, *HEAD.unpack_from(buf, position))
    return _implausible(head, len(buf) - position, expected) or head


def _implausible(head: BatchHead, available: int, expected: int | None) -> CorruptInputError | None:
    """Return an error for the first impossible field, the most informative field first; None if plausible."""
    lowest = expected or 0
    codec = head.attributes & COMPRESSION_MASK
    # Every record has its own offset, so a batch cannot have more records than offsets.
    records_max = head.last_offset_delta + 1
    if (
        head.magic == MAGIC
        and HEAD_SIZE - LENGTH_END <= head.length <= available - LENGTH_END
        and lowest <= head.base_offset <= _OFFSET_MAX
        and codec <= CompressionType.ZSTD
        and 0 <= head.record_count <= records_max
        and records_max > 0
    ):
        return None
    if head.magic in {0, 1}:
        longest = available - LENGTH_END
        return _wrong(head.position + 8, f"a length of a message up to {longest}", str(head.length))
    if head.magic != MAGIC:
        return UnsupportedFormatError(
            "record batch",
            expected="magic 0, 1 or 2",
            found=f"magic {head.magic}",
            at=head.position + MAGIC_AT,
        )
    bounds = (
        (8, "a length", head.length, HEAD_SIZE - LENGTH_END, available - LENGTH_END),
        (0, "a base offset", head.base_offset, lowest, _OFFSET_MAX),
        (CRC_FROM, "a compression type", codec, 0, CompressionType.ZSTD.value),
        (23, "a last offset delta", head.last_offset_delta, 0, _DELTA_MAX),
        (57, "a record count", head.record_count, 0, records_max),
    )
    for at, what, value, low, high in bounds:
        if not low <= value <= high:
            return _wrong(head.position + at, f"{what} from {low} to {high}", str(value))
    return None


def _wrong(at: int, expected: str, found: str) -> CorruptInputError:
    return CorruptInputError("record batch", expected=expected, found=found, at=at)


def _check_gap(buf: Buffer, head: BatchHead, expected: int | None) -> BatchHead | CorruptInputError:
    """Return `head`, or an error if the batch after it shows that its base offset is wrong.

    The CRC does not cover the base offset, so a gap before the batch may be a damaged base offset.
    """
    if head.end >= len(buf):
        return head
    follower = _plausible_head(buf, head.end, expected)
    if isinstance(follower, BatchHead) and follower.base_offset <= head.last_offset:
        return _wrong(head.position, f"a base offset below {follower.base_offset}", f"{head.base_offset}")
    return head


def _search(buf: Buffer, position: int, expected: int | None) -> BatchHead | None:
    """Return the next valid batch or message after `position`; None if there is none."""
    if len(buf) - position >= LENGTH_END:
        length = _LENGTH.unpack_from(buf, position + 8)[0]
        if 0 < length < len(buf) - position - LENGTH_END:
            head = _read_head(buf, position + LENGTH_END + length, expected, check_crc=True)
            if isinstance(head, BatchHead):
                return head
    batch = _search_batch(buf, position, expected)
    stop = len(buf) if batch is None else batch.position
    return _search_message(buf, position + 1, stop, expected) or batch


def _search_batch(buf: Buffer, position: int, expected: int | None) -> BatchHead | None:
    budget = _SEARCH_COST_MAX * (len(buf) - position)
    magic_at = position + MAGIC_AT
    while budget > 0:
        magic_at = buf.find(b"\x02", magic_at + 1)
        at = magic_at - MAGIC_AT
        if magic_at < 0 or len(buf) - at < HEAD_SIZE:
            return None
        head = BatchHead(at, *HEAD.unpack_from(buf, at))
        if _implausible(head, len(buf) - at, expected) is not None:
            continue
        budget -= head.size_bytes
        if crc32c(buf[at + CRC_FROM : head.end]) == head.crc:
            return head
    return None


def _search_message(buf: Buffer, start: int, stop: int, expected: int | None) -> BatchHead | None:
    """Return the first valid message in [start, stop), or None."""
    budget = _SEARCH_COST_MAX * (len(buf) - start)
    for at in legacy.candidates(buf, start, stop):
        head = _plausible_head(buf, at, expected)
        if isinstance(head, CorruptInputError):
            continue
        budget -= head.size_bytes
        found = _read_head(buf, at, expected, check_crc=True)
        if isinstance(found, BatchHead):
            return found
        if budget < 0:
            return None
    return None


def _is_torn(buf: Buffer, position: int, expected: int | None) -> bool:
    """Return whether the bytes from `position` to the end are the unfinished write of a stopped writer."""
    rest = len(buf) - position
    if legacy.is_message(buf, position):
        return False
    if is_cut(buf, position, expected):
        return True
    head = BatchHead(position, *HEAD.unpack_from(buf, position))
    if head.size_bytes > rest:
        return False
    unwritten = head.size_bytes == rest and _implausible(head, rest, expected) is None
    return _is_zero(buf, len(buf) - _UNWRITTEN_MIN if unwritten else position)


def _is_zero(buf: Buffer, position: int) -> bool:
    chunks = (buf[at : at + _CHUNK] for at in range(position, len(buf), _CHUNK))
    return all(chunk.count(0) == len(chunk) for chunk in chunks)


# The batch heads of a whole segment as NumPy columns, with the results of `batch_heads.walk`.
#
# Only the walk over the length fields is a loop. Batches that fail a check here are checked again by
# `batch_heads.scan_at`, so one function decides which batches are good.

# Checks the CRCs of many small batches with one call per block of batches.
#
# A CRC is linear: after a message and the message's own CRC, the register holds 0. In a copy of the block,
# all bytes between the checked bytes of two batches are set to 0, and the stored CRC of each batch is
# written directly after its checked bytes. The register then is 0 at the begin of each batch, and 0 after
# the block, unless a batch is damaged. Damage of one batch is always found. Damage of several batches of a
# block stays unnoticed with a probability of 2^-32, as damage of one batch does that is checked on its own.

Int64s = npt.NDArray[np.int64]

# A block and its copy should fit in the processor's cache.
_BLOCK_BYTES = 512 << 10
# For fewer batches in a block, one call per batch is as fast.
_BLOCK_BATCHES_MIN = 64
_ONES = 0xFFFFFFFF
_CRC_SIZE = 4


def count_before_wrong_crc(buf: Buffer, positions: Int64s, ends: Int64s, crcs: npt.NDArray[np.uint32]) -> int:
    """Return the number of batches before the first one with a wrong CRC.

    Batch i is `buf[positions[i]:ends[i]]` and has the stored CRC `crcs[i]`; each batch begins at the end of
    the batch before.
    """
    count = len(positions)
    if not count:
        return 0
    step = _BLOCK_BYTES * count // (int(ends[-1]) - int(positions[0]))
    if step < _BLOCK_BATCHES_MIN:
        return _one_by_one(buf, positions, ends, crcs)
    for first in range(0, count, step):
        block = slice(first, first + step)
        if not _all_right(buf, positions[block], int(ends[block][-1]), crcs[block]):
            return first + _one_by_one(buf, positions[block], ends[block], crcs[block])
    return count


def _all_right(buf: Buffer, positions: Int64s, end: int, crcs: npt.NDArray[np.uint32]) -> bool:
    """Return whether the CRCs of all batches from `positions[0]` to `end` are right."""
    start, size = int(positions[0]), end - int(positions[0])
    copy = np.empty(size + _CRC_SIZE, np.uint8)
    copy[:size] = np.frombuffer(buf, np.uint8, size, start)
    begins = np.lib.stride_tricks.sliding_window_view(copy, CRC_FROM + _CRC_SIZE, writeable=True)
    # The last step of CRC-32C complements the register.
    raw_crcs = (~crcs).astype("<u4").view(np.uint8).reshape(-1, _CRC_SIZE)
    changed = np.zeros((len(positions), begins.shape[1]), np.uint8)
    changed[1:, :_CRC_SIZE] = raw_crcs[:-1]
    # The first step sets the register to ones, which is the same as to complement the first checked bytes.
    changed[:, CRC_FROM:] = ~begins[positions - start, CRC_FROM:]
    begins[positions - start] = changed
    copy[size:] = raw_crcs[-1]
    # `extend` complements the register before and after.
    return crc32c_extend(_ONES, copy) == _ONES


def _one_by_one(buf: Buffer, positions: Int64s, ends: Int64s, crcs: npt.NDArray[np.uint32]) -> int:
    slices = map(slice, (positions + CRC_FROM).tolist(), ends.tolist())
    computed = np.fromiter(map(crc32c, map(buf.__getitem__, slices)), np.uint32, len(ends))
    wrong = computed != crcs
    return int(np.argmax(wrong)) if wrong.any() else len(ends)


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
