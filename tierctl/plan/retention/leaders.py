"""One partition of a running cluster as retention sees it: what its leader says beside the tier's side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tierctl.model import EpochEntry, LocalLog, TopicConfig, TopicIdPartition, Uuid
from tierctl.model.cluster import BrokerFacts, ClusterLog
from tierctl.plan.preconditions import CurrentTopics
from tierctl.plan.retention.partition_view import View
from tierctl.plan.steps import Skip
from tierctl.state.lineage import Lineage
from tierctl.state.tier import PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterViews:
    """A cluster's partitions, by topic id and number; `unseen` says why there is no view of one."""

    topics: CurrentTopics
    views: Mapping[tuple[Uuid, int], View] = field(default_factory=dict)
    unseen: Mapping[tuple[Uuid, int], str] = field(default_factory=dict)

    def why_unseen(self, partition: TopicIdPartition) -> str | None:
        """Why there is no view of a partition; None when there is one."""
        if partition.key in self.views:
            return None
        return self.unseen.get(partition.key, "the cluster was not asked about it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaders:
    """What a cluster says of the topics that logs at hand are replicas of, and of itself.

    `topics` and `configs` are by name; a topic the cluster does not have is in neither.
    """

    topics: CurrentTopics
    configs: Mapping[str, TopicConfig]
    logs: Mapping[tuple[Uuid, int], ClusterLog]
    broker_ids: tuple[int, ...]

    def sources(self, logs: Sequence[LocalLog]) -> tuple[list[LocalLog], tuple[Skip, ...]]:
        """The logs that may be copied from, and why others may not.

        A topic the cluster knows under another id was made anew, and a replica whose epochs parted from the
        leader's holds records that nobody will ever be served. What the cluster does not know at all is
        taken as it is: the data may be another cluster's.
        """
        kept: list[LocalLog] = []
        skipped: list[Skip] = []
        for log in logs:
            reason = self._why_not(log)
            if reason is None:
                kept.append(log)
            else:
                skipped.append(Skip.of(log.topic_id_partition, reason))
        return kept, tuple(skipped)

    def _why_not(self, log: LocalLog) -> str | None:
        partition = log.topic_id_partition
        if partition.topic not in self.topics.ids:
            return None
        reason = self.topics.why_not_current(partition)
        leader = self.logs.get(partition.key)
        if reason is not None or leader is None:
            return reason
        return _why_parted(Lineage(log.leader_epochs), Lineage(leader.leader_epochs), log.log_end_offset)


def _why_parted(replica: Lineage, leader: Lineage, replica_end: int) -> str | None:
    """Why a replica's log is not a beginning of the leader's; None when it is, as far as can be told.

    The leader's lineage begins where its log does; what lies before it is no longer in question.
    """
    first = leader.earliest
    # An epoch without a record yet is no history.
    entries = [entry for entry in replica.entries if entry.start_offset < replica_end]
    for entry in entries:
        known = leader.entry(entry.epoch)
        if known is None and (first is None or entry.epoch > first.epoch):
            return f"the log has leader epoch {entry.epoch}, which its leader does not know"
        if known is not None and known not in (first, entry):
            starts = f"starts at {entry.start_offset} here, at {known.start_offset} on its leader"
            return f"leader epoch {entry.epoch} {starts}"
    following = leader.next_epoch(entries[-1].epoch) if entries else None
    ends = None if following is None else leader.entry(following)
    if ends is not None and replica_end > ends.start_offset:
        where = f"ends at {replica_end} here, at {ends.start_offset} on its leader"
        return f"leader epoch {entries[-1].epoch} {where}"
    return None


def knows_log_start(leader: BrokerFacts | None, config: TopicConfig) -> bool:
    """Whether what the leader calls the log's start is one.

    A broker whose tiering was switched off forgets what a tiered topic has in the tier: it calls the start
    of its local log the log's, until tiering is on again (UnifiedLog.localLogStartOffset; run, 3.9 and 4.3).
    Deleting what lies below would delete the tier.
    """
    return config.remote_storage_enable is not True or (leader is not None and leader.tiers is True)


def joined_lineage(tier: Sequence[EpochEntry], leader: Sequence[EpochEntry]) -> Lineage:
    """The leader's lineage, continued below where its log starts by what the tier knows.

    Where they contradict each other the leader is right: of the tier only epochs up to its first are taken.
    """
    if not leader:
        return Lineage(tier)
    first = leader[0]
    below = [e for e in tier if e.epoch <= first.epoch and e.start_offset < first.start_offset]
    rest = leader[1:] if below and below[-1].epoch == first.epoch else leader
    return Lineage((*below, *rest))


def view_of_leader(
    part: PartitionState,
    log: ClusterLog,
    *,
    tier_entries: Sequence[EpochEntry] | None,
    local_only_bytes: int | None,
) -> View:
    """The partition as its leader has it.

    With `tier_entries`, those of the newest finished segment's leader-epoch index, the leader does not know
    where the log starts (`knows_log_start`): then it starts where they do. `local_only_bytes` is what only
    the leader's log holds, None when that is not known.
    """
    lineage = Lineage(log.leader_epochs)
    start = log.log_start_offset
    if tier_entries is not None:
        lineage = joined_lineage(tier_entries, log.leader_epochs)
        start = min(start, lineage.earliest.start_offset if lineage.earliest else start)
    return View(
        partition=part.topic_id_partition,
        cache=part.cache,
        segments=tuple(part.cache.list_remote_log_segments()),
        lineage=lineage,
        known_log_start_offset=start,
        log_start_offset=start,
        log_end_offset=log.log_end_offset,
        local_only_bytes=local_only_bytes,
    )
