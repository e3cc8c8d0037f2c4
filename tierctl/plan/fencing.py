"""The fence on writing: refuses work that a running broker may do itself, since two writers can lose data.

Reading a running broker's log directory needs no fence: a rolled segment below the last stable offset does
not change, and a copy compares each file before and after (`apply.copy.log_source`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.errors import SafetyRefusal
from tierctl.model import TopicIdPartition, Uuid
from tierctl.model.cluster import BrokerFacts, TopicFacts
from tierctl.model.times import duration_text, iso_utc

TASK_INTERVALS = 10
"""An event of a broker closes the fence of its metadata partition for this many of its task intervals."""

SHOWN_MAX = 5

_CLUSTER_HINT = (
    "leave the work to the brokers, or stop their tiering (remote.log.storage.system.enable=false) and wait; "
    "or select partitions that no broker tiers with --topic and --partition; --allow-live-brokers "
    "overrides this check"
)

_LOG_DIR_HINT = (
    "name the broker's cluster with --bootstrap-server, so that tierctl can ask whether the broker tiers, or "
    "stop the broker; --allow-live-brokers overrides this check"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """A broker that runs on a log directory, while no cluster is named that says whether the broker tiers."""

    log_dir: Path
    metadata_partitions: Collection[int]
    """Partitions of __remote_log_metadata in the directory."""


def check_running_brokers(brokers: Iterable[RunningBroker]) -> None:
    """Raise SafetyRefusal if one of these brokers may tier, which its log directory shows.

    A broker with remote.log.storage.system.enable=true creates the metadata topic at its start
    (TopicBasedRemoteLogMetadataManager.initializeResources), so partitions of it are the sign of tiering.
    """
    for broker in brokers:
        if broker.metadata_partitions:
            raise SafetyRefusal(
                f"the broker that runs on {broker.log_dir} may tier these partitions itself: the directory "
                f"has {len(broker.metadata_partitions)} partitions of __remote_log_metadata",
                hint=_LOG_DIR_HINT,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The brokers that may work on the same partitions as this run.

    `topics` are the cluster's topics by name. `writers` maps each metadata partition to the brokers, without
    tierctl's own ids, that wrote to it in the last TASK_INTERVALS task intervals, and these to the time of
    their last event.
    """

    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    brokers: Mapping[int, BrokerFacts] = field(default_factory=dict)
    writers: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    task_interval_ms: int = 30_000

    def why_closed(self, partition: TopicIdPartition, metadata_partition: int | None) -> str | None:
        """Return why a broker may work on this partition; None if none can."""
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
                f"broker {broker_id} wrote to metadata partition {metadata_partition} at {iso_utc(at_ms)}, "
                f"not {TASK_INTERVALS} task intervals "
                f"({duration_text(TASK_INTERVALS * self.task_interval_ms)}) ago"
            )
        return None

    def check(self, partitions: Mapping[TopicIdPartition, int | None]) -> None:
        """Raise SafetyRefusal if a broker may work on one of `partitions`, given with metadata partitions."""
        closed = list(self._closed(partitions))
        if closed:
            shown = "; ".join(closed[:SHOWN_MAX])
            more = f"; and {len(closed) - SHOWN_MAX} more partitions" if len(closed) > SHOWN_MAX else ""
            raise SafetyRefusal(f"brokers may do this work themselves: {shown}{more}", hint=_CLUSTER_HINT)

    def check_any_open(self, partitions: Mapping[TopicIdPartition, int | None]) -> None:
        """Raise SafetyRefusal if brokers may work on each of `partitions`, so that no work is left."""
        if all(self.why_closed(partition, number) for partition, number in partitions.items()):
            self.check(partitions)

    def _closed(self, partitions: Mapping[TopicIdPartition, int | None]) -> Iterator[str]:
        for partition, metadata_partition in sorted(partitions.items()):
            reason = self.why_closed(partition, metadata_partition)
            if reason:
                yield f"{partition}: {reason}"


def is_known(topics: Mapping[str, TopicFacts], partition: TopicIdPartition) -> bool:
    """Return whether `topics`, the controller's by name, has the partition's topic id under its name."""
    topic = topics.get(partition.topic)
    return topic is not None and topic.topic_id == partition.topic_id


def leaders_of(topics: Mapping[str, TopicFacts], partitions: Iterable[TopicIdPartition]) -> frozenset[int]:
    """Return the brokers that lead at least one of `partitions`."""
    found = set()
    for partition in partitions:
        if is_known(topics, partition):
            parts = topics[partition.topic].partitions
            found |= {part.leader for part in parts if part.partition == partition.partition}
    return frozenset(leader for leader in found if leader is not None)


def leaked_topic_ids(
    known: Mapping[str, TopicFacts], partitions: Collection[TopicIdPartition]
) -> dict[Uuid, str]:
    """Return the topic ids, with their names, of topics that were deleted, or recreated under the same name.

    `known` are the controller's topics with the names of `partitions`, read after the metadata were read.
    """
    return {partition.topic_id: partition.topic for partition in partitions if not is_known(known, partition)}
