"""Records from values in a file or a pipe: a line of hex each, or framed by their lengths."""

import struct
from collections.abc import Iterable, Iterator
from io import BufferedIOBase
from typing import NamedTuple

import pyarrow as pa

from tierctl.report.formatters.arriving import arriving_bytes
from tierctl.report.formatters.records import EncodedRecords

_LENGTH = struct.Struct(">i")
_NULL = -1
# Kafka's message.max.bytes is 1 MiB by default; a greater length than this is damage.
_VALUE_BYTES_MAX = 64 << 20


class _Value(NamedTuple):
    value: bytes | None
    error: str | None = None


def from_hex(stream: BufferedIOBase) -> Iterator[EncodedRecords]:
    """Yield the records of a stream with one value in hex per line; offsets count the non-empty lines."""
    return _numbered(_hex_pages(stream))


def _hex_pages(stream: BufferedIOBase) -> Iterator[list[_Value]]:
    rest = b""
    for data in arriving_bytes(stream):
        *lines, rest = (rest + data).split(b"\n")
        yield [_from_hex_line(line) for line in lines if line.strip()]
    yield [_from_hex_line(rest)] if rest.strip() else []


def _from_hex_line(line: bytes) -> _Value:
    try:
        return _Value(bytes.fromhex(line.decode("ascii").strip()))
    except ValueError:
        return _Value(None, f"not a line of hex: {line[:80].strip()!r}")


def from_framed(stream: BufferedIOBase) -> Iterator[EncodedRecords]:
    """Yield the records of a stream of values, each after its 4-byte big-endian length; -1 is a tombstone.

    `kcat -f '%R%s'` writes this format.
    """
    return _numbered(_frame_pages(stream))


def _frame_pages(stream: BufferedIOBase) -> Iterator[list[_Value]]:
    rest = bytearray()
    for data in arriving_bytes(stream):
        rest += data
        page: list[_Value] = []
        at = 0
        while (found := _frame(rest, at)) is not None:
            value, at = found
            page.append(value)
            if value.error is not None:
                # A wrong length hides where the next frame begins, so this is the last line.
                yield page
                return
        del rest[:at]
        yield page
    if rest:
        yield [_torn_frame(bytes(rest))]


def _frame(buf: bytearray, at: int) -> tuple[_Value, int] | None:
    """Return the frame at position `at` and the position of the next; None if `buf` ends within the frame."""
    start = at + _LENGTH.size
    if len(buf) < start:
        return None
    (length,) = _LENGTH.unpack_from(buf, at)
    if length == _NULL:
        return _Value(None), start
    if not 0 <= length <= _VALUE_BYTES_MAX:
        return _Value(None, f"a frame of {length} bytes: expected at most {_VALUE_BYTES_MAX}"), start
    end = start + length
    return (_Value(bytes(buf[start:end])), end) if end <= len(buf) else None


def _torn_frame(rest: bytes) -> _Value:
    if len(rest) < _LENGTH.size:
        return _Value(None, f"torn frame: expected {_LENGTH.size} bytes of length, found {len(rest)}")
    (length,), value = _LENGTH.unpack_from(rest), rest[_LENGTH.size :]
    return _Value(None, f"torn frame: expected {length} bytes, found {len(value)}: {value[:80].hex()}")


def _numbered(pages: Iterable[list[_Value]]) -> Iterator[EncodedRecords]:
    """Yield the values as records of partition 0 with offsets from 0 and no timestamp."""
    start = 0
    for page in pages:
        yield EncodedRecords(
            metadata_partition=0,
            offsets=pa.array(range(start, start + len(page)), pa.int64()),
            timestamps_ms=pa.nulls(len(page), pa.int64()),
            values=pa.array([each.value for each in page], pa.binary()),
            errors={row: each.error for row, each in enumerate(page) if each.error is not None},
        )
        start += len(page)
