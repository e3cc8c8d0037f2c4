"""One batch or message: its head, and its compression."""

import mmap
import struct
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from io import BytesIO
from typing import NamedTuple

import pyarrow as pa

from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.wire.primitives import PIECE_BYTES, limits

# The head of a record batch (magic 2), which also describes a message of magic 0 or 1.
#
# Source: org.apache.kafka.common.record.DefaultRecordBatch; KIP-98.

Buffer = bytes | mmap.mmap
"""The bytes of a segment; a slice of either type is `bytes`."""

HEAD = struct.Struct(">qiibIhiqqqhii")
HEAD_SIZE = HEAD.size
LENGTH_END = 12
LEADER_EPOCH_AT = 12
"""Position of partitionLeaderEpoch in a batch; the CRC does not cover it."""
MAGIC_AT = 16
CRC_AT = 17
CRC_FROM = 21
MAGIC = 2
OFFSET_DELTA_MAX = (1 << 31) - 1
"""The highest distance of an offset from the base offset of its batch, which a field of 32 bits holds."""
MESSAGE_LENGTH_MIN = 14
"""The lowest length of a message of magic 0 or 1."""
_LENGTH = struct.Struct(">i")
_MESSAGE_HEAD_SIZES = (18, 26)
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40


class CompressionType(IntEnum):
    """The compression of a batch's records; the value is the id in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHead(NamedTuple):
    """The header fields of a batch, and the position of the batch in its buffer.

    A message of magic 0 or 1, which may be a wrapper of compressed ones, is a batch without leader epoch and
    producer; magic 0 has no timestamps.
    """

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
    def payload_position(self) -> int:
        """Return the position after the head: of the records, or of a message's key."""
        return self.position + (HEAD_SIZE if self.magic >= MAGIC else _MESSAGE_HEAD_SIZES[self.magic])

    @property
    def has_leader_epoch(self) -> bool:
        """Return whether the batch's format has a leader epoch, which magic 2 introduced."""
        return self.magic >= MAGIC

    @property
    def timestamp_type(self) -> str:
        """Return what the records' timestamps are, in the words of Kafka's consumer."""
        if self.magic == 0:
            return "NoTimestampType"
        return "LogAppendTime" if self.is_log_append_time else "CreateTime"

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


def is_message(buf: Buffer, position: int) -> bool:
    """Return whether an entry with magic 0 or 1 is at `position` whose length ends in the buffer."""
    rest = len(buf) - position - LENGTH_END
    if rest < MESSAGE_LENGTH_MIN or buf[position + MAGIC_AT] >= MAGIC:
        return False
    return bool(MESSAGE_LENGTH_MIN <= _LENGTH.unpack_from(buf, position + 8)[0] <= rest)


Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record; a null key, value or header value is None.

    `timestamp_ms` is the broker's time if the batch has log-append time.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


# Compression of record batches: gzip, snappy (framed as xerial's, or raw), lz4 and zstd frames.
#
# Source: org.apache.kafka.common.compress; xerial snappy-java's SnappyInputStream; the LZ4 frame format.

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10
# Snappy's densest token copies 64 bytes with 3.
_SNAPPY_RATIO_MAX = 22

_LZ4_BLOCK = 64 << 10
# Magic, version 1 with independent blocks of 64 KiB, and the checksum of those two bytes. The library's own
# frames have blocks that depend on each other, which Kafka's reader refuses.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_UNCOMPRESSED = 1 << 31
# Kafka's default (Deflater.DEFAULT_COMPRESSION); pyarrow's is the slowest one.
_GZIP_LEVEL = 6


def decompress(kind: CompressionType, data: bytes, *, max_bytes: int | None = None) -> bytes:
    """Return the decompressed bytes.

    Raise CorruptInputError if `data` is not compressed as `kind` says, and LimitExceeded if it decompresses
    to more than `max_bytes` (default: `Limits.batch_bytes`); memory stays close to that limit.
    """
    return _DECOMPRESSORS[kind](data, limits().batch_bytes if max_bytes is None else max_bytes)


def compress(kind: CompressionType, data: bytes) -> bytes:
    """Return `data` compressed so that all of Kafka's readers accept it."""
    return _COMPRESSORS[kind](data)


def _wrong_data(kind: CompressionType, expected: str, found: str, at: int | None = None) -> CorruptInputError:
    return CorruptInputError(f"{kind.name.lower()} data", expected=expected, found=found, at=at)


def _too_large(kind: CompressionType, max_bytes: int) -> LimitExceeded:
    return LimitExceeded(
        f"{kind.name.lower()} data of one batch becomes more than {max_bytes} bytes",
        hint="the batch is damaged or malicious, or --limit-factor must be raised for this topic",
    )


