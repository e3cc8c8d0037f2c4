"""The header of an LZ4 frame, whose checksum clients before Kafka 0.10 computed over the wrong bytes.

Kafka ignores the checksum in messages of magic 0; the library that decompresses does not.
Source: Lz4BlockInputStream.ignoreFlagDescriptorChecksum; the LZ4 frame format; xxHash's XXH32.
"""

import struct

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
