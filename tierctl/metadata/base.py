"""The contract of a manager of remote log metadata (KIP-405 RemoteLogMetadataManager)."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from tierctl.state.tier import TierState


class RemoteLogMetadataManager(Protocol):
    """Strongly consistent metadata of remote segments.

    A method that publishes returns after its own event was read back into `state`.
    Publishing raises RemoteResourceNotFound for an update of an unknown segment and MetadataError when
    the transition is not allowed.
    """

    @property
    def state(self) -> TierState:
        """What has been read so far; call `refresh` to read on."""
        ...

    def refresh(self) -> TierState:
        """Read every partition to the end offsets captured at the call."""
        ...

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> None:
        """Publish a partition's delete state."""
        ...

    def publish(self, events: Sequence[MetadataEvent]) -> None:
        """Publish a wave of events in order, with one acknowledgement for all of them."""
        ...

    def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The readable segment that holds `offset` in leader epoch `epoch`."""
        ...

    def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """Highest offset copied in `epoch`, segments being deleted included."""
        ...

    def list_remote_log_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """Segments not yet deleted: of one epoch by start offset, or all in no order."""
        ...

    def metadata_partition(self, partition: TopicIdPartition) -> int:
        """The metadata partition that holds this user partition's events."""
        ...

    def close(self) -> None:
        """Release the transport; what `--state-dir` keeps is already on disk."""
        ...
