"""Compression of record batches: gzip, snappy (framed as xerial's, or raw), lz4 and zstd frames.

Source: org.apache.kafka.common.compress; xerial snappy-java's SnappyInputStream; the LZ4 frame format.
"""

import struct
import zlib
from collections.abc import Callable
from io import BytesIO

import pyarrow as pa

from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.wire.batches.batch_head import CompressionType
from tierctl.wire.primitives import PIECE_BYTES, at_most, limits

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
_GZIP_WINDOW = 31
_GZIP_PIECE_BYTES = 4 << 10


def decompress(kind: CompressionType, data: bytes, *, max_bytes: int | None = None) -> bytes:
    """Return the decompressed bytes.

    Raise CorruptInputError if `data` is not compressed as `kind` says, and LimitExceeded if it decompresses
    to more than `max_bytes` (default: `Limits.batch_bytes`); memory stays close to that limit.
    """
    return _DECOMPRESSORS[kind](data, limits().batch_bytes if max_bytes is None else max_bytes)


def compress(kind: CompressionType, data: bytes) -> bytes:
    """Return `data` compressed so that all of Kafka's readers accept it."""
    return _COMPRESSORS[kind](data)


def _wrong(kind: CompressionType, expected: str, found: str, at: int | None = None) -> CorruptInputError:
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


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    out = BytesIO()
    at = members = 0
    while at < len(data) or not members:
        if members == limits().gzip_members:
            raise _wrong(CompressionType.GZIP, at_most(members, "gzip members"), "more", at)
        at = _gunzip_member(data, at, out, max_bytes)
        members += 1
    return out.getvalue()


def _gunzip_member(data: bytes, start: int, out: BytesIO, max_bytes: int) -> int:
    """Append the member at `start` to `out`; return the position after it.

    The rest of the input that follows a member is copied by zlib, so pieces of input begin small.
    """
    member = zlib.decompressobj(_GZIP_WINDOW)
    at, size = start, _GZIP_PIECE_BYTES
    while not member.eof:
        if at >= len(data):
            raise _wrong(CompressionType.GZIP, "a complete gzip stream", "its end cut off", len(data))
        piece = data[at : at + size]
        wanted = min(PIECE_BYTES, max_bytes - out.tell() + 1)
        try:
            out.write(member.decompress(piece, wanted))
        except zlib.error as error:
            raise _wrong(CompressionType.GZIP, "a gzip stream", str(error), start) from None
        if out.tell() > max_bytes:
            raise _too_large(CompressionType.GZIP, max_bytes)
        at += len(piece) - len(member.unconsumed_tail) - len(member.unused_data)
        size = min(2 * size, PIECE_BYTES)
    return at


def _gzip(data: bytes) -> bytes:
    member = zlib.compressobj(wbits=_GZIP_WINDOW)
    return member.compress(data) + member.flush()


def _stream(kind: CompressionType, name: str, data: bytes, max_bytes: int) -> bytes:
    if not data:
        raise _wrong(kind, f"a complete {name} frame", "nothing", 0)
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
        raise _wrong(kind, f"a complete {name} frame", str(error)) from None
    return out.getvalue()


def _unlz4(data: bytes, max_bytes: int) -> bytes:
    return _stream(CompressionType.LZ4, "lz4", data, max_bytes)


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    return _stream(CompressionType.ZSTD, "zstd", data, max_bytes)


def _zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


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
            raise _wrong(CompressionType.SNAPPY, "a block's length", f"{len(data) - at} bytes", at)
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < length <= len(data) - at:
            raise _wrong(CompressionType.SNAPPY, f"a length up to {len(data) - at}", str(length), at - 4)
        block = _unsnappy_block(data[at : at + length], left)
        left -= len(block)
        at += length
        out.append(block)
    return b"".join(out)


def _unsnappy_block(data: bytes, max_bytes: int) -> bytes:
    length = _snappy_length(data)
    if length > _SNAPPY_RATIO_MAX * len(data):
        raise _wrong(CompressionType.SNAPPY, f"at most {_SNAPPY_RATIO_MAX * len(data)} bytes", str(length), 0)
    if length > max_bytes:
        raise _too_large(CompressionType.SNAPPY, max_bytes)
    if length == 0 and len(data) == 1:
        return b""
    try:
        return bytes(pa.Codec("snappy").decompress(data, decompressed_size=length, asbytes=True))
    except (OSError, pa.ArrowException) as error:
        raise _wrong(CompressionType.SNAPPY, "a snappy block", str(error)) from None


def _snappy_length(data: bytes) -> int:
    """Return the decompressed length, a varint at the beginning of a raw snappy block."""
    length = 0
    for index, byte in enumerate(data[:5]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return length
    raise _wrong(CompressionType.SNAPPY, "a block's uncompressed length", data[:5].hex() or "nothing", 0)


def _snappy(data: bytes) -> bytes:
    codec = pa.Codec("snappy")
    out = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = codec.compress(data[at : at + _XERIAL_BLOCK], asbytes=True)
        out += [struct.pack(">i", len(block)), block]
    return b"".join(out)


_DECOMPRESSORS: dict[CompressionType, Callable[[bytes, int], bytes]] = {
    CompressionType.NONE: _same,
    CompressionType.GZIP: _gunzip,
    CompressionType.SNAPPY: _unsnappy,
    CompressionType.LZ4: _unlz4,
    CompressionType.ZSTD: _unzstd,
}

_COMPRESSORS: dict[CompressionType, Callable[[bytes], bytes]] = {
    CompressionType.NONE: lambda data: data,
    CompressionType.GZIP: _gzip,
    CompressionType.SNAPPY: _snappy,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: _zstd,
}
