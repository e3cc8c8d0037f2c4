"""The records tierctl reads and writes, as data.

This is the only description of their layout: the scalar codec (wire/codec.py), the columnar one
(wire/columns.py) and the formatter in Java (formatter/describe.py) all read it. Sources: Apache Kafka's
storage/src/main/resources/message/*.json for the kafka dialect, KIP-405's "Message Format" for kip405 and
"Internal flat-file store format" for what is stored. Field names are those of the events in `tierctl.model`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from tierctl.model.events import (
    Dialect,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from tierctl.model.states import RemoteLogSegmentState, RemotePartitionDeleteState
from tierctl.model.stored import StoredPartitionState, StoredSegment, StoredValue


class Fixed(Enum):
    """Types of one width; the value is the `struct` code, big-endian."""

    INT8 = "b"
    INT32 = "i"
    INT64 = "q"
    UUID = "16s"


class Variable(Enum):
    """Types whose length precedes them: compact (length + 1 as uvarint) in flexible records."""

    STRING = "string"
    BYTES = "bytes"
    NULLABLE_BYTES = "nullable bytes"


@dataclass(frozen=True, slots=True)
class Field:
    """One field; `states` names the enum whose ids an INT8 holds."""

    name: str
    kind: "Fixed | Variable | Struct | Array"
    states: type[RemoteLogSegmentState] | type[RemotePartitionDeleteState] | None = None


@dataclass(frozen=True, slots=True)
class Flag:
    """A tagged bool that is written only when it is true."""

    name: str
    tag: int


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in wire order; in flexible records a section of tagged fields follows them."""

    fields: tuple[Field, ...]
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True)
class Array:
    """A counted sequence; events hold it as a tuple of tuples."""

    element: Struct


@dataclass(frozen=True, slots=True)
class Rule:
    """What a decoded event must fulfil: `field`, the one to blame, is not below `least`.

    `least` is a number or another field's name; None asks only that the field is not empty.
    """

    field: str
    expected: str
    least: int | str | None = None

    def holds(self, event: Any) -> Any:
        """Whether the event fulfils it; row by row when the event's fields are columns."""
        value = getattr(event, self.field)
        if self.least is None:
            return bool(value)
        return value >= (getattr(event, self.least) if isinstance(self.least, str) else self.least)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSchema:
    """One record: version 0 of `api_key`. `flexible` records are compact and carry tagged fields."""

    api_key: int
    name: str
    event: type
    body: Struct
    flexible: bool
    rules: tuple[Rule, ...] = ()


_TOPIC_ID_PARTITION = Struct(
    (
        Field("topic", Variable.STRING),
        Field("topic_id", Fixed.UUID),
        Field("partition", Fixed.INT32),
    )
)
_SEGMENT_ID = Struct(
    (Field("topic_id_partition", _TOPIC_ID_PARTITION), Field("segment_id", Fixed.UUID)),
)
_EPOCHS = Field(
    "segment_leader_epochs",
    Array(Struct((Field("epoch", Fixed.INT32), Field("offset", Fixed.INT64)))),
)
_OFFSETS = (Field("start_offset", Fixed.INT64), Field("end_offset", Fixed.INT64))
_TIMES = (Field("max_timestamp_ms", Fixed.INT64), Field("event_timestamp_ms", Fixed.INT64))
_SIZE = Field("segment_size_in_bytes", Fixed.INT32)
_CUSTOM = Field("custom_metadata", Variable.NULLABLE_BYTES)
_STATE = Field("state", Fixed.INT8, RemoteLogSegmentState)
_DELETE_STATE = Field("state", Fixed.INT8, RemotePartitionDeleteState)
_EVENT_TIME = Field("event_timestamp_ms", Fixed.INT64)
_BROKER = Field("broker_id", Fixed.INT32)
_LEADER_EPOCH = Field("leader_epoch", Fixed.INT32)

# Written since Kafka 4.0 (KAFKA-16780).
_TXN_INDEX_EMPTY = Flag("txn_index_empty", 0)

# Kafka's constructors throw for these, so no broker can use such a record.
_HAS_EPOCHS = Rule("segment_leader_epochs", "at least one leader epoch")
_SEGMENT_RULES = (
    Rule("start_offset", "a start offset of 0 or more", least=0),
    Rule("end_offset", "an end offset not below the start offset", least="start_offset"),
    _HAS_EPOCHS,
)

