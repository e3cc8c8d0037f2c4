"""A RemoteLogMetadataManager without a metadata topic: its state is derived from the objects of the tier."""

from collections.abc import Callable, Iterator, Sequence

from tierctl.commands.recovery.in_memory import derive_state
from tierctl.commands.resources import Resources
from tierctl.errors import MetadataError
from tierctl.metadata.manager import no_op
from tierctl.model import ClusterIdentity, MetadataEvent, RemoteLogSegmentMetadata, TopicIdPartition
from tierctl.plan.rebuild.partition_choice import PartitionDecision
from tierctl.state.tier_state import TierState


class DerivedMetadata:
    """Metadata derived once from the tier; `decisions` has the decision about each partition's sets."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._state: TierState | None = None
        self.decisions: dict[TopicIdPartition, PartitionDecision] = {}

    @property
    def state(self) -> TierState:
        """Implement `RemoteLogMetadataManager.state`."""
        return self.refresh()

    def refresh(self) -> TierState:
        """Implement `RemoteLogMetadataManager.refresh`; resolve the selection at the first call."""
        if self._state is None:
            self._state = derive_state(self._resources, list, self._decided)
        return self._state

    def _decided(self, partition: TopicIdPartition, decision: PartitionDecision, _has_log: bool) -> None:
        self.decisions[partition] = decision

    def publish(self, events: Sequence[MetadataEvent], *, before_append: Callable[[], None] = no_op) -> None:
        """Raise MetadataError, because derived metadata has no topic to which events could be published."""
        del events, before_append
        raise MetadataError("metadata that was derived from a tier can't be published")

    def list_remote_log_segments(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """Implement `RemoteLogMetadataManager.list_remote_log_segments`."""
        part = self.state.partition(partition)
        return iter(()) if part is None else iter(list(part.cache.list_remote_log_segments()))

    def identity(self) -> ClusterIdentity:
        """Implement `RemoteLogMetadataManager.identity`: the cluster and the topic id are unknown."""
        return ClusterIdentity(cluster_id=None, metadata_topic_id=None)

    def metadata_partition(self, partition: TopicIdPartition) -> int:
        """Implement `RemoteLogMetadataManager.metadata_partition`: all events are in one partition."""
        del partition
        return 0

    def close(self) -> None:
        """Implement `RemoteLogMetadataManager.close`."""
