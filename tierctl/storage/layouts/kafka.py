"""Layout `kafka`, which LocalTieredStorage writes: one unchanged object per file of a segment.

`kafka-tiered-storage/<topic>-<partition>-<topicId>/<startOffset %020d>-<segmentId><suffix>`.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import BinaryIO, ClassVar, NamedTuple

from tierctl.errors import CorruptInputError, SafetyRefusal
from tierctl.files import TEMP_SUFFIX
from tierctl.model import (
    IndexType,
    ListedSet,
    LogEnd,
    LogSegmentData,
    ObjectPart,
    ObjectSet,
    RemoteLogSegmentMetadata,
    SegmentObjectName,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.local import LARGEST_OFFSET
from tierctl.state.lineage import Lineage
from tierctl.storage.layouts.base import Encoded, incomplete, read_log_facts, unknown_segment
from tierctl.storage.stores.base import ObjectStore, Source
from tierctl.wire.files.checkpoints import decode_producer_snapshot, read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset

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


# Parse the keys of listed objects and folders, in every layout.
#
# `kafka`: `…/<topic>-<partition>-<topicId>/<start %020d>-<segmentId><suffix>`;
# `aiven`: `{prefix}<topic>-<topicId>/<partition>/<start %020d>-<segmentId>.{log|indexes|rsm-manifest}`.

_FILE = r"/(\d{20})-([A-Za-z0-9_-]{22})\Z"
_KAFKA = re.compile(r"(?:.*/)?[a-zA-Z0-9._-]{1,249}-(\d{1,10})-([A-Za-z0-9_-]{22})" + _FILE)
_AIVEN = re.compile(r".*[a-zA-Z0-9._-]-([A-Za-z0-9_-]{22})/(\d{1,10})" + _FILE)

_KAFKA_FOLDER = re.compile(r"(?:.*/)?[a-zA-Z0-9._-]{1,249}-(\d{1,10})-([A-Za-z0-9_-]{22})/\Z")
_AIVEN_FOLDER = re.compile(r".*[a-zA-Z0-9._-]-([A-Za-z0-9_-]{22})/(?:(\d{1,10})/)?\Z")

_KAFKA_PARTS: Mapping[str, int] = {
    LOG_SUFFIX: int(ObjectPart.LOG),
    INDEX_SUFFIXES[IndexType.OFFSET]: int(ObjectPart.OFFSET),
    INDEX_SUFFIXES[IndexType.TIMESTAMP]: int(ObjectPart.TIMESTAMP),
    INDEX_SUFFIXES[IndexType.LEADER_EPOCH]: int(ObjectPart.LEADER_EPOCH),
    INDEX_SUFFIXES[IndexType.PRODUCER_SNAPSHOT]: int(ObjectPart.PRODUCER_SNAPSHOT),
    INDEX_SUFFIXES[IndexType.TRANSACTION]: int(ObjectPart.TRANSACTION),
}
_AIVEN_PARTS: Mapping[str, int] = {
    LOG_SUFFIX: int(ObjectPart.LOG),
    ".indexes": int(ObjectPart.INDEXES),
    ".rsm-manifest": int(ObjectPart.MANIFEST),
}


class SegmentStem(NamedTuple):
    """The facts in the stem that the keys of a segment's objects share.

    `parts` has the bit of each `ObjectPart` of the layout by the suffix of its keys: listings are long, and
    operations on members of an enumeration take ten times as long as those on their numbers.
    """

    topic_id: Uuid
    partition: int
    start_offset: int
    segment_id: Uuid
    parts: Mapping[str, int]


def split_key(key: str) -> tuple[str, str]:
    """Return the stem and the suffix of a key, which begins with the last dot."""
    stem, dot, suffix = key.rpartition(".")
    return stem, dot + suffix


def segment_stem(stem: str) -> SegmentStem | None:
    """Parse the stem of a key; return None if no layout gives such keys to the objects of a segment."""
    found = _KAFKA.match(stem)
    if found is not None:
        partition, topic_id, start, segment_id = found.groups()
        return SegmentStem(Uuid(topic_id), int(partition), int(start), Uuid(segment_id), _KAFKA_PARTS)
    found = _AIVEN.match(stem)
    if found is None:
        return None
    topic_id, partition, start, segment_id = found.groups()
    return SegmentStem(Uuid(topic_id), int(partition), int(start), Uuid(segment_id), _AIVEN_PARTS)


def segment_object_name(key: str) -> SegmentObjectName | None:
    """Parse the key of an object; return None if no layout gives such a key to a segment's object."""
    stem, suffix = split_key(key)
    found = segment_stem(stem)
    part = None if found is None else found.parts.get(suffix)
    if found is None or part is None:
        return None
    return SegmentObjectName(
        topic_id=found.topic_id,
        partition=found.partition,
        start_offset=found.start_offset,
        segment_id=found.segment_id,
        part=ObjectPart(part),
        stem=stem,
    )


def owner_of_folder(folder: str) -> tuple[Uuid, int | None] | None:
    """Return the topic id, and the partition if one, whose segments belong in `folder`.

    Return None if `folder` is not the folder of a topic or partition in any layout. Objects below
    `folder` may still have the ids of other topics in their names.
    """
    found = _KAFKA_FOLDER.match(folder)
    if found is not None:
        return Uuid(found[2]), int(found[1])
    found = _AIVEN_FOLDER.match(folder)
    if found is None:
        return None
    return Uuid(found[1]), None if found[2] is None else int(found[2])


def is_temporary(key: str) -> bool:
    """Return whether the key is a temporary name of a segment's object, used while the object is written."""
    return key.endswith(TEMP_SUFFIX) and segment_object_name(key.removesuffix(TEMP_SUFFIX)) is not None