def _same(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(CompressionType.NONE, max_bytes)
    return data


def _stream(kind: CompressionType, name: str, data: bytes, max_bytes: int) -> bytes:
    if not data:
        raise _wrong_data(kind, f"a complete {name} frame", "nothing", 0)
    out = BytesIO()
    # Not `read`: if the frame is damaged, pyarrow never frees the buffer that it makes for the result.
    piece = memoryview(pa.allocate_buffer(min(PIECE_BYTES, max_bytes + 1)))
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
            while size := stream.readinto(piece):
                out.write(piece[:size])
                if out.tell() > max_bytes:
                    raise _too_large(kind, max_bytes)
    except (OSError, pa.ArrowException) as error:
        raise _wrong_data(kind, f"a complete {name} frame", str(error)) from None
    return out.getvalue()


def _packed(name: str, data: bytes, level: int | None = None) -> bytes:
    return bytes(pa.Codec(name, compression_level=level).compress(data, asbytes=True))


def _lz4(data: bytes) -> bytes:
    codec = pa.Codec("lz4_raw")
    out = [_LZ4_HEADER]
    for at in range(0, len(data), _LZ4_BLOCK):
        block = data[at : at + _LZ4_BLOCK]
        packed = codec.compress(block, asbytes=True)
        small = len(packed) < len(block)
        out.append(struct.pack("<I", len(packed) if small else len(block) | _LZ4_UNCOMPRESSED))
        out.append(packed if small else block)
    return b"".join(out) + struct.pack("<I", 0)


def _unsnappy(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnappy_block(data, max_bytes)
    out = []
    left = max_bytes
    at = 0
    while at < len(data):
        if data.startswith(_XERIAL_MAGIC, at) and at + len(_XERIAL_HEADER) <= len(data):
            at += len(_XERIAL_HEADER)
            continue
        if at + 4 > len(data):
            raise _wrong_data(CompressionType.SNAPPY, "a block's length", f"{len(data) - at} bytes", at)
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < length <= len(data) - at:
            raise _wrong_data(CompressionType.SNAPPY, f"a length up to {len(data) - at}", str(length), at - 4)
        block = _unsnappy_block(data[at : at + length], left)
        left -= len(block)
        at += length
        out.append(block)
    return b"".join(out)


def _unsnappy_block(data: bytes, max_bytes: int) -> bytes:
    length = _snappy_length(data)
    if length > _SNAPPY_RATIO_MAX * len(data):
        raise _wrong_data(
            CompressionType.SNAPPY, f"at most {_SNAPPY_RATIO_MAX * len(data)} bytes", str(length), 0
        )
    if length > max_bytes:
        raise _too_large(CompressionType.SNAPPY, max_bytes)
    if length == 0 and len(data) == 1:
        return b""
    try:
        return bytes(pa.Codec("snappy").decompress(data, decompressed_size=length, asbytes=True))
    except (OSError, pa.ArrowException) as error:
        raise _wrong_data(CompressionType.SNAPPY, "a snappy block", str(error)) from None


def _snappy_length(data: bytes) -> int:
    """Return the decompressed length, a varint at the beginning of a raw snappy block."""
    length = 0
    for index, byte in enumerate(data[:5]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return length
    raise _wrong_data(CompressionType.SNAPPY, "a block's uncompressed length", data[:5].hex() or "nothing", 0)


def _snappy(data: bytes) -> bytes:
    codec = pa.Codec("snappy")
    out = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = codec.compress(data[at : at + _XERIAL_BLOCK], asbytes=True)
        out += [struct.pack(">i", len(block)), block]
    return b"".join(out)


_DECOMPRESSORS: dict[CompressionType, Callable[[bytes, int], bytes]] = {
    CompressionType.NONE: _same,
    CompressionType.GZIP: partial(_stream, CompressionType.GZIP, "gzip"),
    CompressionType.SNAPPY: _unsnappy,
    CompressionType.LZ4: partial(_stream, CompressionType.LZ4, "lz4"),
    CompressionType.ZSTD: partial(_stream, CompressionType.ZSTD, "zstd"),
}

_COMPRESSORS: dict[CompressionType, Callable[[bytes], bytes]] = {
    CompressionType.NONE: lambda data: data,
    CompressionType.GZIP: partial(_packed, "gzip", level=_GZIP_LEVEL),
    CompressionType.SNAPPY: _snappy,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: partial(_packed, "zstd"),
}


# The header of an LZ4 frame, whose checksum clients before Kafka 0.10 computed over the wrong bytes.
#
# Kafka ignores the checksum in messages of magic 0; the library that decompresses does not.
# Source: Lz4BlockInputStream.ignoreFlagDescriptorChecksum; the LZ4 frame format; xxHash's XXH32.

_MAGIC = b"\x04\x22\x4d\x18"
_FLAGS_AT = 4
_CONTENT_SIZE = 0x08
_MASK = 0xFFFFFFFF
_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


def with_right_checksum(frame: bytes) -> bytes:
    """Return `frame` with the checksum of its header computed anew; other bytes are returned as they are."""
    if not frame.startswith(_MAGIC) or len(frame) <= _FLAGS_AT:
        return frame
    end = _FLAGS_AT + (10 if frame[_FLAGS_AT] & _CONTENT_SIZE else 2)
    if len(frame) <= end:
        return frame
    checksum = _xxh32(frame[_FLAGS_AT:end]) >> 8 & 0xFF
    return frame[:end] + bytes([checksum]) + frame[end + 1 :]


def _xxh32(data: bytes) -> int:
    """Return the XXH32, with seed 0, of less than 16 bytes."""
    first, second, third, fourth, fifth = _PRIMES
    found = fifth + len(data)
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        found = _rotated(found + word * third, 17) * fourth
    for byte in data[whole:]:
        found = _rotated(found + byte * fifth, 11) * first
    found &= _MASK
    found = (found ^ found >> 15) * second & _MASK
    found = (found ^ found >> 13) * third & _MASK
    return found ^ found >> 16


def _rotated(number: int, bits: int) -> int:
    number &= _MASK
    return (number << bits | number >> 32 - bits) & _MASK
