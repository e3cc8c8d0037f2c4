"""The layouts of the records that tierctl reads and writes, as data.

This is the only description of these layouts: the scalar codec, the decoding kernel, the JSON fields, the
columns of `format` and of the Spark source, and the formatter in Java all derive from it. To add a field, add
it to the table below, to the records that have it, and to their dataclasses in `tierctl.model.events`.

Sources: Apache Kafka's storage/src/main/resources/message/*.json for the kafka dialect, KIP-405's "Message
Format" for the kip405 dialect and "Internal flat-file store format" for the flat-file store.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tierctl.errors import CorruptInputError
from tierctl.model.events import (
    Dialect,
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    StoredPartitionState,
    StoredSegment,
    dialect_of,
)
from tierctl.wire.primitives import read_uvarint, take, write_uvarint

States = type[RemoteLogSegmentState] | type[RemotePartitionDeleteState]


class Fixed(Enum):
    """Types of one width; the value is the code of the `struct` module, big-endian."""

    INT8 = "b"
    INT32 = "i"
    INT64 = "q"
    UUID = "16s"


class Variable(Enum):
    """Types with a length before the payload; in flexible records the length is compact (length + 1)."""

    STRING = "string"
    NULLABLE_BYTES = "nullable bytes"


@dataclass(frozen=True, slots=True)
class Field:
    """One field. An INT8 field with `states` holds the id of a member of that enum."""

    name: str
    kind: "Fixed | Variable | Struct | Array"
    states: States | None = None


@dataclass(frozen=True, slots=True)
class Flag:
    """A tagged bool field, which is written only if it is true."""

    name: str
    tag: int


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in wire order; in flexible records a section of tagged fields follows them."""

    fields: tuple[Field, ...]
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence with its length before it; an event holds it as a tuple of tuples."""

    element: Struct


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on a decoded event: the value of `field` is at least `least`.

    `least` is a number or the name of another field; with None, the value must not be empty.
    """

    field: str
    expected: str
    least: int | str | None = None

    def holds(self, event: Any) -> bool:
        """Return whether `event` satisfies the rule."""
        value = getattr(event, self.field)
        if self.least is None:
            return bool(value)
        least: int = getattr(event, self.least) if isinstance(self.least, str) else self.least
        return bool(value >= least)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSchema:
    """The layout of version 0 of one record; `flexible` records have compact lengths and tagged fields."""

    api_key: int
    name: str
    event: type[Any]
    body: Struct
    flexible: bool
    rules: tuple[Rule, ...] = ()

    @property
    def states(self) -> States | None:
        """Return the enum of the record's `state` field; None if it has none."""
        return next((field.states for field in leaf_fields(self.body) if field.states), None)


def leaf_fields(body: Struct) -> Iterator[Field]:
    """Yield the fields of a struct and of its nested structs, in wire order."""
    for field in body.fields:
        if isinstance(field.kind, Struct):
            yield from leaf_fields(field.kind)
        else:
            yield field


EVENT_FIELDS: tuple[Field | Flag, ...] = (
    _TOPIC := Field("topic", Variable.STRING),
    _TOPIC_ID := Field("topic_id", Fixed.UUID),
    _PARTITION := Field("partition", Fixed.INT32),
    _SEGMENT_ID := Field("segment_id", Fixed.UUID),
    _START_OFFSET := Field("start_offset", Fixed.INT64),
    _END_OFFSET := Field("end_offset", Fixed.INT64),
    _BROKER_ID := Field("broker_id", Fixed.INT32),
    _LEADER_EPOCH := Field("leader_epoch", Fixed.INT32),
    _EPOCH := Field("epoch", Fixed.INT32),
    _MAX_TIMESTAMP := Field("max_timestamp_ms", Fixed.INT64),
    _EVENT_TIMESTAMP := Field("event_timestamp_ms", Fixed.INT64),
    _LEADER_EPOCHS := Field(
        "segment_leader_epochs",
        Array(Struct((Field("epoch", Fixed.INT32), Field("offset", Fixed.INT64)))),
    ),
    _SIZE := Field("segment_size_in_bytes", Fixed.INT32),
    _CUSTOM_METADATA := Field("custom_metadata", Variable.NULLABLE_BYTES),
    _STATE := Field("state", Fixed.INT8, RemoteLogSegmentState),
    # Written since Kafka 4.0 (KAFKA-16780).
    _TXN_INDEX_EMPTY := Flag("txn_index_empty", 0),
)
"""The table of the fields of metadata events; its order is that of columns and JSON keys everywhere."""

# The same column as `_STATE`, with the states of a partition's deletion.
_DELETE_STATE = Field("state", Fixed.INT8, RemotePartitionDeleteState)

