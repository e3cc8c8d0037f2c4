"""Finds and checks the record batches of a log segment by their heads (batch headers, magic 2).

The records inside the batches are not decoded here. Bytes without a good batch are either the unfinished
write of a stopped writer at the end (`TornTail`) or damage (`BadRange`). After damage, the scan continues
with the next batch that has a later base offset, a plausible head and a correct CRC.

Source: org.apache.kafka.common.record.DefaultRecordBatch; KIP-98.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.wire.crc import crc32c

Buffer = bytes | mmap.mmap
"""The bytes of a segment; a slice of either type is `bytes`."""

HEAD = struct.Struct(">qiibIhiqqqhii")
HEAD_SIZE = HEAD.size
LENGTH_END = 12
LEADER_EPOCH_AT = 12
"""Position of partitionLeaderEpoch in a batch; the CRC does not cover it."""
MAGIC_AT = 16
CRC_FROM = 21
MAGIC = 2
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_LENGTH = struct.Struct(">i")
_OFFSET_MAX = (1 << 63) - 1 - (1 << 31)
_DELTA_MAX = (1 << 31) - 1
# The search for the next good batch checks CRCs of at most this many times the searched bytes.
_SEARCH_COST_MAX = 8
# If the last batch ends in at least this number of zeros, it was not written completely: a file system may
# extend a file before it writes the data.
_UNWRITTEN_MIN = 16
_CHUNK = 1 << 20
# The smallest message of magic 0 or 1 has 14 bytes after its length field.
_OLD_MESSAGE_MIN = 14


class CompressionType(IntEnum):
    """The compression of a batch's records; the value is the id in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHead(NamedTuple):
    """The header fields of a batch, and the position of the batch in its buffer."""

    position: int
    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the whole batch, head included; the field `length` counts fewer bytes."""
        return LENGTH_END + self.length

    @property
    def end(self) -> int:
        """Return the position after the batch."""
        return self.position + LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        """Return the last offset that the batch covers, even if compaction removed its record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Return the first offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> CompressionType:
        """Return the compression of the records."""
        return CompressionType(self.attributes & COMPRESSION_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """Return whether all records have the broker's timestamp, `max_timestamp_ms`."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Return whether the batch belongs to a transaction: its data, or the marker that ends it."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Return whether the records are control records, which consumers do not receive."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return the time from which compaction may remove tombstones and abort markers; None if not set."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON else None


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
    if rest < HEAD_SIZE:
        return True
    head = BatchHead(position, *HEAD.unpack_from(buf, position))
    if head.size_bytes <= rest or _is_old_message(buf, position):
        return False
    return _implausible(head._replace(length=rest - LENGTH_END), rest, expected) is None


def _read_head(
    buf: Buffer, position: int, expected: int | None, check_crc: bool
) -> BatchHead | CorruptInputError:
    if _is_old_message(buf, position):
        return _wrong_magic(position, buf[position + MAGIC_AT])
    if len(buf) - position < HEAD_SIZE:
        return _wrong(position, f"{HEAD_SIZE} bytes of a head", f"{len(buf) - position}")
    head = BatchHead(position, *HEAD.unpack_from(buf, position))
    wrong = _implausible(head, len(buf) - position, expected)
    if wrong is not None:
        return wrong
    if check_crc:
        computed = crc32c(buf[position + CRC_FROM : head.end])
        if computed != head.crc:
            return _wrong(position + 17, f"CRC-32C {computed:#010x}", f"{head.crc:#010x}")
    return head


def _is_old_message(buf: Buffer, position: int) -> bool:
    """Return whether a complete message of magic 0 or 1 is at `position`."""
    rest = len(buf) - position - LENGTH_END
    if rest < _OLD_MESSAGE_MIN or buf[position + MAGIC_AT] >= MAGIC:
        return False
    return bool(_OLD_MESSAGE_MIN <= _LENGTH.unpack_from(buf, position + 8)[0] <= rest)


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
    if head.magic != MAGIC:
        return _wrong_magic(head.position, head.magic)
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


def _wrong_magic(position: int, magic: int) -> CorruptInputError:
    names = {
        0: "magic 0, Kafka's message format before 0.10",
        1: "magic 1, Kafka's message format before 0.11",
    }
    return UnsupportedFormatError(
        "record batch",
        expected="magic 2",
        found=names.get(magic, f"magic {magic}"),
        at=position + MAGIC_AT,
        hint="let a broker of Kafka 0.11 or later rewrite the topic" if magic in names else None,
    )


def _check_gap(buf: Buffer, head: BatchHead, expected: int | None) -> BatchHead | CorruptInputError:
    """Return `head`, or an error if the batch after it shows that its base offset is wrong.

    The CRC does not cover the base offset, so a gap before the batch may be a damaged base offset.
    """
    if len(buf) - head.end < HEAD_SIZE:
        return head
    follower = BatchHead(head.end, *HEAD.unpack_from(buf, head.end))
    sound = _implausible(follower, len(buf) - head.end, expected) is None
    if sound and follower.base_offset <= head.last_offset:
        return _wrong(head.position, f"a base offset below {follower.base_offset}", f"{head.base_offset}")
    return head


def _search(buf: Buffer, position: int, expected: int | None) -> BatchHead | None:
    """Return the next valid batch after `position`; None if there is none."""
    if len(buf) - position >= HEAD_SIZE:
        length = _LENGTH.unpack_from(buf, position + 8)[0]
        if HEAD_SIZE - LENGTH_END <= length <= len(buf) - position - LENGTH_END:
            head = _read_head(buf, position + LENGTH_END + length, expected, check_crc=True)
            if isinstance(head, BatchHead):
                return head
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


def _is_torn(buf: Buffer, position: int, expected: int | None) -> bool:
    """Return whether the bytes from `position` to the end are the unfinished write of a stopped writer."""
    rest = len(buf) - position
    if _is_old_message(buf, position):
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
