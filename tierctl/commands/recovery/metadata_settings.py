"""Check that the metadata topic on a cluster keeps the events that a rebuild publishes to it."""

from tierctl.commands.running_cluster import RunningCluster
from tierctl.errors import NotFoundError, SafetyRefusal, TierctlError
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.base import DEFAULT_METADATA_PARTITIONS
from tierctl.model.conflicts import ConflictKind, metadata_topic_conflicts
from tierctl.model.progress import Progress

_LOSES_EVENTS = {ConflictKind.METADATA_RETENTION, ConflictKind.METADATA_COMPACTED}
_SHOWN_REPLICAS = 1
"""Conflicts about the number of replicas are not examined here."""


def require_lasting_events(cluster: RunningCluster, progress: Progress) -> None:
    """Raise SafetyRefusal if the metadata topic deletes events or refuses them; it is on a cluster.

    If a topic was deleted while brokers ran, their own consumers create it again with the cluster's defaults:
    `num.partitions` partitions and `log.retention.ms`, 1 and 7 days. After that time the published events
    are gone, and brokers raise the log starts. Warn if the topic is on another cluster, which is not asked.
    """
    settings = cluster.cluster.topic_settings([METADATA_TOPIC])[METADATA_TOPIC]
    if isinstance(settings, NotFoundError):
        progress.warn(f"the settings of {METADATA_TOPIC}, which is on another cluster, were not checked")
        return
    if isinstance(settings, TierctlError):
        raise settings
    found = [
        each for each in metadata_topic_conflicts(settings, _SHOWN_REPLICAS) if each.kind in _LOSES_EVENTS
    ]
    if found:
        count = "unknown" if cluster.topic is None else cluster.topic.partition_count
        raise SafetyRefusal(
            f"{METADATA_TOPIC} has {found[0].found} (partitions: {count}): brokers would not keep the "
            "published events. A topic that was created by auto-creation has such settings",
            hint="add partitions to it until it has remote.log.metadata.topic.num.partitions of the brokers "
            f"(default {DEFAULT_METADATA_PARTITIONS}), {found[0].kind.row.fix}, and restart the brokers with "
            "copying disabled",
        )
