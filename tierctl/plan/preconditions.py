"""Conditions that a partition must meet before a step is planned for it; each function returns the reason."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from tierctl.model import LocalLog, TopicConfig, TopicIdPartition, Uuid
from tierctl.model.cluster import TopicFacts
from tierctl.plan.history import why_history_unknown
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.state.partition_segments import PartitionSegments
from tierctl.state.tier import PartitionState, TierState
from tierctl.wire.metadata.partitioner import metadata_partition

INTERNAL_TOPICS = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)
"""Topics that brokers never tier (UnifiedLog.isRemoteLogEnabled)."""


def why_never_tiered(topic: str, configs: Mapping[str, TopicConfig]) -> Reason | None:
    """Return why brokers never tier this topic; None if they may."""
    if topic in INTERNAL_TOPICS:
        return _not_tiered("internal topics are never tiered")
    config = configs.get(topic, TopicConfig())
    if "compact" in config.cleanup_policy:
        policy = ",".join(sorted(config.cleanup_policy))
        return _not_tiered(
            f"cleanup.policy={policy}: Kafka refuses remote storage for compacted topics (INVALID_CONFIG)"
        )
    if config.remote_storage_enable is False:
        return _not_tiered("remote.storage.enable=false")
    return None


def _not_tiered(detail: str) -> Reason:
    return Reason(ReasonKind.NOT_TIERED, detail=detail)


def why_unknown(state: TierState, part: PartitionState) -> str | None:
    """Return why no step may be planned from the metadata of this partition; None if steps may."""
    reason = why_unreadable(state, part)
    if reason is None and part.delete_state is not None:
        reason = f"the partition is being deleted ({part.delete_state})"
    return reason


def why_unreadable(state: TierState, part: PartitionState) -> str | None:
    """Return why the metadata of this partition, which may be deleted, decide nothing; None if they do."""
    if state.is_damaged(part.metadata_partition):
        return (
            f"metadata partition {part.metadata_partition} has records that could not be understood, so "
            "nothing is decided for it; tierctl verify lists them"
        )
    return why_history_unknown(state, part.topic_id_partition)


def why_maybe_unheard_of(state: TierState, partition: TopicIdPartition) -> str | None:
    """Return why a partition without metadata may have segments in the tier; None if it has none.

    A record that could not be understood and a missing event may be about the partition, if they are in the
    same metadata partition or the number of metadata partitions is unknown.
    """
    bad = {quarantined.metadata_partition for quarantined in state.quarantined}
    count = len(state.read)
    if set(state.read) == set(range(count)) and count:
        bad &= {metadata_partition(partition.topic_id, partition.partition, count)}
    if not bad:
        return why_history_unknown(state, partition)
    return (
        f"metadata partition {min(bad)} has records that could not be understood, perhaps of this partition"
    )


def why_undecided(state: TierState, partition: TopicIdPartition) -> str | None:
    """Return why nothing may be decided about a partition, with or without metadata; None if it may."""
    part = state.partition(partition)
    return why_maybe_unheard_of(state, partition) if part is None else why_unknown(state, part)


def why_behind(segments: PartitionSegments, latest_epoch: int) -> str | None:
    """Return why a log with the latest leader epoch `latest_epoch` is not the leader's; None if it may be.

    Leader epochs only rise: an epoch that only the tier knows belongs to a later leader, whose log may
    differ.
    """
    newest = segments.latest_epoch()
    if newest > latest_epoch:
        return f"the log is behind: its latest leader epoch is {latest_epoch}, the tier knows epoch {newest}"
    return None


@dataclass(frozen=True, slots=True)
class CurrentTopics:
    """The existing topic ids by name: those in the log directories, or, if `is_complete`, on the cluster."""

    ids: Mapping[str, frozenset[Uuid]]
    is_complete: bool = False

    @classmethod
    def of(cls, logs: Iterable[LocalLog]) -> Self:
        """Return the topic ids of these logs, which must be all logs of the given directories."""
        ids: dict[str, set[Uuid]] = {}
        for log in logs:
            ids.setdefault(log.topic_id_partition.topic, set()).add(log.topic_id_partition.topic_id)
        return cls({topic: frozenset(found) for topic, found in ids.items()})

    @classmethod
    def of_cluster(cls, topics: Mapping[str, TopicFacts]) -> Self:
        """Return the topic ids of these topics of a cluster, which are by name."""
        return cls({name: frozenset({each.topic_id}) for name, each in topics.items()}, is_complete=True)

    def why_not_current(self, partition: TopicIdPartition) -> str | None:
        """Return why the partition's topic name now belongs to another topic id; None if it may not."""
        known = self.ids.get(partition.topic, frozenset())
        if self.is_complete:
            return self._why_not_on_cluster(partition, known)
        if len(known) > 1:
            return f"the log directories hold {len(known)} topics of this name ({', '.join(sorted(known))})"
        if known and partition.topic_id not in known:
            found = f"the topic was recreated: the log directories know it as {', '.join(known)}"
            return Reason(ReasonKind.LEAKED, detail=found)
        return None

    def _why_not_on_cluster(self, partition: TopicIdPartition, known: frozenset[Uuid]) -> str | None:
        if partition.topic_id in known:
            return None
        found = f"has this topic under id {', '.join(known)}" if known else "has no topic of this name"
        detail = f"the cluster {found}; tierctl delete removes topics that were deleted"
        return Reason(ReasonKind.LEAKED, detail=detail)


def newest_replicas(logs: Collection[LocalLog]) -> dict[tuple[Uuid, int], LocalLog]:
    """Return each partition's replica with the latest leader epoch, and of these with the highest log end."""
    newest: dict[tuple[Uuid, int], LocalLog] = {}
    for log in sorted(logs, key=_recency):
        newest[log.topic_id_partition.key] = log
    return newest


def _recency(log: LocalLog) -> tuple[int, int, str]:
    epoch = log.leader_epochs[-1].epoch if log.leader_epochs else -1
    return (epoch, log.log_end_offset, str(log.directory))
