"""Metadata events: what a record of `__remote_log_metadata` says.

Names are those of the JSON, the columns and the tables everywhere. A field that the record's dialect
does not have is None: kip405 records carry a leader epoch where Kafka's carry a broker id.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Self

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

    def with_update(self, update: "RemoteLogSegmentMetadataUpdate") -> Self:
        """RemoteLogSegmentMetadata.createWithUpdates: state, time, writer and custom metadata change."""
        return replace(
            self,
            state=update.state,
            event_timestamp_ms=update.event_timestamp_ms,
            broker_id=update.broker_id,
            leader_epoch=update.leader_epoch,
            custom_metadata=update.custom_metadata,
        )

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

# In the order of the golden vectors' `fields`, which is also the order of columns and JSON keys.
FIELD_ORDER = (
    "topic",
    "topic_id",
    "partition",
    "segment_id",
    "start_offset",
    "end_offset",
    "broker_id",
    "leader_epoch",
    "epoch",
    "max_timestamp_ms",
    "event_timestamp_ms",
    "segment_leader_epochs",
    "segment_size_in_bytes",
    "custom_metadata",
    "state",
    "txn_index_empty",
    "type",
)

_PRINTED: dict[str, Callable[[Any], Any]] = {
    "custom_metadata": lambda value: None if value is None else value.hex(),
    "segment_leader_epochs": lambda value: [list(pair) for pair in value],
    "topic_id": str,
    "segment_id": str,
    "state": str,
}

# None in these means "this dialect has no such field", so they are left out of the printed form.
_DIALECT_FIELDS = frozenset({"broker_id", "leader_epoch", "epoch"})
_KAFKA_ONLY_FIELDS = frozenset({"custom_metadata", "txn_index_empty"})


def dialect_of(event: MetadataEvent) -> Dialect:
    """Which dialect the event was written in: only Kafka's has a broker id."""
    return Dialect.KIP405 if getattr(event, "broker_id", None) is None else Dialect.KAFKA


def printed(event: MetadataEvent) -> dict[str, Any]:
    """The event as JSON-ready fields: ids as base64url, custom metadata as hex, states by name."""
    kip405 = dialect_of(event) is Dialect.KIP405
    out: dict[str, Any] = {}
    for name in FIELD_ORDER:
        if not hasattr(event, name) or (kip405 and name in _KAFKA_ONLY_FIELDS):
            continue
        value = getattr(event, name)
        if value is None and name in _DIALECT_FIELDS:
            continue
        out[name] = _PRINTED[name](value) if name in _PRINTED else value
    return out
