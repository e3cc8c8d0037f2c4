"""What is copied to a remote tier: KIP-405's LogSegmentData and IndexType."""

from dataclasses import dataclass
from enum import Enum, IntFlag
from pathlib import Path

from tierctl.model.ids import Uuid


class IndexType(Enum):
    """RemoteStorageManager.IndexType: the five indexes that go along with a segment."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producer-snapshot"
    TRANSACTION = "transaction"
    LEADER_EPOCH = "leader-epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegmentData:
    """KIP-405's LogSegmentData: the files of one rolled segment, and its leader-epoch index as bytes.

    `transaction_index` is None when the segment has none; the rest is always there.
    """

    log_segment: Path
    offset_index: Path
    time_index: Path
    transaction_index: Path | None
    producer_snapshot_index: Path
    leader_epoch_index: bytes


class ObjectPart(IntFlag):
    """Which part of a segment an object of the tier holds: layout `kafka` has one a file, Aiven's three."""

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
    """What the key of an object says, in whichever layout. `stem` is the key without the part's suffix."""

    topic_id: Uuid
    partition: int
    start_offset: int
    segment_id: Uuid
    part: ObjectPart
    stem: str
