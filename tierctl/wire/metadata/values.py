"""The scalar codec of `__remote_log_metadata` values, in both dialects.

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
from collections.abc import Callable, Mapping
from struct import Struct as Packer
from typing import Any, Protocol

from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.model.events import Dialect, MetadataEvent, dialect_of
from tierctl.model.ids import Uuid, is_legal_topic_name
from tierctl.wire.metadata.schema import (
    METADATA_RECORDS,
    Array,
    Field,
    Fixed,
    RecordSchema,
    Struct,
    Tags,
    Values,
    Variable,
    leaf_fields,
    read_tags,
    write_tags,
)
from tierctl.wire.primitives import read_uvarint, take, truncated, write_uvarint

# The scalar codec: decodes the bytes of one record to its event and encodes events, as its schema says.
#
# Each schema is turned once into a list of steps; consecutive fields of fixed width become one `struct` call.


class _Step(Protocol):
    """Decode and encode one part of a record.

    `decode` reads from `pos`, adds to `values` and returns the next position; `encode` appends to `out`.
    """

    def decode(self, buf: bytes, pos: int, values: Values) -> int: ...

    def encode(self, values: Mapping[str, Any], out: bytearray) -> None: ...


class _FixedField:
    """A field of a run: its offset in the run, and the conversion between raw values and event values."""

    def __init__(self, field: Field, offset: int) -> None:
        assert isinstance(field.kind, Fixed)
        self.field = field
        self.offset = offset
        self.packer = Packer(">" + field.kind.value)
        self.width = self.packer.size
        self._members: tuple[Any, ...] = tuple(field.states or ())

    @property
    def is_plain(self) -> bool:
        return not self._members and self.field.kind is not Fixed.UUID

    def read(self, raw: Any, at: int) -> Any:
        if self.field.kind is Fixed.UUID:
            return Uuid.from_bytes(raw)
        if not 0 <= raw < len(self._members):
            expected = f"0 to {len(self._members) - 1}"
            raise CorruptInputError(self.field.name, expected=expected, found=str(raw), at=at)
        return self._members[raw]

    def raw(self, value: Any) -> Any:
        if self.field.kind is Fixed.UUID:
            return value.bytes
        return self._members.index(value) if self._members else value


class _FixedRun:
    """The step for consecutive fields of fixed width."""

    def __init__(self, fields: list[Field]) -> None:
        self._fields: list[_FixedField] = []
        offset = 0
        for field in fields:
            self._fields.append(_FixedField(field, offset))
            offset += self._fields[-1].width
        self._packer = Packer(">" + "".join(f.packer.format[1:] for f in self._fields))
        self._plain = [(i, f.field.name) for i, f in enumerate(self._fields) if f.is_plain]
        self._converted = [(i, f) for i, f in enumerate(self._fields) if not f.is_plain]

    def decode(self, buf: bytes, pos: int, values: Values) -> int:
        end = pos + self._packer.size
        if end > len(buf):
            raise self._too_short(buf, pos)
        raw = self._packer.unpack_from(buf, pos)
        for i, name in self._plain:
            values[name] = raw[i]
        for i, field in self._converted:
            values[field.field.name] = field.read(raw[i], pos + field.offset)
        return end

    def encode(self, values: Mapping[str, Any], out: bytearray) -> None:
        try:
            out += self._packer.pack(*(f.raw(values[f.field.name]) for f in self._fields))
        except (struct.error, ValueError, AttributeError) as error:
            raise self._does_not_fit(values) from error

    def offset_of(self, name: str) -> int | None:
        """Return the offset of a field in the run, None if the run does not have it."""
        return next((f.offset for f in self._fields if f.field.name == name), None)

    def _too_short(self, buf: bytes, pos: int) -> CorruptInputError:
        missing = next(f for f in self._fields if pos + f.offset + f.width > len(buf))
        at = pos + missing.offset
        return truncated(missing.field.name, needed=missing.width, at=at, remaining=len(buf) - at)

    def _does_not_fit(self, values: Mapping[str, Any]) -> UsageError:
        shown = ", ".join(f"{f.field.name}={values[f.field.name]!r}" for f in self._fields)
        return UsageError(f"cannot be written: one of {shown} is missing or out of its range")


class _Length:
    """Read and write the length before bytes or elements; None is null. Compact: length + 1 as uvarint."""

    def __init__(self, *, flexible: bool, width: int) -> None:
        self._flexible = flexible
        self._packer = Packer(">h" if width == 2 else ">i")

    def read(self, buf: bytes, pos: int, what: str) -> tuple[int | None, int]:
        if self._flexible:
            raw, end = read_uvarint(buf, pos, f"length of {what}")
            return (raw - 1 if raw else None), end
        end = pos + self._packer.size
        if end > len(buf):
            raise truncated(f"length of {what}", needed=self._packer.size, at=pos, remaining=len(buf) - pos)
        (length,) = self._packer.unpack_from(buf, pos)
        if length < -1:
            raise CorruptInputError(f"length of {what}", expected="-1 or more", found=str(length), at=pos)
        return (None if length == -1 else length), end

    def write(self, length: int | None, what: str) -> bytes:
        if self._flexible:
            return write_uvarint(0 if length is None else length + 1)
        try:
            return self._packer.pack(-1 if length is None else length)
        except struct.error:
            raise UsageError(f"{what} is too long: {length}") from None


MAX_STRING_BYTES = 0x7FFF


class _VariableField:
    """The step for a string or bytes with the length before the payload."""

    def __init__(self, field: Field, *, flexible: bool) -> None:
        self._field = field
        self._is_string = field.kind is Variable.STRING
        self._nullable = field.kind is Variable.NULLABLE_BYTES
        self._length = _Length(flexible=flexible, width=2 if self._is_string else 4)

    def decode(self, buf: bytes, pos: int, values: Values) -> int:
        name = self._field.name
        length, start = self._length.read(buf, pos, name)
        if length is None:
            if not self._nullable:
                raise CorruptInputError(name, expected="a value", found="null", at=pos)
            values[name] = None
            return start
        if self._is_string and length > MAX_STRING_BYTES:
            raise CorruptInputError(
                name, expected=f"at most {MAX_STRING_BYTES} bytes", found=str(length), at=pos
            )
        raw, end = take(buf, start, length, name)
        values[name] = self._text(raw, start) if self._is_string else raw
        return end

    def _text(self, raw: bytes, at: int) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            found = f"byte {raw[error.start]:#04x}"
            raise CorruptInputError(
                self._field.name, expected="UTF-8", found=found, at=at + error.start
            ) from None

    def encode(self, values: Mapping[str, Any], out: bytearray) -> None:
        value = values[self._field.name]
        if value is None and not self._nullable:
            raise UsageError(f"{self._field.name} cannot be null")
        raw = None if value is None else value.encode("utf-8") if self._is_string else value
        if raw is not None and self._is_string and len(raw) > MAX_STRING_BYTES:
            raise UsageError(f"{self._field.name} is too long: {len(raw)} bytes")
        out += self._length.write(None if raw is None else len(raw), self._field.name)
        if raw is not None:
            out += raw


class _Elements:
    """The step for an array of structs of fixed width; the event holds it as a tuple of tuples."""

    def __init__(self, field: Field, array: Array, *, flexible: bool) -> None:
        self._field = field
        self._names = [f.name for f in array.element.fields]
        self._run = _FixedRun(list(array.element.fields))
        self._length = _Length(flexible=flexible, width=4)
        self._flexible = flexible
        widths = (Packer(">" + f.kind.value).size for f in array.element.fields if isinstance(f.kind, Fixed))
        self._min_width = sum(widths) + flexible

    def decode(self, buf: bytes, pos: int, values: Values) -> int:
        name = self._field.name
        count, at = self._length.read(buf, pos, name)
        if count is None:
            raise CorruptInputError(name, expected="an array", found="null", at=pos)
        if count * self._min_width > len(buf) - at:
            expected = f"at most {(len(buf) - at) // self._min_width} elements"
            raise CorruptInputError(name, expected=expected, found=str(count), at=pos)
        element: Values = {}
        found = []
        for i in range(count):
            at = self._run.decode(buf, at, element)
            found.append(tuple([element[n] for n in self._names]))
            if self._flexible:
                at = read_tags(buf, at, (), f"{name}.{i}", values)
        values[name] = tuple(found)
        return at

    def encode(self, values: Mapping[str, Any], out: bytearray) -> None:
        name = self._field.name
        out += self._length.write(len(values[name]), name)
        for i, row in enumerate(values[name]):
            self._run.encode(dict(zip(self._names, row, strict=True)), out)
            if self._flexible:
                write_tags((), f"{name}.{i}", values, out)


def _steps(body: Struct, place: str, *, flexible: bool) -> list[_Step]:
    steps: list[_Step] = []
    run: list[Field] = []

    def close_run() -> None:
        if run:
            steps.append(_FixedRun(list(run)))
            run.clear()

    for field in body.fields:
        if isinstance(field.kind, Fixed):
            run.append(field)
            continue
        close_run()
        match field.kind:
            case Variable():
                steps.append(_VariableField(field, flexible=flexible))
            case Array() as array:
                steps.append(_Elements(field, array, flexible=flexible))
            case Struct() as inner:
                steps.extend(_steps(inner, f"{place}.{field.name}".lstrip("."), flexible=flexible))
    close_run()
    if flexible:
        steps.append(Tags(body.flags, place))
    return steps


class RecordCodec:
    """Decode and encode records of one schema; the bytes are the record's body, without the frame."""

    def __init__(self, schema: RecordSchema) -> None:
        self.schema = schema
        self._steps = _steps(schema.body, "", flexible=schema.flexible)
        self._names: Callable[[Any], Values] = _attributes(schema)

    def decode(self, buf: bytes, pos: int = 0) -> Any:
        """Decode the event in the bytes of `buf` from `pos` to the end; raise CorruptInputError."""
        values: Values = {}
        at = pos
        for step in self._steps:
            at = step.decode(buf, at, values)
        if at != len(buf):
            raise CorruptInputError(
                self.schema.name, expected="the end", found=f"{len(buf) - at} more bytes", at=at
            )
        event = self.schema.event(**values)
        for rule in self.schema.rules:
            if not rule.holds(event):
                found = str(getattr(event, rule.field))
                position = self._position(rule.field, buf, pos)
                raise CorruptInputError(rule.field, expected=rule.expected, found=found, at=position)
        return event

    def _position(self, name: str, buf: bytes, pos: int) -> int | None:
        """Return the position of a field of fixed width in a record that was decoded; None for another."""
        at = pos
        for step in self._steps:
            offset = step.offset_of(name) if isinstance(step, _FixedRun) else None
            if offset is not None:
                return at + offset
            at = step.decode(buf, at, {})
        return None

    def encode(self, event: Any, out: bytearray | None = None) -> bytes:
        """Return `out` followed by the event's bytes; raise UsageError for a value that does not fit."""
        out = bytearray() if out is None else out
        values = self._names(event)
        for step in self._steps:
            step.encode(values, out)
        for rule in self.schema.rules:
            if not rule.holds(event):
                raise UsageError(f"{rule.field} is {getattr(event, rule.field)!r}: expected {rule.expected}")
        return bytes(out)


