"""The table of decoded events while it is being filled, shape by shape, in any order of rows.

Everything that is the same for all rows of one kind (type, dialect, which columns are null, lengths, tags)
is kept once a kind; a row holds the number of its kind.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

from tierctl.model.events import MetadataEvent, dialect_of
from tierctl.model.ids import Uuid
from tierctl.wire.metadata.arrow_types import DIALECT_NAMES, EVENT_SCHEMA, STATE_NAMES, TYPE_NAMES, UUID

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.intp]

NOTHING = -1
_FORMATS = {UUID: "V16", pa.int32(): "i4", pa.int64(): "i8"}
FIXED_COLUMNS = {f.name: _FORMATS[f.type] for f in EVENT_SCHEMA if f.type in _FORMATS} | {"state": "i1"}
VARIABLE_COLUMNS = {"topic": "u1", "custom_metadata": "u1", "segment_leader_epochs": "i8"}
_STATE_CODES = {str(name): code for code, name in enumerate(STATE_NAMES)}

Tags = tuple[tuple[str, int, bytes], ...]


class Kind(NamedTuple):
    """What rows have in common. A width is in items of the column, NOTHING for null."""

    type_code: int
    dialect_code: int
    present: frozenset[str]
    """Fixed columns that are not null."""
    widths: tuple[int, ...]
    """Of VARIABLE_COLUMNS, in order."""
    txn_index_empty: int
    tags: Tags


def kind_of(event: MetadataEvent) -> Kind:
    """The kind of rows that `event` belongs to."""
    given = {name for name in EVENT_SCHEMA.names if getattr(event, name, None) is not None}
    txn = getattr(event, "txn_index_empty", None)
    tags = [("", tag, data) for tag, data in event.unknown_tags]
    tags += [(place, tag, data) for place, kept in event.nested_tags for tag, data in kept]
    return Kind(
        TYPE_NAMES.index(event.type),
        DIALECT_NAMES.index(dialect_of(event)),
        frozenset(given & FIXED_COLUMNS.keys()),
        tuple(len(items[0]) if (items := _items(event, name)) else NOTHING for name in VARIABLE_COLUMNS),
        NOTHING if txn is None else int(txn),
        tuple(tags),
    )


def _items(event: MetadataEvent, name: str) -> tuple[Array] | None:
    """A variable column's items in one event; None for null."""
    value = getattr(event, name, None)
    if value is None:
        return None
    if name == "segment_leader_epochs":
        return (np.array(value, "i8").reshape(-1),)
    return (np.frombuffer(value.encode("utf-8") if isinstance(value, str) else value, "u1"),)


def _raw(value: Any) -> Any:
    if isinstance(value, Uuid):
        return np.void(value.bytes)
    return _STATE_CODES[value] if isinstance(value, str) else value


