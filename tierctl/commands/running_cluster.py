"""The cluster that a mutating command runs beside: fences, the leaders' logs and settings, DeleteRecords."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Self

from tierctl.errors import AuthenticationError, MetadataError, SafetyRefusal, TierctlError
from tierctl.kafka.cluster import Cluster
from tierctl.metadata.daily_changes import DAY_MS, others, recent_writers
from tierctl.metadata.topic import METADATA_TOPIC, MetadataTopic
from tierctl.model import (
    EpochEntry,
    RemotePartitionDeleteState,
    TopicConfig,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.events import ZERO_UUID
from tierctl.model.local import BrokerFacts, ClusterLog, TopicFacts
from tierctl.model.times import iso_utc
from tierctl.plan.partition_deletes import ClusterAnswer
from tierctl.plan.preconditions import (
    TASK_INTERVALS,
    CurrentTopics,
    Fence,
    is_known,
    leaders_of,
    require_open,
)
from tierctl.plan.steps import CLOCK_SKEW_MS_MAX
from tierctl.plan.views import (
    ClusterViews,
    LeaderBytesOf,
    Leaders,
    LeaderView,
    knows_log_start,
)
from tierctl.read.readable_log import leader_logs
from tierctl.state.tier_state import TierState
from tierctl.wire.metadata.values import metadata_partition

_Key = tuple[Uuid, int]
EpochsRead = tuple[TopicIdPartition, tuple[EpochEntry, ...] | TierctlError]
"""A partition and the leader epochs that are stored with its newest remote segment, or the error."""
_FINISHED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
_TASK_INTERVAL_MS = 30_000
_BROKERS_KEPT_MS = 2_000
"""How long a broker's settings are reused: they change only with a restart, which takes longer."""
SizeLimit = Callable[[str, int], int]
"""Returns, for a topic and its retention.bytes, the size up to which its log is measured; below 0: not."""


def own_limit(_topic: str, retention_bytes: int) -> int:
    """Measure the logs of a topic up to its own retention.bytes."""
    return retention_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLeaders:
    """The logs of the leaders of some partitions and the settings of their topics, or why they are `unseen`.

    Partitions of topics that the cluster does not have are in neither. The leaders of those in `forgetful` do
    not know the log start (`knows_log_start`).
    """

    topics: CurrentTopics
    configs: Mapping[str, TopicConfig]
    logs: Mapping[TopicIdPartition, ClusterLog]
    forgetful: frozenset[_Key]
    unseen: Mapping[_Key, str]

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        partitions: Collection[TopicIdPartition],
        known: Mapping[TopicIdPartition, ClusterLog] = MappingProxyType({}),
    ) -> Self:
        """Ask the leaders, but for logs that are `known`.

        AuthenticationError if the login may read the settings of none of the topics.
        """
        names = {partition.topic for partition in partitions}
        current = CurrentTopics.of_cluster(cluster.topics(names))
        there = [partition for partition in partitions if current.why_not_current(partition) is None]
        configs, unread = _read_configs(cluster, {partition.topic for partition in there})
        readable = [each for each in there if each.topic in configs]
        logs, silent = leader_logs(cluster, [each for each in readable if each not in known])
        logs |= {each: known[each] for each in readable if each in known}
        asked = {log.leader for log in logs.values()}
        brokers = {each.broker_id: each for each in cluster.brokers(asked)} if asked else {}
        return cls(
            topics=current,
            configs=configs,
            logs=logs,
            forgetful=frozenset(
                partition.key
                for partition, log in logs.items()
                if not knows_log_start(brokers.get(log.leader), configs[partition.topic])
            ),
            unseen={each.key: unread[each.topic] for each in there if each.topic in unread}
            | {partition.key: reason for partition, reason in silent.items()},
        )

    def among(self, keys: Collection[_Key]) -> Self:
        """Return what is seen of the partitions in `keys`."""
        logs = {partition: log for partition, log in self.logs.items() if partition.key in keys}
        return replace(self, logs=logs, forgetful=self.forgetful & set(keys))

    def views(
        self,
        state: TierState,
        tier_epochs: Callable[[Collection[_Key]], Iterable[EpochsRead]],
        size_limit: SizeLimit,
        measured: Callable[[ClusterLog, int, int], int] | None = None,
    ) -> ClusterViews:
        """Return what retention needs of the partitions; `state` has their segments.

        `tier_epochs` is called for the partitions whose leader does not know the log start. The bytes that
        only a leader's log has are counted up to `size_limit`; those from an offset on are `measured`, which
        gets the log, the limit and the offset, and unknown without it.
        """
        unseen = dict(self.unseen)
        views = {partition.key: LeaderView(log=log) for partition, log in self.logs.items()}
        for partition, entries in tier_epochs(self.forgetful) if self.forgetful else ():
            if isinstance(entries, TierctlError):
                del views[partition.key]
                unseen[partition.key] = entries.message
            else:
                views[partition.key] = replace(views[partition.key], tier_entries=entries)
        limits_bytes = {
            partition.key: size_limit(partition.topic, self.configs[partition.topic].retention_bytes)
            for partition in self.logs
        }
        for key, found in _local_bytes(state, views, limits_bytes, measured):
            if isinstance(found, str):
                del views[key]
                unseen[key] = found
            else:
                views[key] = replace(views[key], local_only_bytes=found)
        return ClusterViews(topics=self.topics, views=views, unseen=unseen)


