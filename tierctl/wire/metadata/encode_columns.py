"""The columnar encoder: a table of events to the column of values, and single rows of it to events.

Rows with the same null columns, lengths and flags have the same byte layout: the scalar codec encodes one of
them, and its bytes are the template of the others. Rows with tags, and rows with numbers that do not fit, are
encoded by the scalar codec.
"""

from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

from tierctl.errors import UsageError
from tierctl.model.events import MetadataEvent, dialect_of
from tierctl.wire.arrays import NdArray, are_given, array_of, distinct, numbers
from tierctl.wire.metadata.decode_columns import ValueLayout, layout_of
from tierctl.wire.metadata.event_table import (
    ARRAY_COLUMNS,
    BYTES_COLUMNS,
    EVENT_SCHEMA,
    FIXED_COLUMNS,
    FLAG_COLUMNS,
    STATE_COLUMNS,
    STATE_NAMES,
    UUID,
    Rows,
    gather,
    scatter,
)
from tierctl.wire.metadata.schema import KAFKA_RECORDS
from tierctl.wire.metadata.values import Trace, encode, encode_traced

_BATCH_ROWS = 1 << 20
_BLOCK_ROWS = 4096
_FEW_ROWS = 8
_BINARY_BYTES_MAX = (1 << 31) - 1
_RECORDS = {record.event.type: record for record in KAFKA_RECORDS}


def encode_column(table: pa.Table) -> pa.Array:
    """Encode a table of EVENT_SCHEMA to a column of values with the same rows; null for a row without event.

    The result is a binary array, or a large binary array if the values have 2 GiB or more. Raise UsageError
    for a row that the format cannot hold.
    """
    table = table.select(EVENT_SCHEMA.names)
    if table.schema != EVENT_SCHEMA:
        table = table.cast(EVENT_SCHEMA)
    pieces = [
        _Encoder(pa.Table.from_batches([batch])).values()
        for batch in table.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
    ]
    if not pieces:
        return pa.array([], pa.binary())
    fits = sum(piece.nbytes for piece in pieces) <= _BINARY_BYTES_MAX
    return pa.concat_arrays([piece.cast(pa.binary()) for piece in pieces] if fits else pieces)


def event_at(table: pa.Table, row: int) -> MetadataEvent | None:
    """Return one row of a table of EVENT_SCHEMA as an event; None for a tombstone or a row with an error."""
    values = {name: table.column(name)[row].as_py() for name in EVENT_SCHEMA.names}
    if values["type"] is None:
        return None
    record = _RECORDS[values["type"]]
    values.update(_tags(values["unknown_tags"] or []))
    for name in ARRAY_COLUMNS:
        values[name] = tuple(tuple(element) for element in values[name] or ())
    if record.states is not None:
        try:
            values["state"] = record.states(values["state"])
        except ValueError:
            found = f"{values['state']!r} is no state of a {record.event.type}"
            raise UsageError(f"row {row}: {found}") from None
    event: MetadataEvent = record.event(**{f.name: values[f.name] for f in fields(record.event)})
    return event


