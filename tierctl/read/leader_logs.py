"""Ask a cluster's leaders about partitions: present topic ids, log start offsets and the logs themselves."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tierctl.errors import AuthenticationError, NotFoundError
from tierctl.kafka.cluster import Cluster
from tierctl.model import Selection, TopicConfig, TopicIdPartition, is_legal_topic_name
from tierctl.model.cluster import ClusterLog
from tierctl.plan.fencing import is_known
from tierctl.plan.retention.leaders import knows_log_start


def with_current_topic_ids(selection: Selection, cluster: Cluster | None) -> Selection:
    """Return the selection restricted to the topics that the cluster has under these names now."""
    topics = {} if cluster is None else cluster.topics(selection.topics)
    if topics.keys() < selection.topics:
        return selection
    return replace(selection, topic_ids=frozenset(topic.topic_id for topic in topics.values()))


@dataclass(frozen=True, slots=True)
class LeaderLogs:
    """The leaders' logs by partition, and reasons by partition for logs that are missing.

    A partition is in `leaderless` if it has no leader, and in `start_unknown` if its leader lost the log
    start offset. A partition whose topic id the cluster does not have is in none of the three.
    """

    logs: Mapping[TopicIdPartition, ClusterLog]
    leaderless: Mapping[TopicIdPartition, str]
    start_unknown: Mapping[TopicIdPartition, str]


def reliable_leader_logs(cluster: Cluster, partitions: Collection[TopicIdPartition]) -> LeaderLogs:
    """Return the logs of the leaders that know their log start offset, by one request for all."""
    topics = cluster.topics({p.topic for p in partitions if is_legal_topic_name(p.topic)})
    there = [partition for partition in partitions if is_known(topics, partition)]
    logs, leaderless = leader_logs(cluster, there)
    brokers = {broker.broker_id: broker for broker in cluster.brokers({log.leader for log in logs.values()})}
    configs = {topic: _config(cluster, topic) for topic in {partition.topic for partition in logs}}
    reliable: dict[TopicIdPartition, ClusterLog] = {}
    start_unknown: dict[TopicIdPartition, str] = {}
    for partition, log in logs.items():
        if knows_log_start(brokers.get(log.leader), configs[partition.topic]):
            reliable[partition] = log
        else:
            reason = f"its leader, broker {log.leader}, tiers no more and has lost the log start offset"
            start_unknown[partition] = reason
    return LeaderLogs(reliable, leaderless, start_unknown)


def leader_logs(
    cluster: Cluster, partitions: Sequence[TopicIdPartition]
) -> tuple[dict[TopicIdPartition, ClusterLog], dict[TopicIdPartition, str]]:
    """Return the logs of the partitions' leaders, and the reason for each partition without one."""
    unseen: dict[TopicIdPartition, str] = {}
    try:
        found = cluster.logs(partitions)
    except NotFoundError:
        # One of the partitions was deleted meanwhile: query each partition separately to find which.
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
        # Without the right to read settings, only the log start of a leader that tiers is reliable.
        return TopicConfig(remote_storage_enable=True)


def reliable_leader_log(cluster: Cluster, partition: TopicIdPartition) -> ClusterLog | None:
    """Return the log of a partition's leader; None without one, or if it lost the log start offset."""
    return reliable_leader_logs(cluster, [partition]).logs.get(partition)


def leader_log_start(cluster: Cluster | None, partition: TopicIdPartition) -> int | None:
    """Return the log start offset that consumers of the cluster see; None if it is not known.

    Brokers serve no offsets below it, although the tier may still have them.
    """
    log = None if cluster is None else reliable_leader_log(cluster, partition)
    return None if log is None else log.log_start_offset
