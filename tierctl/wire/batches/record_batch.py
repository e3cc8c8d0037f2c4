"""Kafka's record batches (magic 2): decodes, checks and encodes single batches; decodes older messages.

    for batch in batches(segment_bytes):
        for record in batch.records():
            ...

`batches` raises at damage; `scan.walk` yields damage as items and continues.
Source: KIP-98; org.apache.kafka.common.record.DefaultRecordBatch.
"""

import struct
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tierctl.errors import CorruptInputError
from tierctl.kernel import int64, plain_kernel
from tierctl.wire.batches import batch_head, legacy
from tierctl.wire.batches.batch_head import (
    HEAD,
    HEAD_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHead,
    Buffer,
    CompressionType,
    Record,
    compress,
    decompress,
)
from tierctl.wire.batches.scan import BadRange, Bytes, Int64s, TornTail, bytes_of, fields_of, walk
from tierctl.wire.primitives import RECORD_HEADERS_COMMON, at_most, crc32c, limits

# The codec of the uncompressed records in a batch.
#
# Lengths and deltas are zigzag varints; the attributes byte of a record is unused and written as 0.
# Source: org.apache.kafka.common.record.DefaultRecord.

OFFSET, TIMESTAMP, KEY, KEY_LENGTH, VALUE, VALUE_LENGTH, HEADERS, HEADER_COUNT, START, WIDTH = range(10)
"""The columns of a record. A key or value has its position, and its length or -1 for null."""

RECORD_BYTES_MIN = 7
_RECORDS_AT_ONCE = 4096
_INT64_MAX = (1 << 63) - 1
_SHIFT_MAX = 62

KIND, _AT, _ALLOWED, _FOUND, PROBLEM_WIDTH = range(5)
"""A problem: its kind, 0 for none, the position of the record, and two numbers."""
_CUT, _SIZE, _VARINT, _LONGER, _SHORTER, _COUNT, _NAME, _DELTA, _HEADERS, _ALL_HEADERS, _REST = range(1, 12)
_PROBLEMS = {
    _CUT: ("a whole record", "the end of {allowed} bytes"),
    _SIZE: ("a size up to {allowed}", "{found}"),
    _VARINT: ("varints of at most 10 bytes", "a longer one"),
    _LONGER: ("a record of {allowed} bytes", "longer fields"),
    _SHORTER: ("a record of {allowed} bytes", "fields of {found}"),
    _COUNT: ("up to {allowed} headers", "{found}"),
    _NAME: ("a header name", "null"),
    _DELTA: ("an offset delta from {allowed} to {last_delta}", "{found}"),
    _REST: ("the end after {allowed} records", "{found} more bytes"),
}
_LIMITED = {_HEADERS: "headers of one record", _ALL_HEADERS: "headers in one batch"}


@plain_kernel
def _read_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return a zigzag varint and the position after it; bits beyond 64 are dropped, as in the JVM.

    The position is -_LONGER if the varint does not end before `end`, -_VARINT if it has more than 10 bytes,
    and `at` if that is negative.
    """
    if at < 0:
        return 0, at
    if at >= end:
        return 0, -_LONGER
    byte = int64(data[at])
    at += 1
    sign, value, shift = byte & 1, (byte & 127) >> 1, 6
    while byte > 127:
        if shift > _SHIFT_MAX:
            return 0, -_VARINT
        if at >= end:
            return 0, -_LONGER
        byte = int64(data[at])
        at += 1
        value |= (byte & (127 if shift < _SHIFT_MAX else 1)) << shift
        shift += 7
    return value ^ -sign, at


@plain_kernel
def _sized(data: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return position and length of bytes that follow their length, -1 for null, and the position after them.

    That is -_LONGER if the bytes do not end before `end`, and negative as by `_read_varint`.
    """
    length, at = _read_varint(data, at, end)
    if at < 0:
        return 0, 0, at
    if length > end - at:
        return 0, 0, -_LONGER
    return at, max(length, -1), at + max(length, 0)


@plain_kernel
def _fail(problem: Int64s, kind: int, at: int, allowed: int, found: int) -> int:
    """Write a problem; return -1."""
    problem[KIND], problem[_AT], problem[_ALLOWED], problem[_FOUND] = kind, at, allowed, found
    return -1


