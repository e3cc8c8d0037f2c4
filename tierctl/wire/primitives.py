"""Kafka's variable-length integers, CRC-32C, kernels that read numbers, and bounds on what input may cost."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import google_crc32c

from tierctl.errors import CorruptInputError
from tierctl.kernel import int64, kernel, plain_kernel, tiny_kernel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Kafka's variable-length integers, and the errors that all readers of bytes raise.
#
# Readers take a buffer and a position and return (value, next position). They compare each length with the
# remaining bytes before they allocate memory. They refuse an integer that is written in more bytes than its
# value needs: Kafka never writes such integers, and encoding the value again would change the bytes.

_MANY = 256
"""More items than that are copied as one slice, and fewer by a loop, which costs less to begin."""
_MAX_UVARINT_BYTES = 5
_MAX_UVARLONG_BYTES = 10


def truncated(what: str, *, needed: int, at: int, remaining: int) -> CorruptInputError:
    """Return the error for `needed` bytes of `what` at position `at` of which only `remaining` exist."""
    plural = "" if needed == 1 else "s"
    return CorruptInputError(
        what, expected=f"{needed} byte{plural}", found=f"{max(remaining, 0)} before the end", at=at
    )


def _read_unsigned(buf: bytes, pos: int, what: str, *, max_bytes: int, max_bits: int) -> tuple[int, int]:
    value = 0
    for count in range(max_bytes):
        at = pos + count
        if at >= len(buf):
            raise truncated(what, needed=1, at=at, remaining=0)
        byte = buf[at]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value >> max_bits:
                break
            if byte == 0 and count:
                raise CorruptInputError(
                    what, expected="the shortest form of the number", found=f"{count + 1} bytes", at=pos
                )
            return value, at + 1
    raise CorruptInputError(what, expected=f"a number of {max_bits} bits", found="a longer one", at=pos)


def read_uvarint(buf: bytes, pos: int, what: str = "number") -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits (ByteUtils.readUnsignedVarint); raise CorruptInputError."""
    if pos < len(buf) and buf[pos] < 0x80:
        return buf[pos], pos + 1
    return _read_unsigned(buf, pos, what, max_bytes=_MAX_UVARINT_BYTES, max_bits=32)


