"""The columnar decoder: a whole Arrow column of metadata values to a table of events."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.model.events import Dialect, MetadataEvent, dialect_of
from tierctl.wire.arrays import NdArray, are_given, large_binary
from tierctl.wire.metadata.event_table import (
    ARRAY_COLUMNS,
    EVENT_SCHEMA,
    STATE_NAMES,
    EventKind,
    EventTableBuilder,
    Rows,
    gather,
    kind_of,
)
from tierctl.wire.metadata.schema import Fixed, Rule, Variable
from tierctl.wire.metadata.values import Span, Trace, codec_of, cut_segment_marks, decode, decode_traced

# Byte layouts of encoded values, learned from the scalar codec.
#
# A trace of one value tells the position of each field's payload; all other bytes (lengths, counts, null
# marks, tags) are structural. Values of the same length with the same structural bytes have the same byte
# layout: their fields are at the same positions.

DType = np.dtype[Any]

_FORMATS = {Fixed.INT8: "i1", Fixed.INT32: ">i4", Fixed.INT64: ">i8", Fixed.UUID: "V16"}


@dataclass(frozen=True, slots=True, eq=False)
class ValueLayout:
    """The byte layout of values of `length` bytes, learned from the value of `event`.

    - `fields`: the structured dtype of fixed fields and of arrays, big-endian, at their positions.
    - `texts`: (position, width) of each field of variable length, by name; `strings` names those with text.
    - `structural`: the positions of the structural bytes; `pattern`: their values.
    - `states`: how many states the record has; `first_state`: the index of the first one in STATE_NAMES.
    - `rules`: the conditions on a decoded event.
    - `marks`: a value whose bytes at these positions are all 0 may be another record (`cut_segment_marks`).
    """

    length: int
    kind: EventKind
    event: MetadataEvent
    fields: DType
    texts: dict[str, tuple[int, int]]
    strings: tuple[str, ...]
    structural: NdArray
    pattern: NdArray
    states: int
    first_state: int
    rules: tuple[Rule, ...]
    marks: tuple[int, ...]

    def matches(self, values: NdArray) -> NdArray:
        """Return which rows of a matrix of bytes have this layout."""
        same: NdArray = (values[:, self.structural] == self.pattern).all(axis=1)
        return same

    def columns(self, values: NdArray, wanted: Collection[str]) -> tuple[dict[str, NdArray], NdArray]:
        """Return the `wanted` columns of rows with this layout, and which rows are good.

        The scalar codec decodes a good row to the same values; it must decode all other rows, because it may
        refuse them.
        """
        fields = values.view(self.fields)[:, 0]
        names = self.fields.names or ()
        columns = {name: fields[name] for name in names if name not in ARRAY_COLUMNS}
        good = self._good(columns)
        if self.marks:
            good &= values[:, self.marks].any(axis=1)
        for name, (position, width) in self.texts.items():
            text = values[:, position : position + width]
            if name in self.strings:
                good &= _is_printable(text)
            if name in wanted:
                # A copy, because a view would keep all of `values` in memory as long as the column exists.
                columns[name] = text.copy()
        if "state" in wanted:
            columns["state"] = columns["state"] + np.int8(self.first_state)
        for name in names:
            if name in ARRAY_COLUMNS and name in wanted:
                columns[name] = _numbers(fields[name])
        return {name: column for name, column in columns.items() if name in wanted}, good

    def _good(self, columns: dict[str, NdArray]) -> NdArray:
        state = columns["state"]
        good: NdArray = (state >= 0) & (state < self.states)
        # All rows with this layout have arrays of equal length, so the rules may use the arrays of the one
        # event.
        arrays = {name: getattr(self.event, name, ()) for name in ARRAY_COLUMNS}
        row = SimpleNamespace(**columns, **arrays)
        for rule in self.rules:
            good &= rule.holds(row)
        return good


def _is_printable(text: NdArray) -> NdArray:
    """Return which rows are printable ASCII, as all legal topic names are.

    Other bytes may not be UTF-8, and a name that begins with a control character may begin with the second
    byte of a length (`cut_segment_marks` of a long name).
    """
    unusual: NdArray = (text < 0x20) | (text > 0x7E)
    return np.asarray(~unusual.any(axis=1))


def _numbers(elements: NdArray) -> NdArray:
    """Return the numbers of an array's elements, one row of int64 per value."""
    names = elements.dtype.names or ()
    numbers = np.empty((*elements.shape, len(names)), "i8")
    for i, name in enumerate(names):
        numbers[..., i] = elements[name]
    return numbers.reshape(len(elements), -1)


