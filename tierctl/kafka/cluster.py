"""A running cluster: facts from its controller and from the leaders of partitions, groups, and
DeleteRecords.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from tierctl import kafka as sdk
from tierctl.errors import MetadataError, MetadataWriteUnknown, NotFoundError, TierctlError, UsageError
from tierctl.kafka.client_settings import ClientSettings, Right
from tierctl.kafka.leader_log import EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST_TIERED, LeaderLogs
from tierctl.kafka.librdkafka import ErrorWatch, RecordConsumer, error_of, make_client, translated
from tierctl.kafka.topic_client import TopicAdmin, uuid_of
from tierctl.model import (
    EpochEntry,
    IsolationLevel,
    TopicConfig,
    TopicIdPartition,
    TopicPartition,
    is_legal_topic_name,
)
from tierctl.model.checked_values import natural_number
from tierctl.model.local import BrokerFacts, ClusterLog, PartitionFacts, PartitionOffsets, TopicFacts
from tierctl.model.progress import WAITS
from tierctl.model.settings import broker, topic
from tierctl.model.settings.scopes import (
    LAST_WITH_ZOOKEEPER,
    KafkaVersion,
    Origin,
    SettingSource,
    StatedSettings,
)
from tierctl.model.settings.topic import BrokerDefaults

_GROUPS_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The offset that a group committed for one partition: the next record that it reads."""

    group: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffsets:
    """The committed offsets of the groups of a cluster.

    `unreadable` has an error for each group that could not be read, and for each partition of which a group's
    offset could not be read. If `lists_all` is False, the user may not list all groups: brokers leave out
    groups that the user may not describe, without an error.
    """

    offsets: tuple[CommittedOffset, ...]
    groups: int
    unreadable: tuple[str, ...]
    lists_all: bool


def _partition_of(answered: Any) -> TopicPartition:
    return TopicPartition(answered.topic, answered.partition)


_CONFIG = {"acks": "all", "enable.idempotence": True, "linger.ms": 5}
_POLL_S = 0.1


def _append(
    settings: ClientSettings,
    producer: Any,
    watch: ErrorWatch,
    partitions: Collection[TopicPartition],
    value: bytes,
) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    errors: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            offsets[TopicPartition(message.topic(), message.partition())] = message.offset()
        else:
            errors.append(error)

    doing = f"writing a record to each of {len(partitions)} partitions"
    deadline = time.monotonic() + settings.delivery_timeout_ms / 1000
    with translated(doing, watch), WAITS.waiting(doing):
        for each in partitions:
            producer.produce(each.topic, value, partition=each.partition, on_delivery=delivered)
            producer.poll(0)
        while len(offsets) < len(partitions):
            if errors:
                raise error_of(errors[0], doing, watch, Right("Write", min(partitions).topic))
            if time.monotonic() > deadline:
                raise MetadataWriteUnknown(f"{doing}: no acknowledgement in time{watch.facts}")
            watch.check()
            producer.poll(_POLL_S)
    return offsets


def source_of(entry: Any) -> SettingSource:
    """Return the origin of a topic setting's value that a broker states (ConfigEntry.source)."""
    if entry.is_default:
        return SettingSource.DEFAULT
    is_own = entry.source == sdk.confluent_admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return SettingSource.TOPIC if is_own else SettingSource.BROKER_DEFAULT


def _origin(entry: Any) -> Origin:
    """Return the origin of a topic setting's value, which for a broker default names the broker setting.

    The first of its synonyms is the one in force (DescribeConfigsResponse).
    """
    source = source_of(entry)
    by = next(iter(entry.synonyms or ()), None) if source is SettingSource.BROKER_DEFAULT else None
    return Origin(source=source, name=None if by is None else f"broker setting {by}")


