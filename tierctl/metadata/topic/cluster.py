"""`__remote_log_metadata` on a cluster, through confluent-kafka."""

import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from tierctl.errors import (
    AuthenticationError,
    MetadataError,
    MetadataWriteFailed,
    MetadataWriteUnknown,
    NotFoundError,
    SafetyRefusal,
)
from tierctl.kafka import sdk
from tierctl.kafka.acls import Right
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.librdkafka import ErrorWatch, error_of, make_client
from tierctl.kafka.topic_admin import TopicAdmin, TopicShape
from tierctl.kafka.topic_reader import TopicReader
from tierctl.metadata.server_properties import (
    MetadataClients,
    MetadataTopicSettings,
    ServerSettings,
    metadata_clients,
)
from tierctl.metadata.topic.base import METADATA_TOPIC
from tierctl.model import ClusterIdentity, Uuid
from tierctl.model.location import TopicLocation
from tierctl.model.settings import topic
from tierctl.wire.batches.chunks import RecordChunk

_POLL_S = 0.1
_REFUSALS_S = 2.0
_LAST_REPORTS_S = 5.0
_CONFIG = {
    "acks": "all",
    "enable.idempotence": True,
    # The records of a partition stay in order: no record is written after one that failed.
    "enable.gapless.guarantee": True,
    # A single record that times out would leave a gap; the whole append has a deadline instead.
    "message.timeout.ms": 0,
    "linger.ms": 5,
    "compression.type": "none",
}
_REFUSALS = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_MSG",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "NOT_ENOUGH_REPLICAS",
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
    }
)
_HINT_UNKNOWN = "what was written shows when the metadata are read again: run the command once more"