class EventSink:
    """Columns of `rows` events; rows that nothing is put into stay null."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._kinds: dict[Kind, int] = {}
        self._kind = np.full(rows, NOTHING, np.int32)
        self._fixed = {name: np.zeros(rows, form) for name, form in FIXED_COLUMNS.items()}
        self._parts: dict[str, list[tuple[Rows, Array]]] = {name: [] for name in VARIABLE_COLUMNS}
        self._errors: dict[int, str] = {}

    def put(self, rows: Rows, kind: Kind, columns: Mapping[str, Array]) -> None:
        """Rows of one kind: fixed columns of len(rows), variable ones as a matrix of a row a row."""
        self._kind[rows] = self._kinds.setdefault(kind, len(self._kinds))
        for name, values in columns.items():
            if name in self._parts:
                self._parts[name].append((rows, values))
            else:
                self._fixed[name][rows] = values

    def put_event(self, row: int, event: MetadataEvent) -> None:
        """One row."""
        kind = kind_of(event)
        columns: dict[str, Any] = {name: _raw(getattr(event, name)) for name in kind.present}
        for name in VARIABLE_COLUMNS:
            if items := _items(event, name):
                columns[name] = items[0].reshape(1, -1)
        self.put(np.array([row], np.intp), kind, columns)

    def put_error(self, row: int, error: str) -> None:
        """A row that can't be decoded."""
        self._errors[row] = error

    def table(self) -> pa.Table:
        """Everything put so far, as a table of EVENT_SCHEMA."""
        columns = {
            "topic": self._bytes("topic", pa.string()),
            "custom_metadata": self._bytes("custom_metadata", pa.binary()),
            "segment_leader_epochs": self._epochs(),
            "state": self._names(self._fixed["state"], STATE_NAMES),
            "type": self._names(self._by_kind([k.type_code for k in self._kinds], "i1"), TYPE_NAMES),
            "dialect": self._names(self._by_kind([k.dialect_code for k in self._kinds], "i1"), DIALECT_NAMES),
            "txn_index_empty": self._txn_index_empty(),
            "unknown_tags": self._tags(),
            "error": self._error_column(),
        }
        arrays = [
            columns[f.name] if f.name in columns else self._numbers(f.name, f.type) for f in EVENT_SCHEMA
        ]
        return pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA)

    def _by_kind(self, values: list[Any], form: str) -> Array:
        """A value for each row by its kind; the row without one takes the last, which is zero."""
        return np.array([*values, 0], form)[self._kind]

    def _numbers(self, name: str, kind: pa.DataType) -> pa.Array:
        is_given = self._by_kind([name in k.present for k in self._kinds], "?")
        storage = pa.binary(16) if kind == UUID else kind
        array = _from_numpy(storage, self._fixed[name], is_given)
        return pa.ExtensionArray.from_storage(UUID, array) if kind == UUID else array

    def _names(self, codes: Array, names: tuple[str, ...]) -> pa.Array:
        indices = _from_numpy(pa.int8(), codes, self._kind != NOTHING)
        return pa.DictionaryArray.from_arrays(indices, pa.array(map(str, names), pa.string()))

    def _txn_index_empty(self) -> pa.Array:
        values = self._by_kind([k.txn_index_empty for k in self._kinds], "i1")
        is_given = self._by_kind([k.txn_index_empty != NOTHING for k in self._kinds], "?")
        return pa.array(values == 1, pa.bool_(), mask=~is_given)

    def _items(self, name: str) -> tuple[Array, Array, Array]:
        """Offsets, items and validity of a variable column."""
        index = list(VARIABLE_COLUMNS).index(name)
        widths = self._by_kind([k.widths[index] for k in self._kinds], "i8")
        is_given = (self._kind != NOTHING) & (widths != NOTHING)
        offsets = np.zeros(self._rows + 1, np.int64)
        np.cumsum(np.where(is_given, widths, 0), out=offsets[1:])
        items = np.empty(offsets[-1], VARIABLE_COLUMNS[name])
        for rows, matrix in self._parts[name]:
            scatter(items, offsets[rows], matrix)
        return offsets, items, is_given

    def _bytes(self, name: str, kind: pa.DataType) -> pa.Array:
        offsets, items, is_given = self._items(name)
        buffers = [_bitmap(is_given), pa.py_buffer(offsets.astype("i4")), pa.py_buffer(items)]
        return pa.Array.from_buffers(kind, self._rows, buffers)

    def _epochs(self) -> pa.Array:
        offsets, items, is_given = self._items("segment_leader_epochs")
        pairs = np.arange(0, len(items) + 1, 2, dtype="i4")
        inner = pa.ListArray.from_arrays(pa.array(pairs), pa.array(items))
        buffers = [_bitmap(is_given), pa.py_buffer((offsets // 2).astype("i4"))]
        kind = EVENT_SCHEMA.field("segment_leader_epochs").type
        return pa.Array.from_buffers(kind, self._rows, buffers, children=[inner])

    def _tags(self) -> pa.Array:
        kind = EVENT_SCHEMA.field("unknown_tags").type
        if not any(k.tags for k in self._kinds):
            return pa.nulls(self._rows, kind)
        names = ("place", "tag", "data")
        rows = [[dict(zip(names, tag, strict=True)) for tag in k.tags] or None for k in self._kinds]
        return pa.array([*rows, None], kind).take(pa.array(np.where(self._kind < 0, len(rows), self._kind)))

    def _error_column(self) -> pa.Array:
        if not self._errors:
            return pa.nulls(self._rows, pa.string())
        return pa.array([self._errors.get(row) for row in range(self._rows)], pa.string())


def scatter(items: Array, starts: Array, matrix: Array) -> None:
    """Writes each row of `matrix` into `items` at its start, one copy a row."""
    width = matrix.shape[1]
    if width and len(matrix):
        sliding_window_view(items, width, writeable=True)[starts] = matrix


def gather(items: Array, starts: Array, width: int) -> Array:
    """A matrix of the `width` items from each start, one copy a row."""
    if not width or not len(starts):
        return np.empty((len(starts), width), items.dtype)
    taken: Array = sliding_window_view(items, width)[starts]
    return taken


def _bitmap(is_given: Array) -> pa.Buffer | None:
    return None if is_given.all() else pa.py_buffer(np.packbits(is_given, bitorder="little"))


def _from_numpy(kind: pa.DataType, values: Array, is_given: Array) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [_bitmap(is_given), pa.py_buffer(values)])
