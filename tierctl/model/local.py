"""The local log of a user partition, a running cluster, and the contents of a tier as data: `locallog`,
`kafka.cluster` and `storage` read them, `plan` decides from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntFlag
from pathlib import Path
from typing import NamedTuple

from tierctl.errors import CorruptInputError
from tierctl.model.events import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition, Uuid


class EpochEntry(NamedTuple):
    """One line of a leader-epoch checkpoint (LeaderEpochFileCache's EpochEntry)."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSegment:
    """One segment of a local log.

    `next_base_offset` is None for the active segment. `max_timestamp_ms` is the largest record timestamp, or
    without timestamps the modification time of the log file (LogSegment.largestTimestamp).
    """

    base_offset: int
    next_base_offset: int | None
    size_bytes: int
    max_timestamp_ms: int
    log: Path
    offset_index: Path
    time_index: Path
    transaction_index: Path | None
    """None if no transaction was aborted; an empty file counts as none."""
    producer_snapshot: Path | None
    """The producer snapshot at `next_base_offset`, which is copied with the segment."""
    modified_ms: int = 0
    """The modification time of the log file; 0 if it is unknown."""

    @property
    def written_ms(self) -> int:
        """The time of the last write (LogSegment.lastModified); if unknown, the largest timestamp."""
        return self.modified_ms or self.max_timestamp_ms

    def age_from_ms(self, now_ms: int) -> int:
        """Return the largest timestamp; for one after `now_ms`, the time of the last write."""
        return self.max_timestamp_ms if self.max_timestamp_ms <= now_ms else min(self.modified_ms, now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction without an end: its producer, and the time of its first record; None if unknown."""

    producer_id: int
    since_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLog:
    """The log of one replica of a user partition.

    `log_start_offset` from log-start-offset-checkpoint, `high_watermark` from
    replication-offset-checkpoint, `log_end_offset` the next offset to be written,
    `last_stable_offset` the first offset of the oldest open transaction at or below the high watermark.
    """

    topic_id_partition: TopicIdPartition
    directory: Path
    segments: tuple[LocalSegment, ...]
    leader_epochs: tuple[EpochEntry, ...]
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    is_log_start_known: bool = True
    """Whether log-start-offset-checkpoint has the partition; else `log_start_offset` is the local start."""
    is_high_watermark_known: bool = True
    """Whether replication-offset-checkpoint has the partition; else no record above the log start counts."""
    checkpointed_high_watermark: int = 0
    """What replication-offset-checkpoint states: above `log_end_offset` if the log lost its last records."""
    is_log_start_doubtful: bool = False
    """Whether leader-epoch-checkpoint begins below the log start: brokers that raise it cut that file first.

    A follower that is cut below its local log starts there for a moment, until it has the leader's log start
    and epochs. A log start of that moment stays if the broker is killed (UnifiedLog.truncateTo).
    """
    open_transaction: OpenTransaction | None = None
    """The transaction that is open at `last_stable_offset`; None if none is, or its producer is unknown."""
    damaged_end: CorruptInputError | None = field(default=None, compare=False)
    """The damage at `log_end_offset`: a broker that starts cuts the log there. None if the log just ends.

    Without segments, it is a log start above the last batch: a broker deletes all segments of such a log.
    """

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition by name."""
        return self.topic_id_partition.topic_partition

    @property
    def local_log_start_offset(self) -> int:
        """Base offset of the first local segment (KIP-405's local-log-start-offset)."""
        return self.segments[0].base_offset if self.segments else self.log_start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirFacts:
    """The cluster and the topics of a log directory, by its folders' names and partition.metadata files.

    `topic_ids` has a folder's name for each topic id, and `unreadable_topics` one for each topic name of
    which a folder's topic id can't be read; folders that are being deleted or moved (`-delete`, `-stray`,
    `-future`) are included. `cluster_id` is cluster.id of meta.properties, None without that file.
    """

    path: Path
    cluster_id: str | None = None
    topic_ids: Mapping[Uuid, str] = field(default_factory=dict)
    unreadable_topics: Mapping[str, str] = field(default_factory=dict)
    why_unreadable: str | None = None
    """Why the directory can't be read; None if it was read."""

    @property
    def has_partitions(self) -> bool:
        """Whether the directory has a folder of a partition."""
        return bool(self.topic_ids or self.unreadable_topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """One broker of the cluster.

    `tiers` is remote.log.storage.system.enable; None if it could not be read, with the reason in
    `unreadable`. `task_interval_ms` is remote.log.manager.task.interval.ms; None if the broker has no such
    setting.
    """

    broker_id: int
    host: str
    port: int
    tiers: bool | None
    unreadable: str | None = None
    task_interval_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One partition of a topic; `leader` is None while it has no leader."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic of the cluster, with its partitions by number."""

    topic: str
    topic_id: Uuid
    partitions: tuple[PartitionFacts, ...]
    is_internal: bool

    @property
    def topic_id_partitions(self) -> tuple[TopicIdPartition, ...]:
        """The partitions with topic id and name."""
        return tuple(TopicIdPartition(self.topic_id, self.topic, p.partition) for p in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The offsets that a partition's leader reports.

    By GetOffsetShell's names, `log_start_offset` is earliest, `high_watermark` is latest (exclusive),
    `last_stable_offset` is latest with read_committed, `local_log_start_offset` is earliest-local, and
    `latest_tiered_offset` is latest-tiered (inclusive). The last two are None if the leader reports none:
    nothing is tiered, tiering is off, or the broker is too old.
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    local_log_start_offset: int | None
    latest_tiered_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLog:
    """A partition's log on its leader: what a cluster reports of a LocalLog, without its segments.

    `log_end_offset` is the high watermark, since later records may be on no other replica. `leader_epochs`
    are complete from the log start on. `local_log_bytes` is the size of the leader's segments, None if it
    can't be read; segments below a raised log start count until the broker's next retention check.
    """

    topic_id_partition: TopicIdPartition
    leader: int
    leader_epochs: tuple[EpochEntry, ...]
    log_start_offset: int
    local_log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    latest_tiered_offset: int | None
    local_log_bytes: int | None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition by name."""
        return self.topic_id_partition.topic_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTopic:
    """One topic; `settings` are those that were set for the topic itself, as Kafka prints them."""

    topic: str
    topic_id: Uuid
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTopics:
    """The topics of a cluster by name, at a time; `cluster_id` is None if nobody stated it."""

    topics: Mapping[str, SavedTopic]
    cluster_id: str | None = None
    saved_ms: int | None = None


NOT_COVERED = ("ACLs", "quotas", "users and SCRAM credentials", "delegation tokens", "offsets of groups")
"""Parts of a cluster's state that `backup-config` does not save."""


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

    `indexes` has every index; that of transactions is None if the segment has none.
    """

    log_segment: HashedFile
    indexes: Mapping[IndexType, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFiles:
    """The local files of a segment; `indexes` lacks the indexes that the segment does not have.

    A spooled log that is longer than its metadata say is truncated one byte after that size.
    """

    log: Path
    indexes: Mapping[IndexType, Path]

    def index_bytes(self) -> dict[IndexType, bytes | None]:
        """Return the content of every index; None for an index that the segment does not have."""
        return {kind: self.indexes[kind].read_bytes() if kind in self.indexes else None for kind in IndexType}


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

    `modified_ms` is the newest object's; None if the store does not report it. `problem` says why an entry
    with the name of one of the objects, or the folder with all of them, can't be read. `unknown` is the first
    key with the segment's name and a suffix that no layout has: a lacking object may be in it (`.log.zst`).
    """

    partition: TopicIdPartition
    segment_id: Uuid
    start_offset: int
    sizes_bytes: Mapping[int, int]
    """Size of each object by the number of its `ObjectPart`."""
    modified_ms: int | None = None
    problem: str | None = None
    unknown: str | None = None

    @property
    def parts(self) -> ObjectPart:
        """The parts that have an object."""
        return ObjectPart(sum(self.sizes_bytes))


def unknown_segment(listed: ListedSet) -> RemoteLogSegmentMetadata:
    """Return metadata with the names of `listed`, from which keys are made, and no known value."""
    return RemoteLogSegmentMetadata(
        topic=listed.partition.topic,
        topic_id=listed.partition.topic_id,
        partition=listed.partition.partition,
        segment_id=listed.segment_id,
        start_offset=listed.start_offset,
        end_offset=listed.start_offset,
        broker_id=-1,
        max_timestamp_ms=-1,
        event_timestamp_ms=-1 if listed.modified_ms is None else listed.modified_ms,
        segment_leader_epochs=(),
        segment_size_in_bytes=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """What the objects of a segment without a manifest show about the end of its log.

    `offset` is the last offset of the last batch. `is_closed` states that the last batch has the last entry
    of the time index, which a broker writes when it closes a segment, for the largest timestamp: of later
    batches nothing is known, unless their timestamps were lower. `reached_offset` is the highest offset that
    the segment had, as far as its producer snapshot and its leader epochs say, which end where the next
    segment began. `is_idempotent` states that the producer of the last batch is in the snapshot: then the
    snapshot has the producers of later batches, too. `beyond` has the offset of the last entry of each index
    that goes on after the log, by the name of the index: the log was cut, or the index is wrong.
    """

    offset: int
    is_closed: bool = False
    reached_offset: int = -1
    is_idempotent: bool = False
    beyond: tuple[tuple[str, int], ...] = ()


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
    decoded or are wrong, although the log is whole. `stated_end_offset` is the last offset that a set states
    which is incomplete or not understood. `is_sealed` states that the set is encrypted and its key is not
    given: its manifest alone states what it has.
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
    stated_end_offset: int | None = None
    is_sealed: bool = False

    @property
    def shown_end_offset(self) -> int:
        """The last offset that the objects show; the start offset if they show none."""
        if self.segment is not None:
            return self.segment.end_offset
        if self.stated_end_offset is not None:
            return self.stated_end_offset
        return self.listed.start_offset if self.log_end is None else self.log_end.offset
