"""The scalar codec of the uncompressed records in a batch.

Lengths and deltas are zigzag varints; the attributes byte of a record is unused and written as 0.
Source: org.apache.kafka.common.record.DefaultRecord.
"""

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from tierctl.errors import CorruptInputError
from tierctl.wire.batches.batch_head import BatchHead
from tierctl.wire.primitives import RECORD_HEADERS_COMMON, at_most, limits

Header = tuple[str, bytes | None]

_VARINT_BITS_MAX = 63


class Record(NamedTuple):
    """One record; a null key, value or header value is None.

    `timestamp_ms` is the broker's time if the batch has log-append time.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def decode_records(data: bytes, head: BatchHead) -> Iterator[Record]:
    """Yield the records in `data`, the uncompressed payload of the batch with `head`.

    Raise CorruptInputError, whose `at` is the position in `data`.
    """
    log_append_time_ms = head.max_timestamp_ms if head.is_log_append_time else None
    at = 0
    lowest = 0
    headers_left = headers_max = limits().batch_headers + RECORD_HEADERS_COMMON * head.record_count
    for _ in range(head.record_count):
        try:
            raw, end = _decode_record(data, at)
        except IndexError:
            raise _wrong(at, "a whole record", f"the end of {len(data)} bytes") from None
        timestamp_delta, offset_delta, key, value, headers = raw
        if not lowest <= offset_delta <= head.last_offset_delta:
            raise _wrong(at, f"an offset delta from {lowest} to {head.last_offset_delta}", str(offset_delta))
        headers_left -= len(headers)
        if headers_left < 0:
            raise _wrong(at, at_most(headers_max, "headers in one batch"), "more")
        timestamp_ms = log_append_time_ms
        if timestamp_ms is None:
            timestamp_ms = head.base_timestamp_ms + timestamp_delta
        yield Record(head.base_offset + offset_delta, timestamp_ms, key, value, headers)
        at = end
        lowest = offset_delta + 1
    if at != len(data):
        raise _wrong(at, f"the end after {head.record_count} records", f"{len(data) - at} more bytes")


_Raw = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]


def _decode_record(data: bytes, at: int) -> tuple[_Raw, int]:
    size, start = read_varint(data, at)
    end = start + size
    if size < 0 or end > len(data):
        raise _wrong(at, f"a size up to {len(data) - start}", str(size))
    timestamp_delta, pos = read_varint(data, start + 1)
    offset_delta, pos = read_varint(data, pos)
    key, pos = _read_bytes(data, pos, end)
    value, pos = _read_bytes(data, pos, end)
    count, pos = read_varint(data, pos)
    headers: tuple[Header, ...] = ()
    if count:
        headers, pos = _read_headers(data, pos, end, count)
    if pos != end:
        raise _wrong(at, f"a record of {size} bytes", f"fields of {pos - start}")
    return (timestamp_delta, offset_delta, key, value, headers), end


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the zigzag varint at `at` and the position after it; raise IndexError past the end."""
    byte = data[at]
    at += 1
    raw = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift > _VARINT_BITS_MAX:
            raise _wrong(at, "a varint of at most 10 bytes", "a longer one")
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    return (raw >> 1) ^ -(raw & 1), at


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, start = read_varint(data, at)
    if size < 0:
        return None, start
    stop = start + size
    if stop > end:
        raise _wrong(at, f"a length up to {end - start}", str(size))
    return data[start:stop], stop


def _read_headers(data: bytes, at: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    if not 0 <= count <= (end - at) // 2:
        raise _wrong(at, f"up to {(end - at) // 2} headers", str(count))
    if count > limits().record_headers:
        raise _wrong(at, at_most(limits().record_headers, "headers of one record"), str(count))
    headers: list[Header] = []
    for _ in range(count):
        name, after = _read_bytes(data, at, end)
        value, stop = _read_bytes(data, after, end)
        headers.append((_header_name(name, at), value))
        at = stop
    return tuple(headers), at


def _header_name(name: bytes | None, at: int) -> str:
    if name is None:
        raise _wrong(at, "a header name", "null")
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise _wrong(at, "a header name in UTF-8", repr(name[:200])) from None


def _wrong(at: int, expected: str, found: str) -> CorruptInputError:
    return CorruptInputError("record", expected=expected, found=found, at=at)


def emptied_records(data: bytes, head: BatchHead, offsets: Container[int]) -> bytes:
    """Return `data` with the records at `offsets` without key, value and headers; all others are unchanged.

    `data` is the uncompressed payload of the batch with `head`, which `decode_records` accepts.
    """
    out = bytearray()
    at = 0
    for _ in range(head.record_count):
        (timestamp_delta, offset_delta, *_content), end = _decode_record(data, at)
        if head.base_offset + offset_delta in offsets:
            body = _encode_body(Record(0, 0, None, None), offset_delta, timestamp_delta)
            write_varint(out, len(body))
            out += body
        else:
            out += data[at:end]
        at = end
    return bytes(out)


def encode_records(records: Iterable[Record], *, base_offset: int, base_timestamp_ms: int) -> bytes:
    """Encode records as a batch holds them before compression."""
    out = bytearray()
    for record in records:
        body = _encode_body(record, record.offset - base_offset, record.timestamp_ms - base_timestamp_ms)
        write_varint(out, len(body))
        out += body
    return bytes(out)


def _encode_body(record: Record, offset_delta: int, timestamp_delta: int) -> bytearray:
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name.encode("utf-8"))
        _write_bytes(body, value)
    return body


def write_varint(out: bytearray, value: int) -> None:
    """Append `value` to `out` as a zigzag varint."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
        return
    write_varint(out, len(data))
    out += data
