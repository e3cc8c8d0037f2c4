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

from tierctl.errors import CorruptInputError, UnsupportedFormatError
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
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHead,
    Buffer,
    CompressionType,
)
from tierctl.wire.primitives import crc32c

__all__ = [
    "COMPRESSION_MASK",
    "CONTROL",
    "CRC_FROM",
    "HEAD",
    "HEAD_SIZE",
    "LEADER_EPOCH_AT",
    "LENGTH_END",
    "LOG_APPEND_TIME",
    "MAGIC",
    "MAGIC_AT",
    "NO_TIMESTAMP",
    "TRANSACTIONAL",
    "BadRange",
    "BatchHead",
    "Buffer",
    "CompressionType",
    "ScanItem",
    "TornTail",
    "is_cut",
    "scan",
    "scan_at",
    "walk",
]

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
