"""Finds and checks the record batches of a log segment by their heads (batch headers, magic 2).

A message of magic 0 or 1 is an item like a batch (`legacy`); a segment may hold all three formats. Records
are not decoded here, except compressed messages, for their first offset. Bytes without a good batch are
either the unfinished write of a stopped writer at the end (`TornTail`) or damage (`BadRange`). After damage,
the scan continues with the next batch that has a later base offset, a plausible head and a correct CRC.

Source: org.apache.kafka.common.record.DefaultRecordBatch; KIP-98.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.kernel import int64, is_compiled, plain_kernel, tiny_kernel
from tierctl.wire.batches import legacy
from tierctl.wire.batches.batch_head import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_AT,
    CRC_FROM,
    HEAD,
    HEAD_SIZE,
    LEADER_EPOCH_AT,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    OFFSET_DELTA_MAX,
    BatchHead,
    Buffer,
    CompressionType,
    is_message,
)
from tierctl.wire.primitives import crc32c, int32_at, int64_at

_LENGTH = struct.Struct(">i")
OFFSET_MAX = (1 << 63) - 1 - (1 << 31)
_CODEC_MAX = CompressionType.ZSTD.value
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


class OffsetBounds(NamedTuple):
    """The offsets that the next batch may have: from `expected` (None: unknown) to `highest`.

    They tell whether a base offset, which the CRC of a batch does not cover, is right.
    """

    expected: int | None
    highest: int = OFFSET_MAX

    @property
    def lowest(self) -> int:
        """The lowest first offset."""
        return self.expected or 0


ANY_OFFSETS: Final = OffsetBounds(None)


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
    bounds = OffsetBounds(expected_offset)
    while position < size:
        item = scan_at(buf, position, bounds, check_crc=check_crc)
        yield item
        if isinstance(item, TornTail):
            return
        if isinstance(item, BatchHead):
            bounds = OffsetBounds(item.next_offset)
        position = item.end


def scan_at(buf: Buffer, position: int, bounds: OffsetBounds, *, check_crc: bool = True) -> ScanItem:
    """Return the item at `position`: a good batch, the damage up to the next good batch, or a torn tail."""
    found = _read_head(buf, position, bounds, check_crc)
    if isinstance(found, BatchHead):
        found = _check_gap(buf, found, bounds)
    if isinstance(found, BatchHead):
        return found
    # First: a broker may have allocated a gigabyte ahead, in which nothing is to be searched.
    is_unwritten = not any(buf[position : position + HEAD_SIZE]) and _is_zero(buf, position)
    following = None if is_unwritten else _search(buf, position, bounds)
    while following is not None and isinstance(_check_gap(buf, following, bounds), CorruptInputError):
        following = _search(buf, following.position, bounds)
    if following is None and (is_unwritten or _is_torn(buf, position, bounds)):
        return TornTail(position=position, size_bytes=len(buf) - position, next_offset=bounds.expected)
    return BadRange(
        position=position,
        end=len(buf) if following is None else following.position,
        first_offset=bounds.expected,
        next_offset=None if following is None else following.base_offset,
        error=found,
    )


def is_cut(buf: Buffer, position: int, bounds: OffsetBounds) -> bool:
    """Return whether the buffer ends within a possible batch at `position`, and there is no other damage."""
    rest = len(buf) - position
    if is_message(buf, position):
        return False
    if rest < HEAD_SIZE:
        return _no_beginning(buf, position, bounds) is None
    head = BatchHead(position, *HEAD.unpack_from(buf, position))
    if head.size_bytes <= rest:
        return False
    if head.magic in {0, 1}:
        return legacy.is_cut(buf, position, bounds.lowest, bounds.highest)
    return _implausible(head._replace(length=rest - LENGTH_END), rest, bounds) is None


def _read_head(
    buf: Buffer, position: int, bounds: OffsetBounds, check_crc: bool
) -> BatchHead | CorruptInputError:
    head = _plausible_head(buf, position, bounds)
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
    if isinstance(opened, BatchHead) and opened.base_offset < bounds.lowest:
        return _wrong(position, f"a base offset from {bounds.lowest} on", str(opened.base_offset))
    return opened


def _plausible_head(buf: Buffer, position: int, bounds: OffsetBounds) -> BatchHead | CorruptInputError:
    """Return the head at `position`, or an error for an impossible field; the CRC is not checked.

    The base offset of a compressed message is that of its last one.
    """
    if is_message(buf, position):
        head = legacy.head_at(buf, position)
        if isinstance(head, BatchHead) and not bounds.lowest <= head.base_offset <= bounds.highest:
            expected = _between("an offset", bounds.lowest, bounds.highest)
            return _wrong(position, expected, str(head.base_offset))
        return head
    if len(buf) - position < HEAD_SIZE:
        cut = _wrong(position, f"{HEAD_SIZE} bytes of a head", f"{len(buf) - position}")
        return _no_beginning(buf, position, bounds) or cut
    head = BatchHead(position, *HEAD.unpack_from(buf, position))
    return _implausible(head, len(buf) - position, bounds) or head


def _implausible(head: BatchHead, available: int, bounds: OffsetBounds) -> CorruptInputError | None:
    """Return an error for the first impossible field, the most informative field first; None if plausible."""
    lowest, highest = bounds.lowest, bounds.highest
    codec = head.attributes & COMPRESSION_MASK
    # Every record has its own offset, so a batch cannot have more records than offsets.
    records_max = head.last_offset_delta + 1
    if (
        head.magic == MAGIC
        and HEAD_SIZE - LENGTH_END <= head.length <= available - LENGTH_END
        and lowest <= head.base_offset <= highest
        and head.last_offset_delta <= highest - head.base_offset
        and codec <= CompressionType.ZSTD
        and 0 <= head.record_count <= records_max
        and records_max > 0
    ):
        return None
    if head.magic in {0, 1}:
        longest = available - LENGTH_END
        return _wrong(head.position + 8, f"a length of a message up to {longest}", str(head.length))
    if head.magic != MAGIC:
        return _unknown_magic(head.position, head.magic)
    fields = (
        (8, "a length", head.length, HEAD_SIZE - LENGTH_END, available - LENGTH_END),
        (0, "a base offset", head.base_offset, lowest, highest),
        (CRC_FROM, "a compression type", codec, 0, CompressionType.ZSTD.value),
        (23, "a last offset delta", head.last_offset_delta, 0, OFFSET_DELTA_MAX),
        (23, "a last offset", head.last_offset, head.base_offset, highest),
        (57, "a record count", head.record_count, 0, records_max),
    )
    for at, what, value, low, high in fields:
        if not low <= value <= high:
            return _wrong(head.position + at, _between(what, low, high), str(value))
    return None


def _no_beginning(buf: Buffer, position: int, bounds: OffsetBounds) -> CorruptInputError | None:
    """Return an error if the rest of the buffer, less than a head, can't be the beginning of a batch."""
    data = buf[position : position + HEAD_SIZE]
    # Of an offset that is cut, the lowest value: the end of the buffer may cut any field.
    offset = int.from_bytes(data[:8].ljust(8, b"\0"), "big", signed=True)
    if not 0 <= offset <= bounds.highest:
        return _wrong(position, _between("a base offset", 0, bounds.highest), f"0x{data[:8].hex()}")
    if len(data) > MAGIC_AT and data[MAGIC_AT] > MAGIC:
        return _unknown_magic(position, int.from_bytes(data[MAGIC_AT : MAGIC_AT + 1], signed=True))
    return None


