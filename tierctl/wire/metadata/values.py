"""The scalar codec of `__remote_log_metadata` values, in both dialects; their schema as an Arrow table.

kafka (RemoteLogMetadataSerde): uvarint frame version 1, uvarint apiKey, uvarint record version 0, flexible
record. kip405 (the KIP's text): uvarint type, uvarint version 0, record without tags. A value does not name
its dialect: it is the dialect whose decoder consumes the whole value, and kafka if both do.

Every value that decodes encodes to the same bytes. Therefore four forms are refused that Kafka's reader
accepts and its writer never creates: varints that are longer than necessary, tags that repeat or do not
ascend, a transaction flag that is not one byte, a topic name that is not UTF-8. Kafka's own checks apply too:
a start offset below 0, an end offset before the start, no epochs and unknown states are refused, because no
broker can use such a record.
"""

import struct
from struct import Struct as Packer
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.model.events import Dialect, MetadataEvent, Uuid, dialect_of, is_legal_topic_name
from tierctl.wire.arrays import Int64s
from tierctl.wire.metadata.schema import (
    EVENT_FIELDS,
    METADATA_RECORDS,
    Array,
    Field,
    Fixed,
    Flag,
    RecordSchema,
    Struct,
    Values,
    Variable,
    read_tags,
    write_tags,
)
from tierctl.wire.primitives import read_uvarint, take, truncated, write_uvarint

FRAME_VERSION = 1
RECORD_VERSION = 0
MAX_STRING_BYTES = 0x7FFF

_FIXED: Final = {kind: Packer(">" + kind.value) for kind in Fixed}
_INT16, _INT32 = Packer(">h"), Packer(">i")
_BY_KEY: Final = {
    dialect: {schema.api_key: schema for schema in schemas} for dialect, schemas in METADATA_RECORDS.items()
}
_BY_EVENT: Final = {
    (dialect, schema.event): schema for dialect, schemas in METADATA_RECORDS.items() for schema in schemas
}


class _Reader:
    """Read the fields of a record to `values`; `places` has the positions of those of fixed width."""

    def __init__(self, buf: bytes, *, flexible: bool) -> None:
        self._buf = buf
        self._flexible = flexible
        self.values: Values = {}
        self.places: dict[str, int] = {}

    def struct(self, body: Struct, place: str, pos: int) -> int:
        """Read a struct at `pos`, whose path is `place`; return the position after it."""
        for field in body.fields:
            match field.kind:
                case Struct() as inner:
                    pos = self.struct(inner, f"{place}.{field.name}".lstrip("."), pos)
                case Array() as array:
                    self.values[field.name], pos = self._elements(field.name, array, pos)
                case Variable():
                    self.values[field.name], pos = self._variable(field, pos)
                case _:
                    self.places[field.name] = pos
                    self.values[field.name], pos = self._fixed(field, pos)
        return read_tags(self._buf, pos, body.flags, place, self.values) if self._flexible else pos

    def _fixed(self, field: Field, pos: int) -> tuple[Any, int]:
        assert isinstance(field.kind, Fixed)
        raw, end = self._unpacked(_FIXED[field.kind], pos, field.name)
        if field.kind is Fixed.UUID:
            return Uuid.from_bytes(raw), end
        if field.states is None:
            return raw, end
        states = tuple(field.states)
        if not 0 <= raw < len(states):
            expected = f"0 to {len(states) - 1}"
            raise CorruptInputError(field.name, expected=expected, found=str(raw), at=pos)
        return states[raw], end

    def _unpacked(self, packer: Packer, pos: int, what: str) -> tuple[Any, int]:
        end = pos + packer.size
        if end > len(self._buf):
            raise truncated(what, needed=packer.size, at=pos, remaining=len(self._buf) - pos)
        return packer.unpack_from(self._buf, pos)[0], end

    def _length(self, name: str, pos: int, packer: Packer) -> tuple[int | None, int]:
        """Read the length before bytes or elements; None is null. Compact: length + 1 as uvarint."""
        what = f"length of {name}"
        if self._flexible:
            raw, end = read_uvarint(self._buf, pos, what)
            return (raw - 1 if raw else None), end
        length, end = self._unpacked(packer, pos, what)
        if length < -1:
            raise CorruptInputError(what, expected="-1 or more", found=str(length), at=pos)
        return (None if length == -1 else length), end

    def _variable(self, field: Field, pos: int) -> tuple[str | bytes | None, int]:
        name, is_string = field.name, field.kind is Variable.STRING
        length, start = self._length(name, pos, _INT16 if is_string else _INT32)
        if length is None:
            if field.kind is not Variable.NULLABLE_BYTES:
                raise CorruptInputError(name, expected="a value", found="null", at=pos)
            return None, start
        if is_string and length > MAX_STRING_BYTES:
            expected = f"at most {MAX_STRING_BYTES} bytes"
            raise CorruptInputError(name, expected=expected, found=str(length), at=pos)
        raw, end = take(self._buf, start, length, name)
        if not is_string:
            return raw, end
        try:
            return raw.decode("utf-8"), end
        except UnicodeDecodeError as error:
            found, at = f"byte {raw[error.start]:#04x}", start + error.start
            raise CorruptInputError(name, expected="UTF-8", found=found, at=at) from None

    def _elements(self, name: str, array: Array, pos: int) -> tuple[tuple[Any, ...], int]:
        """Read an array of structs of fixed width as a tuple of tuples."""
        fields = array.element.fields
        count, at = self._length(name, pos, _INT32)
        if count is None:
            raise CorruptInputError(name, expected="an array", found="null", at=pos)
        least = sum(_FIXED[f.kind].size for f in fields if isinstance(f.kind, Fixed)) + self._flexible
        left = len(self._buf) - at
        if count * least > left:
            expected = f"at most {left // least} elements"
            raise CorruptInputError(name, expected=expected, found=str(count), at=pos)
        found = []
        for i in range(count):
            element = []
            for field in fields:
                value, at = self._fixed(field, at)
                element.append(value)
            found.append(tuple(element))
            if self._flexible:
                at = read_tags(self._buf, at, (), f"{name}.{i}", self.values)
        return tuple(found), at


