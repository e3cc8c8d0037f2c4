"""The contract of a manager of remote log metadata (KIP-405 RemoteLogMetadataManager)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tierctl.model import (
    ClusterIdentity,
    MetadataEvent,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from tierctl.state.tier import TierState


def no_op() -> None:
    """Allow the append: used if no check is needed."""


class RemoteLogMetadataManager(Protocol):
    """Strongly consistent metadata of remote segments; `open_metadata` returns one.

    Every method raises what the metadata topic raises.
    """

    @property
    def state(self) -> TierState:
        """Return the state after the last `refresh` or `publish`; `state.read` has the offsets read."""
        ...

    def refresh(self) -> TierState:
        """Read every metadata partition up to the end offsets at the time of the call."""
        ...

    def publish(self, events: Sequence[MetadataEvent], *, before_append: Callable[[], None] = no_op) -> None:
        """Publish events in order with one acknowledgement for all; return once they are read into `state`.

        The partitions of the events are read to their ends first; `before_append` is called after that, as
        the last step before the append, which an error that it raises prevents. Without events, only replicas
        that the topic has in other log directories are completed.
        Raises MetadataError if a transition is not allowed and RemoteResourceNotFound for an update of an
        unknown segment; then none of the events is published.
        """
        ...

    def list_remote_log_segments(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments of `partition` that are not deleted, in no particular order."""
        ...

    def identity(self) -> ClusterIdentity:
        """Return the ids of the metadata topic and of its cluster, as far as they are known."""
        ...

    def metadata_partition(self, partition: TopicIdPartition) -> int:
        """Return the number of the metadata partition that has the events of `partition`."""
        ...

    def close(self) -> None:
        """Write the state directory and release the topic."""
        ...