class TopicPublisher:
    """Append to `topic`; concurrent calls of `append` are executed one after the other."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._lock = Lock()
        self._producer: tuple[Any, ErrorWatch] | None = None

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """Append (partition, value) pairs with null keys; return their offsets once replicated.

        All in-sync replicas then have the records. The call takes at most `delivery_timeout_ms`. Raises
        MetadataWriteFailed if no record was written, MetadataWriteUnknown if some may have been,
        AuthenticationError if the broker refuses the client.
        """
        with self._lock:
            if self._producer is None:
                self._producer = make_client(sdk.confluent_kafka.Producer, self._settings, _CONFIG)
            append = _Append(*self._producer, self._topic, len(records))
            complete = False
            try:
                offsets = append.run(records, self._settings.delivery_timeout_ms)
                complete = True
                return offsets
            finally:
                if not complete:
                    # The producer is not used again: its sequence numbers may have a gap, or records may
                    # still be queued.
                    append.abandon()
                    self._producer = None

    def close(self) -> None:
        """Disconnect; no append may be in progress."""
        with self._lock:
            self._producer = None


class _Append:
    """One append, and the result for each of its records."""

    def __init__(self, producer: Any, watch: ErrorWatch, topic: str, count: int) -> None:
        self._producer = producer
        self._watch = watch
        self._topic = topic
        self._offsets: list[int | None] = [None] * count
        self._errors: dict[int, Any] = {}
        self._reported = 0
        self._fatal: str | None = None

    def run(self, records: Sequence[tuple[int, bytes]], timeout_ms: int) -> list[int]:
        deadline = time.monotonic() + timeout_ms / 1000
        for index, (partition, value) in enumerate(records):
            self._send(index, partition, value, deadline)
        while self._reported < len(records):
            self._wait(deadline)
        offsets = [offset for offset in self._offsets if offset is not None]
        if self._errors or len(offsets) < len(records):
            raise self._failure("")
        return offsets

    def _send(self, index: int, partition: int, value: bytes, deadline: float) -> None:

        def delivered(error: Any, message: Any) -> None:
            self._reported += 1
            if error is not None:
                self._errors[index] = error
            elif message.offset() is not None and message.offset() >= 0:
                self._offsets[index] = message.offset()

        while True:
            try:
                self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
            except BufferError:
                self._wait(deadline)
            except sdk.confluent_kafka.KafkaException as e:
                self._errors[index] = e.args[0]
                raise self._failure(f"record {index} was not taken") from None
            else:
                return

    def _wait(self, deadline: float) -> None:
        self._poll()
        if self._errors or self._fatal:
            raise self._failure("")
        try:
            self._watch.check()
        except AuthenticationError:
            if self._is_untouched:
                raise
            raise self._failure("the broker refuses us now") from None
        if time.monotonic() > deadline:
            raise self._failure("no acknowledgement in time")

    def _poll(self) -> None:

        try:
            self._producer.poll(_POLL_S)
        except sdk.confluent_kafka.KafkaException as e:
            # The error is fatal for the producer; delivery reports have the result for each record.
            self._fatal = e.args[0].str()

    @property
    def _is_untouched(self) -> bool:
        """Return whether no record of this append was acknowledged."""
        return all(offset is None for offset in self._offsets)

    def _failure(self, why: str) -> Exception:
        # Wait for more delivery reports, which show whether the append failed or its outcome is unknown.
        deadline = time.monotonic() + _REFUSALS_S
        while len(self._producer) and time.monotonic() < deadline and (self._errors or self._fatal):
            self._poll()
        self.abandon()
        count, written = len(self._offsets), sum(offset is not None for offset in self._offsets)
        doing = f"appending {count} records to {self._topic}"
        first = next(iter(self._errors.values()), None)
        needs = Right("Write", self._topic)
        cause = error_of(first, doing, self._watch, needs) if first is not None else None
        if written == 0 and cause is not None and all(map(_is_refusal, self._errors.values())):
            if isinstance(cause, AuthenticationError):
                return cause
            return MetadataWriteFailed(f"{cause.message}; none was written", hint=cause.hint)
        reason = why or self._fatal or (first.str() if first is not None else "the offsets were not told")
        return MetadataWriteUnknown(
            f"{doing}: {reason}; {written} were acknowledged, the others may or may not be written"
            f"{self._watch.facts}",
            hint=_HINT_UNKNOWN,
        )

    def abandon(self) -> None:
        """Drop the records that are not sent, and wait for the delivery reports of the others."""
        self._producer.purge()
        deadline = time.monotonic() + _LAST_REPORTS_S
        while len(self._producer) and time.monotonic() < deadline:
            self._poll()


def _is_refusal(error: Any) -> bool:
    """Return whether the error states that the record was not written."""
    return error.name() in _REFUSALS


class ClusterTopic:
    """Implement MetadataTopic over a cluster; several threads may read and append at the same time.

    Reading assigns partitions and joins no consumer group. A missing topic is created with the settings
    `create`, if given. `expected_partitions` is the partition count in the brokers' configuration. Each call
    raises SafetyRefusal if the topic's id or partition count has changed, because events would then go to
    partitions that brokers do not read. Raises NotFoundError if the topic is missing, AuthenticationError
    if `writable` and writing is not allowed, and MetadataError.
    """

    def __init__(
        self,
        clients: MetadataClients,
        *,
        writable: bool = False,
        create: MetadataTopicSettings | None = None,
        expected_partitions: int | None = None,
        topic: str = METADATA_TOPIC,
    ) -> None:
        self._writable = writable
        self._topic = topic
        self._where = clients.admin.bootstrap
        self._admin = TopicAdmin(clients.admin)
        self._reader = TopicReader(clients.consumer, topic)
        self._publisher = TopicPublisher(clients.producer, topic)
        if create is not None and not self._admin.exists(topic):
            self._create(create)
        self._shape = self._find()
        if writable:
            # The right to write is checked before the run's first side effect.
            self._admin.require(topic, "Read", "Write")
        if expected_partitions not in {None, self._shape.partition_count}:
            raise SafetyRefusal(
                f"{topic} has {self._shape.partition_count} partitions, expected are {expected_partitions}",
                hint="the number of partitions decides where events are: set "
                "remote.log.metadata.topic.num.partitions to the number that the topic has",
            )

    def _create(self, settings: MetadataTopicSettings) -> None:
        # Source: TopicBasedRemoteLogMetadataManager.createRemoteLogMetadataTopicRequest.
        self._admin.create(
            self._topic,
            partition_count=settings.num_partitions,
            replication_factor=settings.replication_factor,
            settings={
                topic.CLEANUP_POLICY.name: "delete",
                topic.RETENTION_MS.name: str(settings.retention_ms),
                topic.MIN_INSYNC_REPLICAS.name: str(settings.min_isr),
                topic.REMOTE_STORAGE_ENABLE.name: "false",
            },
        )

    def _find(self) -> TopicShape:
        try:
            return self._admin.shape(self._topic)
        except NotFoundError:
            raise NotFoundError(
                f"{self._where} has no topic {self._topic}",
                hint="brokers create it when tiered storage is enabled; check that this is the cluster of "
                "the metadata topic",
            ) from None

    @property
    def partition_count(self) -> int:
        """Implement `MetadataTopic.partition_count`."""
        return self._shape.partition_count

    @property
    def topic_id(self) -> Uuid | None:
        """Implement `MetadataTopic.topic_id`."""
        return self._shape.topic_id

    def identity(self) -> ClusterIdentity:
        """Implement `MetadataTopic.identity` with one request."""
        cluster_id = self._admin.describe_cluster().cluster_id
        return ClusterIdentity(cluster_id=cluster_id or None, metadata_topic_id=self._shape.topic_id)

    def beginning_offsets(self) -> dict[int, int]:
        """Implement `MetadataTopic.beginning_offsets` with one request for all partitions."""
        return self._admin.offsets(self._topic, self.partition_count, latest=False)

    def end_offsets(self) -> dict[int, int]:
        """Implement `MetadataTopic.end_offsets`: the high watermarks, with one request for all partitions."""
        self._check_unchanged()
        return self._admin.offsets(self._topic, self.partition_count, latest=True)

    def offsets_for_time(self, partitions: Collection[int], timestamp_ms: int) -> dict[int, int]:
        """Implement `MetadataTopic.offsets_for_time` with one request."""
        return self._admin.offsets_for_time(self._topic, partitions, timestamp_ms)

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Implement `MetadataTopic.read`; raise MetadataError if no records arrive before a timeout."""
        return self._reader.read(partition, start_offset, end_offset)

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """Implement `MetadataTopic.append`.

        Raises MetadataWriteFailed if no record was written, MetadataWriteUnknown if some may have been.
        """
        if not self._writable:
            raise MetadataError(f"{self._topic} on {self._where} was opened for reading only")
        self._check_unchanged()
        return self._publisher.append(records) if records else []

    def _check_unchanged(self) -> None:
        found = self._admin.shape(self._topic)
        if found != self._shape:
            raise SafetyRefusal(
                f"{self._topic} has id {found.topic_id} and {found.partition_count} partitions now; it had "
                f"{self._shape.topic_id} and {self._shape.partition_count} when this run began",
                hint="the topic was changed or created again: check it before you run this command again",
            )

    def close(self) -> None:
        """Implement `MetadataTopic.close`."""
        self._reader.close()
        self._publisher.close()


def open_on_cluster(location: TopicLocation, *, writable: bool, create: bool) -> ClusterTopic:
    """Open the topic at a kafka:// location; `create` makes a missing topic with the settings in its files.

    Raises UsageError for settings that cannot work, and the errors of ClusterTopic.
    """
    config, command_config = location.config, location.command_config
    server = ServerSettings.from_properties({}) if config is None else ServerSettings.read(Path(config))
    own_settings = None if command_config is None else Path(command_config)
    return ClusterTopic(
        metadata_clients(location.servers, own_settings, server),
        writable=writable,
        create=server.topic if create else None,
        expected_partitions=server.expected_partitions,
    )