def decode_record(schema: RecordSchema, buf: bytes, pos: int = 0) -> Any:
    """Decode the record in `buf` from `pos` to the end, without its frame; raise CorruptInputError."""
    reader = _Reader(buf, flexible=schema.flexible)
    at = reader.struct(schema.body, "", pos)
    if at != len(buf):
        raise CorruptInputError(schema.name, expected="the end", found=f"{len(buf) - at} more bytes", at=at)
    event = schema.event(**reader.values)
    for rule in schema.rules:
        if not rule.holds(event):
            found, place = str(getattr(event, rule.field)), reader.places.get(rule.field)
            raise CorruptInputError(rule.field, expected=rule.expected, found=found, at=place)
    return event


def encode_record(schema: RecordSchema, event: Any) -> bytes:
    """Return API key, version and bytes of an event; raise UsageError for a value that does not fit."""
    out = bytearray(write_uvarint(schema.api_key) + write_uvarint(RECORD_VERSION))
    _write_struct(out, schema.body, "", event, flexible=schema.flexible)
    for rule in schema.rules:
        if not rule.holds(event):
            raise UsageError(f"{rule.field} is {getattr(event, rule.field)!r}: expected {rule.expected}")
    return bytes(out)


def _write_struct(out: bytearray, body: Struct, place: str, event: Any, *, flexible: bool) -> None:
    for field in body.fields:
        match field.kind:
            case Struct() as inner:
                _write_struct(out, inner, f"{place}.{field.name}".lstrip("."), event, flexible=flexible)
            case Array() as array:
                rows = getattr(event, field.name)
                out += _length(field.name, len(rows), _INT32, flexible=flexible)
                for i, row in enumerate(rows):
                    out += b"".join(map(_written, array.element.fields, row))
                    if flexible:
                        write_tags((), f"{field.name}.{i}", event, out)
            case Variable():
                _write_variable(out, field, getattr(event, field.name), flexible=flexible)
            case _:
                out += _written(field, getattr(event, field.name))
    if flexible:
        write_tags(body.flags, place, event, out)


def _written(field: Field, value: Any) -> bytes:
    """Return the bytes of a field of fixed width."""
    assert isinstance(field.kind, Fixed)
    try:
        raw = value.bytes if field.kind is Fixed.UUID else value
        return _FIXED[field.kind].pack(tuple(field.states).index(raw) if field.states else raw)
    except (struct.error, ValueError, AttributeError) as error:
        shown = f"{field.name}={value!r}"
        raise UsageError(f"cannot be written: {shown} is missing or out of its range") from error


