"""Layout `kafka`, which LocalTieredStorage writes: one unchanged object per file of a segment.

`kafka-tiered-storage/<topic>-<partition>-<topicId>/<startOffset %020d>-<segmentId><suffix>`.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import BinaryIO, ClassVar

from tierctl.errors import CorruptInputError, SafetyRefusal
from tierctl.model import (
    IndexType,
    ListedSet,
    LogEnd,
    LogSegmentData,
    ObjectPart,
    ObjectSet,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    is_legal_topic_name,
)
from tierctl.model.tier import LARGEST_OFFSET
from tierctl.state.lineage import Lineage
from tierctl.storage.layouts.base import Encoded, incomplete, unknown_segment
from tierctl.storage.layouts.log_facts import read_log_facts
from tierctl.storage.stores.base import ObjectStore, Source
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset
from tierctl.wire.files.producer_snapshot import decode_producer_snapshot

ROOT_FOLDER = "kafka-tiered-storage"

LOG_SUFFIX = ".log"
INDEX_SUFFIXES: dict[IndexType, str] = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
}
SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES.values())

_ID = re.compile(r"[A-Za-z0-9_-]{22}\Z")


def require_legal(metadata: RemoteLogSegmentMetadata) -> None:
    """Raise SafetyRefusal if a name in the segment's keys is illegal: the record may be hostile."""
    partition = metadata.topic_id_partition
    hint = "the metadata record of the segment is wrong or hostile; show it with tierctl format"
    if not (
        is_legal_topic_name(partition.topic) and _ID.match(partition.topic_id) and partition.partition >= 0
    ):
        raise SafetyRefusal(f"not a legal topic partition for a path: {str(partition)!r}", hint=hint)
    if metadata.start_offset < 0 or not _ID.match(metadata.segment_id):
        raise SafetyRefusal(
            f"not a legal segment for a path: {str(metadata.segment_id)!r} at offset {metadata.start_offset}",
            hint=hint,
        )


def key_stem(metadata: RemoteLogSegmentMetadata) -> str:
    """Return the key of the segment's objects without suffix; raise SafetyRefusal as `require_legal` does."""
    require_legal(metadata)
    folder = f"{metadata.topic}-{metadata.partition}-{metadata.topic_id}"
    return f"{ROOT_FOLDER}/{folder}/{metadata.start_offset:020d}-{metadata.segment_id}"


