"""TopicBasedRemoteLogMetadataManager: what a broker knows of its tier, over any MetadataTopic."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from tierctl.errors import MetadataError
from tierctl.metadata.parallel_fold import BulkFold, BulkReading, Span, spans_of
from tierctl.metadata.state_dir.directory import StateDirectory
from tierctl.metadata.topic.base import MetadataTopic
from tierctl.metadata.topic_fold import TopicFold
from tierctl.metadata.transitions import Transitions
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.tier import TierState
from tierctl.wire.batches.chunks import RecordChunk
from tierctl.wire.metadata import encode
from tierctl.wire.metadata.partitioner import metadata_partition


class TopicBasedRemoteLogMetadataManager:
    """RemoteLogMetadataManager over `topic`; with `state_dir` it goes on from what an earlier run kept.

    A metadata partition whose history isn't complete, or isn't understood, is in `state.quarantined`.
    One thread publishes. With `bulk` that does the first refresh's reading.
    """

    def __init__(
        self, topic: MetadataTopic, *, state_dir: StateDirectory | None = None, bulk: BulkFold | None = None
    ) -> None:
        self._topic = topic
        self._state_dir = state_dir
        self._bulk = bulk
        self._state = TierState()
        self._folding = TopicFold(self._state, topic.partition_count, state_dir)
        if state_dir is not None:
            state_dir.load(self._state, topic)
            self._folding.quarantine_beginnings()

    @property
    def state(self) -> TierState:
        """RemoteLogMetadataManager.state."""
        return self._state

    def refresh(self) -> TierState:
        """RemoteLogMetadataManager.refresh; what was read is kept in the state directory."""
        spans = spans_of(self._topic.beginning_offsets(), self._topic.end_offsets())
        if self._bulk is not None and not self._is_little(spans):
            bulk, self._bulk = self._bulk, None
            reading = BulkReading(topic=self._topic, state=self._state, bulk=bulk, keeper=self._state_dir)
            reading.catch_up(spans)
        else:
            self._catch_up(spans)
        if self._state_dir is not None:
            self._state_dir.commit(self._state)
        return self._state

    def _is_little(self, spans: Iterable[Span]) -> bool:
        """Whether telling somebody else what is known takes longer than reading what is new."""
        known = sum(len(part.cache) for part in self._state.partitions.values())
        return sum(span.left(self._state) for span in spans) < known

    def _catch_up(self, spans: Iterable[Span]) -> None:
        for span in spans:
            self._folding.catch_up(self._topic, span.metadata_partition, span.begin, span.end)

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> None:
        """RemoteLogMetadataManager.put_remote_partition_delete_metadata."""
        self.publish([metadata])

    def publish(self, events: Sequence[MetadataEvent]) -> None:
        """RemoteLogMetadataManager.publish; every transition is checked before the first is published."""
        records = [(self._partition_of(event), encode(event)) for event in events]
        begins, ends = self._topic.beginning_offsets(), self._topic.end_offsets()
        written = {partition for partition, _ in records}
        self._catch_up(span for span in spans_of(begins, ends) if span.metadata_partition in written)
        transitions = Transitions(self._state)
        for event in events:
            transitions.check(event)
        if records:
            self._read_back(records, self._topic.append(records))

    def _read_back(self, records: Sequence[tuple[int, bytes]], offsets: Sequence[int]) -> None:
        """Fold our own events as anybody would read them, and see that they are what was sent."""
        sent = {
            (partition, offset): value for (partition, value), offset in zip(records, offsets, strict=True)
        }
        ends = {partition: offset + 1 for partition, offset in sorted(sent)}
        for partition, end_offset in ends.items():
            for chunk in self._topic.read(partition, self._state.read[partition], end_offset):
                for offset, value in _records_of(chunk):
                    if sent.get((partition, offset)) == value:
                        del sent[partition, offset]
                self._folding.fold(chunk)
        if sent:
            raise MetadataError(
                f"published events were not read back from {sorted(sent)} (metadata partition, offset)",
                hint="does somebody else write to this metadata topic? nothing more is done",
            )

    def _partition_of(self, event: MetadataEvent) -> int:
        if isinstance(event, RemoteLogSegmentMetadataSnapshot):
            raise MetadataError("a snapshot record is no event of the metadata topic")
        return self.metadata_partition(event.topic_id_partition)

    def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """RemoteLogMetadataManager.remote_log_segment_metadata."""
        cache = self._cache(partition)
        return None if cache is None else cache.remote_log_segment_metadata(epoch, offset)

    def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """RemoteLogMetadataManager.highest_offset_for_epoch."""
        cache = self._cache(partition)
        return None if cache is None else cache.highest_offset_for_epoch(epoch)

    def list_remote_log_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """RemoteLogMetadataManager.list_remote_log_segments."""
        cache = self._cache(partition)
        return iter(()) if cache is None else cache.list_remote_log_segments(epoch)

    def metadata_partition(self, partition: TopicIdPartition) -> int:
        """RemoteLogMetadataManager.metadata_partition."""
        return metadata_partition(partition.topic_id, partition.partition, self._topic.partition_count)

    def _cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache | None:
        known = self._state.partition(partition)
        return None if known is None else known.cache

    def close(self) -> None:
        """RemoteLogMetadataManager.close; what publishing read back is kept first."""
        try:
            if self._state_dir is not None:
                self._state_dir.commit(self._state)
                self._state_dir.close()
        finally:
            self._topic.close()


def _records_of(chunk: RecordChunk) -> Iterable[tuple[int, bytes | None]]:
    values: pa.Array = chunk.values
    return zip(chunk.offsets.tolist(), values.to_pylist(), strict=True)
