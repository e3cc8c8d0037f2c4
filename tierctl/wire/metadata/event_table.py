"""Builds the table of decoded events from groups of rows, in any order of rows.

Facts that all rows of a group share (type, dialect, null columns, lengths, flags, tags) are stored once per
group, as an `EventKind`; a row holds the number of its kind.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.model.events import (
    Dialect,
    MetadataEvent,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    dialect_of,
)
from tierctl.model.ids import Uuid
from tierctl.wire.arrays import NdArray, array_of, bitmap, bits, take_rows, windows
from tierctl.wire.metadata.schema import (
    EVENT_FIELDS,
    EVENT_TYPES,
    KAFKA_RECORDS,
    Array,
    Field,
    Fixed,
    Flag,
    Variable,
)


class UuidScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """A scalar of UuidType; its Python value is the model's Uuid."""

    def as_py(self, **_options: Any) -> Uuid | None:
        """Return the id; None for null."""
        return None if self.value is None else Uuid.from_bytes(self.value.as_py())


class UuidType(pa.ExtensionType):  # type: ignore[misc]
    """Kafka's Uuid: 16 bytes, most significant first."""

    def __init__(self) -> None:
        super().__init__(pa.binary(16), "tierctl.uuid")

    def __hash__(self) -> int:
        return hash(self.extension_name)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> Self:
        return cls()

    def __arrow_ext_scalar_class__(self) -> type[UuidScalar]:
        return UuidScalar


UUID = UuidType()
pa.register_extension_type(UUID)

_States = RemoteLogSegmentState | RemotePartitionDeleteState
STATE_NAMES: tuple[_States, ...] = tuple(
    dict.fromkeys(state for record in KAFKA_RECORDS for state in record.states or ())
)
TYPE_NAMES: tuple[str, ...] = tuple(event.type for event in EVENT_TYPES)
DIALECT_NAMES = tuple(Dialect)
NAME = pa.dictionary(pa.int8(), pa.string())
TAG = pa.struct([("place", pa.string()), ("tag", pa.int64()), ("data", pa.binary())])

_TYPES: dict[Fixed | Variable, pa.DataType] = {
    Fixed.INT8: pa.int8(),
    Fixed.INT32: pa.int32(),
    Fixed.INT64: pa.int64(),
    Fixed.UUID: UUID,
    Variable.STRING: pa.string(),
    Variable.BYTES: pa.binary(),
    Variable.NULLABLE_BYTES: pa.binary(),
}


def _column_type(field: Field | Flag) -> pa.DataType:
    """Return the type of a field's column; an array is a list of lists, one inner list per element."""
    if isinstance(field, Flag):
        return pa.bool_()
    if field.states is not None:
        return NAME
    if isinstance(field.kind, Fixed | Variable):
        return _TYPES[field.kind]
    return pa.list_(pa.list_(pa.int64()))


EVENT_SCHEMA = pa.schema(
    [
        *((field.name, _column_type(field)) for field in EVENT_FIELDS),
        ("type", NAME),
        ("dialect", NAME),
        ("unknown_tags", pa.list_(TAG)),
        ("error", pa.string()),
    ]
)
"""One row per record. A column that the record's type or dialect does not have is null.

A row whose value cannot be decoded has only an `error`; a tombstone has only nulls.
"""


Rows = npt.NDArray[np.intp]

NULL = -1
_FORMATS = {Fixed.INT8: "i1", Fixed.INT32: "i4", Fixed.INT64: "i8", Fixed.UUID: "V16"}
_FIELDS = [field for field in EVENT_FIELDS if isinstance(field, Field)]

FIXED_COLUMNS: dict[str, str] = {
    field.name: _FORMATS[field.kind] for field in _FIELDS if isinstance(field.kind, Fixed)
}
"""The NumPy format of each column of fixed width; a state is its index in STATE_NAMES."""
ARRAY_COLUMNS: dict[str, Array] = {
    field.name: field.kind for field in _FIELDS if isinstance(field.kind, Array)
}
BYTES_COLUMNS = tuple(field.name for field in _FIELDS if isinstance(field.kind, Variable))
VARIABLE_COLUMNS: dict[str, str] = {
    field.name: "i8" if isinstance(field.kind, Array) else "u1"
    for field in _FIELDS
    if isinstance(field.kind, Variable | Array)
}
"""The NumPy format of the items of each column of variable length: bytes, or the numbers of an array."""
STATE_COLUMNS = tuple(field.name for field in _FIELDS if field.states is not None)
FLAG_COLUMNS = tuple(field.name for field in EVENT_FIELDS if isinstance(field, Flag))
_STATE_CODES = {str(name): code for code, name in enumerate(STATE_NAMES)}