@plain_kernel
def _decode_record(  # noqa: PLR0917
    data: Bytes, at: int, end: int, headers_max: int, rows: Int64s, row: int, problem: Int64s
) -> int:
    """Write the record at `at` to a row, with deltas of offset and timestamp.

    Return the position after it, or -1 after a problem.
    """
    size, start = _read_varint(data, at, end)
    if start < 0:
        return _fail(problem, _VARINT if start == -_VARINT else _CUT, at, end, 0)
    if not 0 <= size <= end - start:
        return _fail(problem, _SIZE, at, end - start, size)
    stop = start + size
    rows[row, START] = at
    rows[row, TIMESTAMP], here = _read_varint(data, start + 1, stop)
    rows[row, OFFSET], here = _read_varint(data, here, stop)
    rows[row, KEY], rows[row, KEY_LENGTH], here = _sized(data, here, stop)
    rows[row, VALUE], rows[row, VALUE_LENGTH], here = _sized(data, here, stop)
    count, here = _read_varint(data, here, stop)
    allowed = min((stop - here) // 2, headers_max)
    if not 0 <= count <= allowed:
        return _fail(problem, _HEADERS if allowed == headers_max else _COUNT, at, allowed, count)
    rows[row, HEADERS], rows[row, HEADER_COUNT] = here, count
    for _ in range(count):
        _, length, here = _sized(data, here, stop)
        if length < 0:
            return _fail(problem, _NAME, at, 0, 0)
        _, _, here = _sized(data, here, stop)
    if here != stop:
        return _fail(problem, -here if here < 0 else _SHORTER, at, size, here - start)
    return here


@plain_kernel
def _wrapped_sum(base: int, delta: int) -> int:
    """Return the sum of an offset or a time and a delta; beyond 64 bits it wraps, as in the JVM."""
    if delta > 0 and base > _INT64_MAX - delta:
        return (base - _INT64_MAX - 1) + (delta - _INT64_MAX - 1)
    if delta < 0 and base < (-_INT64_MAX - delta) - 1:
        return (base + _INT64_MAX + 1) + (delta + _INT64_MAX + 1)
    return base + delta


@plain_kernel
def decode_batch(  # noqa: PLR0917
    data: Bytes,
    at: int,
    end: int,
    fields: npt.NDArray[np.void],
    batch: int,
    record_headers_max: int,
    batch_headers_max: int,
    rows: Int64s,
    first: int,
    problem: Int64s,
) -> int:
    """Decode the records in `data[at:end]` of the batch whose head is `fields[batch]`.

    Write the records to `rows` from row `first` on, and return their number: up to the first one that has a
    problem, which is then written, too. `rows` must have one row more than there are records.
    """
    head = fields[batch]
    records, last_delta = int64(head["record_count"]), int64(head["last_offset_delta"])
    base, created_ms = int64(head["base_offset"]), int64(head["base_timestamp_ms"])
    appended_ms, is_appended = int64(head["max_timestamp_ms"]), int64(head["attributes"]) & LOG_APPEND_TIME
    headers_max = batch_headers_max + RECORD_HEADERS_COMMON * records
    headers, lowest = 0, 0
    problem[KIND] = 0
    for count in range(records):
        row, start = first + count, at
        at = _decode_record(data, start, end, record_headers_max, rows, row, problem)
        if at < 0:
            return count
        delta, delta_ms = int64(rows[row, OFFSET]), int64(rows[row, TIMESTAMP])
        if not lowest <= delta <= last_delta:
            _fail(problem, _DELTA, start, lowest, delta)
            return count
        headers += int64(rows[row, HEADER_COUNT])
        if headers > headers_max:
            _fail(problem, _ALL_HEADERS, start, headers_max, headers)
            return count
        rows[row, OFFSET] = _wrapped_sum(base, delta)
        rows[row, TIMESTAMP] = appended_ms if is_appended else _wrapped_sum(created_ms, delta_ms)
        lowest = delta + 1
    if at != end:
        _fail(problem, _REST, at, records, end - at)
    return records


@plain_kernel
def _find_headers(data: Bytes, rows: Int64s, headers: Int64s) -> None:
    """Write position and length of name and value of each header of records that were decoded."""
    count = 0
    for i in range(len(rows)):
        at = int64(rows[i, HEADERS])
        for _ in range(int64(rows[i, HEADER_COUNT])):
            headers[count, 0], headers[count, 1], at = _sized(data, at, len(data))
            headers[count, 2], headers[count, 3], at = _sized(data, at, len(data))
            count += 1


def header_places(data: Bytes, rows: Int64s) -> Int64s:
    """Return position and length of the name, and of the value, of each header of decoded records."""
    places = np.empty((int(rows[:, HEADER_COUNT].sum()), 4), np.int64)
    _find_headers(data, rows, places)
    return places


def _decoded(data: Bytes, head: BatchHead) -> tuple[Int64s, CorruptInputError | None]:
    """Return the rows of the records up to the first that has a problem, and its error."""
    records_max = max(min(len(data) // RECORD_BYTES_MIN, head.record_count), 0)
    rows, problem = np.empty((records_max + 1, WIDTH), np.int64), np.zeros(PROBLEM_WIDTH, np.int64)
    headers_max = limits().record_headers, limits().batch_headers
    count = decode_batch(data, 0, len(data), fields_of([head]), 0, *headers_max, rows, 0, problem)
    return rows[:count], _error_of(problem, head)


def _error_of(problem: Int64s, head: BatchHead) -> CorruptInputError | None:
    kind, at, allowed, found = problem.tolist()
    if not kind:
        return None
    if kind in _LIMITED:
        expected, shown = at_most(allowed, _LIMITED[kind]), str(found)
    else:
        facts = {"allowed": allowed, "found": found, "last_delta": head.last_offset_delta}
        expected, shown = (text.format(**facts) for text in _PROBLEMS[kind])
    return CorruptInputError("record", expected=expected, found=shown, at=at)


def _decode_records(data: bytes, head: BatchHead) -> Iterator[Record]:
    """Yield the records in `data`, the uncompressed payload of the batch with `head`.

    Raise CorruptInputError, whose `at` is the position in `data`.
    """
    content = bytes_of(data)
    rows, error = _decoded(content, head)
    for at in range(0, len(rows), _RECORDS_AT_ONCE):
        yield from _records_of(data, content, rows[at : at + _RECORDS_AT_ONCE])
    if error is not None:
        raise error


def _records_of(data: bytes, content: Bytes, rows: Int64s) -> Iterator[Record]:
    places = iter(header_places(content, rows).tolist())

    def bytes_at(at: int, length: int) -> bytes | None:
        return None if length < 0 else data[at : at + length]

    for row in rows.tolist():
        headers = []
        for at, length, value_at, value_length in islice(places, row[HEADER_COUNT]):
            # As Kafka's consumers read a name that is not UTF-8 (Utils.utf8).
            name = data[at : at + length].decode("utf-8", errors="replace")
            headers.append((name, bytes_at(value_at, value_length)))
        key, value = bytes_at(row[KEY], row[KEY_LENGTH]), bytes_at(row[VALUE], row[VALUE_LENGTH])
        yield Record(row[OFFSET], row[TIMESTAMP], key, value, tuple(headers))


def _first_records(data: bytes, head: BatchHead, count: int) -> bytes:
    """Return the bytes of the first `count` records in `data`, as `_emptied_records` takes it."""
    rows, _ = _decoded(bytes_of(data), head)
    return data[: rows[count, START]] if count < len(rows) else data


def _emptied_records(data: bytes, head: BatchHead, offsets: Container[int]) -> bytes:
    """Return `data` with the records at `offsets` without key, value and headers; all others are unchanged.

    `data` is the uncompressed payload of the batch with `head`, which `_decode_records` accepts.
    """
    content, out = bytes_of(data), bytearray()
    rows, _ = _decoded(content, head)
    edges = pairwise([*rows[:, START].tolist(), len(data)])
    for offset, (start, end) in zip(rows[:, OFFSET].tolist(), edges, strict=True):
        if offset in offsets:
            _, attributes_at = _read_varint(content, start, end)
            delta_ms, _ = _read_varint(content, attributes_at + 1, end)
            body = _encode_body(Record(0, 0, None, None), offset - head.base_offset, delta_ms)
            write_varint(out, len(body))
            out += body
        else:
            out += data[start:end]
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


_CONTROL_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    """org.apache.kafka.common.record.ControlRecordType; readers must ignore UNKNOWN."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecord(NamedTuple):
    """A decoded control record; only the markers ABORT and COMMIT have a coordinator epoch."""

    type: ControlType
    coordinator_epoch: int | None


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch: its head, and the bytes after it, still compressed (`payload`).

    `plain` has the decompressed bytes of the records after `opened`.
    """

    head: BatchHead
    payload: bytes
    plain: bytes | None = field(default=None, compare=False, repr=False)

    def records(self, *, max_bytes: int | None = None) -> Iterator[Record]:
        """Yield the records in offset order; a compacted batch may have gaps, or no records.

        Raise CorruptInputError, whose `at` is the position in the batch (None if compressed), and
        LimitExceeded if the records decompress to more than `max_bytes` (default: `Limits.batch_bytes`).
        """
        try:
            if self.head.magic < MAGIC:
                yield from legacy.records(self.head, self.payload, max_bytes)
            elif self.head.record_count or self.head.compression is CompressionType.NONE:
                yield from _decode_records(self.uncompressed(max_bytes=max_bytes), self.head)
        except CorruptInputError as error:
            raise self._located(error) from None

    def opened(self, *, max_bytes: int | None = None) -> "RecordBatch":
        """Return the batch, which has magic 2, with its records decompressed; raise as `records`."""
        try:
            return replace(self, plain=self.uncompressed(max_bytes=max_bytes))
        except CorruptInputError as error:
            raise self._located(error) from None

    def uncompressed(self, *, max_bytes: int | None = None) -> bytes:
        """Return the decompressed bytes of the records; raise as `records`, without naming the batch.

        The batch has magic 2.
        """
        if self.plain is not None:
            return self.plain
        if not self.head.attributes & batch_head.COMPRESSION_MASK or not self.head.record_count:
            return self.payload
        return decompress(self.head.compression, self.payload, max_bytes=max_bytes)

    def _located(self, error: CorruptInputError) -> CorruptInputError:
        """Return the error of a record with the batch, and its position in the batch if that is known."""
        base = self.head.payload_position - self.head.position
        if self.head.compression is not CompressionType.NONE:
            error, base = CorruptInputError(error.what, expected=error.expected, found=error.found), 0
        return error.within(f"the batch at offset {self.head.base_offset}", base=base)


def batches(buf: Buffer) -> Iterator[RecordBatch]:
    """Yield all batches up to the end or a torn tail; check CRCs and raise CorruptInputError for damage."""
    for item in walk(buf):
        if isinstance(item, TornTail):
            return
        if isinstance(item, BadRange):
            raise item.error
        yield batch_at(buf, item)


def batch_at(buf: Buffer, head: BatchHead) -> RecordBatch:
    """Return the batch whose header a scan of `buf` found."""
    return RecordBatch(head, buf[head.payload_position : head.end])


def control_record(record: Record) -> ControlRecord:
    """Decode a record of a control batch (ControlRecordType, EndTransactionMarker)."""
    key, value = record.key or b"", record.value or b""
    if len(key) < _CONTROL_KEY.size:
        raise _not_control(record, f"a key of {_CONTROL_KEY.size} bytes", key)
    version, number = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise _not_control(record, "a key version from 0 on", key)
    kind = ControlType(number) if number in ControlType.__members__.values() else ControlType.UNKNOWN
    if kind not in {ControlType.ABORT, ControlType.COMMIT}:
        return ControlRecord(kind, None)
    if len(value) < _MARKER.size:
        raise _not_control(record, f"a value of {_MARKER.size} bytes", value)
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise _not_control(record, "a value version from 0 on", value)
    return ControlRecord(kind, coordinator_epoch)


def _not_control(record: Record, expected: str, found: bytes) -> CorruptInputError:
    return CorruptInputError(
        f"control record at offset {record.offset}", expected=expected, found=repr(found[:16])
    )


def encode_end_transaction_marker(kind: ControlType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Return key and value of the control record that ends a transaction."""
    return _CONTROL_KEY.pack(0, kind), _MARKER.pack(0, coordinator_epoch)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    partition_leader_epoch: int = 0,
    compression: CompressionType = CompressionType.NONE,
    producer_id: int = batch_head.NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    max_timestamp_ms: int | None = None,
    log_append_time: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Encode one batch as a broker stores it.

    `base_offset` is needed only if compaction removed the first record. `max_timestamp_ms` is the broker's
    time with `log_append_time`, otherwise it is computed. A batch without records needs `base_offset`,
    `last_offset` and `max_timestamp_ms`. Batches without an idempotent producer keep the defaults of -1.
    """
    first_offset, final_offset = (records[0].offset, records[-1].offset) if records else (0, None)
    base = first_offset if base_offset is None else base_offset
    last = (base if final_offset is None else final_offset) if last_offset is None else last_offset
    base_timestamp_ms = records[0].timestamp_ms if records else batch_head.NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp_ms = delete_horizon_ms
    if max_timestamp_ms is None:
        max_timestamp_ms = max((record.timestamp_ms for record in records), default=batch_head.NO_TIMESTAMP)
    attributes = (
        compression
        | log_append_time * batch_head.LOG_APPEND_TIME
        | transactional * batch_head.TRANSACTIONAL
        | control * batch_head.CONTROL
        | (delete_horizon_ms is not None) * batch_head.DELETE_HORIZON
    )
    data = encode_records(records, base_offset=base, base_timestamp_ms=base_timestamp_ms)
    head = BatchHead(
        position=0,
        base_offset=base,
        length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=batch_head.MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last - base,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal(head, compress(compression, data) if records else b"")


def encode_abort_marker(
    offset: int,
    timestamp_ms: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
    partition_leader_epoch: int = 0,
) -> bytes:
    """Return the control batch that aborts the open transaction of a producer (EndTransactionMarker)."""
    key, value = encode_end_transaction_marker(ControlType.ABORT, coordinator_epoch)
    return encode_batch(
        [Record(offset, timestamp_ms, key, value)],
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def seal(head: BatchHead, payload: bytes) -> bytes:
    """Return the bytes of a batch: `head` with the computed length and CRC, and `payload`."""
    length = HEAD_SIZE - batch_head.LENGTH_END + len(payload)
    unsealed = HEAD.pack(*head._replace(length=length, crc=0)[1:]) + payload
    crc = crc32c(unsealed[batch_head.CRC_FROM :])
    return unsealed[:17] + crc.to_bytes(4, "big") + unsealed[batch_head.CRC_FROM :]


def batch_before(buf: Buffer, head: BatchHead, end_offset: int) -> bytes:
    """Return the batch with `head` in `buf` without its records from `end_offset` on; empty if none is left.

    `end_offset` is above the batch's base offset and at most its last offset. Compression, producer,
    sequence, timestamps and the bytes of the records stay; the batch then ends at `end_offset` - 1. Raise
    CorruptInputError for records that can't be decoded.
    """
    batch = batch_at(buf, head)
    records = [record for record in batch.records() if record.offset < end_offset]
    if not records:
        return b""
    if head.magic < MAGIC:
        return _as_batch(head, records, end_offset - 1)
    latest_ms = max(record.timestamp_ms for record in records)
    kept = head._replace(
        last_offset_delta=end_offset - 1 - head.base_offset,
        max_timestamp_ms=head.max_timestamp_ms if head.is_log_append_time else latest_ms,
        record_count=len(records),
    )
    data = _first_records(batch.uncompressed(), head, len(records))
    return seal(kept, compress(head.compression, data))


def batch_emptied(buf: Buffer, head: BatchHead, offsets: Container[int]) -> bytes:
    """Return the batch with `head` in `buf`, its records at `offsets` without key, value and headers.

    Every other byte of the records, and every field of the head but for length and CRC, stays; the records
    are compressed anew with the same codec. The batch must have been decoded before. Messages of magic 0 and
    1 become a batch of magic 2.
    """
    if head.magic < MAGIC:
        records = [
            record._replace(key=None, value=None) if record.offset in offsets else record
            for record in batch_at(buf, head).records()
        ]
        return _as_batch(head, records, head.last_offset)
    data = _emptied_records(batch_at(buf, head).uncompressed(), head, offsets)
    return seal(head, compress(head.compression, data))


def _as_batch(head: BatchHead, records: Sequence[Record], last_offset: int) -> bytes:
    """Return the messages of the entry with `head` as a batch of magic 2, the format that brokers write."""
    return encode_batch(
        records,
        base_offset=head.base_offset,
        last_offset=last_offset,
        compression=head.compression,
        log_append_time=head.is_log_append_time,
        max_timestamp_ms=head.max_timestamp_ms if head.is_log_append_time else None,
    )