FIELD_NAMES = (*(field.name for field in EVENT_FIELDS), "type")
"""The names of the columns and JSON keys that metadata events have, in order."""

_TOPIC_ID_PARTITION = Field("topic_id_partition", Struct((_TOPIC, _TOPIC_ID, _PARTITION)))
_REMOTE_LOG_SEGMENT_ID = Field("remote_log_segment_id", Struct((_TOPIC_ID_PARTITION, _SEGMENT_ID)))
_TIMES = (_MAX_TIMESTAMP, _EVENT_TIMESTAMP)

# Kafka's constructors throw for these, so no broker can use such a record.
_HAS_EPOCHS = Rule("segment_leader_epochs", "at least one leader epoch")
_SEGMENT_RULES = (
    Rule("start_offset", "a start offset of 0 or more", least=0),
    Rule("end_offset", "an end offset not below the start offset", least="start_offset"),
    _HAS_EPOCHS,
)

_SNAPSHOT_FIELDS = (
    _START_OFFSET,
    _END_OFFSET,
    _BROKER_ID,
    *_TIMES,
    _LEADER_EPOCHS,
    _SIZE,
    _CUSTOM_METADATA,
    _STATE,
)
_STORED_FIELDS = (
    _START_OFFSET,
    _END_OFFSET,
    _LEADER_EPOCH,
    *_TIMES,
    _LEADER_EPOCHS,
    _SIZE,
    _STATE,
)

SEGMENT_RECORD = RecordSchema(
    api_key=0,
    name="RemoteLogSegmentMetadataRecord",
    event=RemoteLogSegmentMetadata,
    body=Struct((_REMOTE_LOG_SEGMENT_ID, *_SNAPSHOT_FIELDS), (_TXN_INDEX_EMPTY,)),
    flexible=True,
    rules=_SEGMENT_RULES,
)

KAFKA_RECORDS = (
    SEGMENT_RECORD,
    RecordSchema(
        api_key=1,
        name="RemoteLogSegmentMetadataUpdateRecord",
        event=RemoteLogSegmentMetadataUpdate,
        body=Struct((_REMOTE_LOG_SEGMENT_ID, _BROKER_ID, _EVENT_TIMESTAMP, _CUSTOM_METADATA, _STATE)),
        flexible=True,
    ),
    RecordSchema(
        api_key=2,
        name="RemotePartitionDeleteMetadataRecord",
        event=RemotePartitionDeleteMetadata,
        body=Struct((_TOPIC_ID_PARTITION, _BROKER_ID, _EVENT_TIMESTAMP, _DELETE_STATE)),
        flexible=True,
    ),
    RecordSchema(
        api_key=3,
        name="RemoteLogSegmentMetadataSnapshotRecord",
        event=RemoteLogSegmentMetadataSnapshot,
        body=Struct((_SEGMENT_ID, *_SNAPSHOT_FIELDS), (_TXN_INDEX_EMPTY,)),
        flexible=True,
        rules=(_HAS_EPOCHS,),
    ),
)

KIP405_RECORDS = (
    RecordSchema(
        api_key=0,
        name="RemoteLogSegmentMetadataRecord",
        event=RemoteLogSegmentMetadata,
        body=Struct((_REMOTE_LOG_SEGMENT_ID, *_STORED_FIELDS)),
        flexible=False,
        rules=_SEGMENT_RULES,
    ),
    RecordSchema(
        api_key=1,
        name="RemoteLogSegmentMetadataUpdateRecord",
        event=RemoteLogSegmentMetadataUpdate,
        body=Struct((_REMOTE_LOG_SEGMENT_ID, _LEADER_EPOCH, _EVENT_TIMESTAMP, _STATE)),
        flexible=False,
    ),
    RecordSchema(
        api_key=2,
        name="DeletePartitionStateRecord",
        event=RemotePartitionDeleteMetadata,
        body=Struct((_TOPIC_ID_PARTITION, _EPOCH, _EVENT_TIMESTAMP, _DELETE_STATE)),
        flexible=False,
    ),
)

METADATA_RECORDS = {Dialect.KAFKA: KAFKA_RECORDS, Dialect.KIP405: KIP405_RECORDS}
EVENT_TYPES: tuple[type[Any], ...] = tuple(record.event for record in KAFKA_RECORDS)

# The entry types of the flat-file store, as in the KIP.
STORED_RECORDS = (
    RecordSchema(
        api_key=0,
        name="RemoteLogSegmentMetadataRecordStored",
        event=StoredSegment,
        body=Struct((_SEGMENT_ID, *_STORED_FIELDS)),
        flexible=False,
        rules=_SEGMENT_RULES,
    ),
    RecordSchema(
        api_key=1,
        name="DeletePartitionStateRecord",
        event=StoredPartitionState,
        body=Struct((_EPOCH, _EVENT_TIMESTAMP, _DELETE_STATE)),
        flexible=False,
    ),
)


