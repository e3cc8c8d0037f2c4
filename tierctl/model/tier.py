"""The contents of a remote tier: files of a segment, indexes, and parsed object keys."""

from dataclasses import dataclass
from enum import Enum, IntFlag
from pathlib import Path

from tierctl.model.ids import Uuid


class IndexType(Enum):
    """The five indexes that are copied with a segment (RemoteStorageManager.IndexType)."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producer-snapshot"
    TRANSACTION = "transaction"
    LEADER_EPOCH = "leader-epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedFile:
    """A file whose bytes were read once: their number, and their CRC-32C."""

    path: Path
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegmentData:
    """The contents of one rolled segment (KIP-405's LogSegmentData): the log's file, and the indexes whole.

    `transaction_index` is None if the segment has none.
    """

    log_segment: HashedFile
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    producer_snapshot_index: bytes
    leader_epoch_index: bytes


class ObjectPart(IntFlag):
    """The part of a segment that an object holds; layout `aiven` has LOG, INDEXES and MANIFEST."""

    LOG = 1
    OFFSET = 2
    TIMESTAMP = 4
    LEADER_EPOCH = 8
    PRODUCER_SNAPSHOT = 16
    TRANSACTION = 32
    INDEXES = 64
    MANIFEST = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentObjectName:
    """The facts in an object's key, in any layout; `stem` is the key without the suffix of the part."""

    topic_id: Uuid
    partition: int
    start_offset: int
    segment_id: Uuid
    part: ObjectPart
    stem: str