def own_values(entries: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that were set for the topic itself."""
    return {
        name: entry.value
        for name, entry in entries.items()
        if entry.value is not None and source_of(entry) is SettingSource.TOPIC
    }


def topic_facts(found: Any) -> TopicFacts:
    """Return a described topic."""
    return TopicFacts(
        topic=found.name,
        topic_id=uuid_of(found.topic_id),
        partitions=tuple(_partition(p) for p in sorted(found.partitions, key=lambda p: p.id)),
        is_internal=found.is_internal,
    )


def _partition(found: Any) -> PartitionFacts:
    leader = found.leader
    return PartitionFacts(
        partition=found.id,
        leader=leader.id if leader is not None and leader.id >= 0 else None,
        replicas=tuple(node.id for node in found.replicas),
        in_sync=tuple(node.id for node in found.isr),
    )


_SETTINGS_AT_ONCE = 500
"""Requests for settings of topics at the same time."""


class Cluster:
    """The cluster that stores the topics; nothing is cached, so every call returns the present state.

    `admin` and `leaders` have requests that need nothing else of the cluster.

    Every call raises AuthenticationError (also for a missing right), MetadataError if no broker answers in
    time, and NotFoundError for a topic that does not exist.
    """

    def __init__(self, settings: ClientSettings, kafka_version: KafkaVersion | None = None) -> None:
        self._settings = settings
        self._kafka_version = kafka_version
        self.admin = TopicAdmin(settings)
        self.leaders = LeaderLogs(settings)

    def close(self) -> None:
        """Disconnect."""
        self.leaders.close()

    def kafka_version(self) -> KafkaVersion:
        """Return the given version, or else that of the brokers, which is requested once.

        It is the software version of the broker that responds, whichever metadata.version is finalized,
        because the settings of tiered storage need no finalized version. Clusters without metadata.version
        use ZooKeeper, which 3.9 was the last version to support.
        """
        if self._kafka_version is None:
            # kafka-python reports a refused connection only after request.timeout.ms; this does it at once.
            self.admin.describe_cluster()
            level = self.leaders.metadata_version_level()
            known = KafkaVersion.of_feature_level
            self._kafka_version = LAST_WITH_ZOOKEEPER if level is None else known(level)
        return self._kafka_version

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return str(self.admin.describe_cluster().cluster_id)

    def broker_ids(self) -> tuple[int, ...]:
        """Return the ids of the running brokers, ascending."""
        return tuple(sorted(node.id for node in self.admin.describe_cluster().nodes))

    def brokers(self, ids: Collection[int] | None = None) -> tuple[BrokerFacts, ...]:
        """Return facts about the running brokers, or those with an id in `ids`, by id.

        All brokers are asked at the same time, each for its own settings.
        """
        nodes = sorted(self.admin.describe_cluster().nodes, key=lambda node: node.id)
        asked = [
            (node, self._ask_settings("BROKER", str(node.id)))
            for node in nodes
            if ids is None or node.id in ids
        ]
        return tuple(self._broker(node, future) for node, future in asked)

    def _broker(self, node: Any, asked: Future[Any]) -> BrokerFacts:
        tiers: bool | None = None
        interval_ms: int | None = None
        unreadable = None
        try:
            settings = self._settings_in(asked, "BROKER", str(node.id))
            # Brokers whose version has no tiered storage do not have the setting.
            tiers = (settings.get(broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name) or "false").lower() == "true"
            interval = settings.get(broker.TASK_INTERVAL_MS.name)
            interval_ms = natural_number(interval) if interval else None
        except TierctlError as e:
            # A broker with unknown settings must not count as one that does not tier.
            unreadable = e.message
        return BrokerFacts(
            broker_id=node.id,
            host=node.host,
            port=node.port,
            tiers=tiers,
            unreadable=unreadable,
            task_interval_ms=interval_ms,
        )

    def broker_settings(self) -> dict[str, dict[str, str] | TierctlError]:
        """Return the settings in force of each running broker, as `broker 7`, or the error of reading them.

        Settings with secrets, and those of plugins, have no value.
        """
        nodes = sorted(self.admin.describe_cluster().nodes, key=lambda node: node.id)
        asked = {node.id: self._ask_settings("BROKER", str(node.id)) for node in nodes}
        return {f"broker {key}": self._values(future, "BROKER", str(key)) for key, future in asked.items()}

    def topic_settings(self, names: Collection[str]) -> dict[str, dict[str, str] | TierctlError]:
        """Return the settings in force of each topic, or the error of reading them."""
        return {name: self._values(future, "TOPIC", name) for name, future in self._ask_topics(names)}

    def own_topic_settings(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the settings of each topic itself, without those that it inherits from the brokers."""
        asked = self._ask_topics(names)
        return {name: own_values(self._entries_in(future, "TOPIC", name)) for name, future in asked}

    def _ask_topics(self, names: Collection[str]) -> Iterator[tuple[str, Future[Any]]]:
        """Yield each topic, by name, with its requested settings."""
        ordered = sorted(names)
        for first in range(0, len(ordered), _SETTINGS_AT_ONCE):
            batch = ordered[first : first + _SETTINGS_AT_ONCE]
            yield from [(name, self._ask_settings("TOPIC", name)) for name in batch]

    def _values(self, asked: Future[Any], kind: str, name: str) -> dict[str, str] | TierctlError:
        try:
            settings = self._settings_in(asked, kind, name)
        except TierctlError as e:
            return e
        return {key: value for key, value in settings.items() if value is not None}

    def why_tiering_is_refused(self) -> str | None:
        """Return why the controller would refuse a new topic that is tiered; None if it would make it.

        The controller validates the request and creates nothing. AuthenticationError if this login may not
        create topics.
        """
        name = f"tierctl-probe-{uuid4().hex}"
        return self.admin.why_refused(name, {topic.REMOTE_STORAGE_ENABLE.name: "true"})

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicFacts]:
        """Return all topics by name, or those in `names` that exist; a name that is not legal does not."""
        wanted = sorted(self.admin.names() if names is None else set(filter(is_legal_topic_name, names)))
        if not wanted:
            return {}
        timeout_s = self.admin.request_timeout_s
        futures = self.admin.client.describe_topics(
            sdk.confluent_kafka.TopicCollection(wanted), request_timeout=timeout_s
        )
        found: dict[str, TopicFacts] = {}
        for name, future in futures.items():
            try:
                doing = f"asking for topic {name}"
                found[name] = topic_facts(self.admin.answer(future, doing, Right("Describe", name)))
            except NotFoundError:
                continue
        return found

    def topic_configs(self, names: Iterable[str]) -> dict[str, TopicConfig]:
        """Return the present settings of topics, including the brokers' defaults.

        remote.storage.enable is included only if it was set explicitly, because the default, false, does not
        apply to a topic that tierctl tiers.
        """
        found = {}
        brokers = BrokerDefaults(version=self.kafka_version())
        for name in sorted(set(names)):
            entries = self._entries_in(self._ask_settings("TOPIC", name), "TOPIC", name)
            enable = topic.REMOTE_STORAGE_ENABLE.name
            if enable in entries and entries[enable].is_default:
                del entries[enable]
            settings = {key: entry.value for key, entry in entries.items() if entry.value is not None}
            origins = {key: _origin(entry) for key, entry in entries.items()}
            found[name] = TopicConfig.from_settings(StatedSettings(settings, origins), brokers)
        return found

    def _ask_settings(self, kind: str, name: str) -> Future[Any]:

        resource = sdk.confluent_admin.ConfigResource(sdk.confluent_admin.ConfigResource.Type[kind], name)
        timeout_s = self.admin.request_timeout_s
        found: Future[Any] = self.admin.client.describe_configs([resource], request_timeout=timeout_s)[
            resource
        ]
        return found

    def _settings_in(self, asked: Future[Any], kind: str, name: str) -> dict[str, str | None]:
        return {key: entry.value for key, entry in self._entries_in(asked, kind, name).items()}

    def _entries_in(self, asked: Future[Any], kind: str, name: str) -> dict[str, Any]:
        needs = Right("DescribeConfigs", name if kind == "TOPIC" else None)
        return dict(self.admin.answer(asked, f"reading the settings of {kind.lower()} {name}", needs))

    def partition_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return the offsets of each partition from its leader, with one request per kind of offset."""
        starts = self.admin.list_offsets(partitions, latest=False)
        # The tier's end is read before the log's: copies continue meanwhile, and in the other order the tier
        # could seem to end after the log.
        tiered = self.leaders.offsets(partitions, LATEST_TIERED)
        local = self.leaders.offsets(partitions, EARLIEST_LOCAL)
        stable = self.admin.list_offsets(partitions, latest=True, committed=True)
        ends = self.admin.list_offsets(partitions, latest=True)
        return {
            partition: PartitionOffsets(
                log_start_offset=starts[partition],
                high_watermark=ends[partition],
                last_stable_offset=stable[partition],
                local_log_start_offset=local[partition],
                latest_tiered_offset=tiered[partition],
            )
            for partition in partitions
        }

    def earliest_pending_uploads(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset of each partition that is still to be copied (KIP-1023), from its leader.

        None where the leader reports none: the topic is not tiered, or the leader does not know its tier yet.
        """
        return self.leaders.offsets(partitions, EARLIEST_PENDING_UPLOAD)

    def leader_epochs(self, partition: TopicPartition) -> tuple[EpochEntry, ...]:
        """Return the leader epochs of a partition's log from its start offset, as its leader states them."""
        start = self.admin.list_offsets([partition], latest=False)[partition]
        return self.leaders.leader_epochs(partition, start)

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """Return the offset of the first record at or after a time; None if there is none."""
        return self.admin.list_offsets([partition], at_ms=timestamp_ms).get(partition)

    def consumer(self, isolation: IsolationLevel) -> RecordConsumer:
        """Return a new consumer of records, which the caller closes."""
        return RecordConsumer(self._settings, isolation)

    def produce(
        self, partitions: Collection[TopicPartition], value: bytes, *, transactional_id: str | None = None
    ) -> dict[TopicPartition, int]:
        """Append one record to each partition by a new producer, and return the offsets.

        The producer is idempotent; with `transactional_id` it writes them in a transaction of that id, which
        is aborted if it fails.

        Raises AuthenticationError, NotFoundError, MetadataError if the brokers refuse the producer or a
        record, and MetadataWriteUnknown if no acknowledgement comes in time.
        """
        config = _CONFIG if transactional_id is None else {**_CONFIG, "transactional.id": transactional_id}
        producer, watch = make_client(sdk.confluent_kafka.Producer, self._settings, config)
        if transactional_id is None:
            return _append(self._settings, producer, watch, partitions, value)
        timeout_s = self._settings.request_timeout_ms / 1000
        doing = f"a transaction of {transactional_id}"
        needs = Right("Write", min(partitions).topic)
        with translated(doing, watch, needs), WAITS.waiting(doing):
            producer.init_transactions(timeout_s)
            producer.begin_transaction()
            try:
                offsets = _append(self._settings, producer, watch, partitions, value)
                producer.commit_transaction(timeout_s)
            except BaseException:
                with suppress(sdk.confluent_kafka.KafkaException):
                    producer.abort_transaction(timeout_s)
                raise
        return offsets

    def logs(self, partitions: Sequence[TopicIdPartition]) -> list[ClusterLog]:
        """Return the logs of the partitions that have a leader.

        Raises NotFoundError if a topic does not exist or now has another id.
        """
        leaders = self._leaders_of(partitions)
        names = {partition: partition.topic_partition for partition in leaders}
        offsets = self.partition_offsets(list(names.values()))
        sizes = self._sizes({names[partition]: leader for partition, leader in leaders.items()})
        return [
            cluster_log(partition, leader, offsets[name], self._epochs(name, offsets), sizes[name])
            for (partition, leader), name in zip(leaders.items(), names.values(), strict=True)
        ]

    def _epochs(
        self, partition: TopicPartition, offsets: Mapping[TopicPartition, PartitionOffsets]
    ) -> tuple[EpochEntry, ...]:
        return self.leaders.leader_epochs(partition, offsets[partition].log_start_offset)

    def _leaders_of(self, partitions: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        found = self.topics({partition.topic for partition in partitions})
        leaders: dict[TopicIdPartition, int] = {}
        for partition in partitions:
            topic = found.get(partition.topic)
            if topic is None or topic.topic_id != partition.topic_id:
                raise NotFoundError(
                    f"the cluster has no topic {partition.topic} of id {partition.topic_id}",
                    hint="it was deleted or created again: make the plan again",
                )
            known = {p.partition: p.leader for p in topic.partitions}
            leader = known.get(partition.partition)
            if leader is not None:
                leaders[partition] = leader
        return leaders

    def _sizes(self, partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        try:
            return self.leaders.log_bytes(partitions)
        except TierctlError:
            # The request needs the right DESCRIBE on the cluster; without it the sizes are unknown.
            return dict.fromkeys(partitions)

    def committed_offsets(self, partitions: Collection[TopicPartition]) -> CommittedOffsets:
        """Return the offsets that groups have committed for `partitions`, by group and partition.

        Raises AuthenticationError if no group may be listed, and MetadataError if no broker answers in time.
        """
        wanted = frozenset(partitions)
        names = self.leaders.groups()
        errors: list[str] = []
        found: list[CommittedOffset] = []
        for first in range(0, len(names), _GROUPS_AT_ONCE):
            for name, answer in self._asked(names[first : first + _GROUPS_AT_ONCE]):
                if isinstance(answer, TierctlError):
                    errors.append(f"group {name}: {answer.message}; {answer.hint}")
                    continue
                own = [each for each in answer.topic_partitions if _partition_of(each) in wanted]
                errors += [
                    f"group {name}: its offset of {_partition_of(each)} could not be read: {each.error.str()}"
                    for each in own
                    if each.error is not None
                ]
                found += [
                    CommittedOffset(group=name, partition=_partition_of(each), offset=each.offset)
                    for each in own
                    if each.error is None and each.offset >= 0
                ]
        operations = self.admin.cluster_operations()
        return CommittedOffsets(
            offsets=tuple(sorted(found, key=lambda each: (each.group, each.partition))),
            groups=len(names),
            unreadable=tuple(errors),
            # For a user without the right, the response has no operations, not even those that are allowed.
            lists_all="Describe" in operations,
        )

    def _asked(self, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield each group with the result of asking for its offsets, or the error."""
        futures: dict[str, Any] = {}
        for name in names:
            asked = sdk.confluent_kafka.ConsumerGroupTopicPartitions(name)
            futures |= self.admin.client.list_consumer_group_offsets(
                [asked], request_timeout=self.admin.request_timeout_s
            )
        for name, future in futures.items():
            try:
                right = Right("Describe", group=name)
                yield name, self.admin.answer(future, f"asking for the offsets of group {name}", right)
            except TierctlError as e:
                yield name, e

    def delete_records(self, before_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Raise log start offsets (DeleteRecords); return the resulting log start offsets.

        A returned offset may be higher than requested. Raises UsageError for an offset above the high
        watermark.
        """

        if not before_offsets:
            return {}
        asked = [
            sdk.confluent_kafka.TopicPartition(p.topic, p.partition, offset)
            for p, offset in before_offsets.items()
        ]
        timeout_s = self.admin.request_timeout_s
        futures = self.admin.client.delete_records(asked, request_timeout=timeout_s)
        found: dict[TopicPartition, int] = {}
        for key, future in futures.items():
            partition = TopicPartition(key.topic, key.partition)
            doing = f"raising the log start of {partition} to {before_offsets[partition]}"
            try:
                needs = Right("Delete", partition.topic)
                found[partition] = int(self.admin.answer(future, doing, needs).low_watermark)
            except MetadataError as e:
                if "OFFSET_OUT_OF_RANGE" in e.message:
                    raise UsageError(f"{doing}: that is above its high watermark") from None
                raise
        return found


def cluster_log(
    partition: TopicIdPartition,
    leader: int,
    offsets: PartitionOffsets,
    epochs: tuple[EpochEntry, ...],
    size_bytes: int | None,
) -> ClusterLog:
    """Return a partition's log as its leader states it; `size_bytes` is that of the local log, if known."""
    local = offsets.local_log_start_offset
    return ClusterLog(
        topic_id_partition=partition,
        leader=leader,
        leader_epochs=epochs,
        log_start_offset=offsets.log_start_offset,
        local_log_start_offset=offsets.log_start_offset if local is None else local,
        high_watermark=offsets.high_watermark,
        last_stable_offset=offsets.last_stable_offset,
        log_end_offset=offsets.high_watermark,
        latest_tiered_offset=offsets.latest_tiered_offset,
        local_log_bytes=size_bytes,
    )
