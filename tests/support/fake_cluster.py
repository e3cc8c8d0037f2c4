"""A cluster for tests without brokers: it answers as `Cluster` from facts that a test sets."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tierctl.errors import AuthenticationError, MetadataError
from tierctl.model import EpochEntry, LocalLog, TopicConfig, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.events import INTERNAL_TOPICS
from tierctl.model.local import BrokerFacts, ClusterLog, PartitionFacts, TopicFacts
from tierctl.state.lineage import Lineage


def topic_facts(name: str, topic_id: Uuid, leaders: Sequence[int | None]) -> TopicFacts:
    """Return a topic whose partition n has the only replica on broker `leaders[n]`, or has no leader."""
    partitions = tuple(
        PartitionFacts(partition=n, leader=leader, replicas=own, in_sync=own)
        for n, leader in enumerate(leaders)
        for own in [() if leader is None else (leader,)]
    )
    return TopicFacts(
        topic=name, topic_id=topic_id, partitions=partitions, is_internal=name in INTERNAL_TOPICS
    )


def cluster_log(partition: TopicIdPartition, leader: int = 1, **more: Any) -> ClusterLog:
    """Return a leader's log from offset 0 to 100, of which offsets 50 and higher are local."""
    facts = {
        "leader_epochs": (EpochEntry(0, 0),),
        "log_start_offset": 0,
        "local_log_start_offset": 50,
        "high_watermark": 100,
        "last_stable_offset": 100,
        "log_end_offset": 100,
        "latest_tiered_offset": 79,
        "local_log_bytes": None,
    }
    return ClusterLog(topic_id_partition=partition, leader=leader, **facts | more)  # type: ignore[arg-type]


@dataclass(kw_only=True)
class FakeCluster:
    """Answers about topics and brokers; `tiering` are the brokers that tier, and None stands for all.

    Topics without an entry in `configs` have tiering enabled. The controller reports no time if `clock_ms` is
    None.
    """

    facts: dict[str, TopicFacts] = field(default_factory=dict)
    tiering: Collection[int] | None = None
    configs: dict[str, TopicConfig] = field(default_factory=dict)
    clock_ms: int | None = None

    @property
    def leaders(self) -> Self:
        return self

    def controller_clock(self) -> tuple[int, int]:
        if self.clock_ms is None:
            raise MetadataError("the controller does not report its time")
        return 1, self.clock_ms

    def topics(self, names: Collection[str]) -> dict[str, TopicFacts]:
        return {name: facts for name, facts in self.facts.items() if name in set(names)}

    def broker_ids(self) -> tuple[int, ...]:
        partitions = (each for facts in self.facts.values() for each in facts.partitions)
        return tuple(sorted({each.leader for each in partitions if each.leader is not None}))

    def brokers(self, ids: Collection[int] | None = None) -> tuple[BrokerFacts, ...]:
        chosen = self.broker_ids() if ids is None else sorted(ids)
        is_tiering = self.tiering.__contains__ if self.tiering is not None else lambda _: True
        return tuple(BrokerFacts(broker_id=n, host="b", port=1, tiers=is_tiering(n)) for n in chosen)

    def topic_configs(self, names: Iterable[str]) -> dict[str, TopicConfig]:
        default = TopicConfig(remote_storage_enable=True)
        return {name: self.configs.get(name, default) for name in names}


class LoggedCluster(FakeCluster):
    """Implement the calls of `Cluster` that a plan of sweep uses, over the logs of log directories.

    Leaders report the local log start as the log start if `forgets`, as brokers do that no longer tier.
    """

    def __init__(self, found: Sequence[LocalLog], configs: dict[str, TopicConfig], *, forgets: bool) -> None:
        ids = {log.topic_id_partition.topic: log.topic_id_partition.topic_id for log in found}
        counts = Counter(log.topic_id_partition.topic for log in found)
        facts = {name: topic_facts(name, ids[name], [1] * counts[name]) for name in ids}
        super().__init__(facts=facts, tiering=[] if forgets else [1], configs=configs)
        self.found, self.forgets = found, forgets
        self.measured: list[tuple[TopicPartition, int]] = []

    def logs(self, partitions: Collection[TopicIdPartition]) -> list[ClusterLog]:
        return [self._log(log) for log in self.found if log.topic_id_partition in partitions]

    def _log(self, log: LocalLog) -> ClusterLog:
        start, entries = log.log_start_offset, log.leader_epochs
        if self.forgets:
            start = log.local_log_start_offset
            entries = tuple(EpochEntry(*each) for each in Lineage(entries).truncate_from_start(start).entries)
        return cluster_log(
            log.topic_id_partition,
            leader_epochs=entries,
            log_start_offset=start,
            local_log_start_offset=log.local_log_start_offset,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_end_offset=log.high_watermark,
            latest_tiered_offset=None,
            local_log_bytes=sum(each.size_bytes for each in log.segments),
        )

    def partition_offsets(self, _partitions: Collection[TopicPartition]) -> None:
        raise AuthenticationError("offsets are not shown to this user", hint="ask for the right")

    def batch_bytes(self, partition: TopicPartition, first: int, end: int, *, bytes_max: int) -> int:
        self.measured.append((partition, first))
        log = next(each for each in self.found if each.topic_partition == partition)
        sizes = [each.size_bytes for each in log.segments if first <= each.base_offset < end]
        return min(sum(sizes), bytes_max + 1)
