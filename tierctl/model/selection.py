"""A choice of user partitions."""

from dataclasses import dataclass

from tierctl.model.ids import TopicIdPartition, Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which user partitions are meant; an empty set does not narrow."""

    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    topic_ids: frozenset[Uuid] = frozenset()

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return self.matches(partition.topic, partition.topic_id, partition.partition)

    def matches(self, topic: str | None, topic_id: str | None, partition: int | None) -> bool:
        """Whether a user partition is meant."""
        return (
            (not self.topics or topic in self.topics)
            and (not self.partitions or partition in self.partitions)
            and (not self.topic_ids or topic_id in self.topic_ids)
        )

    @property
    def narrows(self) -> bool:
        """Whether anything is left out."""
        return bool(self.topics or self.partitions or self.topic_ids)
