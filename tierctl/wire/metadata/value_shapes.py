"""Shapes of encoded values, learned from the scalar codec.

A trace of one value tells where each field's payload lies; all other bytes are structural. A value of the
same length with the same structural bytes has the same shape: its fields lie at the same places.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from tierctl.model.events import Dialect, MetadataEvent, dialect_of
from tierctl.wire.metadata.arrow_types import STATE_NAMES
from tierctl.wire.metadata.codec import Span, Trace
from tierctl.wire.metadata.event_table import Array, Kind, kind_of
from tierctl.wire.metadata.schema import Fixed, Rule, Variable
from tierctl.wire.metadata.values import codec_of, cut_segment_marks

_FORMATS = {Fixed.INT8: "i1", Fixed.INT32: ">i4", Fixed.INT64: ">i8", Fixed.UUID: "V16"}
EPOCHS = "segment_leader_epochs"


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """One shape: `layout` is the structured dtype of a value's fields, `texts` (position, width) by name."""

    length: int
    kind: Kind
    event: MetadataEvent
    layout: "np.dtype[Any]"
    texts: dict[str, tuple[int, int]]
    structural: Array
    pattern: Array
    states: int
    first_state: int
    """How many states there are, and where the first of them is in STATE_NAMES."""
    rules: tuple[Rule, ...]
    marks: tuple[int, ...]
    """Where a row that is 0 in all of them may be something else (`cut_segment_marks`)."""

    def matches(self, values: Array) -> Array:
        """Which rows of a matrix of bytes have this shape."""
        same: Array = (values[:, self.structural] == self.pattern).all(axis=1)
        return same

    def columns(self, values: Array) -> tuple[dict[str, Array], Array]:
        """The fields of rows of this shape as columns, and which rows the scalar codec would accept too.

        For the rest it has to say what is wrong.
        """
        fields = values.view(self.layout)[:, 0]
        columns = {name: fields[name] for name in self.layout.names or () if name != EPOCHS}
        good = self._good(columns)
        if self.marks:
            good &= values[:, self.marks].any(axis=1)
        for name, (position, width) in self.texts.items():
            # A copy, because the sink keeps it: a view would keep all of `values`.
            columns[name] = values[:, position : position + width].copy()
        if "topic" in columns:
            good &= _is_printable(columns["topic"])
        columns["state"] = columns["state"] + np.int8(self.first_state)
        if EPOCHS in (self.layout.names or ()):
            columns[EPOCHS] = _pairs(fields[EPOCHS])
        return columns, good

    def _good(self, columns: dict[str, Array]) -> Array:
        state = columns["state"]
        good: Array = (state >= 0) & (state < self.states)
        # An array's length is structural, so the one event speaks for all rows.
        row = SimpleNamespace(**columns, segment_leader_epochs=getattr(self.event, EPOCHS, ()))
        for rule in self.rules:
            good &= rule.holds(row)
        return good


def _is_printable(topic: Array) -> Array:
    """Which names are printable ASCII, as all legal ones are.

    Others may not be UTF-8, and one that begins with a control character may be the second byte of a length
    (`cut_segment_marks` of a long name).
    """
    unusual: Array = (topic < 0x20) | (topic > 0x7E)
    return np.asarray(~unusual.any(axis=1))


def _pairs(epochs: Array) -> Array:
    pairs = np.empty((*epochs.shape, 2), "i8")
    pairs[..., 0], pairs[..., 1] = epochs["epoch"], epochs["offset"]
    return pairs.reshape(len(epochs), -1)


def shape_of(value: bytes, event: MetadataEvent, trace: Trace) -> Shape | None:
    """The shape of a value; None when its fields don't lie as a shape can say."""
    # A kip405 value is never one of Kafka's too: what both may begin with, 01 00 00, makes it an update, and
    # that is shorter than a segment record with such a name. So the dialect is part of the shape.
    dialect = dialect_of(event)
    codec = codec_of(event, dialect)
    elements = [span for span in trace if span.element >= 0]
    plain = [span for span in trace if span.element < 0]
    layout = _layout(plain, elements, len(value))
    if layout is None:
        return None
    states = next(tuple(span.field.states) for span in plain if span.field.states)
    is_payload = np.zeros(len(value), bool)
    for span in trace:
        is_payload[span.position : span.position + span.width] = True
    structural = np.flatnonzero(~is_payload)
    return Shape(
        len(value),
        kind_of(event),
        event,
        layout,
        {s.field.name: (s.position, s.width) for s in plain if isinstance(s.field.kind, Variable)},
        structural,
        np.frombuffer(value, "u1")[structural],
        len(states),
        STATE_NAMES.index(states[0]),
        codec.schema.rules,
        cut_segment_marks(value) if dialect is Dialect.KIP405 else (),
    )


def _layout(plain: list[Span], elements: list[Span], length: int) -> "np.dtype[Any] | None":
    fixed = [span for span in plain if isinstance(span.field.kind, Fixed)]
    names = [span.field.name for span in fixed]
    formats: list[Any] = [_FORMATS[span.field.kind] for span in fixed if isinstance(span.field.kind, Fixed)]
    offsets = [span.position for span in fixed]
    if elements:
        array = _element_layout(elements, length)
        if array is None:
            return None
        names.append(EPOCHS)
        formats.append(array)
        offsets.append(elements[0].position)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": length})


def _element_layout(elements: list[Span], length: int) -> Any:
    """One dtype for all elements of an array; None when they don't lie at equal distances."""
    first = [span for span in elements if span.element == 0]
    count = elements[-1].element + 1
    start = first[0].position
    size = sum(span.width for span in first)
    stride = elements[len(first)].position - start if count > 1 else size
    for i, span in enumerate(elements):
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