def _read_configs(cluster: Cluster, topics: Collection[str]) -> tuple[dict[str, TopicConfig], dict[str, str]]:
    """Return the settings of each topic, or the reason why they can't be read.

    AuthenticationError if the login may read those of none of the topics.
    """
    configs: dict[str, TopicConfig] = {}
    errors: dict[str, TierctlError] = {}
    for topic in sorted(topics):
        try:
            configs |= cluster.topic_configs([topic])
        except TierctlError as e:
            errors[topic] = e
    refused = [e for e in errors.values() if isinstance(e, AuthenticationError)]
    if refused and not configs:
        raise refused[0]
    return configs, {topic: f"its settings can't be read: {e.message}" for topic, e in errors.items()}


def _local_bytes(
    state: TierState,
    views: Mapping[_Key, LeaderView],
    limits_bytes: Mapping[_Key, int],
    measured: Callable[[ClusterLog, int, int], int] | None,
) -> Iterator[tuple[_Key, int | str | None]]:
    """Yield the bytes that only the leaders' logs have, up to the limits, or the message of the error.

    Partitions without a limit are left out, unless their lineage is that of the tier.
    """
    asked = {
        key: leader
        for key, leader in views.items()
        if limits_bytes[key] >= 0 or leader.tier_entries is not None
    }
    question = LeaderBytesOf(views=asked, limits_bytes=limits_bytes)
    for partition, found in state.map_parts(question, asked) if asked else ():
        key = partition.key
        if isinstance(found, str):
            yield key, found
        elif found.from_offset is None or measured is None:
            yield key, found.size_bytes
        else:
            try:
                yield key, measured(views[key].log, limits_bytes[key], found.from_offset)
            except TierctlError as e:
                yield key, e.message


