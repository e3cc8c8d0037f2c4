"""The contracts of remote log metadata (KIP-405 RemoteLogMetadataManager).

`MetadataTopic` is the transport: partitions of records, on a cluster or in a folder on disk.
`RemoteLogMetadataManager` is what a broker sees on top of it; one implementation serves every transport.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
    Uuid,
)
from tierctl.state.tier import TierState
from tierctl.wire.batches.chunks import RecordChunk

METADATA_TOPIC = "__remote_log_metadata"
DEFAULT_METADATA_PARTITIONS = 50


class MetadataTopic(Protocol):
    """`__remote_log_metadata` as partitions of records."""

    @property
    def partition_count(self) -> int:
        """How many metadata partitions there are; the partitioner depends on it."""
        ...

    @property
    def topic_id(self) -> Uuid | None:
        """The topic's id, None when not known; a topic made anew under the same name has another."""
        ...

    def beginning_offsets(self) -> dict[int, int]:
        """First offset of each partition; above 0 means history was lost."""
        ...

    def end_offsets(self) -> dict[int, int]:
        """Next offset to be written, of each partition."""
        ...

    def offsets_for_time(self, partitions: Collection[int], timestamp_ms: int) -> dict[int, int]:
        """Offsets before which all records of a partition are earlier, as near to the first other as it goes.

        Partitions that have no record as late may be left out.
        """
        ...

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Records from `start_offset` up to, not including, `end_offset`."""
        ...

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """Append (partition, value) pairs in order; returns their offsets once all are durable.

        Never transactional: a trailing control marker leaves brokers' consumers waiting.
        Raises MetadataError; LockedError when somebody else is the writer.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


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

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Publish a segment's COPY_SEGMENT_STARTED."""
        ...

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        """Publish a segment's later state."""
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

    def next_segment_with_txn_index(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The first readable segment of `epoch` at or after `offset` whose transaction index is not empty."""
        ...

    def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """Highest offset copied in `epoch`, segments being deleted included."""
        ...

    def list_remote_log_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """Segments not yet deleted: of one epoch by start offset, or all in no order."""
        ...

    def remote_log_size(self, partition: TopicIdPartition, epoch: int) -> int:
        """Bytes of the segments listed for `epoch` (KIP-852)."""
        ...

    def metadata_partition(self, partition: TopicIdPartition) -> int:
        """The metadata partition that holds this user partition's events."""
        ...

    @property
    def read_offsets(self) -> Mapping[int, int]:
        """Next offset to be read, of each metadata partition: what `state` was decided from."""
        ...

    def close(self) -> None:
        """Release the transport; what `--state-dir` keeps is already on disk."""
        ...
