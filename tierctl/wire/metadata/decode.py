"""Decodes metadata values, many at once: each event becomes a row of 64-bit integers.

The layouts of `schema` become an array of operations, which one kernel follows for every record of both
dialects. The kernel accepts values as brokers write them. The scalar codec decides about all other values:
those with an error, with tagged fields that tierctl does not know, with a topic name outside ASCII, and those
that may be a cut record of the other dialect.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from struct import Struct as Packer
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.kernel import int64, plain_kernel, prepare
from tierctl.model.events import MetadataEvent, TopicIdPartition, Uuid, dialect_of
from tierctl.wire.arrays import (
    Bools,
    ByteSlices,
    Int64s,
    NdArray,
    array_of,
    bitmap,
    bits,
    take_rows,
)
from tierctl.wire.metadata.schema import (
    EVENT_FIELDS,
    EVENT_TYPES,
    KAFKA_RECORDS,
    METADATA_RECORDS,
    STORED_RECORDS,
    Array,
    Field,
    Fixed,
    Flag,
    RecordSchema,
    Rule,
    Struct,
    Variable,
    leaf_fields,
)
from tierctl.wire.metadata.values import EVENT_SCHEMA, FRAME_VERSION, MAX_STRING_BYTES, RECORD_VERSION, decode
from tierctl.wire.primitives import copy_items, int32_at, int64_at, uvarint_at

Bytes = npt.NDArray[np.uint8]

(KIND, DIALECT, TOPIC, TOPIC_LENGTH, TOPIC_ID, TOPIC_ID_LOW, PARTITION, SEGMENT_ID, SEGMENT_ID_LOW, START,
 END, WRITER, MAX_TIMESTAMP, EVENT_TIMESTAMP, EPOCHS_AT, EPOCH_COUNT, SIZE, CUSTOM, CUSTOM_LENGTH, STATE,
 TXN_INDEX_EMPTY, HAS_TAGS) = range(22)  # fmt: skip
"""The columns of a row.

An id is two signed words, most significant first. TOPIC and CUSTOM are positions in the data; a
CUSTOM_LENGTH of -1 is null, as in records without custom metadata. EPOCHS_AT and EPOCH_COUNT select rows of
`epochs`. WRITER is the broker id, or in dialect kip405 the leader epoch. STATE is the index of the state in
its enum. Other columns that a record does not have are 0.
"""

ADD, UPDATE, PARTITION_DELETE, SNAPSHOT, TOMBSTONE, ODD = range(6)
"""Values of KIND: the API keys, then a null value, and a value that is no event."""
_KINDS: Final = 6

KAFKA, KIP405, STORED = range(3)
"""Values of DIALECT; STORED are the entries of flat files, whose KIND is their type."""

COLUMNS: Final[dict[str, int]] = {
    "topic": TOPIC,
    "topic_id": TOPIC_ID,
    "partition": PARTITION,
    "segment_id": SEGMENT_ID,
    "start_offset": START,
    "end_offset": END,
    "broker_id": WRITER,
    "leader_epoch": WRITER,
    "epoch": WRITER,
    "max_timestamp_ms": MAX_TIMESTAMP,
    "event_timestamp_ms": EVENT_TIMESTAMP,
    "segment_leader_epochs": EPOCHS_AT,
    "segment_size_in_bytes": SIZE,
    "custom_metadata": CUSTOM,
    "state": STATE,
    "txn_index_empty": TXN_INDEX_EMPTY,
}
"""The first column of each field."""


def _width() -> int:
    """Give fields without a name above the next columns, and return the number of columns."""
    width = HAS_TAGS + 1
    for field in EVENT_FIELDS:
        if field.name not in COLUMNS:
            COLUMNS[field.name] = width
            is_one = isinstance(field, Flag) or field.kind in {Fixed.INT8, Fixed.INT32, Fixed.INT64}
            width += 1 if is_one else 2
    return width


WIDTH: Final = _width()

STOP, FIXED, BYTES, ASCII, PAIRS, TAGS, FLAG, BELOW, AT_LEAST, NOT_BELOW, NOT_EMPTY = range(11)
"""The operations of a layout, each with a column and an operand.

