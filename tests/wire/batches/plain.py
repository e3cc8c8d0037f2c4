"""A decoder of records that shares no code with tierctl's: field after field from a stream of bytes."""

from collections.abc import Iterator
from io import BytesIO

from tierctl.wire.batches.batch_head import CompressionType, Record
from tierctl.wire.batches.record_batch import RecordBatch
from tierctl.wire.primitives import RECORD_HEADERS_COMMON, limits


def records(batch: RecordBatch) -> Iterator[Record]:
    """Yield the records of a batch of magic 2; raise ValueError for the first that is none."""
    head = batch.head
    if not head.record_count and head.compression is not CompressionType.NONE:
        # Nobody decompresses a batch that states no records (DefaultRecordBatch.iterator).
        return
    data = BytesIO(batch.uncompressed())
    lowest, headers_left = 0, limits().batch_headers + RECORD_HEADERS_COMMON * head.record_count
    _require(head.record_count >= 0)
    for _ in range(head.record_count):
        body = BytesIO(_exactly(data, _varint(data)))
        _exactly(body, 1)
        delta_ms, delta, key, value, count = (
            _varint(body),
            _varint(body),
            _sized(body),
            _sized(body),
            _varint(body),
        )
        _require(0 <= count <= limits().record_headers)
        headers = []
        for _ in range(count):
            name, content = _sized(body), _sized(body)
            if name is None:
                raise ValueError("a header without a name")
            headers.append((name.decode("utf-8", errors="replace"), content))
        headers_left -= count
        _require(not body.read(1) and lowest <= delta <= head.last_offset_delta and headers_left >= 0)
        time_ms = _wrapped(head.base_timestamp_ms + delta_ms)
        if head.is_log_append_time:
            time_ms = head.max_timestamp_ms
        yield Record(head.base_offset + delta, time_ms, key, value, tuple(headers))
        lowest = delta + 1
    _require(not data.read(1))


def _require(is_right: bool) -> None:
    if not is_right:
        raise ValueError("no record")


def _exactly(data: BytesIO, size: int) -> bytes:
    found = data.read(max(size, 0))
    _require(len(found) == size)
    return found


def _varint(data: BytesIO) -> int:
    raw = shift = 0
    for _ in range(10):
        (byte,) = _exactly(data, 1)
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            raw %= 1 << 64
            return (raw >> 1) ^ -(raw & 1)
    raise ValueError("a varint of more than 10 bytes")


def _sized(data: BytesIO) -> bytes | None:
    size = _varint(data)
    return None if size < 0 else _exactly(data, size)


def _wrapped(number: int) -> int:
    """Return `number` as the JVM stores it in 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
