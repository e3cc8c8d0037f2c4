"""The state of the whole tier: the result of folding all events of the metadata topic."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tierctl.errors import CorruptInputError
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierctl.state.cache import RemoteLogMetadataCache

# Bounds the memory for a log whose events are mostly invalid.
ANOMALIES_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A metadata record that cannot be used; no deletion is planned from its metadata partition."""

    metadata_partition: int
    metadata_offset: int
    error: CorruptInputError


@dataclass(frozen=True, slots=True)
class MissingEvents:
    """Events of a metadata partition that its retention deleted before they were read.

    Their offsets are [first_offset, end_offset). Without a state directory `first_offset` is 0; otherwise
    earlier events may be known.
    """

    metadata_partition: int
    first_offset: int
    end_offset: int

    def __str__(self) -> str:
        if self.first_offset == 0:
            begins = f"metadata partition {self.metadata_partition} begins at offset {self.end_offset}"
            return f"{begins}: the events before it are gone"
        last = self.end_offset - 1
        return (
            f"the events at offsets {self.first_offset} to {last} of metadata partition "
            f"{self.metadata_partition} are gone"
        )


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A well-formed event that a broker ignores without an error.

    The current state of the segment or partition does not allow the transition, or the event updates a
    segment that does not exist.
    """

    metadata_partition: int
    metadata_offset: int
    topic_id_partition: TopicIdPartition
    event: MetadataEvent


@dataclass(slots=True)
class PartitionState:
    """One user partition: its segments, and the state of its deletion."""

    topic_id_partition: TopicIdPartition
    metadata_partition: int
    cache: RemoteLogMetadataCache
    delete_state: RemotePartitionDeleteState | None = None
    delete_marked_offset: int | None = None
    """Metadata offset of the first DELETE_PARTITION_MARKED of a deletion that is not finished."""
    last_event_offset: int = -1
    lowest_start_offset: int | None = None
    """Lowest start offset of the segments, deleted ones included, that an event added; None without any."""

    def note_start(self, start_offset: int) -> None:
        """Lower `lowest_start_offset` to the start offset of a segment that was added."""
        lowest = self.lowest_start_offset
        self.lowest_start_offset = start_offset if lowest is None else min(lowest, start_offset)

    @property
    def is_to_remove(self) -> bool:
        """Whether the deletion of the partition was marked and is not finished, or left segments."""
        if self.delete_state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            return len(self.cache) > 0
        return self.delete_state is not None


@dataclass(slots=True)
class TierState:
    """The state after all events before `read`, which maps a metadata partition to its next offset.

    User partitions are keyed by (topic id, partition), so a recreated topic is a different one. With
    `keep_deleted`, deleted segments stay readable through `deleted_segments`.
    """

    partitions: dict[tuple[Uuid, int], PartitionState] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    quarantined: list[Quarantined] = field(default_factory=list)
    missing: list[MissingEvents] = field(default_factory=list)
    complete: set[tuple[Uuid, int]] = field(default_factory=set)
    """User partitions whose history is known to be complete although their metadata partition has `missing`
    events; `plan.history` decides that."""
    accepts_missing: bool = False
    """Whether the remaining events decide, as on a broker, for the partitions that are not in `complete`."""
    anomalies: list[Anomaly] = field(default_factory=list)
    """The first ANOMALIES_KEPT of the `anomaly_count` anomalies."""
    anomaly_count: int = 0
    keep_deleted: bool = False

    def note(self, anomaly: Anomaly) -> None:
        """Count an anomaly, and store it unless ANOMALIES_KEPT are stored."""
        self.anomaly_count += 1
        if len(self.anomalies) < ANOMALIES_KEPT:
            self.anomalies.append(anomaly)

    def partition(self, topic_id_partition: TopicIdPartition) -> PartitionState | None:
        """Return the state of one user partition; None if no event names it."""
        return self.partitions.get(topic_id_partition.key)

    def deleted_segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield each deleted segment in its last state; only if `keep_deleted` was set before the fold."""
        for part in self.partitions.values():
            yield from part.cache.list_deleted_segments()

    def is_damaged(self, metadata_partition: int) -> bool:
        """Return whether a record of that metadata partition could not be used."""
        return any(q.metadata_partition == metadata_partition for q in self.quarantined)

    def missing_of(self, metadata_partition: int) -> list[MissingEvents]:
        """Return the missing events of that metadata partition; empty if all, from offset 0 on, were read."""
        return [missing for missing in self.missing if missing.metadata_partition == metadata_partition]

    def is_complete(self, metadata_partition: int) -> bool:
        """Return whether all records of that metadata partition, from offset 0 on, were read and used."""
        return not self.is_damaged(metadata_partition) and not self.missing_of(metadata_partition)

    def add_missing(self, missing: MissingEvents) -> None:
        """Add missing events; no history is known to be complete then, until `plan.history` decides again."""
        self.missing.append(missing)
        self.complete.clear()

    def __iter__(self) -> Iterator[PartitionState]:
        """Yield user partitions by topic name, topic id and number."""
        return iter(
            sorted(
                self.partitions.values(),
                key=lambda p: (
                    p.topic_id_partition.topic,
                    p.topic_id_partition.topic_id,
                    p.topic_id_partition.partition,
                ),
            )
        )