FIXED: the width of the field. BYTES, PAIRS: the width of the length, 0 for a compact one. TAGS: whether flags
follow. FLAG: the tag. ASCII, which checks a string after BYTES, has none; nor has NOT_EMPTY. BELOW, AT_LEAST:
a number. NOT_BELOW: another column.
"""

_WIDTHS = {Fixed.INT8: 1, Fixed.INT32: 4, Fixed.INT64: 8, Fixed.UUID: 16}
_PAIR = (Fixed.INT32, Fixed.INT64)

Operation = tuple[int, int, int]


def _operations(body: Struct, *, flexible: bool) -> Iterator[Operation]:
    """Yield the operations that read a struct."""
    for field in body.fields:
        column = COLUMNS.get(field.name, -1)
        match field.kind:
            case Struct() as inner:
                yield from _operations(inner, flexible=flexible)
            case Array() as array:
                assert tuple(each.kind for each in array.element.fields) == _PAIR
                yield PAIRS, column, 0 if flexible else 4
            case Variable():
                is_string = field.kind is Variable.STRING
                yield BYTES, column, 0 if flexible else 2 if is_string else 4
                if is_string:
                    yield ASCII, column, 0
            case _:
                yield FIXED, column, _WIDTHS[field.kind]
                if field.states:
                    yield BELOW, column, len(field.states)
    if flexible:
        yield TAGS, -1, int(bool(body.flags))
        yield from ((FLAG, COLUMNS[flag.name], flag.tag) for flag in sorted(body.flags, key=lambda f: f.tag))


def _check(rule: Rule) -> Operation:
    """Return the operation that checks a rule."""
    column = COLUMNS[rule.field]
    if rule.least is None:
        return NOT_EMPTY, column, 0
    if isinstance(rule.least, str):
        return NOT_BELOW, column, COLUMNS[rule.least]
    return AT_LEAST, column, rule.least


def _layouts() -> Int64s:
    """Return the operations of all records as an array [dialect, api key, operation, 3], padded with STOP."""
    found = {
        (dialect, record.api_key): [
            *_operations(record.body, flexible=record.flexible),
            *map(_check, record.rules),
        ]
        for dialect, records in enumerate((*METADATA_RECORDS.values(), STORED_RECORDS))
        for record in records
    }
    shape = (STORED + 1, max(key for _, key in found) + 1, max(map(len, found.values())) + 1, 3)
    layouts = np.zeros(shape, np.int64)
    for at, operations in found.items():
        layouts[at][: len(operations)] = operations
    return layouts


LAYOUTS: Final = _layouts()


@plain_kernel
def _length_at(data: Bytes, at: int, end: int, width: int) -> tuple[int, int]:
    """Return a length, -1 for null, and the position after it; -1 as the position if it is none."""
    if width == 0:
        length, at = uvarint_at(data, at, end)
        return length - 1, at
    if end - at < width:
        return 0, -1
    length = int32_at(data, at) if width == 4 else int64(data[at]) << 8 | int64(data[at + 1])
    if width == 2 and length > MAX_STRING_BYTES:
        length -= 65536
    return length, at + width if length >= -1 else -1


@plain_kernel
def _read_fixed(data: Bytes, at: int, end: int, width: int, row: Int64s, column: int) -> int:
    """Read a field of fixed width to `row`; return the position after it, -1 if it is refused."""
    if end - at < width:
        return -1
    if width == 4:
        row[column] = int32_at(data, at)
    elif width == 1:
        row[column] = int64(data[at])
    else:
        row[column] = int64_at(data, at)
        if width == 16:
            row[column + 1] = int64_at(data, at + 8)
    return at + width


@plain_kernel
def _read_bytes(data: Bytes, at: int, end: int, width: int, row: Int64s, column: int) -> int:
    """Read the place of a string or of bytes to `row`; return the position after it, -1 if it is refused."""
    length, at = _length_at(data, at, end, width)
    if at < 0 or length > end - at:
        return -1
    row[column], row[column + 1] = at, length
    return at + max(length, 0)


@plain_kernel
def _is_ascii(data: Bytes, row: Int64s, column: int) -> bool:
    """Return whether a string is not null, not too long, and ASCII."""
    at, length = row[column], row[column + 1]
    if length < 0 or length > MAX_STRING_BYTES:
        return False
    bits = 0
    for k in range(at, at + length):
        bits |= int64(data[k])
    return bool(bits < 128)


@plain_kernel
def _read_pairs(
    data: Bytes, at: int, end: int, width: int, row: Int64s, column: int, epochs: Int64s, used: int
) -> tuple[int, int]:
    """Read an array of pairs to `epochs`, from index `used` on.

    Return the position after the array, -1 if it is refused, and the number of pairs in use.
    """
    count, at = _length_at(data, at, end, width)
    # In a flexible record, a byte for tagged fields follows each pair.
    size = 12 if width else 13
    if at < 0 or count < 0 or count * size > end - at:
        return -1, used
    row[column], row[column + 1] = used, count
    for _ in range(count):
        if size == 13 and data[at + 12] != 0:
            return -1, used
        epochs[used, 0], epochs[used, 1] = int32_at(data, at), int64_at(data, at + 4)
        used += 1
        at += size
    return at, used


@plain_kernel
def _is_true_flag(data: Bytes, at: int, end: int, tag: int) -> bool:
    """Return whether the tag, the size of its value, and the value of true are next."""
    return bool(end - at >= 3 and data[at] == tag and data[at + 1] == 1 and data[at + 2] == 1)


@plain_kernel
def _holds(row: Int64s, operation: int, column: int, operand: int) -> bool:
    """Return whether a row satisfies a condition."""
    if operation == BELOW:
        return bool(row[column] < operand)
    if operation == AT_LEAST:
        return bool(row[column] >= operand)
    if operation == NOT_BELOW:
        return bool(row[column] >= row[operand])
    return bool(row[column + 1] > 0)


@plain_kernel
def _read_head(data: Bytes, at: int, end: int, dialect: int, layouts: Int64s) -> tuple[int, int]:
    """Return the position of a record's body, -1 if no layout describes the value, and its API key."""
    if dialect == KAFKA:
        if at >= end or data[at] != FRAME_VERSION:
            return -1, 0
        at += 1
    if end - at < 2 or data[at] >= layouts.shape[1] or data[at + 1] != RECORD_VERSION:
        return -1, 0
    kind = int64(data[at])
    return (at + 2 if layouts[dialect, kind, 0, 0] != STOP else -1), kind


