"""Kafka's record batches (magic 2): decodes, checks and encodes single batches; decodes older messages.

    for batch in batches(segment_bytes):
        for record in batch.records():
            ...

`scan` raises at damage; `walk` yields damage as items and continues.
Source: KIP-98; org.apache.kafka.common.record.DefaultRecordBatch.
"""

import struct
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from tierctl.errors import CorruptInputError
from tierctl.wire.batches import batch_head, legacy
from tierctl.wire.batches.batch_head import (
    HEAD,
    HEAD_SIZE,
    MAGIC,
    BatchHead,
    Buffer,
    CompressionType,
    Record,
    compress,
    decode_records,
    decompress,
    emptied_records,
    encode_records,
)
from tierctl.wire.batches.scan import scan
from tierctl.wire.primitives import crc32c

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
                yield from decode_records(self.uncompressed(max_bytes=max_bytes), self.head)
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


def batches(
    buf: Buffer, *, position: int = 0, expected_offset: int | None = None, source: str | None = None
) -> Iterator[RecordBatch]:
    """Yield all batches up to the end or a torn tail; check CRCs and raise CorruptInputError for damage."""
    for head in scan(buf, position=position, expected_offset=expected_offset, source=source):
        yield batch_at(buf, head)


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
    sequence and timestamps stay; the batch then ends at `end_offset` - 1. Raise CorruptInputError for records
    that can't be decoded.
    """
    records = [record for record in batch_at(buf, head).records() if record.offset < end_offset]
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
    data = encode_records(records, base_offset=head.base_offset, base_timestamp_ms=head.base_timestamp_ms)
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
    data = emptied_records(batch_at(buf, head).uncompressed(), head, offsets)
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
