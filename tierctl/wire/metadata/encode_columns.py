"""A table of events back to the column of values it was decoded from, and single rows of it to events.

Rows with the same nulls, lengths and flags have the same shape (wire/shapes.py): one of them is written by
the scalar codec and serves as the template for the rest. Rows with tags, and rows whose numbers don't fit,
take the scalar path.
"""

from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

from tierctl.errors import UsageError
from tierctl.model.events import MetadataEvent, RemotePartitionDeleteMetadata, dialect_of
from tierctl.model.states import RemoteLogSegmentState, RemotePartitionDeleteState
from tierctl.wire.metadata.arrow_types import EVENT_SCHEMA, EVENT_TYPES, STATE_NAMES, UUID
from tierctl.wire.metadata.codec import Trace
from tierctl.wire.metadata.event_table import FIXED_COLUMNS, Array, Rows, gather, scatter
from tierctl.wire.metadata.value_shapes import EPOCHS, Shape, shape_of
from tierctl.wire.metadata.values import encode, encode_traced

_BATCH_ROWS = 1 << 20
_BLOCK_ROWS = 4096
_FEW_ROWS = 8
_MAX_BINARY_BYTES = (1 << 31) - 1
_INT32 = np.iinfo("i4")


def encode_column(table: pa.Table) -> pa.Array:
    """The values of a table of EVENT_SCHEMA, row for row; null where a row holds no event.

    A binary array, or a large one when the values have 2 GiB or more. Raises UsageError for a row that the
    format can't hold.
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
    fits = sum(piece.nbytes for piece in pieces) <= _MAX_BINARY_BYTES
    return pa.concat_arrays([piece.cast(pa.binary()) for piece in pieces] if fits else pieces)


def event_at(table: pa.Table, row: int) -> MetadataEvent | None:
    """One row as an event; None for a tombstone or a row that failed."""
    values = {name: table.column(name)[row].as_py() for name in EVENT_SCHEMA.names}
    if values["type"] is None:
        return None
    event = next(event for event in EVENT_TYPES if event.type == values["type"])
    values.update(_tags(values["unknown_tags"] or []))
    values[EPOCHS] = tuple(tuple(pair) for pair in values[EPOCHS] or ())
    states = RemotePartitionDeleteState if event is RemotePartitionDeleteMetadata else RemoteLogSegmentState
    try:
        values["state"] = states(values["state"])
    except ValueError:
        raise UsageError(f"row {row}: {values['state']!r} is no state of a {event.type}") from None
    made: MetadataEvent = event(**{f.name: values[f.name] for f in fields(event)})
    return made


def _tags(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The column's tags as an event's `unknown_tags` and `nested_tags`."""
    places: dict[str, list[tuple[int, bytes]]] = {}
    for row in rows:
        places.setdefault(row["place"], []).append((row["tag"], row["data"]))
    unknown = tuple(places.pop("", ()))
    return {"unknown_tags": unknown, "nested_tags": tuple((p, tuple(tags)) for p, tags in places.items())}


