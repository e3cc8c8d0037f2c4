"""What must hold of a partition before anything is decided about it; every refusal is a reason to print."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tierctl.model import LocalLog, TopicConfig, TopicIdPartition, Uuid
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


def why_never_tiered(topic: str, configs: Mapping[str, TopicConfig]) -> str | None:
    """Why brokers would keep this topic out of the tier; None when they would not."""
    if topic in INTERNAL_TOPICS:
        return "internal topics are never tiered"
    config = configs.get(topic, TopicConfig())
    if "compact" in config.cleanup_policy:
        return "cleanup.policy has compact: compacted topics can't be tiered"
    if config.remote_storage_enable is False:
        return "remote.storage.enable=false"
    return None


def why_unknown(state: TierState, part: PartitionState) -> str | None:
    """Why what the metadata say of this partition can't be relied on; None when it can."""
    if not state.is_complete(part.metadata_partition):
        return (
            f"metadata partition {part.metadata_partition} has records that could not be understood: "
            "it decides nothing"
        )
    if part.delete_state is not None:
        return f"the partition is being deleted ({part.delete_state})"
    return None


def why_maybe_unheard_of(state: TierState, partition: TopicIdPartition) -> str | None:
    """Why metadata that never speak of a partition don't mean that the tier has nothing of it.

    What could not be understood may have spoken of it, where its metadata partition can't be told or is the
    one with such records.
    """
    bad = {quarantined.metadata_partition for quarantined in state.quarantined}
    count = len(state.read)
    if set(state.read) == set(range(count)) and count:
        bad &= {metadata_partition(partition.topic_id, partition.partition, count)}
    if not bad:
        return None
    return f"metadata partition {min(bad)} has records that could not be understood, maybe of this partition"


def why_behind(part: PartitionState, latest_epoch: int) -> str | None:
    """Why a log whose latest leader epoch is `latest_epoch` is not the leader's; None when it may be.

    Leaders take ever higher epochs: one that the tier knows and the log doesn't was written by a later
    leader, whose history may be another.
    """
    newest = max(part.cache.leader_epochs(), default=-1)
    if newest > latest_epoch:
        return f"the log is behind: its latest leader epoch is {latest_epoch}, the tier knows epoch {newest}"
    return None


@dataclass(frozen=True, slots=True)
class CurrentTopics:
    """Topic ids by name, as the log directories know them, or with `is_complete` as a cluster does."""

    ids: Mapping[str, frozenset[Uuid]]
    is_complete: bool = False

    @classmethod
    def of(cls, logs: Iterable[LocalLog]) -> "CurrentTopics":
        """From the logs of every given directory."""
        ids: dict[str, set[Uuid]] = {}
        for log in logs:
            ids.setdefault(log.topic_id_partition.topic, set()).add(log.topic_id_partition.topic_id)
        return cls({topic: frozenset(found) for topic, found in ids.items()})

    def why_not_current(self, partition: TopicIdPartition) -> str | None:
        """Why this topic id may not be the one the name means now; None when nothing speaks against it."""
        known = self.ids.get(partition.topic, frozenset())
        if self.is_complete:
            return self._why_not_on_cluster(partition, known)
        if len(known) > 1:
            return f"the log directories hold {len(known)} topics of this name ({', '.join(sorted(known))})"
        if known and partition.topic_id not in known:
            return f"the topic was recreated: the log directories know it as {', '.join(known)}"
        return None

    def _why_not_on_cluster(self, partition: TopicIdPartition, known: frozenset[Uuid]) -> str | None:
        if partition.topic_id in known:
            return None
        what = f"knows the name as {', '.join(known)}" if known else "has no topic of this name"
        return f"the cluster {what}: tierctl delete is for topics that are gone"


def newest_replicas(logs: Collection[LocalLog]) -> dict[tuple[Uuid, int], LocalLog]:
    """Of several replicas of a partition the one with the latest leader epoch, then the highest log end."""
    newest: dict[tuple[Uuid, int], LocalLog] = {}
    for log in sorted(logs, key=_recency):
        newest[log.topic_id_partition.key] = log
    return newest


def _recency(log: LocalLog) -> tuple[int, int, str]:
    epoch = log.leader_epochs[-1].epoch if log.leader_epochs else -1
    return (epoch, log.log_end_offset, str(log.directory))