@dataclass(kw_only=True)
class RunningCluster:
    """The cluster that has the user topics; each call queries the cluster again.

    `topic` is the metadata topic if it is on a cluster. It is None for a metadata topic in a folder, to which
    no other process can write while tierctl holds its lock. Events of tierctl have a broker id that is in
    `own_broker_ids`; events with the id of a running broker count as that broker's. `now_ms` returns the
    present time.
    """

    cluster: Cluster
    topic: MetadataTopic | None
    own_broker_ids: Collection[int]
    now_ms: Callable[[], int]
    configs: dict[str, TopicConfig] = field(default_factory=dict)
    """Settings of the topics that `views` was called for, as read by that call."""
    _asked: dict[int, tuple[int, BrokerFacts]] = field(default_factory=dict, init=False)

    def topics(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """Return the existing topics among `names`; AuthenticationError if one may not be described.

        The topics are described by name, because a list of all topics leaves out those that the login may
        not describe.
        """
        return self.cluster.topics(set(names))

    def configs_of(self, names: Iterable[str]) -> dict[str, TopicConfig]:
        """Return the present settings of the existing topics among `names`; errors as for `topics`."""
        return self.cluster.topic_configs(self.topics(names))

    def current_topics(self, names: Iterable[str]) -> CurrentTopics:
        """Return the topic ids that these topic names have now."""
        return CurrentTopics.of_cluster(self.topics(names))

    def check_deleted(self, partitions: Collection[TopicIdPartition]) -> None:
        """Raise SafetyRefusal if the cluster has the topic id of one of `partitions`, under any name."""
        unknown = self.cluster.leaders.unknown_topic_ids({p.topic_id for p in partitions})
        existing = sorted(p for p in partitions if p.topic_id not in unknown)
        if existing:
            raise SafetyRefusal(
                f"the cluster still has topic {existing[0].topic} of id {existing[0].topic_id}, which is "
                "marked as deleted",
                hint="segments of an existing topic are not deleted; delete the topic first",
            )

    def check_fence(self, partitions: Collection[TopicIdPartition]) -> None:
        """Raise SafetyRefusal if brokers may copy or delete segments of `partitions` themselves."""
        require_open(self._closed(partitions))

    def check_clock(self) -> None:
        """Raise SafetyRefusal if this machine's clock is over five minutes ahead of the controller's.

        Segments would be deleted that have not expired for brokers, and brokers that wrote just now would
        count as ended. A controller that does not report its time refuses nothing.
        """
        now_ms, clock_ms = self.now_ms(), None
        with suppress(TierctlError):
            _, clock_ms = self.cluster.leaders.controller_clock()
        if clock_ms is not None and now_ms > clock_ms + CLOCK_SKEW_MS_MAX:
            raise SafetyRefusal(
                f"this machine's clock is {(now_ms - clock_ms) // 1000} s ahead of the controller's, which "
                f"is at {iso_utc(clock_ms)}: segments that have not expired yet would be deleted",
                hint="synchronize the clocks (NTP); no option overrides this check",
            )

    def check_any_open(self, partitions: Collection[TopicIdPartition]) -> None:
        """Raise SafetyRefusal if brokers themselves copy or delete segments of every one of `partitions`."""
        closed = self._closed(partitions)
        if len(closed) == len(set(partitions)):
            require_open(closed)

    def _closed(self, partitions: Collection[TopicIdPartition]) -> dict[TopicIdPartition, str]:
        """Return those of `partitions` whose segments brokers may copy or delete themselves, and why."""
        if not partitions:
            return {}
        topics = self.topics(p.topic for p in partitions)
        count = 1 if self.topic is None else self.topic.partition_count
        numbers = {p: metadata_partition(p.topic_id, p.partition, count) for p in partitions}
        fence = Fence(
            topics=topics,
            brokers=self.brokers(leaders_of(topics, numbers)),
            writers=self._writers(set(numbers.values())),
            task_interval_ms=self.task_interval_ms,
        )
        return fence.closed(numbers)

    def brokers(self, ids: Collection[int]) -> dict[int, BrokerFacts]:
        """Return those brokers with these `ids` that are up; answers are reused for two seconds."""
        now_ms = self.now_ms()
        known = {
            broker_id: facts
            for broker_id, (at_ms, facts) in self._asked.items()
            if 0 <= now_ms - at_ms <= _BROKERS_KEPT_MS
        }
        missing = set(ids) - known.keys()
        found = {facts.broker_id: facts for facts in self.cluster.brokers(missing)} if missing else {}
        self._asked |= {broker_id: (now_ms, facts) for broker_id, facts in found.items()}
        return {broker_id: facts for broker_id, facts in (known | found).items() if broker_id in ids}

    @cached_property
    def task_interval_ms(self) -> int:
        """The longest task interval of the brokers with readable settings, or Kafka's default."""
        readable = [broker for broker in self.cluster.brokers() if broker.tiers is not None]
        return max(
            (broker.task_interval_ms or _TASK_INTERVAL_MS for broker in readable), default=_TASK_INTERVAL_MS
        )

    def _writers(self, numbers: Collection[int]) -> dict[int, dict[int, int]]:
        """Return the other recent writers of each metadata partition: broker id to last event time in ms."""
        if self.topic is None:
            return {}
        begins, ends = self.topic.beginning_offsets(), self.topic.end_offsets()
        since_ms = self.now_ms() - TASK_INTERVALS * self.task_interval_ms
        found: dict[int, dict[int, int]] = {}
        own_ids = self._own_ids()
        for number in sorted(numbers):
            writers = recent_writers(self.topic, number, begins[number], ends[number], since_ms).latest
            found[number] = others(writers, own_ids)
        return found

    def _own_ids(self) -> set[int]:
        """Return the broker ids of tierctl's events, without those that running brokers also have."""
        return set(self.own_broker_ids).difference(self.cluster.broker_ids())

    def answer_about(self, topic_ids: Collection[Uuid], state: TierState) -> ClusterAnswer:
        """Return which of these topics the cluster has, and whether it is the cluster of this tier.

        It is, if it has another topic of the metadata in `state`, or if its brokers use the metadata topic
        for their tiering. If its brokers don't tier, and only tierctl wrote metadata, only of these topics,
        then the cluster that has the metadata topic counts as the topics' cluster, too.
        """
        parts = [part for part in state if part.delete_state is not _FINISHED]
        # No topic has the id 0: brokers leave it out of their answers, as if they knew it.
        others = {part.topic_id_partition.topic_id for part in parts}.difference(topic_ids, {ZERO_UUID})
        unknown = self.cluster.leaders.unknown_topic_ids([*topic_ids, *others])
        is_own = bool(others - unknown)
        if not is_own and self._has_metadata_topic():
            own_ids = self._own_ids()
            by_others = state.map_parts(partial(_written_by_others, frozenset(own_ids)))
            is_own = any(broker.tiers for broker in self.cluster.brokers()) or (
                not others and not any(by_others)
            )
        return ClusterAnswer(
            cluster_id=self.cluster.cluster_id(),
            existing=frozenset(topic_ids) - unknown,
            is_own=is_own,
            doubts=self._doubts(unknown.intersection(topic_ids), state),
        )

    def _doubts(self, topic_ids: Collection[Uuid], state: TierState) -> dict[Uuid, str]:
        """Return which of these topics a broker that this cluster does not have wrote about within a day."""
        keys = {
            part.topic_id_partition.key for part in state if part.topic_id_partition.topic_id in topic_ids
        }
        question = partial(_written_since, self.now_ms() - DAY_MS, keys)
        written = sorted(set(state.map_parts(question, keys))) if keys else []
        own_ids = {*self.own_broker_ids, *self.cluster.broker_ids()} if written else set()
        return {
            topic_id: f"broker {broker_id}, which cluster {self.cluster.cluster_id()} does not have, wrote "
            f"about it at {iso_utc(at_ms)}: another cluster may have it; wait until that is a day ago"
            for topic_id, at_ms, broker_id in written
            if broker_id not in own_ids
        }

    def _has_metadata_topic(self) -> bool:
        """Return whether the metadata topic that was read is on this cluster."""
        own = self.topics([METADATA_TOPIC]).get(METADATA_TOPIC)
        return own is not None and self.topic is not None and own.topic_id == self.topic.topic_id

    def views(
        self,
        state: TierState,
        partitions: Collection[TopicIdPartition],
        tier_epochs: Callable[[Collection[_Key]], Iterable[EpochsRead]],
        size_limit: SizeLimit = own_limit,
    ) -> ClusterViews:
        """Return the `SeenLeaders.views` of these partitions; store settings in `configs`."""
        seen = SeenLeaders.of(self.cluster, partitions)
        self.configs |= seen.configs
        return seen.views(state, tier_epochs, size_limit, self._measured)

    def seen_of(self, logs: Mapping[TopicIdPartition, ClusterLog]) -> SeenLeaders:
        """Return what is seen of these partitions, whose leaders' logs are known."""
        return SeenLeaders.of(self.cluster, logs.keys(), logs)

    def leaders(self, partitions: Collection[TopicIdPartition]) -> Leaders:
        """Return the leaders' logs of these partitions, and the ids and settings of their topics."""
        current = self.current_topics(p.topic for p in partitions)
        return Leaders(
            topics=current,
            configs=self.cluster.topic_configs(current.ids),
            logs=self._logs(current, partitions),
            broker_ids=self.cluster.broker_ids(),
        )

    def leader_logs(self, partitions: Collection[TopicIdPartition]) -> dict[_Key, ClusterLog]:
        """Return the leaders' logs of those of these partitions whose topics have not been created again."""
        return self._logs(self.current_topics(p.topic for p in partitions), partitions)

    def _logs(
        self, current: CurrentTopics, partitions: Collection[TopicIdPartition]
    ) -> dict[_Key, ClusterLog]:
        there = [p for p in partitions if current.why_not_current(p) is None]
        logs, _ = leader_logs(self.cluster, there)
        return {partition.key: log for partition, log in logs.items()}

    def _measured(self, log: ClusterLog, limit_bytes: int, from_offset: int) -> int:
        """Return the bytes of the batches that a leader's log has from an offset on, up to the limit."""
        return self.cluster.leaders.batch_bytes(
            log.topic_partition, from_offset, log.log_end_offset, bytes_max=limit_bytes
        )

    def raise_log_starts(self, starts: Mapping[TopicIdPartition, int]) -> None:
        """Raise log start offsets with DeleteRecords; MetadataError if a log then still starts lower."""
        if not starts:
            return
        topics = self.topics(p.topic for p in starts)
        # The broker that answers may lag behind the one that leads a topic created again.
        gone = self.cluster.leaders.unknown_topic_ids({p.topic_id for p in starts}, by_any=True)
        for partition in starts:
            # DeleteRecords names topics, not ids: it would delete records of a topic created again.
            if not is_known(topics, partition) or partition.topic_id in gone:
                raise SafetyRefusal(
                    f"{partition} was deleted or created again since the plan was made", hint="plan again"
                )
        reached = self.cluster.delete_records({p.topic_partition: at for p, at in starts.items()})
        for partition, at in starts.items():
            if reached.get(partition.topic_partition, -1) < at:
                raise MetadataError(f"{partition} still starts below {at} after DeleteRecords")


def _written_since(
    since_ms: int, keys: Collection[_Key], state: TierState
) -> Iterator[tuple[Uuid, int, int]]:
    """Yield topic id, time and broker id of the last events about the segments of these partitions."""
    for key in state.partitions.keys() & keys:
        for each in state.partitions[key].segments:
            if each.event_timestamp_ms >= since_ms and each.broker_id is not None:
                yield key[0], each.event_timestamp_ms, each.broker_id


def _written_by_others(own_ids: Collection[int], state: TierState) -> Iterator[bool]:
    """Yield whether brokers with other ids wrote a segment of a partition whose deletion has not finished."""
    parts = [part for part in state if part.delete_state is not _FINISHED]
    yield any(segment.broker_id not in own_ids for part in parts for segment in part.segments)
