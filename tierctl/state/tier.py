"""The folded state of a whole metadata topic."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tierctl.errors import CorruptInputError
from tierctl.model import RemotePartitionDeleteState, TopicIdPartition, Uuid
from tierctl.state.cache import RemoteLogMetadataCache


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A metadata record that could not be used: that metadata partition decides no deletes."""

    metadata_partition: int
    metadata_offset: int
    error: CorruptInputError


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