class _Encoder:
    """One batch: its columns as NumPy arrays, and the values made so far."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._rows = table.num_rows
        columns = {name: _only_chunk(table.column(name)) for name in table.column_names}
        self._nulls = {name: _mask(column.is_null()) for name, column in columns.items()}
        self._fixed = {
            name: _fixed(columns[name], form) for name, form in FIXED_COLUMNS.items() if name != "state"
        }
        self._fixed["state"] = _state_codes(columns["state"])
        self._txn = _mask(columns["txn_index_empty"].fill_null(False))
        self._types = _indices(columns["type"])
        self._items = {name: _bytes_items(columns[name]) for name in ("topic", "custom_metadata")}
        epochs, self._has_pairs = _epoch_items(columns[EPOCHS])
        self._items[EPOCHS] = epochs
        self._lengths = np.zeros(self._rows, np.int64)
        self._parts: list[tuple[Rows, Array]] = []

    def values(self) -> pa.Array:
        """The batch as a large binary array."""
        for rows in self._same_shape():
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

    def _same_shape(self) -> list[Rows]:
        """Rows that hold an event, by what decides the shape."""
        nulls = np.zeros(self._rows, np.int64)
        for i, name in enumerate(EVENT_SCHEMA.names):
            nulls |= self._nulls[name].astype(np.int64) << i
        code = _factorized(nulls * 2 + self._txn)
        for part in (self._types, *(widths for _, widths, _ in self._items.values())):
            code = _factorized(code * (int(part.max(initial=0)) + 2) + part + 1)
        given = np.flatnonzero(~self._nulls["type"])
        ordered = given[np.argsort(code[given], kind="stable")]
        groups = np.split(ordered, np.flatnonzero(np.diff(code[ordered])) + 1)
        return [rows for rows in groups if len(rows)]

    def _block(self, rows: Rows) -> None:
        event = event_at(self._table, int(rows[0]))
        shape, template = None, b""
        if event is not None and self._has_pairs and len(rows) >= _FEW_ROWS:
            trace: Trace = []
            template = encode_traced(event, dialect_of(event), trace)
            shape = None if event.unknown_tags or event.nested_tags else shape_of(template, event, trace)
        if shape is None:
            self._one_by_one(rows)
        else:
            self._fill(rows, shape, template)

    def _fill(self, rows: Rows, shape: Shape, template: bytes) -> None:
        values = np.empty((len(rows), shape.length), "u1")
        values[:] = np.frombuffer(template, "u1")
        row_fields = values.view(shape.layout)[:, 0]
        fits: Array = np.full(len(rows), True)
        for name in shape.layout.names or ():
            if name == EPOCHS:
                fits = fits & self._fill_epochs(rows, row_fields[EPOCHS])
            elif name == "state":
                row_fields[name] = self._fixed[name][rows] - np.int8(shape.first_state)
            else:
                row_fields[name] = self._fixed[name][rows]
        for name, (position, width) in shape.texts.items():
            starts, _, items = self._items[name]
            values[:, position : position + width] = gather(items, starts[rows], width)
        fits = fits & shape.columns(values)[1]
        self._one_by_one(rows[~fits])
        self._add(rows[fits], values if fits.all() else values[fits])

    def _fill_epochs(self, rows: Rows, epochs: Array) -> Array:
        starts, _, items = self._items[EPOCHS]
        pairs = gather(items, starts[rows], 2 * epochs.shape[1]).reshape(len(rows), -1, 2)
        epochs["epoch"], epochs["offset"] = pairs[..., 0], pairs[..., 1]
        fits = (pairs[..., 0] >= _INT32.min) & (pairs[..., 0] <= _INT32.max)
        return np.asarray(fits.all(axis=1))

    def _one_by_one(self, rows: Rows) -> None:
        for row in rows.tolist():
            event = event_at(self._table, row)
            if event is not None:
                value = encode(event, dialect_of(event))
                self._add(np.array([row], np.intp), np.frombuffer(value, "u1").reshape(1, -1))

    def _add(self, rows: Rows, values: Array) -> None:
        self._lengths[rows] = values.shape[1]
        self._parts.append((rows, values))


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _mask(array: pa.Array) -> Array:
    mask: Array = array.to_numpy(zero_copy_only=False)
    return mask


def _fixed(array: pa.Array, form: str) -> Array:
    """The values of a column of one width; what lies under nulls has no meaning."""
    storage = array.storage if array.type == UUID else array
    buffer = storage.buffers()[1] or b""
    return np.frombuffer(buffer, form)[storage.offset : storage.offset + len(storage)]


def _indices(array: pa.DictionaryArray) -> Array:
    return _fixed(array.indices.fill_null(-1), "i1").astype(np.int64)


def _state_codes(array: pa.DictionaryArray) -> Array:
    names = array.dictionary.to_pylist()
    codes = [STATE_NAMES.index(name) if name in STATE_NAMES else -1 for name in names]
    return np.array([*codes, -1], "i1")[_indices(array)]


_Items = tuple[Array, Array, Array]
"""Start and number of a row's items (-1 for null), and the items of all rows."""


def _bytes_items(array: pa.Array) -> _Items:
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer or b"\0\0\0\0", "i4")[array.offset : array.offset + len(array) + 1]
    offsets = offsets.astype(np.int64)
    widths = np.where(_mask(array.is_null()), -1, np.diff(offsets))
    return offsets[:-1], widths, np.frombuffer(data or b"", "u1")


def _epoch_items(array: pa.ListArray) -> tuple[_Items, bool]:
    """The items of all pairs, and whether they are pairs."""
    inner = array.values
    outer_offsets = array.offsets.to_numpy(zero_copy_only=False)
    inner_offsets = inner.offsets.to_numpy(zero_copy_only=False)
    starts = inner_offsets[outer_offsets].astype(np.int64)
    widths = np.where(_mask(array.is_null()), -1, np.diff(starts))
    are_pairs = (
        not inner.null_count and not inner.values.null_count and bool((np.diff(inner_offsets) == 2).all())
    )
    return (starts[:-1], widths, inner.values.to_numpy(zero_copy_only=False)), are_pairs


def _factorized(values: Array) -> Array:
    """Small numbers in the place of `values`, equal where they are."""
    codes: Array = pa.array(values).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return codes.astype(np.int64)