def layout_of(value: bytes, event: MetadataEvent, trace: Trace) -> ValueLayout | None:
    """Return the byte layout of a value; None if a dtype cannot describe the positions of its fields."""
    # No kip405 value is also a kafka value: one that begins with 01 00 00, as both can, is an update, which
    # is shorter than a segment record with the same topic name. So a layout belongs to one dialect.
    dialect = dialect_of(event)
    plain = [span for span in trace if span.array is None]
    fields = _fields(trace, len(value))
    if fields is None:
        return None
    states = next(tuple(span.field.states) for span in plain if span.field.states)
    is_payload = np.zeros(len(value), bool)
    for span in trace:
        is_payload[span.position : span.position + span.width] = True
    structural = np.flatnonzero(~is_payload)
    variable = [span for span in plain if isinstance(span.field.kind, Variable)]
    return ValueLayout(
        length=len(value),
        kind=kind_of(event),
        event=event,
        fields=fields,
        texts={span.field.name: (span.position, span.width) for span in variable},
        strings=tuple(span.field.name for span in variable if span.field.kind is Variable.STRING),
        structural=structural,
        pattern=np.frombuffer(value, "u1")[structural],
        states=len(states),
        first_state=STATE_NAMES.index(states[0]),
        rules=codec_of(event, dialect).schema.rules,
        marks=cut_segment_marks(value) if dialect is Dialect.KIP405 else (),
    )


def _fields(trace: Trace, length: int) -> DType | None:
    """Return the dtype of the fixed fields and arrays of a value; None if an array has no dtype."""
    names: list[str] = []
    formats: list[Any] = []
    offsets: list[int] = []
    for array, group in groupby(trace, key=lambda span: span.array):
        spans = list(group)
        if array is None:
            fixed = [(span, span.field.kind) for span in spans if isinstance(span.field.kind, Fixed)]
            names += [span.field.name for span, _ in fixed]
            formats += [_FORMATS[kind] for _, kind in fixed]
            offsets += [span.position for span, _ in fixed]
            continue
        elements = _elements(spans, length)
        if elements is None:
            return None
        names.append(array)
        formats.append(elements)
        offsets.append(spans[0].position)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": length})


def _elements(spans: list[Span], length: int) -> tuple[DType, tuple[int]] | None:
    """Return the dtype of an array's elements and their number; None if their distances differ."""
    first = [span for span in spans if span.element == 0]
    count = spans[-1].element + 1
    start = first[0].position
    size = sum(span.width for span in first)
    stride = spans[len(first)].position - start if count > 1 else size
    for i, span in enumerate(spans):
        if span.position != first[i % len(first)].position + span.element * stride:
            return None
    element = np.dtype(
        {
            "names": [span.field.name for span in first],
            "formats": [_FORMATS[span.field.kind] for span in first if isinstance(span.field.kind, Fixed)],
            "offsets": [span.position - start for span in first],
            "itemsize": stride,
        }
    )
    return (element, (count,)) if start + stride * count <= length else None


# Each piece of the column becomes one chunk of the table.
_PIECE_ROWS = 1 << 20
_PIECE_BYTES = 1 << 30
# Rows that are decoded together: their bytes should fit in the processor's cache.
_BLOCK_ROWS = 4096
# For fewer rows, the scalar codec is as fast as learning a layout.
_FEW_ROWS = 8
# After this number of layouts with few rows each, the scalar codec decodes the rest of a block.
_POOR_LAYOUTS_MAX = 16
_LAYOUTS_OF_LENGTH_MAX = 64
_LAYOUTS_MAX = 4096


class KnownLayouts:
    """The layouts learned so far, by the length of their values; several threads may use one object."""

    def __init__(self) -> None:
        self._by_length: dict[int, list[ValueLayout]] = {}
        self._count = 0

    def of_length(self, length: int) -> tuple[ValueLayout, ...]:
        """Return the layouts of values of this length."""
        return tuple(self._by_length.get(length, ()))

    def add(self, layout: ValueLayout) -> None:
        """Keep a layout, unless there are so many that the search costs more than to learn it again."""
        known = self._by_length.setdefault(layout.length, [])
        if len(known) < _LAYOUTS_OF_LENGTH_MAX and self._count < _LAYOUTS_MAX:
            known.append(layout)
            self._count += 1


def decode_column(
    values: pa.Array | pa.ChunkedArray,
    known: KnownLayouts | None = None,
    *,
    columns: Sequence[str] = tuple(EVENT_SCHEMA.names),
) -> pa.Table:
    """Decode a binary column to a table with the same rows, and with `columns` of EVENT_SCHEMA.

    The row of a value that cannot be decoded has only an `error`; the row of a null value (a tombstone) has
    only nulls. Callers that decode a log chunk by chunk pass the same `known` for each, so that each layout
    is learned once.
    """
    known = known or KnownLayouts()
    tables = [_decode_piece(piece, known, columns) for piece in _pieces(values)]
    return pa.concat_tables(tables) if tables else EVENT_SCHEMA.empty_table().select(columns)


