"""Kafka's identifiers; metadata events, which are the decoded records of `__remote_log_metadata`; and the
states of segments and of partition deletes.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from tierctl.errors import UsageError
from tierctl.model.checked_values import natural_number

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


def is_legal_topic_name(name: str) -> bool:
    """Return whether a topic name is legal in Kafka (Topic.isValid).

    Only legal names may become part of a path or an object key, since names in metadata may be hostile.
    """
    return _LEGAL_TOPIC.match(name) is not None and name not in {".", ".."}


PARTITION_MAX = (1 << 31) - 1
"""The largest number of a partition."""

INTERNAL_TOPICS = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)
"""Topics that brokers never tier (UnifiedLog.isRemoteLogEnabled)."""


class Uuid(str):
    """Kafka's Uuid in its printed form: 16 bytes in unpadded base64url (org.apache.kafka.common.Uuid).

    As a str it is compared, sorted and serialised in the form that operators see.
    """

    __slots__ = ()

    @classmethod
    def from_bytes(cls, raw: bytes | memoryview) -> Self:
        """Return the id that consists of these 16 bytes; ValueError for another length."""
        if len(raw) != 16:
            raise ValueError(f"a Kafka Uuid has 16 bytes, found {len(raw)}")
        return cls(base64.urlsafe_b64encode(raw)[:22].decode("ascii"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the id that an operator typed, in the form in which Kafka prints it.

        UsageError for padding, another length, a character outside base64url, and for a last character
        with bits that 16 bytes do not fill: another spelling of the same id would match no printed id.
        """
        try:
            raw = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            raw = b""
        if len(raw) != 16 or cls.from_bytes(raw) != text:
            raise UsageError(
                f"not a Kafka id: {text!r}",
                hint="expected 22 characters of base64url without padding, as 2QZ5FAXaQrqgUzsReWnweA",
            )
        return cls(text)

    @property
    def bytes(self) -> bytes:
        """The 16 bytes, most significant first."""
        return base64.urlsafe_b64decode(self + "==")


ZERO_UUID = Uuid("AAAAAAAAAAAAAAAAAAAAAA")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A topic's partition by name; prints as Kafka's `topic-partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the partition that a text `topic-partition` names; UsageError for another form."""
        topic, dash, number = text.rpartition("-")
        partition = natural_number(number, PARTITION_MAX)
        if not dash or not topic or partition is None:
            raise UsageError(f"not a topic partition: {text!r}", hint="expected TOPIC-PARTITION, as orders-1")
        return cls(topic, partition)


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A user partition, identified by topic id and number; a recreated topic of the same name has another id.

    It prints as Kafka's `topicId:topic-partition`.
    """

    topic_id: Uuid
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}:{self.topic}-{self.partition}"

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition by name."""
        return TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> tuple[Uuid, int]:
        """Topic id and number, which identify the partition."""
        return (self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """The ids of a cluster and of its metadata topic; None for an id that is unknown.

    `cluster_id` is `cluster.id` of meta.properties, which brokers also report. An unknown id is neither equal
    to another id nor different from it.
    """

    cluster_id: str | None
    metadata_topic_id: Uuid | None

    def is_same_as(self, other: "ClusterIdentity") -> bool | None:
        """Return whether both name the same metadata topic of the same cluster.

        Compare the ids that both have; return None if they have none in common.
        """
        pairs = (
            (self.cluster_id, other.cluster_id),
            (self.metadata_topic_id, other.metadata_topic_id),
        )
        known = [mine == others for mine, others in pairs if mine is not None and others is not None]
        return all(known) if known else None

    def __str__(self) -> str:
        cluster, topic = self.cluster_id or "unknown", self.metadata_topic_id or "unknown"
        return f"cluster {cluster}, metadata topic {topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierIdentity:
    """The owner of a remote tier, as tierctl records it in the tier; `layout` names the objects' layout."""

    cluster: ClusterIdentity
    layout: str

    def __str__(self) -> str:
        return f"{self.cluster}, layout {self.layout}"


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