def _write_variable(out: bytearray, field: Field, value: Any, *, flexible: bool) -> None:
    if value is None and field.kind is not Variable.NULLABLE_BYTES:
        raise UsageError(f"{field.name} cannot be null")
    is_string = field.kind is Variable.STRING
    raw = None if value is None else value.encode("utf-8") if is_string else value
    if raw is not None and is_string and len(raw) > MAX_STRING_BYTES:
        raise UsageError(f"{field.name} is too long: {len(raw)} bytes")
    length = None if raw is None else len(raw)
    out += _length(field.name, length, _INT16 if is_string else _INT32, flexible=flexible)
    out += raw or b""


def _length(name: str, length: int | None, packer: Packer, *, flexible: bool) -> bytes:
    """Return the bytes of a length, None for null."""
    if flexible:
        return write_uvarint(0 if length is None else length + 1)
    try:
        return packer.pack(-1 if length is None else length)
    except struct.error:
        raise UsageError(f"{name} is too long: {length}") from None


def decode(value: bytes, dialect: Dialect | None = None) -> MetadataEvent:
    """Decode the value of a record to its event; detect the dialect if it is not given.

    Raise CorruptInputError with the byte, the expected and the found value; for an unknown frame version,
    apiKey or record version, raise UnsupportedFormatError.
    """
    value = bytes(value)
    if dialect is not None:
        return _decode_as(value, dialect)
    try:
        return _decode_as(value, Dialect.KAFKA)
    except CorruptInputError as error:
        as_kafka = error
    try:
        event = _decode_as(value, Dialect.KIP405)
    except CorruptInputError as as_kip405:
        raise _more_plausible(value, as_kafka, as_kip405) from None
    if _is_cut_segment(value):
        raise as_kafka
    return event


def encode(event: MetadataEvent, dialect: Dialect = Dialect.KAFKA) -> bytes:
    """Encode an event to the value of a record; raise UsageError if the dialect cannot hold the event."""
    schema = _BY_EVENT.get((dialect, type(event)))
    if schema is None or dialect_of(event) != dialect:
        raise UsageError(f"a {event.type} of dialect {dialect_of(event)} can't be written as {dialect}")
    frame = write_uvarint(FRAME_VERSION) if dialect == Dialect.KAFKA else b""
    return frame + encode_record(schema, event)


def _more_plausible(
    value: bytes, as_kafka: CorruptInputError, as_kip405: CorruptInputError
) -> CorruptInputError:
    """Return the error of the likelier dialect, with the other dialect's error as the hint.

    kip405 is likelier for type 0, which was never written to this topic as a frame version, and if its
    decoder found a legal topic name and got further.
    """
    length = int.from_bytes(value[2:4], "big")
    name = value[4 : 4 + length]
    has_name = len(name) == length and is_legal_topic_name(name.decode("ascii", "replace"))
    got_further = (as_kip405.at or 0) > (as_kafka.at or 0)
    if (has_name and got_further) or value.startswith(b"\0"):
        as_kip405.hint = f"nor is it dialect kafka: {as_kafka.message}"
        return as_kip405
    as_kafka.hint = f"nor is it dialect kip405: {as_kip405.message}"
    return as_kafka


def _decode_as(value: bytes, dialect: Dialect) -> MetadataEvent:
    at = 0
    if dialect == Dialect.KAFKA:
        frame, at = read_uvarint(value, 0, "frame version")
        if frame != FRAME_VERSION:
            raise UnsupportedFormatError(
                "metadata record",
                expected=f"frame version {FRAME_VERSION}",
                found=f"frame version {frame}",
                at=0,
            )
    schemas, word = _BY_KEY[dialect], "apiKey" if dialect == Dialect.KAFKA else "type"
    api_key, after_key = read_uvarint(value, at, word)
    schema = schemas.get(api_key)
    if schema is None:
        raise UnsupportedFormatError(
            "metadata record", expected=f"{word} 0 to {max(schemas)}", found=f"{word} {api_key}", at=at
        )
    version, body = read_uvarint(value, after_key, "record version")
    if version != RECORD_VERSION:
        raise UnsupportedFormatError(
            schema.name, expected=f"version {RECORD_VERSION}", found=f"version {version}", at=after_key
        )
    event: MetadataEvent = decode_record(schema, value, body)
    return event


