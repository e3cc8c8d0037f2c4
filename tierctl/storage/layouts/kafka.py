"""Layout `kafka`, LocalTieredStorage's: one object a file, as it is, on whichever store.

`kafka-tiered-storage/<topic>-<partition>-<topicId>/<startOffset %020d>-<segmentId><suffix>`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from tierctl.errors import SafetyRefusal
from tierctl.model import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.storage.layouts.base import Encoded
from tierctl.storage.stores.base import ObjectStore, Source

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
_FOLDER = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,10})-([A-Za-z0-9_-]{22})\Z")
_FILE = re.compile(r"(\d{20})-([A-Za-z0-9_-]{22})(\.[a-z_]+)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """What the key of an object says; `suffix` is one of SUFFIXES."""

    topic_id_partition: TopicIdPartition
    start_offset: int
    segment_id: Uuid
    suffix: str


def require_legal(metadata: RemoteLogSegmentMetadata) -> None:
    """SafetyRefusal unless all that a key is made of is what Kafka writes: metadata are data."""
    partition = metadata.topic_id_partition
    hint = "the metadata record that names it is wrong or hostile; look at it with tierctl format"
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
    """The key of the segment's objects, without suffix; SafetyRefusal as `require_legal`."""
    require_legal(metadata)
    folder = f"{metadata.topic}-{metadata.partition}-{metadata.topic_id}"
    return f"{ROOT_FOLDER}/{folder}/{metadata.start_offset:020d}-{metadata.segment_id}"


def keys_of(metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
    """Every key that the segment's objects can have, in the order of SUFFIXES."""
    stem = key_stem(metadata)
    return tuple(stem + suffix for suffix in SUFFIXES)


def parse_key(key: str) -> ObjectName | None:
    """What a key says, None when it is no object of this layout."""
    parts = key.split("/")
    if len(parts) != 3 or parts[0] != ROOT_FOLDER:
        return None
    folder, file = _FOLDER.match(parts[1]), _FILE.match(parts[2])
    if folder is None or file is None or file[3] not in SUFFIXES:
        return None
    return ObjectName(
        topic_id_partition=TopicIdPartition(Uuid(folder[3]), folder[1], int(folder[2])),
        start_offset=int(file[1]),
        segment_id=Uuid(file[2]),
        suffix=file[3],
    )


class KafkaLayout:
    """SegmentLayout of LocalTieredStorage; there is no custom metadata."""

    base = f"{ROOT_FOLDER}/"

    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """SegmentLayout.keys_of."""
        return keys_of(metadata)

    def keys_to_delete(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
        """SegmentLayout.keys_to_delete; keys are made of the segment's own id only."""
        return keys_of(metadata)

    @contextmanager
    def encoded(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> Iterator[Encoded]:
        """SegmentLayout.encoded: the files as they are."""
        stem = key_stem(metadata)
        objects: dict[str, Source | None] = {stem + LOG_SUFFIX: data.log_segment}
        objects |= {stem + INDEX_SUFFIXES[kind]: source for kind, source in index_sources(data).items()}
        yield Encoded(objects=objects)

    def open_log(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int | None
    ) -> BinaryIO:
        """SegmentLayout.open_log."""
        return store.open(key_stem(metadata) + LOG_SUFFIX, start, end)

    def open_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> BinaryIO:
        """SegmentLayout.open_index."""
        return store.open(key_stem(metadata) + INDEX_SUFFIXES[index_type])


def index_sources(data: LogSegmentData) -> dict[IndexType, Source | None]:
    """What each index is made from, in the order Aiven's manifest has them; None for one that is not."""
    return {
        IndexType.OFFSET: data.offset_index,
        IndexType.TIMESTAMP: data.time_index,
        IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot_index,
        IndexType.LEADER_EPOCH: data.leader_epoch_index,
        IndexType.TRANSACTION: data.transaction_index,
    }
