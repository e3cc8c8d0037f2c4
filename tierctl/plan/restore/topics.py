"""Build the cluster metadata records (KRaft) that create the restored topics in a new cluster."""

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
"""Topic settings that stop brokers from copying segments and from raising the log start (KIP-950)."""
COPY_DISABLE_LEVEL = 21
"""The feature level of metadata.version in Kafka 3.9, the first version with remote.log.copy.disable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBroker:
    """The broker that gets every partition; `directories` maps its log directories to their directory ids."""

    node_id: int
    directories: Mapping[Path, Uuid]
    metadata_version: int

    def log_dir(self, topic: str, partition: int) -> Path:
        """Return the log directory for a partition; the choice is the same in each run."""
        dirs = list(self.directories)
        return dirs[(crc32(topic.encode()) + partition) % len(dirs)]

    @property
    def start_settings(self) -> Mapping[str, str]:
        """Return the settings that override the topic's own ones until the restore has been checked."""
        # Older brokers do not have these settings. They know all segments when they start, so they may copy.
        return COPYING_DISABLED if self.metadata_version >= COPY_DISABLE_LEVEL else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create with `settings`; `leader_epochs[i]` is the leader epoch of partition i.

    All partitions are in `log_dir`; if that is None, they are spread over the broker's log directories.
    """

    topic: str
    topic_id: Uuid
    settings: Mapping[str, str]
    leader_epochs: Sequence[int]
    log_dir: Path | None = None

    def records(self, broker: NewBroker) -> list[bytes]:
        """Return the records of the topic, its settings and its partitions; `broker` is the only replica."""
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