def _unknown_magic(position: int, magic: int) -> CorruptInputError:
    at, found = position + MAGIC_AT, f"magic {magic}"
    return UnsupportedFormatError("record batch", expected="magic 0, 1 or 2", found=found, at=at)


def _between(what: str, low: int, high: int) -> str:
    return f"{what} from {low} to {high}" if low <= high else f"the end of the log, at offset {high}"


def _wrong(at: int, expected: str, found: str) -> CorruptInputError:
    return CorruptInputError("record batch", expected=expected, found=found, at=at)


def _check_gap(buf: Buffer, head: BatchHead, bounds: OffsetBounds) -> BatchHead | CorruptInputError:
    """Return `head`, or an error if the batch after it shows that its base offset is wrong.

    The CRC does not cover the base offset, so a gap before the batch may be a damaged base offset.
    """
    if head.base_offset == bounds.expected or head.end >= len(buf):
        return head
    follower = _plausible_head(buf, head.end, bounds)
    if isinstance(follower, BatchHead) and follower.base_offset <= head.last_offset:
        return _wrong(head.position, f"a base offset below {follower.base_offset}", f"{head.base_offset}")
    return head


def _search(buf: Buffer, position: int, bounds: OffsetBounds) -> BatchHead | None:
    """Return the next valid batch or message after `position`; None if there is none."""
    if len(buf) - position >= LENGTH_END:
        length = _LENGTH.unpack_from(buf, position + 8)[0]
        if 0 < length < len(buf) - position - LENGTH_END:
            head = _read_head(buf, position + LENGTH_END + length, bounds, check_crc=True)
            if isinstance(head, BatchHead):
                return head
    batch = _search_batch(buf, position, bounds)
    stop = len(buf) if batch is None else batch.position
    return _search_message(buf, position + 1, stop, bounds) or batch