@plain_kernel
def decode_as(
    data: Bytes, at: int, end: int, dialect: int, layouts: Int64s, row: Int64s, epochs: Int64s, used: int
) -> int:
    """Decode one value of a dialect to `row`; return the number of `epochs` in use, -1 if it is refused."""
    at, kind = _read_head(data, at, end, dialect, layouts)
    if at < 0:
        return -1
    row[:] = 0
    row[KIND], row[DIALECT], row[CUSTOM_LENGTH] = kind, dialect, -1
    tags = 0
    steps = layouts[dialect, kind]
    for step in range(len(steps)):
        operation, column, operand = steps[step, 0], steps[step, 1], steps[step, 2]
        if operation == STOP:
            break
        if operation == FIXED:
            at = _read_fixed(data, at, end, operand, row, column)
        elif operation == BYTES:
            at = _read_bytes(data, at, end, operand, row, column)
        elif operation == PAIRS:
            at, used = _read_pairs(data, at, end, operand, row, column, epochs, used)
        elif operation == TAGS:
            # The number of tags, which the flags below count down.
            tags = int64(data[at]) if at < end else -1
            at = at + 1 if tags == 0 or (tags > 0 and operand) else -1
        elif operation == FLAG:
            row[column] = int64(tags > 0 and _is_true_flag(data, at, end, operand))
            tags -= row[column]
            at += 3 * row[column]
        elif operation == ASCII:
            at = at if _is_ascii(data, row, column) else -1
        elif not _holds(row, operation, column, operand):
            at = -1
        if at < 0:
            return -1
    return used if at == end and tags == 0 else -1


@plain_kernel
def _may_be_cut_segment(data: Bytes, at: int, end: int) -> bool:
    """Return whether an update of dialect kip405 may be a cut segment record, which `values` decides."""
    if data[at] != 1 or data[at + 1] != 0 or data[at + 2] != 0:
        return False
    length, topic = uvarint_at(data, at + 3, end)
    partition = topic + length - 1 + 16
    segment_tags = partition + 4 + 1 + 16
    end_offset = segment_tags + 1 + 8
    if topic < 0 or not end_offset < end < end_offset + 8:
        return False
    return bool(data[partition] == 0 and data[partition + 4] == 0 and data[segment_tags] == 0)


@plain_kernel
def _mark(row: Int64s, kind: int) -> None:
    """Make a row that of a value without fields."""
    row[:] = 0
    row[KIND] = kind


