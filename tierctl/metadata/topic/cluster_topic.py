"""`__remote_log_metadata` on a cluster, through confluent-kafka."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from tierctl.errors import MetadataError, NotFoundError, SafetyRefusal
from tierctl.kafka.librdkafka import until_heard
from tierctl.kafka.topic_client import TopicAdmin, TopicPublisher, TopicReader, TopicShape
from tierctl.metadata.server_properties import (
    MetadataClients,
    MetadataTopicSettings,
    ServerSettings,
    metadata_clients,
)
from tierctl.metadata.topic.base import METADATA_TOPIC
from tierctl.model import ClusterIdentity, Uuid
from tierctl.model.location import TopicLocation
from tierctl.model.progress import WAITS
from tierctl.model.settings import topic
from tierctl.wire.batches.segment_file import RecordChunk


class ClusterTopic:
    """Implement MetadataTopic over a cluster; several threads may read and append at the same time.

    Reading assigns partitions and joins no consumer group. A missing topic is created with the settings
    `create`, if given. `expected_partitions` is the partition count in the brokers' configuration. Each call
    of `append` and of those that return offsets raises SafetyRefusal if the topic's id or partition count
    has changed, because events would then go to partitions that brokers do not read, and offsets belong to
    other events. `read` does not: a topic that is kept open may have changed. Raises
    NotFoundError if the topic is missing, AuthenticationError if `writable` and writing is not allowed, and
    MetadataError.
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
        """Return the shape; a run that writes waits until the broker that is asked has heard of the topic."""
        try:
            with WAITS.waiting(f"looking for topic {self._topic} on {self._where}"):
                return until_heard(lambda: self._admin.shape(self._topic), waits=self._writable)
        except NotFoundError:
            raise NotFoundError(
                f"{self._where} has no topic {self._topic}",
                hint="brokers create it when tiered storage is enabled, and copy --create-metadata-topic "
                "does; check that this is the cluster of the metadata topic",
            ) from None

    @property
    def partition_count(self) -> int:
        """Implement `MetadataTopic.partition_count`."""
        return self._shape.partition_count

    @property
    def reads_side_by_side(self) -> bool:
        """Implement `MetadataTopic.reads_side_by_side`: the consumer belongs to one thread."""
        return False

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
        self._check_unchanged()
        return self._admin.offsets(self._topic, self.partition_count, latest=False)

    def end_offsets(self) -> dict[int, int]:
        """Implement `MetadataTopic.end_offsets`: the high watermarks, with one request for all partitions."""
        self._check_unchanged()
        return self._admin.offsets(self._topic, self.partition_count, latest=True)

    def offsets_for_time(self, partitions: Collection[int], timestamp_ms: int) -> dict[int, int]:
        """Implement `MetadataTopic.offsets_for_time` with one request."""
        self._check_unchanged()
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
        found = self._find()
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
    config, command_config = location.broker_config, location.command_config
    server = ServerSettings.from_properties({}) if config is None else ServerSettings.read(Path(config))
    own_settings = None if command_config is None else Path(command_config)
    return ClusterTopic(
        metadata_clients(location.servers, own_settings, server, option=location.option),
        writable=writable,
        create=server.topic if create else None,
        expected_partitions=server.expected_partitions,
    )