def _search_batch(buf: Buffer, position: int, bounds: OffsetBounds) -> BatchHead | None:
    budget = _SEARCH_COST_MAX * (len(buf) - position)
    magic_at = position + MAGIC_AT
    while budget > 0:
        magic_at = buf.find(b"\x02", magic_at + 1)
        at = magic_at - MAGIC_AT
        if magic_at < 0 or len(buf) - at < HEAD_SIZE:
            return None
        head = BatchHead(at, *HEAD.unpack_from(buf, at))
        if _implausible(head, len(buf) - at, bounds) is not None:
            continue
        budget -= head.size_bytes
        if crc32c(buf[at + CRC_FROM : head.end]) == head.crc:
            return head
    return None


def _search_message(buf: Buffer, start: int, stop: int, bounds: OffsetBounds) -> BatchHead | None:
    """Return the first valid message in [start, stop), or None."""
    budget = _SEARCH_COST_MAX * (len(buf) - start)
    for at in legacy.candidates(buf, start, stop):
        head = _plausible_head(buf, at, bounds)
        if isinstance(head, CorruptInputError):
            continue
        budget -= head.size_bytes
        found = _read_head(buf, at, bounds, check_crc=True)
        if isinstance(found, BatchHead):
            return found
        if budget < 0:
            return None
    return None


def _is_torn(buf: Buffer, position: int, bounds: OffsetBounds) -> bool:
    """Return whether the bytes from `position` to the end, not all zeros, are an unfinished write."""
    rest = len(buf) - position
    if is_message(buf, position):
        return False
    if is_cut(buf, position, bounds):
        return True
    if rest < HEAD_SIZE:
        return False
    head = BatchHead(position, *HEAD.unpack_from(buf, position))
    if head.size_bytes > rest:
        return False
    is_plausible = head.size_bytes == rest and _implausible(head, rest, bounds) is None
    return is_plausible and _is_zero(buf, len(buf) - _UNWRITTEN_MIN)


def _is_zero(buf: Buffer, position: int) -> bool:
    chunks = (buf[at : at + _CHUNK] for at in range(position, len(buf), _CHUNK))
    return all(chunk.count(0) == len(chunk) for chunk in chunks)


# The batch heads of a whole segment as columns, with the results of `walk`.
#
# A kernel finds good batches up to an item that fails a check; `scan_at` decides about that item.

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_CRC_BYTES_MAX = 1 << 10
"""The CRC of a longer batch is computed faster by google-crc32c, which has an instruction for it."""


def _crc_tables() -> Int64s:
    """Return the tables of CRC-32C for eight bytes at a time: table k is for a byte that k bytes follow."""
    tables = np.zeros((8, 256), np.int64)
    tables[0] = np.arange(256)
    for _ in range(8):
        tables[0] = tables[0] >> 1 ^ (tables[0] & 1) * 0x82F63B78
    for k in range(1, 8):
        tables[k] = tables[k - 1] >> 8 ^ tables[0, tables[k - 1] & 255]
    return tables


_CRC_TABLES = _crc_tables()


@tiny_kernel
def crc_after_8(crc: int, data: Bytes, at: int) -> int:
    """Return the register of a CRC-32C after the 8 bytes at `at`."""
    crc ^= int64(data[at]) | int64(data[at + 1]) << 8 | int64(data[at + 2]) << 16 | int64(data[at + 3]) << 24
    return (
        int64(_CRC_TABLES[7, crc & 255])
        ^ int64(_CRC_TABLES[6, crc >> 8 & 255])
        ^ int64(_CRC_TABLES[5, crc >> 16 & 255])
        ^ int64(_CRC_TABLES[4, crc >> 24])
        ^ int64(_CRC_TABLES[3, data[at + 4]])
        ^ int64(_CRC_TABLES[2, data[at + 5]])
        ^ int64(_CRC_TABLES[1, data[at + 6]])
        ^ int64(_CRC_TABLES[0, data[at + 7]])
    )


