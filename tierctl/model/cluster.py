"""A running cluster as facts; `metadata.cluster` asks for them, `plan` decides from them."""

from dataclasses import dataclass

from tierctl.model.ids import TopicIdPartition, TopicPartition, Uuid
from tierctl.model.local import EpochEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """One broker. `tiers` is remote.log.storage.system.enable; None when `unreadable`, which says why.

    `task_interval_ms` is remote.log.manager.task.interval.ms; None where the broker has no such setting.
    """

    broker_id: int
    host: str
    port: int
    tiers: bool | None
    unreadable: str | None = None
    task_interval_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One partition; `leader` is None while it has none."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic, as the controller knows it; partitions by number."""

    topic: str
    topic_id: Uuid
    partitions: tuple[PartitionFacts, ...]
    is_internal: bool

    @property
    def topic_id_partitions(self) -> tuple[TopicIdPartition, ...]:
        """The partitions with their ids."""
        return tuple(TopicIdPartition(self.topic_id, self.topic, p.partition) for p in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """A partition's offsets as its leader answers them, by GetOffsetShell's names.

    `log_start_offset` is earliest; `high_watermark` latest, the offset after the last that can be read;
    `last_stable_offset` the same for read_committed. `local_log_start_offset` is earliest-local and
    `latest_tiered_offset` the highest offset in the tier: None where the broker has no answer, because
    nothing is tiered, tiering is off, or it is too old to be asked.
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    local_log_start_offset: int | None
    latest_tiered_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLog:
    """A partition's log on its leader: the facts of a LocalLog that a cluster tells.

    Which segments there are it doesn't tell. `log_end_offset` is the high watermark: what lies above it may
    be on no other replica yet. `leader_epochs` are complete from the log start on. `local_log_bytes` is how
    large the leader's segments are, None when that can't be read; segments below a log start that was raised
    count until the broker's next retention check.
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
