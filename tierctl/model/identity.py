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
