"""What a cluster's leaders say of partitions that are read: which topic has a name now, where logs start."""

from dataclasses import replace

from tierctl.errors import AuthenticationError
from tierctl.metadata.cluster import Cluster
from tierctl.model import Selection, TopicConfig, TopicIdPartition, is_legal_topic_name
from tierctl.model.cluster import ClusterLog
from tierctl.plan.leader import knows_log_start


def now_called(selection: Selection, cluster: Cluster | None) -> Selection:
    """The selection, of several topics with one name only the one that a cluster has now."""
    topics = {} if cluster is None else cluster.topics(selection.topics)
    if topics.keys() < selection.topics:
        return selection
    return replace(selection, topic_ids=frozenset(topic.topic_id for topic in topics.values()))


def believed_log(cluster: Cluster, partition: TopicIdPartition) -> ClusterLog | None:
    """The log on a partition's leader; None when there is none, or it does not know where the log starts."""
    if not is_legal_topic_name(partition.topic):
        return None
    topic = cluster.topics([partition.topic]).get(partition.topic)
    if topic is None or topic.topic_id != partition.topic_id:
        return None
    brokers = {broker.broker_id: broker for broker in cluster.brokers()}
    try:
        config = cluster.topic_configs([partition.topic])[partition.topic]
    except AuthenticationError:
        # Who may only read is not told; then only a leader that tiers can be believed.
        config = TopicConfig(remote_storage_enable=True)
    logs = cluster.logs([partition])
    return next((log for log in logs if knows_log_start(brokers.get(log.leader), config)), None)


def log_start_on(cluster: Cluster | None, partition: TopicIdPartition) -> int | None:
    """Where a partition's log starts for consumers of the cluster; None where it does not know.

    Below it brokers serve nothing, though the tier may still have it.
    """
    log = None if cluster is None else believed_log(cluster, partition)
    return None if log is None else log.log_start_offset
