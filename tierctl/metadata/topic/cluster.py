"""`__remote_log_metadata` on a cluster, through confluent-kafka."""

from collections.abc import Collection, Iterator, Sequence

from tierctl.errors import MetadataError, NotFoundError, SafetyRefusal
from tierctl.kafka.extras import require
from tierctl.kafka.topic_admin import TopicAdmin, TopicShape
from tierctl.kafka.topic_publisher import TopicPublisher
from tierctl.kafka.topic_reader import TopicReader
from tierctl.kafka.topic_settings import MetadataClients, MetadataTopicSettings
from tierctl.metadata.base import METADATA_TOPIC
from tierctl.model import Uuid
from tierctl.wire.batches.chunks import RecordChunk


class MetadataTopicOnCluster:
    """MetadataTopic over a cluster; reads and appends may come from several threads.

    Reading assigns partitions and joins no group. With `make` a topic that is missing is made first.
    `expected_partitions` is what the brokers were configured with. Every call raises SafetyRefusal when the
    topic's id or partition count is no longer what it was: events would go where nobody looks for them.
    Raises NotFoundError when there is no metadata topic, AuthenticationError (`writable`, and we may not
    write), MetadataError, and UsageError for settings that can't work.
    """

    def __init__(
        self,
        clients: MetadataClients,
        *,
        writable: bool = False,
        make: MetadataTopicSettings | None = None,
        expected_partitions: int | None = None,
        topic: str = METADATA_TOPIC,
    ) -> None:
        require("confluent_kafka")
        self._writable = writable
        self._topic = topic
        self._where = clients.admin.bootstrap
        self._admin = TopicAdmin(clients.admin)
        self._reader = TopicReader(clients.consumer, topic)
        self._publisher = TopicPublisher(clients.producer, topic)
        self._shape = self._find(make)
        if writable:
            # Before anything else is done, not when the first event comes to be published.
            self._admin.require(topic, "Read", "Write")
        if expected_partitions not in {None, self._shape.partition_count}:
            raise SafetyRefusal(
                f"{topic} has {self._shape.partition_count} partitions, expected are {expected_partitions}",
                hint="the count decides where events are: set remote.log.metadata.topic.num.partitions to it",
            )

    def _find(self, make: MetadataTopicSettings | None) -> TopicShape:
        if make is not None and not self._admin.exists(self._topic):
            self._admin.create(self._topic, make)
        try:
            return self._admin.shape(self._topic)
        except NotFoundError:
            raise NotFoundError(
                f"{self._where} has no topic {self._topic}",
                hint="brokers make it when tiered storage is on; is this the cluster the metadata are on?",
            ) from None

    @property
    def partition_count(self) -> int:
        """MetadataTopic.partition_count."""
        return self._shape.partition_count

    @property
    def topic_id(self) -> Uuid | None:
        """MetadataTopic.topic_id."""
        return self._shape.topic_id

    def beginning_offsets(self) -> dict[int, int]:
        """MetadataTopic.beginning_offsets, of all partitions in one call."""
        return self._admin.offsets(self._topic, self.partition_count, latest=False)

    def end_offsets(self) -> dict[int, int]:
        """MetadataTopic.end_offsets, of all partitions in one call: their high watermarks."""
        self._check_unchanged()
        return self._admin.offsets(self._topic, self.partition_count, latest=True)

    def offsets_for_time(self, partitions: Collection[int], timestamp_ms: int) -> dict[int, int]:
        """MetadataTopic.offsets_for_time, in one call."""
        return self._admin.offsets_for_time(self._topic, partitions, timestamp_ms)

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """MetadataTopic.read; raises MetadataError when the cluster serves nothing for too long."""
        return self._reader.read(partition, start_offset, end_offset)

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """MetadataTopic.append; MetadataWriteFailed and MetadataWriteUnknown tell what a failure means."""
        if not self._writable:
            raise MetadataError(f"{self._topic} on {self._where} was opened for reading only")
        self._check_unchanged()
        return self._publisher.append(records)

    def _check_unchanged(self) -> None:
        found = self._admin.shape(self._topic)
        if found != self._shape:
            raise SafetyRefusal(
                f"{self._topic} has id {found.topic_id} and {found.partition_count} partitions now; it had "
                f"{self._shape.topic_id} and {self._shape.partition_count} when this run began",
                hint="it was changed or made anew: nothing more is done; look at it before running again",
            )

    def close(self) -> None:
        """MetadataTopic.close."""
        self._reader.close()
        self._publisher.close()
