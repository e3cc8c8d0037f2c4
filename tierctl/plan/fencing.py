"""Whether brokers do this work themselves; then tierctl must not (two writers lose data)."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tierctl.errors import SafetyRefusal
from tierctl.model import TopicIdPartition, Uuid
from tierctl.model.cluster import BrokerFacts, TopicFacts

TASK_INTERVALS = 10
"""For how many intervals of a broker's tasks its last event keeps others out."""

SHOWN_MAX = 5

_WAY_OUT = (
    "let brokers do it, or stop their tiering (remote.log.storage.system.enable=false) and wait; --topic and "
    "--partition narrow to what no broker tiers; --allow-live-brokers goes on all the same"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """What is known of the brokers beside us.

    `topics` are the cluster's by name. `writers` are the broker ids, tierctl's own left out, that wrote to a
    metadata partition within TASK_INTERVALS intervals, with the time of their last event.
    """

    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    brokers: Mapping[int, BrokerFacts] = field(default_factory=dict)
    writers: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    task_interval_ms: int = 30_000

    def why_closed(self, partition: TopicIdPartition, metadata_partition: int | None) -> str | None:
        """Why brokers may be at work on this partition; None when they can't be."""
        return self._why_led(partition) or self._why_written(metadata_partition)

    def _why_led(self, partition: TopicIdPartition) -> str | None:
        if not is_known(self.topics, partition):
            return None
        found = [p for p in self.topics[partition.topic].partitions if p.partition == partition.partition]
        if not found:
            return None
        leader = found[0].leader
        if leader is None:
            return "it has no leader now, and whether the next one tiers is not known"
        broker = self.brokers.get(leader)
        if broker is None:
            return f"broker {leader} leads it and does not say whether it tiers"
        if broker.tiers is None:
            return f"broker {leader} leads it, whose settings can't be read ({broker.unreadable})"
        return f"broker {leader} leads it and tiers" if broker.tiers else None

    def _why_written(self, metadata_partition: int | None) -> str | None:
        if metadata_partition is None:
            return None
        for broker_id, at_ms in sorted(self.writers.get(metadata_partition, {}).items()):
            return (
                f"broker {broker_id} wrote to metadata partition {metadata_partition} at {at_ms}, "
                f"not {TASK_INTERVALS} task intervals ({TASK_INTERVALS * self.task_interval_ms} ms) ago"
            )
        return None

    def check(self, partitions: Mapping[TopicIdPartition, int | None]) -> None:
        """SafetyRefusal when one of `partitions`, with their metadata partitions, may be a broker's."""
        closed = list(self._closed(partitions))
        if closed:
            shown = "; ".join(closed[:SHOWN_MAX])
            more = f"; and {len(closed) - SHOWN_MAX} partitions more" if len(closed) > SHOWN_MAX else ""
            raise SafetyRefusal(f"brokers may do this work themselves: {shown}{more}", hint=_WAY_OUT)

    def check_any_open(self, partitions: Mapping[TopicIdPartition, int | None]) -> None:
        """SafetyRefusal when each of `partitions` may be a broker's: then there is nothing left to do."""
        if all(self.why_closed(partition, number) for partition, number in partitions.items()):
            self.check(partitions)

    def _closed(self, partitions: Mapping[TopicIdPartition, int | None]) -> Iterator[str]:
        for partition, metadata_partition in sorted(partitions.items()):
            reason = self.why_closed(partition, metadata_partition)
            if reason:
                yield f"{partition}: {reason}"


def is_known(topics: Mapping[str, TopicFacts], partition: TopicIdPartition) -> bool:
    """Whether the controller, whose topics these are by name, knows this topic id by its name."""
    topic = topics.get(partition.topic)
    return topic is not None and topic.topic_id == partition.topic_id


def leaders_of(topics: Mapping[str, TopicFacts], partitions: Iterable[TopicIdPartition]) -> frozenset[int]:
    """The brokers that lead some of `partitions`."""
    found = set()
    for partition in partitions:
        if is_known(topics, partition):
            parts = topics[partition.topic].partitions
            found |= {part.leader for part in parts if part.partition == partition.partition}
    return frozenset(leader for leader in found if leader is not None)


def leaked_topic_ids(
    known: Mapping[str, TopicFacts], partitions: Collection[TopicIdPartition]
) -> dict[Uuid, str]:
    """Topic ids, with their names, that the controller does not know: it deleted them, or made the name anew.

    `known` are the topics of these partitions' names that exist, asked for after the metadata were read.
    """
    return {partition.topic_id: partition.topic for partition in partitions if not is_known(known, partition)}
