"""What a cluster's leaders say, for the commands that hold it against the tier's metadata."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierctl.model import TopicIdPartition, is_legal_topic_name

if TYPE_CHECKING:
    from tierctl.metadata.cluster import Cluster
    from tierctl.plan.verify import KnownTopics
    from tierctl.read.check import PartitionFacts
    from tierctl.state.tier import TierState


def known_topics(cluster: "Cluster", state: "TierState") -> "KnownTopics":
    """Of the names in the metadata, the topic ids that the cluster has."""
    from tierctl.plan.verify import KnownTopics

    names = {part.topic_id_partition.topic for part in state}
    found = cluster.topics({name for name in names if is_legal_topic_name(name)})
    return KnownTopics({name: frozenset({topic.topic_id}) for name, topic in found.items()}, complete=True)


@dataclass(frozen=True, slots=True)
class LeaderFacts(Mapping[TopicIdPartition, "PartitionFacts"]):
    """Facts of partitions, asked for when they are looked up: after the metadata were read, never before.

    A partition without a leader, or one that does not know where the log starts, has none.
    """

    cluster: "Cluster"
    state: "TierState"

    def __getitem__(self, partition: TopicIdPartition) -> "PartitionFacts":
        from tierctl.read.check import facts_of_leader
        from tierctl.read.leaders import believed_log

        part = self.state.partition(partition)
        log = None if part is None else believed_log(self.cluster, partition)
        if part is None or log is None:
            raise KeyError(partition)
        return facts_of_leader(part.cache, log)

    def __iter__(self) -> Iterator[TopicIdPartition]:
        return (part.topic_id_partition for part in self.state)

    def __len__(self) -> int:
        return len(self.state.partitions)