def _attributes(schema: RecordSchema) -> Callable[[Any], Values]:
    """Return a function that reads the attributes named by the schema from an event."""
    names = [field.name for field in leaf_fields(schema.body)] + [flag.name for flag in schema.body.flags]
    if schema.flexible:
        names += ["unknown_tags", "nested_tags"]
    return lambda event: {name: getattr(event, name) for name in names}


FRAME_VERSION = 1
RECORD_VERSION = 0

CODECS: dict[Dialect, dict[int, RecordCodec]] = {
    dialect: {schema.api_key: RecordCodec(schema) for schema in schemas}
    for dialect, schemas in METADATA_RECORDS.items()
}
_BY_EVENT = {
    (dialect, codec.schema.event): codec for dialect, codecs in CODECS.items() for codec in codecs.values()
}


def decode(value: bytes, dialect: str | None = None) -> MetadataEvent:
    """Decode the value of a record to its event; detect the dialect if it is not given.

    Raise CorruptInputError with the byte, the expected and the found value; for an unknown frame version,
    apiKey or record version, raise UnsupportedFormatError.
    """
    value = bytes(value)
    if dialect is not None:
        return _decode_as(value, _dialect(dialect))
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


def encode(event: MetadataEvent, dialect: str = Dialect.KAFKA) -> bytes:
    """Encode an event to the value of a record; raise UsageError if the dialect cannot hold the event."""
    codec = _codec_of(event, _dialect(dialect))
    frame = write_uvarint(FRAME_VERSION) if dialect == Dialect.KAFKA else b""
    head = frame + write_uvarint(codec.schema.api_key) + write_uvarint(RECORD_VERSION)
    return codec.encode(event, bytearray(head))


