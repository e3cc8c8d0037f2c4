"""Byte layouts of encoded values, learned from the scalar codec.

A trace of one value tells the position of each field's payload; all other bytes (lengths, counts, null
marks, tags) are structural. Values of the same length with the same structural bytes have the same byte
layout: their fields are at the same positions.
"""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np

from tierctl.model.events import Dialect, MetadataEvent, dialect_of
from tierctl.wire.arrays import NdArray
from tierctl.wire.metadata.arrow_types import STATE_NAMES
from tierctl.wire.metadata.codec import Span, Trace
from tierctl.wire.metadata.event_table import ARRAY_COLUMNS, EventKind, kind_of
from tierctl.wire.metadata.schema import Fixed, Rule, Variable
from tierctl.wire.metadata.values import codec_of, cut_segment_marks

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
