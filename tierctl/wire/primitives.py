"""Kafka's variable-length integers, and the errors that all readers of bytes raise.

Readers take a buffer and a position and return (value, next position). They compare each length with the
remaining bytes before they allocate memory. They refuse an integer that is written in more bytes than its
value needs: Kafka never writes such integers, and encoding the value again would change the bytes.
"""

from tierctl.errors import CorruptInputError

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


def shifted(error: CorruptInputError, base: int) -> CorruptInputError:
    """Return `error` with its position increased by `base`, the start of the decoded bytes in their input."""
    at = None if error.at is None else error.at + base
    return type(error)(
        error.what, expected=error.expected, found=error.found, at=at, source=error.source, hint=error.hint
    )