Tags = tuple[tuple[str, int, bytes], ...]


class EventKind(NamedTuple):
    """The facts that all rows of a group share.

    `present` names the columns of fixed width that are not null. `widths` are the numbers of items in
    VARIABLE_COLUMNS, and `flags` the values (0 or 1) of FLAG_COLUMNS; NULL is null.
    """

    type_code: int
    dialect_code: int
    present: frozenset[str]
    widths: tuple[int, ...]
    flags: tuple[int, ...]
    tags: Tags


def kind_of(event: MetadataEvent) -> EventKind:
    """Return the kind of the rows that `event` belongs to."""
    given = {name for name in EVENT_SCHEMA.names if getattr(event, name, None) is not None}
    tags = [("", tag, data) for tag, data in event.unknown_tags]
    tags += [(place, tag, data) for place, kept in event.nested_tags for tag, data in kept]
    items = (_items(event, name) for name in VARIABLE_COLUMNS)
    return EventKind(
        TYPE_NAMES.index(event.type),
        DIALECT_NAMES.index(dialect_of(event)),
        frozenset(given & FIXED_COLUMNS.keys()),
        tuple(NULL if item is None else len(item) for item in items),
        tuple(int(getattr(event, name)) if name in given else NULL for name in FLAG_COLUMNS),
        tuple(tags),
    )


def _items(event: MetadataEvent, name: str) -> NdArray | None:
    """Return the items of a variable column in one event; None for null."""
    value = getattr(event, name, None)
    if value is None:
        return None
    if name in ARRAY_COLUMNS:
        return np.array(value, "i8").reshape(-1)
    return np.frombuffer(value.encode("utf-8") if isinstance(value, str) else value, "u1")


def _raw(value: Any) -> Any:
    """Return a value as its column holds it."""
    if isinstance(value, Uuid):
        return np.void(value.bytes)
    return _STATE_CODES[value] if isinstance(value, str) else value