def keys_of(metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
    """Return every key that an object of the segment can have, in the order of SUFFIXES."""
    stem = key_stem(metadata)
    return tuple(stem + suffix for suffix in SUFFIXES)


class KafkaLayout:
    """SegmentLayout of LocalTieredStorage, which has no custom metadata."""

    name = "kafka"
    base = f"{ROOT_FOLDER}/"
    keys_per_segment = len(SUFFIXES)
    required_objects: ClassVar[Mapping[ObjectPart, str]] = {
        ObjectPart.LOG: LOG_SUFFIX,
        ObjectPart.OFFSET: INDEX_SUFFIXES[IndexType.OFFSET],
        ObjectPart.TIMESTAMP: INDEX_SUFFIXES[IndexType.TIMESTAMP],
        ObjectPart.LEADER_EPOCH: INDEX_SUFFIXES[IndexType.LEADER_EPOCH],
        ObjectPart.PRODUCER_SNAPSHOT: INDEX_SUFFIXES[IndexType.PRODUCER_SNAPSHOT],
    }

    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Implement `SegmentLayout.keys_of`."""
        return keys_of(metadata)

    def renamed(
        self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition
    ) -> RemoteLogSegmentMetadata:
        """Implement `SegmentLayout.renamed`."""
        return moved(metadata, partition)

    def keys_to_delete(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """Implement `SegmentLayout.keys_to_delete`; all keys contain the segment's own id."""
        return keys_of(metadata)

    @contextmanager
    def encoded(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> Iterator[Encoded]:
        """Implement `SegmentLayout.encoded` by the unchanged files."""
        stem = key_stem(metadata)
        objects: dict[str, Source | None] = {stem + LOG_SUFFIX: data.log_segment}
        objects |= {stem + INDEX_SUFFIXES[kind]: source for kind, source in index_sources(data).items()}
        yield Encoded(objects=objects)

    def index_objects(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]
    ) -> Mapping[str, Source]:
        """Implement `SegmentLayout.index_objects`: each index is an object."""
        del store
        stem = key_stem(metadata)
        return {stem + INDEX_SUFFIXES[kind]: data for kind, data in indexes.items()}

    def open_log(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int | None
    ) -> BinaryIO:
        """Implement `SegmentLayout.open_log`."""
        return store.open(key_stem(metadata) + LOG_SUFFIX, start, end)

    def open_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> BinaryIO:
        """Implement `SegmentLayout.open_index`."""
        return store.open(key_stem(metadata) + INDEX_SUFFIXES[index_type])

    def derived(self, store: ObjectStore, listed: ListedSet) -> ObjectSet:
        """Implement `SegmentLayout.derived`: read the whole log, its leader epochs and producer snapshot.

        LocalTieredStorage copies the objects one after another, so each may be missing or cut.
        """
        named = unknown_segment(listed)
        with self.open_index(store, named, IndexType.PRODUCER_SNAPSHOT) as stream:
            producers = decode_producer_snapshot(stream.read())
        with self.open_index(store, named, IndexType.LEADER_EPOCH) as stream:
            lineage = read_leader_epoch_checkpoint(stream.read())
        size_bytes = listed.sizes_bytes[ObjectPart.LOG]
        key = key_stem(named) + LOG_SUFFIX
        log = read_log_facts(partial(store.open, key), key, size_bytes, listed.start_offset)
        indexed, timed, damaged = self._last_entries(store, named)
        reason = _why_cut(log.end_offset, size_bytes, indexed, timed)
        if reason is not None:
            return incomplete(listed, reason)
        epochs = Lineage(lineage).entries_in_range(listed.start_offset, log.end_offset + 1)
        if not epochs or epochs[0].start_offset != listed.start_offset:
            return ObjectSet(
                listed=listed,
                why_not_understood=f"its leader epochs do not reach down to offset {listed.start_offset}",
            )
        # Without timestamps a broker uses the modification time of the file (LogSegment.largestTimestamp).
        timestamp_ms = log.max_timestamp_ms if log.max_timestamp_ms >= 0 else named.event_timestamp_ms
        segment = replace(
            named,
            end_offset=log.end_offset,
            max_timestamp_ms=timestamp_ms,
            segment_leader_epochs=tuple((entry.epoch, entry.start_offset) for entry in epochs),
            segment_size_in_bytes=size_bytes,
            txn_index_empty=not listed.sizes_bytes.get(ObjectPart.TRANSACTION),
        )
        end = LogEnd(
            offset=log.end_offset,
            is_closed=timed is not None and timed.offset >= log.last_base_offset,
            reached_offset=max(lineage[-1].start_offset, *(-1, *(p.last_offset for p in producers))),
            is_idempotent=log.last_producer_id in {p.producer_id for p in producers},
        )
        return ObjectSet(
            listed=listed,
            segment=segment,
            lineage=lineage,
            has_gaps=log.has_gaps,
            log_end=end,
            damaged_indexes=damaged,
        )

    def log_end_offset(self, store: ObjectStore, listed: ListedSet) -> int:
        """Implement `SegmentLayout.log_end_offset`: read the whole log."""
        key = key_stem(unknown_segment(listed)) + LOG_SUFFIX
        size_bytes = listed.sizes_bytes[ObjectPart.LOG]
        return read_log_facts(partial(store.open, key), key, size_bytes, listed.start_offset).end_offset

    def _last_entries(
        self, store: ObjectStore, named: RemoteLogSegmentMetadata
    ) -> tuple[OffsetPosition | None, TimestampOffset | None, tuple[str, ...]]:
        """Return the last entries of the offset and the time index, None if damaged, and the damaged ones."""
        indexed, timed = None, None
        damaged = ["offset index", "time index"]
        with suppress(CorruptInputError), self.open_index(store, named, IndexType.OFFSET) as stream:
            indexed = OffsetIndex.decode(stream.read(), named.start_offset).lookup(LARGEST_OFFSET)
            damaged.remove("offset index")
        with suppress(CorruptInputError), self.open_index(store, named, IndexType.TIMESTAMP) as stream:
            timed = TimeIndex.decode(stream.read(), named.start_offset).last
            damaged.remove("time index")
        return indexed, timed, tuple(damaged)


def _why_cut(
    end_offset: int, size_bytes: int, indexed: OffsetPosition | None, timed: TimestampOffset | None
) -> str | None:
    """Return which index shows that the log had batches after its last one; None if none does.

    `indexed` and `timed` are the last entries of the offset and the time index. A log that was cut between
    two batches looks like one whose last records were compacted away.
    """
    where = f"the log ends at offset {end_offset}, byte {size_bytes}"
    if indexed is not None and (indexed.position >= size_bytes or indexed.offset > end_offset):
        return f"its offset index has offset {indexed.offset} at byte {indexed.position}, {where}"
    if timed is not None and timed.offset > end_offset:
        return f"its time index has offset {timed.offset}, {where}"
    return None


def moved(metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition) -> RemoteLogSegmentMetadata:
    """Return the metadata with the names of another partition."""
    return replace(
        metadata, topic=partition.topic, topic_id=partition.topic_id, partition=partition.partition
    )


def index_sources(data: LogSegmentData) -> dict[IndexType, bytes | None]:
    """Return each index, in the order of Aiven's manifest; None for a missing index."""
    return {
        IndexType.OFFSET: data.offset_index,
        IndexType.TIMESTAMP: data.time_index,
        IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot_index,
        IndexType.LEADER_EPOCH: data.leader_epoch_index,
        IndexType.TRANSACTION: data.transaction_index,
    }