_SNAPSHOT_FIELDS = (*_OFFSETS, _BROKER, *_TIMES, _EPOCHS, _SIZE, _CUSTOM, _STATE)
_STORED_FIELDS = (*_OFFSETS, _LEADER_EPOCH, *_TIMES, _EPOCHS, _SIZE, _STATE)

KAFKA_RECORDS = (
    RecordSchema(
        api_key=0,
        name="RemoteLogSegmentMetadataRecord",
        event=RemoteLogSegmentMetadata,
        body=Struct((Field("remote_log_segment_id", _SEGMENT_ID), *_SNAPSHOT_FIELDS), (_TXN_INDEX_EMPTY,)),
        flexible=True,
        rules=_SEGMENT_RULES,
    ),
    RecordSchema(
        api_key=1,
        name="RemoteLogSegmentMetadataUpdateRecord",
        event=RemoteLogSegmentMetadataUpdate,
        body=Struct((Field("remote_log_segment_id", _SEGMENT_ID), _BROKER, _EVENT_TIME, _CUSTOM, _STATE)),
        flexible=True,
    ),
    RecordSchema(
        api_key=2,
        name="RemotePartitionDeleteMetadataRecord",
        event=RemotePartitionDeleteMetadata,
        body=Struct((Field("topic_id_partition", _TOPIC_ID_PARTITION), _BROKER, _EVENT_TIME, _DELETE_STATE)),
        flexible=True,
    ),
    RecordSchema(
        api_key=3,
        name="RemoteLogSegmentMetadataSnapshotRecord",
        event=RemoteLogSegmentMetadataSnapshot,
        body=Struct((Field("segment_id", Fixed.UUID), *_SNAPSHOT_FIELDS), (_TXN_INDEX_EMPTY,)),
        flexible=True,
        rules=(_HAS_EPOCHS,),
    ),
)

KIP405_RECORDS = (
    RecordSchema(
        api_key=0,
        name="RemoteLogSegmentMetadataRecord",
        event=RemoteLogSegmentMetadata,
        body=Struct((Field("remote_log_segment_id", _SEGMENT_ID), *_STORED_FIELDS)),
        flexible=False,
        rules=_SEGMENT_RULES,
    ),
    RecordSchema(
        api_key=1,
        name="RemoteLogSegmentMetadataUpdateRecord",
        event=RemoteLogSegmentMetadataUpdate,
        body=Struct((Field("remote_log_segment_id", _SEGMENT_ID), _LEADER_EPOCH, _EVENT_TIME, _STATE)),
        flexible=False,
    ),
    RecordSchema(
        api_key=2,
        name="DeletePartitionStateRecord",
        event=RemotePartitionDeleteMetadata,
        body=Struct(
            (
                Field("topic_id_partition", _TOPIC_ID_PARTITION),
                Field("epoch", Fixed.INT32),
                _EVENT_TIME,
                _DELETE_STATE,
            )
        ),
        flexible=False,
    ),
)

METADATA_RECORDS = {Dialect.KAFKA: KAFKA_RECORDS, Dialect.KIP405: KIP405_RECORDS}

# The flat-file store's entry types. 0 and 1 are the KIP's; 100 is tierctl's own (see wire/flatfile.py).
STORED_RECORDS = (
    RecordSchema(
        api_key=0,
        name="RemoteLogSegmentMetadataRecordStored",
        event=StoredSegment,
        body=Struct((Field("segment_id", Fixed.UUID), *_STORED_FIELDS)),
        flexible=False,
        rules=_SEGMENT_RULES,
    ),
    RecordSchema(
        api_key=1,
        name="DeletePartitionStateRecord",
        event=StoredPartitionState,
        body=Struct((Field("epoch", Fixed.INT32), _EVENT_TIME, _DELETE_STATE)),
        flexible=False,
    ),
    RecordSchema(
        api_key=100,
        name="MetadataValueStored",
        event=StoredValue,
        body=Struct(
            (
                Field("metadata_offset", Fixed.INT64),
                Field("timestamp_ms", Fixed.INT64),
                Field("value", Variable.BYTES),
            )
        ),
        flexible=False,
    ),
)