def _tags(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the tags of one row as an event's `unknown_tags` and `nested_tags`."""
    places: dict[str, list[tuple[int, bytes]]] = {}
    for row in rows:
        places.setdefault(row["place"], []).append((row["tag"], row["data"]))
    unknown = tuple(places.pop("", ()))
    return {"unknown_tags": unknown, "nested_tags": tuple((p, tuple(tags)) for p, tags in places.items())}


class _Encoder:
    """Encode one batch: its columns as NumPy arrays, and the values encoded so far."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._rows = table.num_rows
        columns = {name: _only_chunk(table.column(name)) for name in table.column_names}
        self._nulls = {name: ~are_given(column) for name, column in columns.items()}
        self._fixed = {
            name: _state_codes(columns[name]) if name in STATE_COLUMNS else _fixed(columns[name], form)
            for name, form in FIXED_COLUMNS.items()
        }
        self._flags = [numbers(columns[name]) for name in FLAG_COLUMNS]
        self._types = numbers(columns["type"].indices, null=-1).astype(np.int64)
        self._items = {name: _bytes_items(columns[name]) for name in BYTES_COLUMNS}
        self._is_regular = True
        for name, array in ARRAY_COLUMNS.items():
            self._items[name], is_regular = _array_items(columns[name], len(array.element.fields))
            self._is_regular &= is_regular
        self._lengths = np.zeros(self._rows, np.int64)
        self._parts: list[tuple[Rows, NdArray]] = []

    def values(self) -> pa.Array:
        """Return the batch's values as a large binary array."""
        for rows in self._rows_by_layout():
            for start in range(0, len(rows), _BLOCK_ROWS):
                self._block(rows[start : start + _BLOCK_ROWS])
        offsets = np.zeros(self._rows + 1, np.int64)
        np.cumsum(self._lengths, out=offsets[1:])
        data = np.empty(offsets[-1], "u1")
        for rows, matrix in self._parts:
            scatter(data, offsets[rows], matrix)
        is_given = ~self._nulls["type"]
        bitmap = None if is_given.all() else pa.py_buffer(np.packbits(is_given, bitorder="little"))
        buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.large_binary(), self._rows, buffers)

    def _rows_by_layout(self) -> list[Rows]:
        """Return the rows that hold an event, grouped by the facts that determine the byte layout."""
        nulls = np.zeros(self._rows, np.int64)
        for i, name in enumerate(EVENT_SCHEMA.names):
            nulls |= self._nulls[name].astype(np.int64) << i
        code = _factorized(nulls)
        for flag in self._flags:
            code = 2 * code + flag
        for part in (self._types, *(widths for _, widths, _ in self._items.values())):
            code = _factorized(code * (int(part.max(initial=0)) + 2) + part + 1)
        given = np.flatnonzero(~self._nulls["type"])
        ordered = given[np.argsort(code[given], kind="stable")]
        groups = np.split(ordered, np.flatnonzero(np.diff(code[ordered])) + 1)
        return [rows for rows in groups if len(rows)]

    def _block(self, rows: Rows) -> None:
        event = event_at(self._table, int(rows[0]))
        layout, template = None, b""
        if event is not None and self._is_regular and len(rows) >= _FEW_ROWS:
            trace: Trace = []
            template = encode_traced(event, dialect_of(event), trace)
            has_tags = event.unknown_tags or event.nested_tags
            layout = None if has_tags else layout_of(template, event, trace)
        if layout is None:
            self._one_by_one(rows)
        else:
            self._fill(rows, layout, template)

    def _fill(self, rows: Rows, layout: ValueLayout, template: bytes) -> None:
        values = np.empty((len(rows), layout.length), "u1")
        values[:] = np.frombuffer(template, "u1")
        row_fields = values.view(layout.fields)[:, 0]
        fits: NdArray = np.full(len(rows), True)
        for name in layout.fields.names or ():
            if name in ARRAY_COLUMNS:
                fits = fits & self._fill_array(rows, name, row_fields[name])
            elif name in STATE_COLUMNS:
                row_fields[name] = self._fixed[name][rows] - np.int8(layout.first_state)
            else:
                row_fields[name] = self._fixed[name][rows]
        for name, (position, width) in layout.texts.items():
            starts, _, items = self._items[name]
            values[:, position : position + width] = gather(items, starts[rows], width)
        fits = fits & layout.columns(values, ())[1]
        self._one_by_one(rows[~fits])
        self._add(rows[fits], values if fits.all() else values[fits])

    def _fill_array(self, rows: Rows, name: str, elements: NdArray) -> NdArray:
        """Write an array's numbers into `elements`; return which rows have numbers that fit the fields."""
        starts, _, items = self._items[name]
        inner = elements.dtype.names or ()
        count = elements.shape[1]
        numbers = gather(items, starts[rows], len(inner) * count).reshape(len(rows), count, len(inner))
        fits: NdArray = np.full(len(rows), True)
        for i, field in enumerate(inner):
            column = numbers[..., i]
            elements[field] = column
            form = elements.dtype[field]
            # The numbers are int64, so only a narrower field can be too small for a number.
            if form.itemsize < column.itemsize:
                limits = np.iinfo(form)
                fits &= ((column >= limits.min) & (column <= limits.max)).all(axis=1)
        return fits

    def _one_by_one(self, rows: Rows) -> None:
        for row in rows.tolist():
            event = event_at(self._table, row)
            if event is not None:
                value = encode(event, dialect_of(event))
                self._add(np.array([row], np.intp), np.frombuffer(value, "u1").reshape(1, -1))

    def _add(self, rows: Rows, values: NdArray) -> None:
        self._lengths[rows] = values.shape[1]
        self._parts.append((rows, values))


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _fixed(array: pa.Array, form: str) -> NdArray:
    """Return the values of a column of fixed width; the value of a null is undefined."""
    storage = array.storage if array.type == UUID else array
    buffer = storage.buffers()[1] or b""
    return np.frombuffer(buffer, form)[storage.offset : storage.offset + len(storage)]


def _state_codes(array: pa.DictionaryArray) -> NdArray:
    names = array.dictionary.to_pylist()
    codes = [STATE_NAMES.index(name) if name in STATE_NAMES else -1 for name in names]
    codes_of_rows: NdArray = np.array([*codes, -1], "i1")[numbers(array.indices, null=-1)]
    return codes_of_rows


_Items = tuple[NdArray, NdArray, NdArray]
"""The start and the number of each row's items (-1 for null), and the items of all rows."""


def _bytes_items(array: pa.Array) -> _Items:
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer or b"\0\0\0\0", "i4")[array.offset : array.offset + len(array) + 1]
    offsets = offsets.astype(np.int64)
    widths = np.where(are_given(array), np.diff(offsets), -1)
    return offsets[:-1], widths, np.frombuffer(data or b"", "u1")


def _array_items(array: pa.ListArray, width: int) -> tuple[_Items, bool]:
    """Return the items of a column of arrays, and whether all elements have `width` numbers, none null."""
    inner = array.values
    outer_offsets = numbers(array.offsets)
    inner_offsets = numbers(inner.offsets)
    starts = inner_offsets[outer_offsets].astype(np.int64)
    widths = np.where(are_given(array), np.diff(starts), -1)
    has_nulls = inner.null_count or inner.values.null_count
    is_regular = not has_nulls and bool((np.diff(inner_offsets) == width).all())
    return (starts[:-1], widths, numbers(inner.values)), is_regular


def _factorized(values: NdArray) -> NdArray:
    """Replace `values` by small numbers that are equal where the values are equal."""
    return distinct(array_of(pa.int64(), values))[0]
