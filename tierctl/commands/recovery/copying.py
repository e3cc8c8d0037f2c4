"""Check that brokers do not copy segments while a rebuild publishes metadata to a running cluster."""

from collections.abc import Collection

from tierctl.commands.running_cluster import RunningCluster
from tierctl.errors import SafetyRefusal
from tierctl.model.settings import topic

SETTINGS = (
    f"{topic.COPY_DISABLE.name}=true",
    f"{topic.LOCAL_RETENTION_MS.name}=-2",
    f"{topic.LOCAL_RETENTION_BYTES.name}=-2",
)
"""Topic settings that stop brokers from copying segments and from raising the log start (KIP-950)."""


def require_copying_disabled(cluster: RunningCluster, topics: Collection[str]) -> None:
    """Raise SafetyRefusal if brokers copy segments of one of `topics`."""
    configs = cluster.cluster.topic_configs(topics)
    copying = sorted(name for name in topics if not configs[name].is_copy_disabled)
    if copying:
        raise SafetyRefusal(
            f"brokers copy segments of {', '.join(copying)}: while copying is enabled, a leader that does "
            "not know the segments of the tier raises the log start offset, and deletes the segments once "
            "they are published",
            hint=f"set {', '.join(SETTINGS)} on these topics first (Kafka 3.9 and later), and restore the "
            "previous values after the rebuild; with older brokers, stop them and use --metadata file://…",
        )
