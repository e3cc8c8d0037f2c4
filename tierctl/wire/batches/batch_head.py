"""The head of a record batch (magic 2), which also describes a message of magic 0 or 1.

Source: org.apache.kafka.common.record.DefaultRecordBatch; KIP-98.
"""

import mmap
import struct
from enum import IntEnum
from typing import NamedTuple

Buffer = bytes | mmap.mmap
"""The bytes of a segment; a slice of either type is `bytes`."""

HEAD = struct.Struct(">qiibIhiqqqhii")
HEAD_SIZE = HEAD.size
LENGTH_END = 12
LEADER_EPOCH_AT = 12
"""Position of partitionLeaderEpoch in a batch; the CRC does not cover it."""
MAGIC_AT = 16
CRC_AT = 17
CRC_FROM = 21
MAGIC = 2
_MESSAGE_HEAD_SIZES = (18, 26)
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40


class CompressionType(IntEnum):
    """The compression of a batch's records; the value is the id in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHead(NamedTuple):
    """The header fields of a batch, and the position of the batch in its buffer.

    A message of magic 0 or 1, which may be a wrapper of compressed ones, is a batch without leader epoch and
    producer; magic 0 has no timestamps.
    """

    position: int
    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the whole batch, head included; the field `length` counts fewer bytes."""
        return LENGTH_END + self.length

    @property
    def end(self) -> int:
        """Return the position after the batch."""
        return self.position + LENGTH_END + self.length

    @property
    def payload_position(self) -> int:
        """Return the position after the head: of the records, or of a message's key."""
        return self.position + (HEAD_SIZE if self.magic >= MAGIC else _MESSAGE_HEAD_SIZES[self.magic])

    @property
    def has_leader_epoch(self) -> bool:
        """Return whether the batch's format has a leader epoch, which magic 2 introduced."""
        return self.magic >= MAGIC

    @property
    def timestamp_type(self) -> str:
        """Return what the records' timestamps are, in the words of Kafka's consumer."""
        if self.magic == 0:
            return "NoTimestampType"
        return "LogAppendTime" if self.is_log_append_time else "CreateTime"

    @property
    def last_offset(self) -> int:
        """Return the last offset that the batch covers, even if compaction removed its record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Return the first offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> CompressionType:
        """Return the compression of the records."""
        return CompressionType(self.attributes & COMPRESSION_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """Return whether all records have the broker's timestamp, `max_timestamp_ms`."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Return whether the batch belongs to a transaction: its data, or the marker that ends it."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Return whether the records are control records, which consumers do not receive."""
        return bool(self.attributes & CONTROL)