class EventTableBuilder:
    """Build a table of `columns` of EVENT_SCHEMA with a given number of rows.

    Rows that are never put are null.
    """

    def __init__(self, rows: int, columns: Sequence[str]) -> None:
        self.columns = columns
        self._rows = rows
        self._kinds: dict[EventKind, int] = {}
        self._kind = np.full(rows, NULL, np.int32)
        self._fixed = {name: np.zeros(rows, form) for name, form in FIXED_COLUMNS.items() if name in columns}
        self._parts: dict[str, list[tuple[Rows, NdArray]]] = {
            name: [] for name in VARIABLE_COLUMNS if name in columns
        }
        self._errors: dict[int, str] = {}

    def put(self, rows: Rows, kind: EventKind, columns: Mapping[str, NdArray]) -> None:
        """Set `rows` of one kind; `columns` are columns of this table.

        A column of fixed width has one value per row; one of variable length is a matrix with the items of
        one row per row.
        """
        self._kind[rows] = self._kinds.setdefault(kind, len(self._kinds))
        for name, values in columns.items():
            if name in self._parts:
                self._parts[name].append((rows, values))
            else:
                self._fixed[name][rows] = values

    def put_event(self, row: int, event: MetadataEvent) -> None:
        """Set one row to an event."""
        kind = kind_of(event)
        columns: dict[str, Any] = {
            name: _raw(getattr(event, name)) for name in kind.present if name in self._fixed
        }
        for name in self._parts:
            items = _items(event, name)
            if items is not None:
                columns[name] = items.reshape(1, -1)
        self.put(np.array([row], np.intp), kind, columns)

    def put_error(self, row: int, error: str) -> None:
        """Set one row to the error of a value that cannot be decoded."""
        self._errors[row] = error

    def table(self) -> pa.Table:
        """Return the table of all rows."""
        schema = pa.schema([EVENT_SCHEMA.field(name) for name in self.columns])
        return pa.Table.from_arrays([self._column(field) for field in schema], schema=schema)

    def _column(self, field: pa.Field) -> pa.Array:
        match field.name:
            case "type":
                return self._names(self._by_kind([k.type_code for k in self._kinds], "i1"), TYPE_NAMES)
            case "dialect":
                return self._names(self._by_kind([k.dialect_code for k in self._kinds], "i1"), DIALECT_NAMES)
            case "unknown_tags":
                return self._tags()
            case "error":
                return self._error_column()
            case _:
                return self._event_column(field)

    def _event_column(self, field: pa.Field) -> pa.Array:
        """Return the column of one of EVENT_FIELDS."""
        if field.name in STATE_COLUMNS:
            return self._names(self._fixed[field.name], STATE_NAMES)
        if field.name in FIXED_COLUMNS:
            return self._fixed_column(field.name, field.type)
        if field.name in ARRAY_COLUMNS:
            return self._array_column(field.name, field.type)
        if field.name in FLAG_COLUMNS:
            return self._flag_column(field.name)
        return self._bytes_column(field.name, field.type)

    def _by_kind(self, values: list[Any], form: str) -> NdArray:
        """Return `values[kind]` of each row; 0 for a row without a kind, whose NULL is the last index."""
        return np.array([*values, 0], form)[self._kind]

    def _fixed_column(self, name: str, kind: pa.DataType) -> pa.Array:
        is_given = self._by_kind([name in k.present for k in self._kinds], "?")
        storage = pa.binary(16) if kind == UUID else kind
        array = array_of(storage, self._fixed[name], is_given)
        return pa.ExtensionArray.from_storage(UUID, array) if kind == UUID else array

    def _names(self, codes: NdArray, names: tuple[str, ...]) -> pa.Array:
        indices = array_of(pa.int8(), codes, self._kind != NULL)
        return pa.DictionaryArray.from_arrays(indices, pa.array(map(str, names), pa.string()))

    def _flag_column(self, name: str) -> pa.Array:
        index = FLAG_COLUMNS.index(name)
        values = self._by_kind([k.flags[index] for k in self._kinds], "i1")
        is_given = self._by_kind([k.flags[index] != NULL for k in self._kinds], "?")
        buffers = [bitmap(is_given), bits(values == 1)]
        return pa.Array.from_buffers(pa.bool_(), self._rows, buffers)

    def _items(self, name: str) -> tuple[NdArray, NdArray, NdArray]:
        """Return the offsets, the items and the validity of a variable column."""
        index = list(VARIABLE_COLUMNS).index(name)
        widths = self._by_kind([k.widths[index] for k in self._kinds], "i8")
        is_given = (self._kind != NULL) & (widths != NULL)
        offsets = np.zeros(self._rows + 1, np.int64)
        np.cumsum(np.where(is_given, widths, 0), out=offsets[1:])
        items = np.empty(offsets[-1], VARIABLE_COLUMNS[name])
        for rows, matrix in self._parts[name]:
            scatter(items, offsets[rows], matrix)
        return offsets, items, is_given

    def _bytes_column(self, name: str, kind: pa.DataType) -> pa.Array:
        offsets, items, is_given = self._items(name)
        buffers = [bitmap(is_given), pa.py_buffer(offsets.astype("i4")), pa.py_buffer(items)]
        return pa.Array.from_buffers(kind, self._rows, buffers)

    def _array_column(self, name: str, kind: pa.DataType) -> pa.Array:
        offsets, items, is_given = self._items(name)
        width = len(ARRAY_COLUMNS[name].element.fields)
        elements = np.arange(0, len(items) + 1, width, dtype="i4")
        item_kind = pa.from_numpy_dtype(items.dtype)
        inner = pa.ListArray.from_arrays(array_of(pa.int32(), elements), array_of(item_kind, items))
        buffers = [bitmap(is_given), pa.py_buffer((offsets // width).astype("i4"))]
        return pa.Array.from_buffers(kind, self._rows, buffers, children=[inner])

    def _tags(self) -> pa.Array:
        kind = EVENT_SCHEMA.field("unknown_tags").type
        if not any(k.tags for k in self._kinds):
            return pa.nulls(self._rows, kind)
        names = ("place", "tag", "data")
        rows = [[dict(zip(names, tag, strict=True)) for tag in k.tags] or None for k in self._kinds]
        return take_rows(pa.array([*rows, None], kind), np.where(self._kind < 0, len(rows), self._kind))

    def _error_column(self) -> pa.Array:
        if not self._errors:
            return pa.nulls(self._rows, pa.string())
        return pa.array([self._errors.get(row) for row in range(self._rows)], pa.string())


def scatter(items: NdArray, starts: NdArray, matrix: NdArray) -> None:
    """Copy row i of `matrix` into `items` at index `starts[i]`, with one copy per row."""
    width = matrix.shape[1]
    if width and len(matrix):
        windows(items, width)[starts] = matrix


def gather(items: NdArray, starts: NdArray, width: int) -> NdArray:
    """Return a matrix whose row i has the `width` items from index `starts[i]`, with one copy per row."""
    if not width or not len(starts):
        return np.empty((len(starts), width), items.dtype)
    rows: NdArray = windows(items, width)[starts]
    return rows
