"""Kafka's record batches (magic 2): find, check, decode and encode.

    for batch in batches(segment_bytes):
        for record in batch.records():
            ...

`walk` is `scan` for those who go on after damage: it tells bad ranges and torn tails apart, and never raises.
Source: KIP-98; org.apache.kafka.common.record.DefaultRecordBatch.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tierctl.errors import CorruptInputError
from tierctl.wire.batches import heads
from tierctl.wire.batches.compression import DECOMPRESSED_MAX_BYTES, compress, decompress
from tierctl.wire.batches.heads import (
    HEAD,
    HEAD_SIZE,
    BadRange,
    BatchHead,
    Buffer,
    CompressionType,
    Piece,
    TornTail,
    scan,
    walk,
)
from tierctl.wire.batches.records import Header, Record, decode_records, encode_records
from tierctl.wire.crc import crc32c

__all__ = [
    "BadRange",
    "BatchHead",
    "Buffer",
    "CompressionType",
    "ControlRecord",
    "ControlType",
    "Header",
    "Piece",
    "Record",
    "RecordBatch",
    "TornTail",
    "batch_at",
    "batches",
    "control_record",
    "encode_batch",
    "encode_end_transaction_marker",
    "scan",
    "seal",
    "walk",
]

_CONTROL_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    """org.apache.kafka.common.record.ControlRecordType; what is not known is to be ignored."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecord(NamedTuple):
    """What a control record says; only the markers ABORT and COMMIT have a coordinator epoch."""

    type: ControlType
    coordinator_epoch: int | None


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch: its head and its records as they lie in the buffer, still compressed."""

    head: BatchHead
    payload: bytes

    def records(self, *, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> Iterator[Record]:
        """The records, in offset order; a compacted batch may have gaps or none at all.

        Raises CorruptInputError with `at` within the batch (for compressed ones: None), LimitExceeded when
        they decompress to more than `max_bytes`.
        """
        head = self.head
        where = f"the batch at offset {head.base_offset}"
        if head.compression is CompressionType.NONE:
            return _within(decode_records(self.payload, head), where, HEAD_SIZE)
        return _within(self._decompressed(max_bytes), where, None)

    def uncompressed(self, *, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> bytes:
        """The bytes of the records; raises as `records` does, but for naming the batch."""
        if not self.head.attributes & heads.COMPRESSION_MASK or not self.head.record_count:
            return self.payload
        return decompress(self.head.compression, self.payload, max_bytes=max_bytes)

    def _decompressed(self, max_bytes: int) -> Iterator[Record]:
        if self.head.record_count:
            yield from decode_records(self.uncompressed(max_bytes=max_bytes), self.head)


def _within(records: Iterator[Record], where: str, base: int | None) -> Iterator[Record]:
    """The same records; errors name the batch, with a position only if it is one in the batch's bytes."""
    try:
        yield from records
    except CorruptInputError as error:
        if base is None:
            error = CorruptInputError(error.what, expected=error.expected, found=error.found)
        raise error.within(where, base=base or 0) from None


def batches(
    buf: Buffer, *, position: int = 0, expected_offset: int | None = None, source: str | None = None
) -> Iterator[RecordBatch]:
    """Every batch up to the end or a torn tail, CRC checked; CorruptInputError at the first bad one."""
    for head in scan(buf, position=position, expected_offset=expected_offset, source=source):
        yield batch_at(buf, head)


def batch_at(buf: Buffer, head: BatchHead) -> RecordBatch:
    """The batch whose head was found in `buf`."""
    return RecordBatch(head, buf[head.position + HEAD_SIZE : head.end])


def control_record(record: Record) -> ControlRecord:
    """What a record of a control batch says (ControlRecordType, EndTransactionMarker)."""
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
    """Key and value of the control record that ends a transaction."""
    return _CONTROL_KEY.pack(0, kind), _MARKER.pack(0, coordinator_epoch)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    partition_leader_epoch: int = 0,
    compression: CompressionType = CompressionType.NONE,
    producer_id: int = heads.NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    max_timestamp_ms: int | None = None,
    log_append_time: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """One batch as a broker has it on disk.

    The base offset is that of the first record unless compaction took it. `max_timestamp_ms` is the
    broker's time with `log_append_time`, else computed. A batch that compaction emptied needs base offset,
    last offset and max timestamp given. Batches without an idempotent producer keep the -1 defaults.
    """
    first_offset, final_offset = (records[0].offset, records[-1].offset) if records else (0, None)
    base = first_offset if base_offset is None else base_offset
    last = (base if final_offset is None else final_offset) if last_offset is None else last_offset
    base_timestamp_ms = records[0].timestamp_ms if records else heads.NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp_ms = delete_horizon_ms
    if max_timestamp_ms is None:
        max_timestamp_ms = max((record.timestamp_ms for record in records), default=heads.NO_TIMESTAMP)
    attributes = (
        compression
        | log_append_time * heads.LOG_APPEND_TIME
        | transactional * heads.TRANSACTIONAL
        | control * heads.CONTROL
        | (delete_horizon_ms is not None) * heads.DELETE_HORIZON
    )
    data = encode_records(records, base_offset=base, base_timestamp_ms=base_timestamp_ms)
    head = BatchHead(
        position=0,
        base_offset=base,
        length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=heads.MAGIC,
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


def seal(head: BatchHead, payload: bytes) -> bytes:
    """Head and payload as bytes, with the length and CRC they must have."""
    length = HEAD_SIZE - heads.LENGTH_END + len(payload)
    unsealed = HEAD.pack(*head._replace(length=length, crc=0)[1:]) + payload
    crc = crc32c(unsealed[heads.CRC_FROM :])
    return unsealed[:17] + crc.to_bytes(4, "big") + unsealed[heads.CRC_FROM :]
