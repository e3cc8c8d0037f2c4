"""The cluster that tierctl queries: the methods of `tierctl.kafka.cluster.Cluster` over the model logs."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tierctl.errors import MetadataError, NotFoundError, UsageError
from tierctl.model import EpochEntry, TopicConfig, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.local import BrokerFacts, ClusterLog, PartitionFacts, PartitionOffsets, TopicFacts
from tierctl.model.settings.scopes import LATEST, KafkaVersion

from tests.simulation.log import ModelLog
from tests.simulation.store import Environment

BROKERS = (1, 2)
TASK_INTERVAL_MS = 30_000
CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"


@dataclass(slots=True)
class ModelCluster:
    """Implement the calls of `Cluster` that commands use.

    `partitions` has the logs of existing topics. A broker that does not tier reports the local log start of
    a topic with remote.storage.enable=true as its log start, as Kafka does.
    """

    world: Environment
    partitions: Mapping[tuple[Uuid, int], ModelLog]
    configs: Mapping[str, TopicConfig]
    raise_log_start: Callable[[ModelLog, int], None]
    leader: int = BROKERS[0]
    tiers: bool = False

    def _step(self, name: str) -> None:
        self.world.step(name)
        if self.world.fault("failed"):
            raise MetadataError(f"{name}: no broker answers in time")

    def close(self) -> None:
        """Do nothing."""

    def cluster_id(self) -> str:
        return CLUSTER_ID

    def kafka_version(self) -> KafkaVersion:
        return LATEST

    def broker_ids(self) -> tuple[int, ...]:
        self._step("broker ids")
        return BROKERS

    def brokers(self, ids: Collection[int] | None = None) -> tuple[BrokerFacts, ...]:
        self._step("brokers")
        return tuple(
            BrokerFacts(
                broker_id=number,
                host="broker",
                port=9092,
                tiers=self.tiers,
                task_interval_ms=TASK_INTERVAL_MS,
            )
            for number in BROKERS
            if ids is None or number in ids
        )

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicFacts]:
        self._step("topics")
        found: dict[str, list[ModelLog]] = {}
        for log in self.partitions.values():
            if names is None or log.partition.topic in names:
                found.setdefault(log.partition.topic, []).append(log)
        return {name: self._topic(logs) for name, logs in found.items()}

    def _topic(self, logs: Sequence[ModelLog]) -> TopicFacts:
        return TopicFacts(
            topic=logs[0].partition.topic,
            topic_id=logs[0].partition.topic_id,
            partitions=tuple(
                PartitionFacts(
                    partition=log.partition.partition, leader=self.leader, replicas=BROKERS, in_sync=BROKERS
                )
                for log in sorted(logs, key=lambda log: log.partition.partition)
            ),
            is_internal=False,
        )

    def topic_configs(self, names: Iterable[str]) -> dict[str, TopicConfig]:
        self._step("topic configs")
        existing = {log.partition.topic for log in self.partitions.values()}
        missing = sorted(set(names) - existing)
        if missing:
            raise NotFoundError(f"no topic {missing[0]}")
        return {name: self.configs[name] for name in names}

    @property
    def leaders(self) -> Self:
        return self

    def controller_clock(self) -> tuple[int, int]:
        self._step("controller clock")
        return self.leader, self.world.clock_ms

    def unknown_topic_ids(self, topic_ids: Collection[Uuid], *, by_any: bool = False) -> frozenset[Uuid]:
        del by_any
        self._step("unknown topic ids")
        return frozenset(topic_ids) - {topic_id for topic_id, _ in self.partitions}

    def leader_epochs(self, partition: TopicPartition) -> tuple[EpochEntry, ...]:
        self._step("leader epochs")
        return self._epochs(self._by_name(partition))

    def _epochs(self, log: ModelLog) -> tuple[EpochEntry, ...]:
        """Return the epochs from the reported log start on, the first one raised to it."""
        start = self._log_start(log)
        below = [entry for entry in log.epochs if entry.start_offset <= start]
        first = [EpochEntry(below[-1].epoch, start)] if below else []
        return (*first, *(entry for entry in log.epochs if entry.start_offset > start))

    def _log_start(self, log: ModelLog) -> int:
        hidden = self.configs[log.partition.topic].remote_storage_enable and not self.tiers
        return max(log.log_start_offset, log.local_start_offset) if hidden else log.log_start_offset

    def _by_name(self, partition: TopicPartition) -> ModelLog:
        for log in self.partitions.values():
            if log.partition.topic_partition == partition:
                return log
        raise NotFoundError(f"no partition {partition}")

    def logs(self, partitions: Sequence[TopicIdPartition]) -> list[ClusterLog]:
        found = []
        for partition in partitions:
            log = self.partitions.get(partition.key)
            if log is None:
                raise NotFoundError(f"the cluster has no topic {partition}")
            found.append(self._log(log))
        return found

    def _log(self, log: ModelLog) -> ClusterLog:
        return ClusterLog(
            topic_id_partition=log.partition,
            leader=self.leader,
            leader_epochs=self._epochs(log),
            log_start_offset=self._log_start(log),
            local_log_start_offset=log.local_start_offset,
            high_watermark=log.high_watermark,
            last_stable_offset=log.high_watermark,
            log_end_offset=log.high_watermark,
            latest_tiered_offset=None,
            local_log_bytes=sum(segment.size_bytes for segment in log.segments),
        )

    def partition_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets]:
        self._step("offsets")
        found = {}
        for partition in partitions:
            log = self._by_name(partition)
            found[partition] = PartitionOffsets(
                log_start_offset=self._log_start(log),
                high_watermark=log.high_watermark,
                last_stable_offset=log.high_watermark,
                local_log_start_offset=log.local_start_offset,
                latest_tiered_offset=None,
            )
        return found

    def batch_bytes(
        self,
        partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        *,
        bytes_max: int,  # noqa: ARG002
    ) -> int:
        self._step("batch bytes")
        log = self._by_name(partition)
        return sum(
            len(data)
            for segment in log.segments
            for first, data in segment.batches
            if start_offset <= first < end_offset
        )

    def delete_records(self, before_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self._step("delete records")
        reached = {}
        for partition, offset in before_offsets.items():
            log = self._by_name(partition)
            if offset > log.high_watermark:
                raise UsageError(f"raising the log start of {partition}: that is above its high watermark")
            self.raise_log_start(log, offset)
            reached[partition] = self._log_start(log)
        self.world.step("delete records done")
        return reached
