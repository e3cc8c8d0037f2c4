"""The columnar decoder: a whole Arrow column of metadata values to a table of events."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.wire.arrays import NdArray, are_given, large_binary
from tierctl.wire.metadata.arrow_types import EVENT_SCHEMA
from tierctl.wire.metadata.codec import Trace
from tierctl.wire.metadata.event_table import EventTableBuilder, Rows, gather
from tierctl.wire.metadata.value_layouts import ValueLayout, layout_of
from tierctl.wire.metadata.values import decode, decode_traced

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