def _pieces(values: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield the column as arrays of bounded size, so that 32-bit offsets suffice for the columns of each."""
    chunked = large_binary(values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values]))
    for start in range(0, len(chunked), _PIECE_ROWS):
        piece = chunked.slice(start, _PIECE_ROWS)
        yield from _of_bounded_bytes(piece.combine_chunks() if piece.num_chunks != 1 else piece.chunk(0))


def _of_bounded_bytes(piece: pa.Array) -> Iterator[pa.Array]:
    if len(piece) > 1 and piece.nbytes > _PIECE_BYTES:
        half = len(piece) // 2
        yield from _of_bounded_bytes(piece.slice(0, half))
        yield from _of_bounded_bytes(piece.slice(half))
    else:
        yield piece


def _decode_piece(piece: pa.Array, known: KnownLayouts, columns: Sequence[str]) -> pa.Table:
    table = EventTableBuilder(len(piece), columns)
    _, offsets_buffer, data_buffer = piece.buffers()
    offsets = np.frombuffer(offsets_buffer, "i8")[piece.offset : piece.offset + len(piece) + 1]
    data = np.frombuffer(data_buffer or b"", "u1")
    rows = _valid_rows(piece)
    for length, same in _by_length(np.diff(offsets), rows):
        _LengthGroup(table, data, offsets[:-1], length, known).decode(same)
    return table.table()


def _valid_rows(piece: pa.Array) -> Rows:
    if piece.null_count:
        return np.flatnonzero(are_given(piece))
    return np.arange(len(piece))


def _by_length(lengths: NdArray, rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield each length of the values in `rows`, and the rows of that length, ascending."""
    given = lengths[rows]
    narrow = given.astype("u2") if len(given) and given.max() <= 0xFFFF else given
    ordered = np.argsort(narrow, kind="stable")
    cuts = np.flatnonzero(np.diff(given[ordered])) + 1
    for same in np.split(rows[ordered], cuts):
        if len(same):
            yield int(lengths[same[0]]), same


class _LengthGroup:
    """Decode values of one length; learn a layout from each row that no known layout matches."""

    def __init__(
        self, table: EventTableBuilder, data: NdArray, starts: NdArray, length: int, known: KnownLayouts
    ) -> None:
        self._table = table
        self._data = data
        self._starts = starts
        self._length = length
        self._known = known

    def decode(self, rows: Rows) -> None:
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = rows[start : start + _BLOCK_ROWS]
            is_known = bool(self._known.of_length(self._length))
            if not self._length or (len(block) < _FEW_ROWS and not is_known):
                self._one_by_one(block)
            else:
                self._block(block, gather(self._data, self._starts[block], self._length))

    def _block(self, rows: Rows, values: NdArray) -> None:
        for layout in self._known.of_length(self._length):
            rows, values = self._put_matching(layout, rows, values)
            if not len(rows):
                return
        learned_little = 0
        while len(rows) >= _FEW_ROWS and learned_little < _POOR_LAYOUTS_MAX:
            before = len(rows)
            rows, values = self._learn(rows, values)
            learned_little += before - len(rows) < _FEW_ROWS
        self._one_by_one(rows)

    def _learn(self, rows: Rows, values: NdArray) -> tuple[Rows, NdArray]:
        """Decode the first row and all rows with the same layout; return the other rows and their values."""
        value = values[0].tobytes()
        trace: Trace = []
        try:
            event = decode_traced(value, None, trace)
        except CorruptInputError as error:
            self._table.put_error(int(rows[0]), str(error))
            return rows[1:], values[1:]
        layout = layout_of(value, event, trace)
        if layout is None:
            self._table.put_event(int(rows[0]), event)
            return rows[1:], values[1:]
        before = len(rows)
        rows, values = self._put_matching(layout, rows, values)
        if before - len(rows) >= _FEW_ROWS:
            self._known.add(layout)
        return rows, values

    def _put_matching(self, layout: ValueLayout, rows: Rows, values: NdArray) -> tuple[Rows, NdArray]:
        same = layout.matches(values)
        if same.all():
            self._put(layout, rows, values)
            return rows[:0], values[:0]
        if same.any():
            self._put(layout, rows[same], values[same])
            return rows[~same], values[~same]
        return rows, values

    def _put(self, layout: ValueLayout, rows: Rows, values: NdArray) -> None:
        columns, good = layout.columns(values, self._table.columns)
        if not good.all():
            self._one_by_one(rows[~good])
            rows, columns = rows[good], {name: column[good] for name, column in columns.items()}
        self._table.put(rows, layout.kind, columns)

    def _one_by_one(self, rows: Rows) -> None:
        for row in rows.tolist():
            start = self._starts[row]
            try:
                event = decode(self._data[start : start + self._length].tobytes())
            except CorruptInputError as error:
                self._table.put_error(row, str(error))
            else:
                self._table.put_event(row, event)
