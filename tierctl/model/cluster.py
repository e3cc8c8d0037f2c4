"""A running cluster as data: `kafka.cluster` reads it, `plan` decides from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tierctl.model.ids import TopicIdPartition, TopicPartition, Uuid
from tierctl.model.local import EpochEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """One broker of the cluster.

    `tiers` is remote.log.storage.system.enable; None if it could not be read, with the reason in
    `unreadable`. `task_interval_ms` is remote.log.manager.task.interval.ms; None if the broker has no such
    setting.
    """

    broker_id: int
    host: str
    port: int
    tiers: bool | None
    unreadable: str | None = None
    task_interval_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One partition of a topic; `leader` is None while it has no leader."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic of the cluster, with its partitions by number."""

    topic: str
    topic_id: Uuid
    partitions: tuple[PartitionFacts, ...]
    is_internal: bool

    @property
    def topic_id_partitions(self) -> tuple[TopicIdPartition, ...]:
        """The partitions with topic id and name."""
        return tuple(TopicIdPartition(self.topic_id, self.topic, p.partition) for p in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The offsets that a partition's leader reports.

    By GetOffsetShell's names, `log_start_offset` is earliest, `high_watermark` is latest (exclusive),
    `last_stable_offset` is latest with read_committed, `local_log_start_offset` is earliest-local, and
    `latest_tiered_offset` is latest-tiered (inclusive). The last two are None if the leader reports none:
    nothing is tiered, tiering is off, or the broker is too old.
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    local_log_start_offset: int | None
    latest_tiered_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLog:
    """A partition's log on its leader: what a cluster reports of a LocalLog, without its segments.

    `log_end_offset` is the high watermark, since later records may be on no other replica. `leader_epochs`
    are complete from the log start on. `local_log_bytes` is the size of the leader's segments, None if it
    can't be read; segments below a raised log start count until the broker's next retention check.
    """

    topic_id_partition: TopicIdPartition
    leader: int
    leader_epochs: tuple[EpochEntry, ...]
    log_start_offset: int
    local_log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    latest_tiered_offset: int | None
    local_log_bytes: int | None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition by name."""
        return self.topic_id_partition.topic_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTopic:
    """One topic; `settings` are those that were set for the topic itself, as Kafka prints them."""

    topic: str
    topic_id: Uuid
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTopics:
    """The topics of a cluster by name, at a time; `cluster_id` is None if nobody stated it."""

    topics: Mapping[str, SavedTopic]
    cluster_id: str | None = None
    saved_ms: int | None = None


NOT_COVERED = ("ACLs", "quotas", "users and SCRAM credentials", "delegation tokens", "offsets of groups")
"""Parts of a cluster's state that `backup-config` does not save."""