def _dialect(name: str) -> Dialect:
    try:
        return Dialect(name)
    except ValueError:
        raise UsageError(f"no dialect {name!r}", hint="one of kafka, kip405") from None


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
    codec, at = read_frame(value, dialect)
    event: MetadataEvent = codec.decode(value, at)
    return event


def read_frame(value: bytes, dialect: Dialect) -> tuple[RecordCodec, int]:
    """Return the codec of a value's record, and the position of the record's body."""
    at = 0
    if dialect is Dialect.KAFKA:
        frame, at = read_uvarint(value, 0, "frame version")
        if frame != FRAME_VERSION:
            raise UnsupportedFormatError(
                "metadata record",
                expected=f"frame version {FRAME_VERSION}",
                found=f"frame version {frame}",
                at=0,
            )
    codecs = CODECS[dialect]
    word = "apiKey" if dialect is Dialect.KAFKA else "type"
    api_key, after_key = read_uvarint(value, at, word)
    if api_key not in codecs:
        raise UnsupportedFormatError(
            "metadata record", expected=f"{word} 0 to {max(codecs)}", found=f"{word} {api_key}", at=at
        )
    codec = codecs[api_key]
    version, body = read_uvarint(value, after_key, "record version")
    if version != RECORD_VERSION:
        raise UnsupportedFormatError(
            codec.schema.name, expected=f"version {RECORD_VERSION}", found=f"version {version}", at=after_key
        )
    return codec, body


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


def _codec_of(event: MetadataEvent, dialect: Dialect) -> RecordCodec:
    """Return the codec that encodes an event; raise UsageError if the dialect cannot hold the event."""
    codec = _BY_EVENT.get((dialect, type(event)))
    if codec is None or dialect_of(event) is not dialect:
        raise UsageError(f"a {event.type} of dialect {dialect_of(event)} can't be written as {dialect}")
    return codec
