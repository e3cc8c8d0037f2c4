"""The records of cluster metadata that give a new cluster its topics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from tierctl.model import Uuid
from tierctl.model.settings import topic
from tierctl.wire.kraft.records import (
    PartitionRegistration,
    config_record,
    partition_record,
    topic_record,
)

COPYING_DISABLED: Mapping[str, str] = {
    topic.COPY_DISABLE.name: "true",
    topic.LOCAL_RETENTION_MS.name: "-2",
    topic.LOCAL_RETENTION_BYTES.name: "-2",
}
"""Topic settings with which no broker copies, nor raises a log start for lack of segments (KIP-950)."""
COPY_DISABLE_LEVEL = 21
"""The level of metadata.version of Kafka 3.9, the first with remote.log.copy.disable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBroker:
    """The broker that gets the partitions; `directories` has the id of each of its log directories."""

    node_id: int
    directories: Mapping[Path, Uuid]
    metadata_version: int

    def log_dir(self, topic: str, partition: int) -> Path:
        """Return the log directory of a partition, the same one in each run."""
        dirs = list(self.directories)
        return dirs[(crc32(topic.encode()) + partition) % len(dirs)]

    @property
    def start_settings(self) -> Mapping[str, str]:
        """Settings that topics are started with, in place of their own."""
        # Older brokers do not know them. They know all segments when they start, so they may copy.
        return COPYING_DISABLED if self.metadata_version >= COPY_DISABLE_LEVEL else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic with `settings`; `leader_epochs` has an entry for each of its partitions, in their order.

    All are in `log_dir`, or spread over the broker's log directories.
    """

    topic: str
    topic_id: Uuid
    settings: Mapping[str, str]
    leader_epochs: Sequence[int]
    log_dir: Path | None = None

    def records(self, broker: NewBroker) -> list[bytes]:
        """Return the records of the topic, its settings and its partitions, which `broker` alone has."""
        partitions = [
            PartitionRegistration(
                topic_id=self.topic_id,
                partition=number,
                node_id=broker.node_id,
                leader_epoch=epoch,
                directory_id=broker.directories[self.log_dir or broker.log_dir(self.topic, number)],
            )
            for number, epoch in enumerate(self.leader_epochs)
        ]
        settings = sorted(self.settings.items())
        return [
            topic_record(self.topic, self.topic_id),
            *(config_record(self.topic, name, value) for name, value in settings),
            *map(partition_record, partitions),
        ]