@tiny_kernel
def crc_after_1(crc: int, data: Bytes, at: int) -> int:
    """Return the register of a CRC-32C after the byte at `at`."""
    return int64(_CRC_TABLES[0, (crc ^ int64(data[at])) & 255]) ^ crc >> 8


@plain_kernel
def crc32c_of(data: Bytes, start: int, end: int) -> int:
    """Return the CRC-32C of `data[start:end]`."""
    crc, at = int64(0xFFFF_FFFF), start
    while end - at >= 8:
        crc = crc_after_8(crc, data, at)
        at += 8
    while at < end:
        crc = crc_after_1(crc, data, at)
        at += 1
    return crc ^ 0xFFFF_FFFF


@plain_kernel
def _good_batches(  # noqa: PLR0917
    data: Bytes, at: int, expected: int, highest: int, positions: Int64s, fields: npt.NDArray[np.void]
) -> int:
    """Write a row for each batch of magic 2 from `at` on, up to the first one that `scan_at` has to look at.

    Return the number of rows, at most `len(positions)`. `expected` and `highest` are those of OffsetBounds,
    -1 for an unknown `expected`. Of a batch larger than _CRC_BYTES_MAX, the CRC is not checked.
    """
    size, count = len(data), 0
    while count < len(positions) and size - at >= HEAD_SIZE:
        base, length = int64_at(data, at), int32_at(data, at + 8)
        attributes = int64(data[at + CRC_FROM]) << 8 | int64(data[at + CRC_FROM + 1])
        delta, records = int32_at(data, at + 23), int32_at(data, at + 57)
        end = at + LENGTH_END + length
        if int64(data[at + MAGIC_AT]) != MAGIC or end - at < HEAD_SIZE or end > size:
            break
        if base < max(expected, 0) or base > highest or attributes & COMPRESSION_MASK > _CODEC_MAX:
            break
        if delta < 0 or delta > highest - base or records < 0 or records > delta + 1:
            break
        crc = int32_at(data, at + CRC_AT) & 0xFFFF_FFFF
        if end - at <= _CRC_BYTES_MAX and crc32c_of(data, at + CRC_FROM, end) != crc:
            break
        # The CRC does not cover the base offset: after a gap, the next batch must not go back.
        if base != expected and end < size:
            if size - end < HEAD_SIZE or int64(data[end + MAGIC_AT]) != MAGIC:
                break
            if int64_at(data, end) <= base + delta:
                break
        positions[count] = at
        row = fields[count]
        row["base_offset"], row["length"] = base, length
        row["partition_leader_epoch"] = int32_at(data, at + LEADER_EPOCH_AT)
        row["magic"], row["crc"] = MAGIC, crc
        row["attributes"] = attributes - 0x1_0000 if attributes > 0x7FFF else attributes
        row["last_offset_delta"] = delta
        row["base_timestamp_ms"] = int64_at(data, at + 27)
        row["max_timestamp_ms"] = int64_at(data, at + 35)
        row["producer_id"] = int64_at(data, at + 43)
        row["producer_epoch"] = int32_at(data, at + 51) >> 16
        row["base_sequence"] = int32_at(data, at + 53)
        row["record_count"] = records
        count += 1
        at, expected = end, base + delta + 1
    return count


HEAD_DTYPE = np.dtype([*zip(BatchHead._fields[1:], HEAD.format[1:], strict=True)])
"""The fields of a batch head without gaps, in the byte order of this machine."""

