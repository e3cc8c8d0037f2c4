"""Metadata events, the decoded records of `__remote_log_metadata`, with the states of segments and of
partition deletes.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from tierctl.model.ids import TopicIdPartition, Uuid


class _State(StrEnum):
    @property
    def id(self) -> int:
        """The byte of the state in records; members have Kafka's order."""
        return list(type(self)).index(self)


class RemoteLogSegmentState(_State):
    """States of a remote segment (org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState)."""

    COPY_SEGMENT_STARTED = "COPY_SEGMENT_STARTED"
    COPY_SEGMENT_FINISHED = "COPY_SEGMENT_FINISHED"
    DELETE_SEGMENT_STARTED = "DELETE_SEGMENT_STARTED"
    DELETE_SEGMENT_FINISHED = "DELETE_SEGMENT_FINISHED"


class RemotePartitionDeleteState(_State):
    """States of a partition's deletion (Kafka's RemotePartitionDeleteState, same package)."""

    DELETE_PARTITION_MARKED = "DELETE_PARTITION_MARKED"
    DELETE_PARTITION_STARTED = "DELETE_PARTITION_STARTED"
    DELETE_PARTITION_FINISHED = "DELETE_PARTITION_FINISHED"


STATE_NAMES = tuple(str(state) for state in (*RemoteLogSegmentState, *RemotePartitionDeleteState))
"""The names of all states of segments and of partition deletes."""

_S = RemoteLogSegmentState
_P = RemotePartitionDeleteState


def writer_text(broker_id: int | None) -> str:
    """Return who wrote an event as text; tierctl's own broker id is negative or unknown."""
    return f"broker {broker_id}" if broker_id is not None and broker_id >= 0 else "tierctl"


# None is the state before the first event. A state may follow itself, since retries repeat events.
SEGMENT_TRANSITIONS: dict[RemoteLogSegmentState | None, frozenset[RemoteLogSegmentState]] = {
    None: frozenset({_S.COPY_SEGMENT_STARTED}),
    _S.COPY_SEGMENT_STARTED: frozenset(
        {_S.COPY_SEGMENT_STARTED, _S.COPY_SEGMENT_FINISHED, _S.DELETE_SEGMENT_STARTED}
    ),
    _S.COPY_SEGMENT_FINISHED: frozenset({_S.COPY_SEGMENT_FINISHED, _S.DELETE_SEGMENT_STARTED}),
    _S.DELETE_SEGMENT_STARTED: frozenset({_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED}),
    _S.DELETE_SEGMENT_FINISHED: frozenset({_S.DELETE_SEGMENT_FINISHED}),
}

PARTITION_TRANSITIONS: dict[RemotePartitionDeleteState | None, frozenset[RemotePartitionDeleteState]] = {
    None: frozenset({_P.DELETE_PARTITION_MARKED}),
    _P.DELETE_PARTITION_MARKED: frozenset({_P.DELETE_PARTITION_MARKED, _P.DELETE_PARTITION_STARTED}),
    _P.DELETE_PARTITION_STARTED: frozenset({_P.DELETE_PARTITION_STARTED, _P.DELETE_PARTITION_FINISHED}),
    _P.DELETE_PARTITION_FINISHED: frozenset({_P.DELETE_PARTITION_FINISHED}),
}


def is_valid_transition(source: RemoteLogSegmentState | None, target: RemoteLogSegmentState) -> bool:
    """Return whether a segment may go from `source` to `target` (RemoteLogSegmentState.isValidTransition)."""
    return target in SEGMENT_TRANSITIONS[source]


def is_valid_partition_transition(
    source: RemotePartitionDeleteState | None, target: RemotePartitionDeleteState
) -> bool:
    """Return whether a deletion may go from `source` to `target` (RemotePartitionDeleteState)."""
    return target in PARTITION_TRANSITIONS[source]


# Metadata events: the decoded records of `__remote_log_metadata`.
#
# JSON fields, columns and tables have the names of these fields. A field that the record's dialect does not
# have is None: records of dialect kip405 have a leader epoch, those of dialect kafka a broker id.

# Unknown tags of a flexible record, kept for re-encoding: (tag number, raw bytes) in wire order.
UnknownTags = tuple[tuple[int, bytes], ...]
# Unknown tags of the structures within a record, by path: "remote_log_segment_id",
# "remote_log_segment_id.topic_id_partition", "topic_id_partition" or "segment_leader_epochs.N".
NestedTags = tuple[tuple[str, UnknownTags], ...]


class Dialect(StrEnum):
    """The format of a record's value: that of Kafka's releases, or that of KIP-405's text."""

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
        """The user partition of the event."""
        return TopicIdPartition(self.topic_id, self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadata(_Event):
    """The full metadata of a segment (RemoteLogSegmentMetadata, apiKey 0).

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

    @property
    def newest_leader_epoch(self) -> int:
        """The newest leader epoch of the segment's records."""
        return max(epoch for epoch, _ in self.segment_leader_epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadataUpdate(_Event):
    """The new state of a segment (RemoteLogSegmentMetadataUpdate, apiKey 1)."""

    type: ClassVar[str] = "RemoteLogSegmentMetadataUpdate"

    segment_id: Uuid
    broker_id: int | None = None
    leader_epoch: int | None = None
    event_timestamp_ms: int
    state: RemoteLogSegmentState
    custom_metadata: bytes | None = None
    unknown_tags: UnknownTags = ()
    nested_tags: NestedTags = ()

    @classmethod
    def of(
        cls,
        segment: RemoteLogSegmentMetadata,
        state: RemoteLogSegmentState,
        *,
        broker_id: int,
        event_timestamp_ms: int,
    ) -> Self:
        """Return the event that moves `segment` to `state` and keeps its custom metadata."""
        return cls(
            topic=segment.topic,
            topic_id=segment.topic_id,
            partition=segment.partition,
            segment_id=segment.segment_id,
            broker_id=broker_id,
            event_timestamp_ms=event_timestamp_ms,
            state=state,
            custom_metadata=segment.custom_metadata,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartitionDeleteMetadata(_Event):
    """The state of a partition's deletion (RemotePartitionDeleteMetadata, apiKey 2)."""

    type: ClassVar[str] = "RemotePartitionDeleteMetadata"

    broker_id: int | None = None
    epoch: int | None = None
    event_timestamp_ms: int
    state: RemotePartitionDeleteState
    unknown_tags: UnknownTags = ()
    nested_tags: NestedTags = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadataSnapshot:
    """A segment in a `remote_log_snapshot` file (apiKey 3); the file's folder names the partition."""

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
    """Return the dialect of the event's record: only dialect kafka has a broker id."""
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


# Entries of a flat-file cache of one user partition (KIP-405, "Internal flat-file store format"). The header
# of the file names the partition, so the entries have no topic.


class HeaderForm(StrEnum):
    """The header of a flat file: with the topic's name, or without it as in early revisions of the KIP."""

    NAMED = "named"
    UNNAMED = "unnamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """Entry type 0, RemoteLogSegmentMetadataRecordStored; offsets are inclusive."""

    type: ClassVar[str] = "RemoteLogSegmentMetadata"

    segment_id: Uuid
    start_offset: int
    end_offset: int
    leader_epoch: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: tuple[tuple[int, int], ...]
    segment_size_in_bytes: int
    state: RemoteLogSegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPartitionState:
    """Entry type 1, DeletePartitionStateRecord."""

    type: ClassVar[str] = "DeletePartitionState"

    epoch: int
    event_timestamp_ms: int
    state: RemotePartitionDeleteState


StoredRecord = StoredSegment | StoredPartitionState