def write_uvarint(value: int) -> bytes:
    """Return `value`, which must not be negative, as an unsigned varint."""
    if 0 <= value < 0x80:
        return bytes((value,))
    if value < 0:
        raise ValueError(f"an unsigned number, found {value}")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varlong(buf: bytes, pos: int, what: str = "number") -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits (ByteUtils.readVarlong); raise CorruptInputError."""
    raw, end = _read_unsigned(buf, pos, what, max_bytes=_MAX_UVARLONG_BYTES, max_bits=64)
    return (raw >> 1) ^ -(raw & 1), end


def write_varlong(value: int) -> bytes:
    """Return a signed 64-bit `value` as a zigzag varint."""
    return write_uvarint((value << 1) ^ (value >> 63))


def take(buf: bytes, pos: int, length: int, what: str) -> tuple[bytes, int]:
    """Read `length` bytes; raise CorruptInputError if fewer remain."""
    end = pos + length
    if end > len(buf):
        raise truncated(what, needed=length, at=pos, remaining=len(buf) - pos)
    return buf[pos:end], end


# Kernels that read numbers from an array of bytes. The caller makes sure that a number of fixed width ends
# before the data.


@tiny_kernel
def int32_at(data: "npt.NDArray[np.uint8]", at: int) -> int:
    """Return the signed number in the 4 bytes at `at`, most significant first."""
    value = int64(data[at]) << 24 | int64(data[at + 1]) << 16 | int64(data[at + 2]) << 8 | int64(data[at + 3])
    return value - 4294967296 if value > 2147483647 else value


@tiny_kernel
def int64_at(data: "npt.NDArray[np.uint8]", at: int) -> int:
    """Return the signed number in the 8 bytes at `at`, most significant first."""
    return int32_at(data, at) << 32 | (int32_at(data, at + 4) & 4294967295)


@kernel
def _copy_many(target: "npt.NDArray[Any]", to: int, source: "npt.NDArray[Any]", at: int, count: int) -> None:
    target[to : to + count] = source[at : at + count]


@plain_kernel
def copy_items(target: "npt.NDArray[Any]", to: int, source: "npt.NDArray[Any]", at: int, count: int) -> None:
    """Copy `count` items from index `at` of `source` on to index `to` of `target`."""
    if count > _MANY:
        _copy_many(target, to, source, at, count)
        return
    for i in range(count):
        target[to + i] = source[at + i]


@plain_kernel
def uvarint_at(data: "npt.NDArray[np.uint8]", at: int, end: int) -> tuple[int, int]:
    """Return the number that `read_uvarint` reads and the position after it; 0 and -1 for its errors."""
    if at < end and data[at] < 128:
        return int64(data[at]), at + 1
    value = 0
    for shift in range(0, 35, 7):
        if at >= end:
            break
        byte = int64(data[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 32 or (byte == 0 and shift > 0):
                break
            return value, at
    return 0, -1


def crc32c(data: bytes) -> int:
    """Return the checksum of `data` as an unsigned 32-bit number."""
    return int(google_crc32c.value(data))


def crc32c_extend(crc: int, data: "bytes | npt.NDArray[np.uint8]") -> int:
    """Return the checksum of the bytes that have checksum `crc`, followed by the bytes of `data`."""
    return int(google_crc32c.extend(crc, data))


# Bounds on what a few bytes of input may cost in memory and time.
#
# What exceeds a bound is reported where it is, and reading goes on after it. All bounds are far above what
# Kafka and its plugins write with settings that work. An operator whose data exceed one multiplies all of
# them by --limit-factor; the bounds in force are those of the process.

PIECE_BYTES = 1 << 20
"""A decompressor is read in pieces of this size, so that its output is counted before it is kept."""

RECORD_HEADERS_COMMON = 64
"""Headers that every record of a batch may have."""

METADATA_RECORD_BYTES = 256
"""The memory that a record of the metadata topic takes besides its bytes."""

LIMIT_FACTOR_MAX = 31
"""The highest factor: with 32, one batch could have 2 GiB, more than Kafka's and Arrow's 32-bit sizes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds, multiplied by `factor`."""

    factor: int = 1

    @property
    def batch_bytes(self) -> int:
        """The decompressed records of one batch; Kafka's message.max.bytes is 1 MiB by default."""
        return self.factor * (64 << 20)

    @property
    def text_bytes(self) -> int:
        """Key, value and headers of one record that is printed; each byte may become six characters."""
        return self.factor * (8 << 20)

    @property
    def record_headers(self) -> int:
        """Headers of one record."""
        return self.factor << 16

    @property
    def batch_headers(self) -> int:
        """Headers of one batch, in addition to RECORD_HEADERS_COMMON for each of its records."""
        return self.factor << 20

    @property
    def wrapped_messages(self) -> int:
        """Messages in one compressed message of the formats 0 and 1; producers wrote up to some thousands."""
        return self.factor << 18

    @property
    def metadata_batch_bytes(self) -> int:
        """The decompressed records of one batch of the metadata topic, which has one event."""
        return self.factor * (16 << 20)

    @property
    def metadata_window_bytes(self) -> int:
        """The decompressed records of the batches in one window of 2 MiB of the metadata topic."""
        return self.factor * (64 << 20)

    @property
    def chunks(self) -> int:
        """Chunks of one log in a manifest of Aiven's plugin, whose chunks have 4 MiB by default."""
        return self.factor << 17

    @property
    def chunk_bytes(self) -> int:
        """One chunk that must be decompressed or decrypted as a whole."""
        return self.factor * (64 << 20)


_in_force = Limits()


def limits() -> Limits:
    """Return the limits of this process."""
    return _in_force


def use_limit_factor(factor: int) -> None:
    """Multiply the limits of this process by `factor`, in place of an earlier factor."""
    global _in_force  # noqa: PLW0603
    _in_force = Limits(factor)


def at_most(count: int, of: str) -> str:
    """Return the text of a limit for errors; `of` is the noun that is counted."""
    return f"at most {count} {of} (--limit-factor raises this limit)"