def _is_cut_segment(value: bytes) -> bool:
    """Return whether a value that reads as a kip405 update is a kafka segment record that was cut.

    If a kafka segment record is cut within its end offset, it reads as an update of a topic whose name is one
    byte longer, and all fields up to the segment id are shifted by that byte. Such a record has a partition
    below 2^24 and no tags, and the rest of its end offset begins like its start offset or one higher. In an
    update, these are bytes of a random id, of the partition, of the leader epoch and of the time: they agree
    by chance once in billions.
    """
    if not value.startswith(b"\x01\x00\x00"):
        return False
    try:
        length, at = read_uvarint(value, 3)
    except CorruptInputError:
        return False
    partition = at + length - 1 + 16
    tags = partition + 4
    segment_tags = tags + 1 + 16
    start = segment_tags + 1
    end = start + 8
    left = len(value) - end
    if not 0 < left < 8 or value[partition] or value[tags] or value[segment_tags]:
        return False
    high_start = int.from_bytes(value[start : start + left], "big")
    return int.from_bytes(value[end:], "big") - high_start in (0, 1)


# The metadata partition of a user partition's events (RemoteLogMetadataTopicPartitioner).

_MASK_32 = 0xFFFFFFFF
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995


def metadata_partition(topic_id: Uuid, partition: int, metadata_partitions: int) -> int:
    """Return the metadata partition, 0 to `metadata_partitions` - 1; the topic's name is not hashed."""
    (home,) = metadata_partitions_of(
        np.frombuffer(topic_id.bytes, np.uint8), np.array([partition]), metadata_partitions
    )
    return int(home)


def metadata_partitions_of(topic_ids: Any, partitions: Int64s, metadata_partitions: int) -> Int64s:
    """Return `metadata_partition` of many user partitions.

    Row i of `topic_ids` has the 16 bytes of the topic id of the user partition with number `partitions[i]`.
    """
    words = np.ascontiguousarray(topic_ids, dtype=np.uint8).reshape(-1, 16).view(">u8").astype(np.uint64)
    msb, lsb = (words[:, i] ^ (words[:, i] >> np.uint64(32)) for i in (0, 1))
    hashed = np.ones(len(words), dtype=np.uint64)
    for part in (lsb, msb, partitions.astype(np.uint64)):
        hashed = np.uint64(31) * hashed + part & np.uint64(_MASK_32)
    homes: Int64s = (_murmur2_of_words(hashed) & 0x7FFFFFFF).astype(np.int64) % metadata_partitions
    return homes


def _murmur2_of_words(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Return Kafka's murmur2 (Utils.murmur2) of the four big-endian bytes of each word."""
    # The bytes are written big-endian and mixed little-endian.
    m = np.uint32(_MURMUR2_M)
    k = words.astype(np.uint32).byteswap() * m
    k = (k ^ (k >> np.uint32(24))) * m
    h = np.uint32(((_MURMUR2_SEED ^ 4) * _MURMUR2_M) & _MASK_32) ^ k
    h = (h ^ (h >> np.uint32(13))) * m
    mixed: npt.NDArray[np.uint32] = h ^ (h >> np.uint32(15))
    return mixed


_NAME = pa.dictionary(pa.int8(), pa.string())
_TYPES: dict[Fixed | Variable, pa.DataType] = {
    Fixed.INT8: pa.int8(),
    Fixed.INT32: pa.int32(),
    Fixed.INT64: pa.int64(),
    Fixed.UUID: pa.binary(16),
    Variable.STRING: pa.string(),
    Variable.NULLABLE_BYTES: pa.binary(),
}


def _column_type(field: Field | Flag) -> pa.DataType:
    """Return the type of a field's column; an array is a list of lists, one inner list per element."""
    if isinstance(field, Flag):
        return pa.bool_()
    if field.states is not None:
        return _NAME
    if isinstance(field.kind, Fixed | Variable):
        return _TYPES[field.kind]
    return pa.list_(pa.list_(pa.int64()))


EVENT_SCHEMA: Final = pa.schema(
    [
        *((field.name, _column_type(field)) for field in EVENT_FIELDS),
        ("type", _NAME),
        ("dialect", _NAME),
        ("error", pa.string()),
    ]
)
"""One row per record. A column that the record's type or dialect does not have is null.

A row whose value cannot be decoded has only an `error`; a tombstone has only nulls.
"""
