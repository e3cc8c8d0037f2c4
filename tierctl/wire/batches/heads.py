"""Where the record batches of a log segment lie, and what their heads say (magic 2).

Nothing here looks at the records. Bytes that are no good batch are told apart: a tail that was being
written when the writer stopped (`TornTail`), and anything else (`BadRange`), after which the scan goes on
with the next batch that can be proved: later base offset, plausible head, right CRC.

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
"""A segment's bytes; slices of it are `bytes`."""

HEAD = struct.Struct(">qiibIhiqqqhii")
HEAD_SIZE = HEAD.size
LENGTH_END = 12
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
# A search for the next good batch stops checking CRCs after this many times the searched bytes.
_SEARCH_COST_MAX = 8
# A file system may grow a file before it writes the data: a last batch ending in so many zeros is unwritten.
_UNWRITTEN_MIN = 16
_CHUNK = 1 << 20
_OLD_MESSAGE_MIN = 14


class CompressionType(IntEnum):
    """Compression of a batch's records, by the id in its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHead(NamedTuple):
    """A batch's head, and where the batch lies: `size_bytes` (head and records) from `position` on."""

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
        """Bytes of the whole batch; `length` is what the field after the base offset says."""
        return LENGTH_END + self.length

    @property
    def end(self) -> int:
        """The position after the batch."""
        return self.position + LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        """The last offset the batch covers, even when compaction took its record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> CompressionType:
        """How the records are compressed."""
        return CompressionType(self.attributes & COMPRESSION_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record's timestamp is the broker's, `max_timestamp_ms`."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction (its data, or the marker that ends it)."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the records are control records, which consumers never see."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and abort markers of a compacted batch may go, if it says so."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 without an idempotent producer; it wraps as Kafka's."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & _DELTA_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRange:
    """Bytes [position, end) that are no good batch, though good ones may follow.

    `first_offset` is the first offset that may be lost (None: not known), `next_offset` the base offset of
    the good batch at `end` (None: nothing good follows).
    """

    position: int
    end: int
    first_offset: int | None
    next_offset: int | None
    error: CorruptInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class TornTail:
    """Bytes from `position` to the end of an unfinished write: an incomplete batch, or preallocated zeros.

    `next_offset` is the offset to be written next (None: the buffer holds no good batch).
    """

    position: int
    size_bytes: int
    next_offset: int | None


Piece = BatchHead | BadRange | TornTail


def walk(
    buf: Buffer,
    *,
    position: int = 0,
    expected_offset: int | None = None,
    check_crc: bool = True,
) -> Iterator[Piece]:
    """Every batch head from `position` on, and what lies between and after them; never raises.

    `expected_offset` is the lowest offset the first batch may have (a segment's base offset). Offsets
    may have gaps, they never go back.
    """
    size = len(buf)
    expected = expected_offset
    while position < size:
        piece = judge(buf, position, expected, check_crc=check_crc)
        yield piece
        if isinstance(piece, TornTail):
            return
        if isinstance(piece, BatchHead):
            expected = piece.next_offset
        position = piece.end


def scan(
    buf: Buffer,
    *,
    position: int = 0,
    expected_offset: int | None = None,
    check_crc: bool = True,
    source: str | None = None,
) -> Iterator[BatchHead]:
    """The batch heads up to the end or a torn tail; CorruptInputError at the first bad range."""
    for piece in walk(buf, position=position, expected_offset=expected_offset, check_crc=check_crc):
        if isinstance(piece, TornTail):
            return
        if isinstance(piece, BadRange):
            raise piece.error.within(source) if source else piece.error
        yield piece


def judge(buf: Buffer, position: int, expected: int | None, *, check_crc: bool = True) -> Piece:
    """What lies at `position`: a good batch, a bad range up to the next good one, or a torn tail."""
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
    """Whether a complete message of magic 0 or 1 lies here; the smallest has 14 bytes after its length."""
    rest = len(buf) - position - LENGTH_END
    if rest < _OLD_MESSAGE_MIN or buf[position + MAGIC_AT] >= MAGIC:
        return False
    return bool(_OLD_MESSAGE_MIN <= _LENGTH.unpack_from(buf, position + 8)[0] <= rest)


def _implausible(head: BatchHead, available: int, expected: int | None) -> CorruptInputError | None:
    """The first field that can't be right, in the order that tells an operator most."""
    lowest = expected or 0
    codec = head.attributes & COMPRESSION_MASK
    # Every record has its own offset, so there can't be more of them than the batch covers.
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
    """A base offset is not covered by the CRC: after a gap, the next batch tells whether it can be right."""
    if len(buf) - head.end < HEAD_SIZE:
        return head
    follower = BatchHead(head.end, *HEAD.unpack_from(buf, head.end))
    sound = _implausible(follower, len(buf) - head.end, expected) is None
    if sound and follower.base_offset <= head.last_offset:
        return _wrong(head.position, f"a base offset below {follower.base_offset}", f"{head.base_offset}")
    return head


def _search(buf: Buffer, position: int, expected: int | None) -> BatchHead | None:
    """The next provable batch after `position`."""
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
    """Whether the bytes to the end are what a stopped writer leaves behind."""
    rest = len(buf) - position
    if _is_old_message(buf, position):
        return False
    if rest < HEAD_SIZE:
        return True
    head = BatchHead(position, *HEAD.unpack_from(buf, position))
    if head.size_bytes > rest:
        head = head._replace(length=rest - LENGTH_END)
        return _implausible(head, rest, expected) is None
    unwritten = head.size_bytes == rest and _implausible(head, rest, expected) is None
    return _is_zero(buf, len(buf) - _UNWRITTEN_MIN if unwritten else position)


def _is_zero(buf: Buffer, position: int) -> bool:
    chunks = (buf[at : at + _CHUNK] for at in range(position, len(buf), _CHUNK))
    return all(chunk.count(0) == len(chunk) for chunk in chunks)
