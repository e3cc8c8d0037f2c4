"""The identity of the cluster to which remote log metadata belong."""

from dataclasses import dataclass

from tierctl.model.ids import Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """The ids of a cluster and of its metadata topic; None for an id that is unknown.

    `cluster_id` is `cluster.id` of meta.properties, which brokers also report. An unknown id is neither equal
    to another id nor different from it.
    """

    cluster_id: str | None
    metadata_topic_id: Uuid | None

    def is_same_as(self, other: "ClusterIdentity") -> bool | None:
        """Return whether both name the same metadata topic of the same cluster.

        Compare the ids that both have; return None if they have none in common.
        """
        pairs = (
            (self.cluster_id, other.cluster_id),
            (self.metadata_topic_id, other.metadata_topic_id),
        )
        known = [mine == others for mine, others in pairs if mine is not None and others is not None]
        return all(known) if known else None

    def __str__(self) -> str:
        cluster, topic = self.cluster_id or "unknown", self.metadata_topic_id or "unknown"
        return f"cluster {cluster}, metadata topic {topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierIdentity:
    """The owner of a remote tier, as tierctl records it in the tier; `layout` names the objects' layout."""

    cluster: ClusterIdentity
    layout: str

    def __str__(self) -> str:
        return f"{self.cluster}, layout {self.layout}"
