"""Write the metadata topic of a formatted node; it does not exist until the first event is published."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from tierctl.commands.resources import Resources
from tierctl.errors import RemoteTierMissing, SafetyRefusal
from tierctl.files import read_regular
from tierctl.locallog import FormattedNode
from tierctl.metadata.manager import RemoteLogMetadataManager, no_op, open_metadata
from tierctl.metadata.server_properties import MetadataTopicSettings, ServerSettings
from tierctl.metadata.topic import METADATA_TOPIC, IfMissing, topic_location
from tierctl.metadata.topic.folder import partition_folder, partitions_in
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model import ClusterIdentity, MetadataEvent, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.model.settings import topic
from tierctl.plan.restore import NewTopic
from tierctl.state.tier_state import TierState
from tierctl.storage import RemoteStorageManager
from tierctl.storage.identity import read_identity
from tierctl.wire.files.checkpoints import PARTITION_METADATA_FILE, read_partition_metadata
from tierctl.wire.metadata.partitioner import metadata_partition


class NewNodeMetadata:
    """Implement RemoteLogMetadataManager over the first log directory; `publish` creates the topic."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._folder = Path(resources.request.log_dir[0])
        self._settings = _topic_settings(resources.request.broker_config)
        self._manager: RemoteLogMetadataManager | None = None
        self._is_writable = False
        self._empty = TierState()
        self._topic_id: Uuid | None = None

    def topic(self, node: FormattedNode, remote: RemoteStorageManager) -> NewTopic:
        """Return the metadata topic to create in the cluster metadata; its id is the same in every run.

        The id is taken from the topic that a killed run made, or else from the tier's identity, or else
        derived from the node. Raise SafetyRefusal if a killed run made another number of partitions.
        """
        made, count = partitions_in(self._folder), self._settings.num_partitions
        if made:
            if made[-1] + 1 != count:
                raise SafetyRefusal(
                    f"{self._folder} has {made[-1] + 1} partitions of {METADATA_TOPIC}, expected are {count}",
                    hint="name the server.properties of the node with --broker-config, the same as in the "
                    "first run",
                )
            path = partition_folder(self._folder, made[-1]) / PARTITION_METADATA_FILE
            self._topic_id = read_partition_metadata(read_regular(path))
        else:
            self._topic_id = _known_id(remote) or _derived_id(node)
        settings = self._settings
        return NewTopic(
            topic=METADATA_TOPIC,
            topic_id=self._topic_id,
            # As TopicBasedRemoteLogMetadataManager creates it.
            settings={
                topic.CLEANUP_POLICY.name: "delete",
                topic.RETENTION_MS.name: str(settings.retention_ms),
                topic.MIN_INSYNC_REPLICAS.name: str(settings.min_isr),
                topic.REMOTE_STORAGE_ENABLE.name: "false",
            },
            # Their batches have leader epoch 0.
            leader_epochs=[1] * count,
            log_dir=self._folder,
        )

    @property
    def state(self) -> TierState:
        """Implement `RemoteLogMetadataManager.state`."""
        return self._empty if self._manager is None else self._manager.state

    def refresh(self) -> TierState:
        """Implement `RemoteLogMetadataManager.refresh`; an incomplete topic counts as empty."""
        if self._manager is None and 0 in partitions_in(self._folder):
            self._manager = self._opened(writable=False)
        return self._empty if self._manager is None else self._manager.refresh()

    def publish(self, events: Sequence[MetadataEvent], *, before_append: Callable[[], None] = no_op) -> None:
        """Implement `RemoteLogMetadataManager.publish`; the first call creates the topic."""
        if self._manager is None or not self._is_writable:
            self.close()
            self._manager, self._is_writable = self._opened(writable=True), True
            self._manager.refresh()
        self._manager.publish(events, before_append=before_append)

    def _opened(self, *, writable: bool) -> RemoteLogMetadataManager:
        location = topic_location("--log-dir", str(self._folder.absolute()))
        folder = None
        if writable and self._topic_id is not None:
            count, topic_id = self._settings.num_partitions, self._topic_id
            folder = FolderSettings(partition_count=count, new_topic_id=lambda: topic_id)
        return open_metadata(
            location,
            writable=writable,
            if_missing=IfMissing.CREATE if writable else IfMissing.FAIL,
            on_torn=self._resources.progress.note,
            folder=folder,
        )

    def list_remote_log_segments(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """Implement `RemoteLogMetadataManager.list_remote_log_segments`."""
        return iter(()) if self._manager is None else self._manager.list_remote_log_segments(partition)

    def identity(self) -> ClusterIdentity:
        """Implement `RemoteLogMetadataManager.identity`: the node has no topic yet."""
        return ClusterIdentity(cluster_id=None, metadata_topic_id=None)

    def metadata_partition(self, partition: TopicIdPartition) -> int:
        """Implement `RemoteLogMetadataManager.metadata_partition`."""
        return metadata_partition(partition.topic_id, partition.partition, self._settings.num_partitions)

    def close(self) -> None:
        """Implement `RemoteLogMetadataManager.close`."""
        if self._manager is not None:
            self._manager.close()
        self._manager = None


def _topic_settings(config: Path | None) -> MetadataTopicSettings:
    return MetadataTopicSettings() if config is None else ServerSettings.read(config).topic


def _known_id(remote: RemoteStorageManager) -> Uuid | None:
    with suppress(RemoteTierMissing):
        identity = read_identity(remote)
        return None if identity is None else identity.cluster.metadata_topic_id
    return None


def _derived_id(node: FormattedNode) -> Uuid:
    """Derive an id from the ids of the cluster and its directories, which format chooses at random.

    The id does not begin with '-', as in Kafka's Uuid.randomUuid, so that no tool takes it for an option.
    """
    seed = "\0".join([node.cluster_id, *sorted(node.directories.values())]).encode()
    while True:
        seed = sha256(seed + METADATA_TOPIC.encode()).digest()
        found = Uuid.from_bytes(seed[:16])
        if not found.startswith("-"):
            return found