@plain_kernel
def decode_value(
    data: Bytes, at: int, end: int, layouts: Int64s, row: Int64s, epochs: Int64s, used: int
) -> int:
    """Decode `data[at:end]` to `row`, whose KIND becomes ODD if the scalar codec must decide about the value.

    `used` is the number of `epochs` in use; return it with those of this value. `epochs` must have room for a
    pair per 12 bytes of the value.
    """
    for dialect in range(2):
        # No value of dialect kip405 is also one of dialect kafka: an update, which can begin in the same way,
        # is shorter than a segment record with the same name.
        found = decode_as(data, at, end, dialect, layouts, row, epochs, used)
        if found >= 0 and not (dialect == KIP405 and _may_be_cut_segment(data, at, end)):
            return found
    _mark(row, ODD)
    return used


@plain_kernel
def _decode_rows(
    data: Bytes, starts: Int64s, lengths: Int64s, layouts: Int64s, rows: Int64s, epochs: Int64s
) -> int:
    """Decode value i of ByteSlices to row i; return the number of `epochs` in use."""
    # Without the conversion, the kernels it calls are compiled a second time for the literal 0.
    used = int64(0)
    for i in range(len(rows)):
        at, length = int64(starts[i]), int64(lengths[i])
        if length < 0:
            _mark(rows[i], TOMBSTONE)
        else:
            used = decode_value(data, at, at + length, layouts, rows[i], epochs, used)
    return used


def event_fields(record: RecordSchema) -> Iterator[Field | Flag]:
    """Yield the fields and flags of a record."""
    yield from leaf_fields(record.body)
    yield from record.body.flags


_DIALECTS: Final = tuple(METADATA_RECORDS)
_RECORDS: Final = [
    {record.api_key: record for record in records} for records in (*METADATA_RECORDS.values(), STORED_RECORDS)
]
_WORDS: Final = Packer(">qq")


@dataclass(frozen=True, slots=True)
class DecodedEvents:
    """A row per value, in the order of the values.

    `data` has the bytes of the values, and `epochs` the pairs of leader epoch and start offset, to which rows
    refer. `events` has the events of rows with unknown tags (HAS_TAGS), and `errors` the errors of ODD rows.
    """

    data: Bytes
    rows: Int64s
    epochs: Int64s
    events: dict[int, MetadataEvent]
    errors: dict[int, CorruptInputError]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Int64s) -> "DecodedEvents":
        """Return some of the events, in the order of `rows`."""
        numbered = list(enumerate(rows.tolist()))
        return DecodedEvents(
            self.data,
            self.rows[rows],
            self.epochs,
            {i: self.events[row] for i, row in numbered if row in self.events},
            {i: self.errors[row] for i, row in numbered if row in self.errors},
        )

    def event(self, row: int) -> MetadataEvent:
        """Return the event of a row that is no tombstone; raise the error of an ODD row."""
        if row in self.errors:
            raise self.errors[row]
        if row in self.events:
            return self.events[row]
        numbers = self.rows[row].tolist()
        record = _RECORDS[numbers[DIALECT]][numbers[KIND]]
        event: MetadataEvent = record.event(
            **{field.name: self._value(field, numbers, COLUMNS[field.name]) for field in event_fields(record)}
        )
        return event

    def table(self, columns: Sequence[str] = tuple(EVENT_SCHEMA.names)) -> pa.Table:
        """Return the events as a table with `columns` of EVENT_SCHEMA."""
        schema = pa.schema([EVENT_SCHEMA.field(name) for name in columns])
        return pa.Table.from_arrays([_column(self, field) for field in schema], schema=schema)

    def topic_id_partition(self, row: int) -> TopicIdPartition:
        """Return the user partition of a row that has one."""
        numbers = self.rows[row].tolist()
        at, high, low = numbers[TOPIC], numbers[TOPIC_ID], numbers[TOPIC_ID_LOW]
        topic = self.data[at : at + numbers[TOPIC_LENGTH]].tobytes().decode()
        return TopicIdPartition(Uuid.from_bytes(_WORDS.pack(high, low)), topic, numbers[PARTITION])

    def _value(self, field: Field | Flag, numbers: list[int], column: int) -> Any:
        number = numbers[column]
        if isinstance(field, Flag):
            return bool(number)
        match field.kind:
            case Fixed.UUID:
                return Uuid.from_bytes(_WORDS.pack(number, numbers[column + 1]))
            case Variable():
                if numbers[column + 1] < 0:
                    return None
                raw = self.data[number : number + numbers[column + 1]].tobytes()
                return raw.decode() if field.kind is Variable.STRING else raw
            case Array():
                return tuple(map(tuple, self.epochs[number : number + numbers[column + 1]].tolist()))
            case _:
                return tuple(field.states)[number] if field.states else number


