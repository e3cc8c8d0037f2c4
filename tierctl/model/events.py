"""Metadata events: what a record of `__remote_log_metadata` says.

Names are those of the JSON, the columns and the tables everywhere. A field that the record's dialect
does not have is None: kip405 records carry a leader epoch where Kafka's carry a broker id.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tierctl.model.ids import TopicIdPartition, Uuid
from tierctl.model.states import RemoteLogSegmentState, RemotePartitionDeleteState

# (tag number, raw bytes) pairs of a flexible record, kept for re-encoding, in wire order.
UnknownTags = tuple[tuple[int, bytes], ...]
# The same within a record, by place: "remote_log_segment_id", "remote_log_segment_id.topic_id_partition",
# "topic_id_partition" or "segment_leader_epochs.N".
NestedTags = tuple[tuple[str, UnknownTags], ...]


class Dialect(StrEnum):
    """How the value is written: what Kafka ships, or what KIP-405's text says."""

    KAFKA = "kafka"
    KIP405 = "kip405"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    topic: str
    topic_id: Uuid
    partition: int

    type: ClassVar[str]

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The user partition the event is about."""
        return TopicIdPartition(self.topic_id, self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadata(_Event):
    """apiKey 0: a segment's full metadata (RemoteLogSegmentMetadata).

    Offsets are inclusive; `segment_leader_epochs` are (epoch, start offset) pairs in wire order;
    `custom_metadata` is KIP-917's opaque bytes (b"" and None differ).
    """

    type: ClassVar[str] = "RemoteLogSegmentMetadata"

    segment_id: Uuid
    start_offset: int
    end_offset: int
    broker_id: int | None = None
    leader_epoch: int | None = None
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: tuple[tuple[int, int], ...]
    segment_size_in_bytes: int
    custom_metadata: bytes | None = None
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    txn_index_empty: bool = False
    unknown_tags: UnknownTags = ()
    nested_tags: NestedTags = ()

    def epoch_end_offset(self, epoch: int) -> int:
        """Last offset (inclusive) that `epoch` may have in this segment: the next epoch's start less one."""
        later = [(e, start) for e, start in dict(self.segment_leader_epochs).items() if e > epoch]
        return min(later)[1] - 1 if later else self.end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadataUpdate(_Event):
    """apiKey 1: a segment's new state (RemoteLogSegmentMetadataUpdate)."""

    type: ClassVar[str] = "RemoteLogSegmentMetadataUpdate"

    segment_id: Uuid
    broker_id: int | None = None
    leader_epoch: int | None = None
    event_timestamp_ms: int
    state: RemoteLogSegmentState
    custom_metadata: bytes | None = None
    unknown_tags: UnknownTags = ()
    nested_tags: NestedTags = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartitionDeleteMetadata(_Event):
    """apiKey 2: a partition's deletion (RemotePartitionDeleteMetadata)."""

    type: ClassVar[str] = "RemotePartitionDeleteMetadata"

    broker_id: int | None = None
    epoch: int | None = None
    event_timestamp_ms: int
    state: RemotePartitionDeleteState
    unknown_tags: UnknownTags = ()
    nested_tags: NestedTags = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadataSnapshot:
    """apiKey 3: a segment in a `remote_log_snapshot`, whose file names the partition."""

    type: ClassVar[str] = "RemoteLogSegmentMetadataSnapshot"

    segment_id: Uuid
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: tuple[tuple[int, int], ...]
    segment_size_in_bytes: int
    custom_metadata: bytes | None = None
    state: RemoteLogSegmentState
    txn_index_empty: bool = False
    unknown_tags: UnknownTags = ()
    nested_tags: NestedTags = ()


MetadataEvent = (
    RemoteLogSegmentMetadata
    | RemoteLogSegmentMetadataUpdate
    | RemotePartitionDeleteMetadata
    | RemoteLogSegmentMetadataSnapshot
)


def dialect_of(event: MetadataEvent) -> Dialect:
    """Which dialect the event was written in: only Kafka's has a broker id."""
    return Dialect.KIP405 if getattr(event, "broker_id", None) is None else Dialect.KAFKA


EVENT_TYPES = tuple(
    event.type
    for event in (
        RemoteLogSegmentMetadata,
        RemoteLogSegmentMetadataUpdate,
        RemotePartitionDeleteMetadata,
        RemoteLogSegmentMetadataSnapshot,
    )
)
"""The type names of all metadata events."""
