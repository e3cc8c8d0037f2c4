"""What is copied to a remote tier: KIP-405's LogSegmentData and IndexType."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


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