_CHUNK_MIN = 16
_CHUNK_FIRST = 1024
_CHUNK_MAX = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadColumns:
    """The good batches of a segment, one row per batch, and the damage beside them.

    `positions` are the batches' positions in the buffer; `fields` have HEAD_DTYPE.
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

    def chosen(self, mask: npt.NDArray[np.bool_]) -> "HeadColumns":
        """Return the batches for which `mask` is true."""
        return self if mask.all() else replace(self, positions=self.positions[mask], fields=self.fields[mask])

    def first(self, count: int) -> "HeadColumns":
        """Return the first `count` batches."""
        return replace(self, positions=self.positions[:count], fields=self.fields[:count])

    def head(self, row: int) -> BatchHead:
        """Return one row as a BatchHead."""
        return BatchHead(int(self.positions[row]), *(int(value) for value in self.fields[row].item()))


def scan_heads(buf: Buffer, bounds: OffsetBounds = ANY_OFFSETS, *, is_window: bool = False) -> HeadColumns:
    """Return the items that `walk` yields, as columns; never raise.

    With `is_window` the bytes go on after the buffer: a batch after the first item that the buffer's end may
    have cut is torn, without a search for good batches in it. The caller scans again from there.
    """
    position = 0
    parts = [_rows([])]
    heads: list[BatchHead] = []
    bad: list[BadRange] = []
    torn = None
    chunk = _CHUNK_FIRST
    while position < len(buf) and torn is None:
        # Messages of magic 0 and 1 are read one by one.
        if is_compiled() and not is_message(buf, position):
            positions, fields = _good_prefix(buf, position, bounds, chunk)
            if len(positions):
                parts += [_rows(heads), (positions, fields)]
                heads.clear()
                position, expected = _after(positions, fields)
                bounds = bounds._replace(expected=expected)
                chunk = min(4 * chunk, _CHUNK_MAX)
                continue
        # After a damaged batch, the kernel begins again with few batches: it may have read many in vain.
        chunk = _CHUNK_MIN
        if is_window and position and is_cut(buf, position, bounds):
            torn = TornTail(position=position, size_bytes=len(buf) - position, next_offset=bounds.expected)
            continue
        item = scan_at(buf, position, bounds)
        if isinstance(item, TornTail):
            torn = item
        elif isinstance(item, BadRange):
            bad.append(item)
            position = item.end
        else:
            heads.append(item)
            position, bounds = item.end, bounds._replace(expected=item.next_offset)
    parts.append(_rows(heads))
    return HeadColumns(
        positions=np.concatenate([p for p, _ in parts]),
        # Concatenated as bytes: NumPy would concatenate structured arrays field by field, which is slower.
        fields=np.concatenate([f.view(np.uint8) for _, f in parts]).view(HEAD_DTYPE),
        bad=tuple(bad),
        torn=torn,
    )


_Rows = tuple[Int64s, npt.NDArray[np.void]]
"""Positions and fields of batches, as in HeadColumns."""


def _rows(heads: Sequence[BatchHead]) -> _Rows:
    return np.array([head.position for head in heads], np.int64), fields_of(heads)


def fields_of(heads: Sequence[BatchHead]) -> npt.NDArray[np.void]:
    """Return the fields of heads as in HeadColumns."""
    return np.array([tuple(head[1:]) for head in heads], HEAD_DTYPE)


def _after(positions: Int64s, fields: npt.NDArray[np.void]) -> tuple[int, int]:
    last = fields[-1]
    end = int(positions[-1]) + LENGTH_END + int(last["length"])
    return end, int(last["base_offset"]) + int(last["last_offset_delta"]) + 1


def _good_prefix(buf: Buffer, position: int, bounds: OffsetBounds, count: int) -> _Rows:
    """Return up to `count` good batches from `position` on, up to the first one that fails a check."""
    rows_max = min((len(buf) - position) // HEAD_SIZE, count)
    positions, fields = np.empty(rows_max, np.int64), np.empty(rows_max, HEAD_DTYPE)
    data = bytes_of(buf)
    expected = -1 if bounds.expected is None else bounds.expected
    found = _good_batches(data, position, expected, bounds.highest, positions, fields)
    positions, fields = positions[:found], fields[:found]
    sizes = fields["length"] + LENGTH_END
    for row in np.flatnonzero(sizes > _CRC_BYTES_MAX).tolist():
        begin = int(positions[row])
        if crc32c(buf[begin + CRC_FROM : begin + int(sizes[row])]) != fields["crc"][row]:
            return positions[:row], fields[:row]
    return positions, fields


def bytes_of(buf: Buffer) -> Bytes:
    """Return the bytes of a buffer as kernels take them: read-only, so that they compile for one type."""
    data = np.frombuffer(buf, np.uint8)
    data.flags.writeable = False
    return data