def field_names(record: RecordSchema) -> tuple[str, ...]:
    """Return the names of the record's fields and flags in the order of FIELD_NAMES."""
    names = {field.name for field in leaf_fields(record.body)} | {flag.name for flag in record.body.flags}
    return tuple(name for name in FIELD_NAMES if name in names)


Values = dict[str, Any]


def read_tags(buf: bytes, pos: int, flags: tuple[Flag, ...], place: str, values: Values) -> int:
    """Read a section of tagged fields into `values`; return the next position."""
    for flag in flags:
        values[flag.name] = False
    if pos < len(buf) and buf[pos] == 0:
        return pos + 1
    count, at = read_uvarint(buf, pos, "number of tagged fields")
    kept: list[tuple[int, bytes]] = []
    previous = -1
    for _ in range(count):
        tag, raw, end = _read_tag(buf, at, previous)
        flag_here = next((f for f in flags if f.tag == tag), None)
        if flag_here is not None:
            values[flag_here.name] = _flag_value(flag_here, raw, at)
        # A default value that was written explicitly is kept too, so that it is written again.
        if flag_here is None or raw != b"\x01":
            kept.append((tag, raw))
        previous, at = tag, end
    if kept:
        _keep(values, place, tuple(kept))
    return at


def _read_tag(buf: bytes, pos: int, previous: int) -> tuple[int, bytes, int]:
    tag, at = read_uvarint(buf, pos, "tag")
    if tag <= previous:
        raise CorruptInputError("tag", expected=f"a tag above {previous}", found=str(tag), at=pos)
    size, at = read_uvarint(buf, at, f"size of tag {tag}")
    raw, end = take(buf, at, size, f"tag {tag}")
    return tag, raw, end


def _flag_value(flag: Flag, raw: bytes, at: int) -> bool:
    if len(raw) != 1:
        raise CorruptInputError(flag.name, expected="1 byte", found=f"{len(raw)} bytes", at=at)
    return raw != b"\x00"


def _keep(values: Values, place: str, tags: tuple[tuple[int, bytes], ...]) -> None:
    if place:
        values["nested_tags"] = (*values.get("nested_tags", ()), (place, tags))
    else:
        values["unknown_tags"] = tags


def write_tags(flags: tuple[Flag, ...], place: str, event: Any, out: bytearray) -> None:
    """Append the section of tagged fields: flags that are set, and unknown tags kept by `read_tags`."""
    kept = dict(dict(event.nested_tags).get(place, ()) if place else event.unknown_tags)
    for flag in flags:
        value = getattr(event, flag.name)
        raw = kept.get(flag.tag)
        if raw is not None and (raw != b"\x00") == value:
            continue
        kept.pop(flag.tag, None)
        if value:
            kept[flag.tag] = b"\x01"
    out += write_uvarint(len(kept))
    for tag in sorted(kept):
        out += write_uvarint(tag) + write_uvarint(len(kept[tag])) + kept[tag]


def json_fields(event: MetadataEvent | StoredSegment | StoredPartitionState) -> dict[str, Any]:
    """Return the fields of the event's record in its dialect, and `type`, in the order of FIELD_NAMES.

    Ids are base64url, custom metadata is hex (None for null), leader epochs are [epoch, offset] lists, and
    states are Kafka's names.
    """
    dialect = None if isinstance(event, StoredSegment | StoredPartitionState) else dialect_of(event)
    converters = _CONVERTERS[type(event), dialect]
    fields = {name: convert(getattr(event, name)) for name, convert in converters}
    return fields | {"type": event.type}


def _json_converter(field: Field | None) -> Callable[[Any], Any]:
    """Return the function that converts a value of `field` (None: of a flag) for JSON."""
    if field is None:
        return bool
    if isinstance(field.kind, Array):
        return lambda rows: [list(row) for row in rows]
    if field.kind is Variable.NULLABLE_BYTES:
        return lambda value: None if value is None else value.hex()
    if field.kind in {Fixed.UUID, Variable.STRING} or field.states is not None:
        return str
    return int


def _converters(record: RecordSchema) -> list[tuple[str, Callable[[Any], Any]]]:
    fields = {field.name: field for field in leaf_fields(record.body)}
    return [(name, _json_converter(fields.get(name))) for name in field_names(record)]


_CONVERTERS = {
    (record.event, dialect): _converters(record)
    for dialect, records in (*METADATA_RECORDS.items(), (None, STORED_RECORDS))
    for record in records
}