def decode_values(values: ByteSlices | pa.BinaryArray | pa.LargeBinaryArray) -> DecodedEvents:
    """Decode byte strings; a null one is a tombstone."""
    found = values if isinstance(values, ByteSlices) else ByteSlices.of(values)
    data, starts, lengths = found.data, found.starts, found.lengths
    prepare(len(starts))
    rows = np.empty((len(starts), WIDTH), np.int64)
    # Each pair takes at least 12 bytes.
    epochs = np.empty((len(data) // 12, 2), np.int64)
    used = _decode_rows(data, starts, lengths, LAYOUTS, rows, epochs)
    decoded = DecodedEvents(data, rows, epochs, {}, {})
    for row in np.flatnonzero(rows[:, KIND] == ODD).tolist():
        used = _decode_odd(decoded, row, int(starts[row]), int(starts[row] + lengths[row]), used)
    return replace(decoded, epochs=epochs[:used])


def _decode_odd(decoded: DecodedEvents, row: int, at: int, end: int, used: int) -> int:
    """Decode `data[at:end]` by the scalar codec; return the number of epochs in use."""
    value = decoded.data[at:end].tobytes()
    try:
        event = decode(value)
    except CorruptInputError as error:
        decoded.errors[row] = error
        return used
    pairs = getattr(event, "segment_leader_epochs", ())
    decoded.epochs[used : used + len(pairs)] = np.array(pairs, np.int64).reshape(-1, 2)
    decoded.rows[row] = _numbers(event, at, value, used)
    if decoded.rows[row, HAS_TAGS]:
        decoded.events[row] = event
    return used + len(pairs)


def _numbers(event: MetadataEvent, at: int, value: bytes, used: int) -> list[int]:
    """Return the row of an event, whose `value` is at position `at`, and whose pairs are at index `used`."""
    dialect, kind = _DIALECTS.index(dialect_of(event)), EVENT_TYPES.index(type(event))
    numbers = [0] * WIDTH
    numbers[KIND], numbers[DIALECT], numbers[CUSTOM_LENGTH] = kind, dialect, -1
    numbers[HAS_TAGS] = int(bool(event.unknown_tags or event.nested_tags))
    for field in event_fields(_RECORDS[dialect][kind]):
        column, found = COLUMNS[field.name], getattr(event, field.name)
        if isinstance(field, Flag) or field.kind in {Fixed.INT32, Fixed.INT64}:
            numbers[column] = int(found)
        elif field.kind is Fixed.UUID:
            numbers[column : column + 2] = _WORDS.unpack(found.bytes)
        elif isinstance(field.kind, Array):
            numbers[column : column + 2] = used, len(found)
        elif field.states is not None:
            numbers[column] = found.id
        elif found is not None:
            raw = found.encode() if field.kind is Variable.STRING else found
            # If the same bytes occur more than once, each position will do.
            numbers[column : column + 2] = at + value.index(raw), len(raw)
    return numbers


def rows_of(events: Sequence[MetadataEvent]) -> DecodedEvents:
    """Return events as if they had been decoded; their values need not be such as a record may have."""
    rows: list[list[int]] = []
    pairs: list[tuple[int, int]] = []
    odd: dict[int, MetadataEvent] = {}
    data = bytearray()
    for i, event in enumerate(events):
        own = getattr(event, "topic", "").encode() + (getattr(event, "custom_metadata", None) or b"")
        rows.append(_numbers(event, len(data), own, len(pairs)))
        pairs += getattr(event, "segment_leader_epochs", ())
        data += own
        if rows[-1][HAS_TAGS]:
            odd[i] = event
    epochs = np.array(pairs, np.int64).reshape(-1, 2)
    return DecodedEvents(np.frombuffer(bytes(data), np.uint8), np.array(rows, np.int64), epochs, odd, {})


# Decoded events as Arrow's columns, without a Python object per row.

_FIELDS: Final = {field.name: field for field in EVENT_FIELDS}
_TYPE_NAMES: Final = [event.type for event in EVENT_TYPES]
_STATES: Final = tuple(dict.fromkeys(state for record in KAFKA_RECORDS for state in record.states or ()))
_FIRST_STATES: Final = np.array([_STATES.index(next(iter(record.states or ()))) for record in KAFKA_RECORDS])
"""The index in _STATES of the first state of each kind of event."""


def _given() -> dict[str, Bools]:
    """Return for each field of events an array [dialect, kind], which is true where events have the field.

    An event of dialect kip405 has the flags of its class, although its record does not.
    """
    given = {name: np.zeros((len(METADATA_RECORDS), _KINDS), np.bool_) for name in _FIELDS}
    for dialect, records in enumerate(METADATA_RECORDS.values()):
        for record, of_kafka in zip(records, KAFKA_RECORDS, strict=False):
            for field in (*event_fields(record), *of_kafka.body.flags):
                given[field.name][dialect, record.api_key] = True
    return given


_GIVEN: Final = _given()


def _column(events: DecodedEvents, field: pa.Field) -> pa.Array:
    kinds, dialects = events.rows[:, KIND], events.rows[:, DIALECT]
    match field.name:
        case "type":
            return _names(kinds, kinds < len(_TYPE_NAMES), _TYPE_NAMES)
        case "dialect":
            return _names(dialects, kinds < len(_TYPE_NAMES), _DIALECTS)
        case "error":
            return _errors(events)
        case _:
            given = _GIVEN[field.name][dialects, kinds]
            return _field_column(events, _FIELDS[field.name], field.type, given)


def _field_column(events: DecodedEvents, field: Field | Flag, kind: pa.DataType, given: Bools) -> pa.Array:
    """Return the column of a field; `given` tells which events have it."""
    at = COLUMNS[field.name]
    numbers = events.rows[:, at]
    if isinstance(field, Flag):
        return pa.Array.from_buffers(kind, len(events), [bitmap(given), bits(numbers != 0)])
    if field.states is not None:
        firsts = np.append(_FIRST_STATES, np.zeros(_KINDS - len(_FIRST_STATES), np.int64))
        return _names(numbers + firsts[events.rows[:, KIND]], given, _STATES)
    match field.kind:
        case Fixed.UUID:
            words = events.rows[:, at : at + 2].astype(">i8")
            return array_of(kind, words, given)
        case Variable():
            given = given & (events.rows[:, at + 1] >= 0)
            offsets, items = _items(events, at, given, events.data)
            buffers = [bitmap(given), pa.py_buffer(offsets), pa.py_buffer(items)]
            return pa.Array.from_buffers(kind, len(events), buffers)
        case Array():
            offsets, items = _items(events, at, given, events.epochs)
            ends = array_of(pa.int32(), np.arange(0, items.size + 1, 2, dtype=np.int32))
            pairs = pa.ListArray.from_arrays(ends, array_of(pa.int64(), items.reshape(-1)))
            buffers = [bitmap(given), pa.py_buffer(offsets)]
            return pa.Array.from_buffers(kind, len(events), buffers, children=[pairs])
        case _:
            return array_of(kind, numbers.astype(kind.to_pandas_dtype()), given)


def _names(codes: Int64s, given: Bools, names: Sequence[str]) -> pa.Array:
    """Return a column of names by their indexes."""
    indices = array_of(pa.int8(), codes.astype(np.int8), given)
    return pa.DictionaryArray.from_arrays(indices, pa.array(map(str, names), pa.string()))


def _items(events: DecodedEvents, at: int, given: Bools, pool: NdArray) -> tuple[NdArray, NdArray]:
    """Return the items of each event, whose position and number are in columns `at` and `at + 1`, in a row.

    The items of event i are `items[offsets[i]:offsets[i + 1]]`.
    """
    offsets = np.zeros(len(events) + 1, np.int64)
    np.cumsum(np.where(given, events.rows[:, at + 1], 0), out=offsets[1:])
    items = np.empty((offsets[-1], *pool.shape[1:]), pool.dtype)
    width = pool.size // max(len(pool), 1)
    _copy_items(pool.reshape(-1), events.rows[:, at], offsets, width, items.reshape(-1))
    return offsets.astype(np.int32), items


@plain_kernel
def _copy_items(pool: NdArray, starts: Int64s, offsets: Int64s, width: int, items: NdArray) -> None:
    """Copy items of `width` numbers from index `starts[i]` of `pool` on to index `offsets[i]`, for each i."""
    for i in range(len(starts)):
        first, end = offsets[i] * width, offsets[i + 1] * width
        copy_items(items, first, pool, starts[i] * width, end - first)


def _errors(events: DecodedEvents) -> pa.Array:
    """Return the column of errors, which few rows have."""
    count, errors = len(events), events.errors
    if not errors:
        return pa.nulls(count, pa.string())
    places = np.full(count, len(errors))
    places[list(errors)] = np.arange(len(errors))
    return take_rows(pa.array([*map(str, errors.values()), None], pa.string()), places)
