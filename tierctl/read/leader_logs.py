"""What a cluster's leaders say of partitions that are read: which topic has a name now, where logs start."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tierctl.errors import AuthenticationError, NotFoundError
from tierctl.kafka.cluster import Cluster
from tierctl.model import Selection, TopicConfig, TopicIdPartition, is_legal_topic_name
from tierctl.model.cluster import ClusterLog
from tierctl.plan.fencing import is_known
from tierctl.plan.retention.leaders import knows_log_start


def with_current_topic_ids(selection: Selection, cluster: Cluster | None) -> Selection:
    """The selection, of several topics with one name only the one that a cluster has now."""
    topics = {} if cluster is None else cluster.topics(selection.topics)
    if topics.keys() < selection.topics:
        return selection
    return replace(selection, topic_ids=frozenset(topic.topic_id for topic in topics.values()))


@dataclass(frozen=True, slots=True)
class LeaderLogs:
    """Logs on partitions' leaders, and why others have none: no leader, or one that forgot its log's start.

    A topic id that the cluster does not know is in none of them.
    """

    logs: Mapping[TopicIdPartition, ClusterLog]
    leaderless: Mapping[TopicIdPartition, str]
    start_unknown: Mapping[TopicIdPartition, str]


def reliable_leader_logs(cluster: Cluster, partitions: Collection[TopicIdPartition]) -> LeaderLogs:
    """What the leaders of these partitions say of their logs, where they know where those start.

    All are asked together.
    """
    topics = cluster.topics({p.topic for p in partitions if is_legal_topic_name(p.topic)})
    there = [partition for partition in partitions if is_known(topics, partition)]
    logs, leaderless = leader_logs(cluster, there)
    brokers = {broker.broker_id: broker for broker in cluster.brokers({log.leader for log in logs.values()})}
    configs = {topic: _config(cluster, topic) for topic in {partition.topic for partition in logs}}
    believed: dict[TopicIdPartition, ClusterLog] = {}
    start_unknown: dict[TopicIdPartition, str] = {}
    for partition, log in logs.items():
        if knows_log_start(brokers.get(log.leader), configs[partition.topic]):
            believed[partition] = log
        else:
            reason = f"its leader, broker {log.leader}, tiers no more and forgot where the log starts"
            start_unknown[partition] = reason
    return LeaderLogs(believed, leaderless, start_unknown)


def leader_logs(
    cluster: Cluster, partitions: Sequence[TopicIdPartition]
) -> tuple[dict[TopicIdPartition, ClusterLog], dict[TopicIdPartition, str]]:
    """The logs on the partitions' leaders, and why others have none."""
    unseen: dict[TopicIdPartition, str] = {}
    try:
        found = cluster.logs(partitions)
    except NotFoundError:
        # One was deleted this moment; the others still count.
        found = []
        for partition in partitions:
            try:
                found += cluster.logs([partition])
            except NotFoundError as e:
                unseen[partition] = e.message
    logs = {log.topic_id_partition: log for log in found}
    for partition in partitions:
        if partition not in logs:
            unseen.setdefault(partition, "it has no leader now")
    return logs, unseen


def _config(cluster: Cluster, topic: str) -> TopicConfig:
    try:
        return cluster.topic_configs([topic])[topic]
    except (AuthenticationError, NotFoundError):
        # Who may only read is not told; then only a leader that tiers can be believed.
        return TopicConfig(remote_storage_enable=True)


def reliable_leader_log(cluster: Cluster, partition: TopicIdPartition) -> ClusterLog | None:
    """The log on a partition's leader; None when there is none, or it does not know where the log starts."""
    return reliable_leader_logs(cluster, [partition]).logs.get(partition)


def leader_log_start(cluster: Cluster | None, partition: TopicIdPartition) -> int | None:
    """Where a partition's log starts for consumers of the cluster; None where it does not know.

    Below it brokers serve nothing, though the tier may still have it.
    """
    log = None if cluster is None else reliable_leader_log(cluster, partition)
    return None if log is None else log.log_start_offset
