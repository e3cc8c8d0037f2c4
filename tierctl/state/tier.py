"""The folded state of a whole metadata topic."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tierctl.errors import CorruptInputError
from tierctl.model import MetadataEvent, RemotePartitionDeleteState, TopicIdPartition, Uuid
from tierctl.state.cache import RemoteLogMetadataCache

# A log full of nonsense must not fill the memory with examples of it.
ANOMALIES_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A metadata record that could not be used: that metadata partition decides no deletes."""

    metadata_partition: int
    metadata_offset: int
    error: CorruptInputError


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A well-formed event that a broker drops in silence: its transition is not allowed from where its
    segment or partition stands, or it updates a segment nobody knows.
    """

    metadata_partition: int
    metadata_offset: int
    topic_id_partition: TopicIdPartition
    event: MetadataEvent


@dataclass(slots=True)
class PartitionState:
    """One user partition: its cache and where its deletion stands."""

    topic_id_partition: TopicIdPartition
    metadata_partition: int
    cache: RemoteLogMetadataCache
    delete_state: RemotePartitionDeleteState | None = None
    delete_marked_offset: int | None = None
    """Metadata offset of the first DELETE_PARTITION_MARKED not yet finished."""
    last_event_offset: int = -1


@dataclass(slots=True)
class TierState:
    """Everything the metadata topic says, as of `read` (next offset by metadata partition).

    User partitions are keyed by (topic id, partition): a recreated topic is another one.
    """

    partitions: dict[tuple[Uuid, int], PartitionState] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    quarantined: list[Quarantined] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    """The first ANOMALIES_KEPT of `anomaly_count`."""
    anomaly_count: int = 0

    def note(self, anomaly: Anomaly) -> None:
        """Count an anomaly, and keep it while there is room."""
        self.anomaly_count += 1
        if len(self.anomalies) < ANOMALIES_KEPT:
            self.anomalies.append(anomaly)

    def partition(self, tip: TopicIdPartition) -> PartitionState | None:
        """The state of one user partition, None when the topic never spoke of it."""
        return self.partitions.get(tip.key)

    def is_complete(self, metadata_partition: int) -> bool:
        """Whether everything in that metadata partition was understood, from offset 0."""
        return all(q.metadata_partition != metadata_partition for q in self.quarantined)

    def __iter__(self) -> Iterator[PartitionState]:
        """User partitions by name, id and number."""
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
