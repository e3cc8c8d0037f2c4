"""The contents of a remote tier: files of a segment, indexes, and parsed object keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntFlag
from pathlib import Path

from tierctl.model.events import RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.model.local import EpochEntry


class IndexType(Enum):
    """The five indexes that are copied with a segment (RemoteStorageManager.IndexType)."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producer-snapshot"
    TRANSACTION = "transaction"
    LEADER_EPOCH = "leader-epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedFile:
    """A file that was read once: the number of its bytes, and their CRC-32C."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSet:
    """The objects in a tier that have one segment id: their sizes by part, as a listing showed them.

    `modified_ms` is the newest object's; None if the store does not report it.
    """

    partition: TopicIdPartition
    segment_id: Uuid
    start_offset: int
    sizes_bytes: Mapping[int, int]
    """Size of each object by the number of its `ObjectPart`."""
    modified_ms: int | None = None

    @property
    def parts(self) -> ObjectPart:
        """The parts that have an object."""
        return ObjectPart(sum(self.sizes_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """What the objects of a segment without a manifest show about the end of its log.

    `offset` is the last offset of the last batch. `is_closed` states that the last batch has the last entry
    of the time index, which a broker writes when it closes a segment, for the largest timestamp: of later
    batches nothing is known, unless their timestamps were lower. `reached_offset` is the highest offset that
    the segment had, as far as its producer snapshot and its leader epochs say, which end where the next
    segment began. `is_idempotent` states that the producer of the last batch is in the snapshot: then the
    snapshot has the producers of later batches, too.
    """

    offset: int
    is_closed: bool = False
    reached_offset: int = -1
    is_idempotent: bool = False


LARGEST_OFFSET = (1 << 63) - 1
"""The largest offset: the end of a log of which it is not known where it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSet:
    """The objects of one segment in a tier, and the metadata derived from them.

    `segment` is the metadata derived from the objects, as a broker publishes it; None if the set is
    incomplete, as its own objects prove (`why_incomplete`), or if it is not understood: then
    `why_not_understood` says why it is unknown which records it has, and nothing may be given up for its
    absence. `lacks_rights` states that the store refused to let the objects be read. `lineage` is the content
    of its leader-epoch index: the epochs of the whole log at the time of the copy; None if it can't be read.
    `has_gaps` states that offsets within the log have no record, which only compaction causes. `log_end` is
    None where a manifest or the metadata state the end, and where the log can't be read; a set without
    `segment` has it if another object than its log is missing. `damaged_indexes` names indexes that can't be
    decoded, although the log is whole. `is_sealed` states that the set is encrypted and its key is not given:
    its manifest alone states what it has.
    """

    listed: ListedSet
    segment: RemoteLogSegmentMetadata | None = None
    lineage: tuple[EpochEntry, ...] | None = None
    has_gaps: bool = False
    log_end: LogEnd | None = None
    why_incomplete: str | None = None
    why_not_understood: str | None = None
    lacks_rights: bool = False
    damaged_indexes: tuple[str, ...] = ()
    is_sealed: bool = False

    @property
    def shown_end_offset(self) -> int:
        """The last offset that the objects show; the start offset if they show none."""
        if self.segment is not None:
            return self.segment.end_offset
        return self.listed.start_offset if self.log_end is None else self.log_end.offset
