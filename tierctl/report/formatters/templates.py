"""Convert columns of decoded events to columns of text, and join these by a template.

A template needs one `binary_join_element_wise` for all rows instead of one format call per row.
"""

import base64
import re
from abc import ABC, abstractmethod
from binascii import hexlify
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import UsageError
from tierctl.model.events import Dialect
from tierctl.report.formatters.records import Record, Records, TextLines, as_array
from tierctl.report.table import printable

_ID_BYTES, _ID_CHARACTERS = 16, 22
_NAMED = re.compile(r"<([a-z_]+)>")

Text: TypeAlias = pa.StringArray | str
"""A column of text; a `str` is the same text in every row."""


@dataclass(frozen=True, slots=True)
class Named:
    """A placeholder in a template: the name of the column that replaces it."""

    name: str


Template = Sequence["str | Named"]


def template(text: str) -> list[str | Named]:
    """Return the literal parts and placeholders of a text such as `partition=<partition>`."""
    parts = _NAMED.split(text)
    return [Named(part) if i % 2 else part for i, part in enumerate(parts) if part]


def join(texts: Sequence[Text], length: int) -> pa.StringArray:
    """Return `length` rows, each of which joins the texts of that row; a row with a null text is null."""
    # Neighbouring literals are joined first, because each argument costs time in each row.
    arguments: list[Any] = []
    for is_literal, neighbours in groupby(texts, _is_literal):
        same_kind = list(neighbours)
        arguments += [pa.scalar("".join(same_kind))] if is_literal else same_kind
    if not length or all(isinstance(argument, pa.Scalar) for argument in arguments):
        return pa.array([str(argument) for argument in arguments] * length, pa.string())
    return as_array(pc.binary_join_element_wise(*arguments, ""))


def _is_literal(text: Text) -> bool:
    return isinstance(text, str)


def id_text(column: pa.Array) -> pa.StringArray:
    """Return 16-byte ids as Kafka's unpadded base64url."""
    count = len(column)
    data = np.frombuffer(column.buffers()[1], np.uint8, count * _ID_BYTES, column.offset * _ID_BYTES)
    # Three bytes are four characters: two bytes more make 24 characters, of which the last two are left out.
    padded = np.zeros((count, _ID_BYTES + 2), np.uint8)
    padded[:, :_ID_BYTES] = data.reshape(count, _ID_BYTES)
    characters = np.frombuffer(base64.urlsafe_b64encode(padded.data), np.uint8).reshape(count, 24)
    ids = np.ascontiguousarray(characters[:, :_ID_CHARACTERS])
    ends = np.arange(0, (count + 1) * _ID_CHARACTERS, _ID_CHARACTERS, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(ids))


def mapped(column: pa.Array, text: Callable[[Any], str]) -> Text:
    """Return `text(value)` for each value; it is called once per distinct value, as topics repeat."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    indices = encoded.indices
    lowest, highest = pc.min_max(indices).as_py().values()
    if lowest == highest and lowest is not None and not indices.null_count:
        return text(encoded.dictionary[lowest].as_py())
    words = [None if value is None else text(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(words, pa.string()).take(indices)


def number_text(column: pa.Array) -> pa.StringArray:
    """Return numbers in decimal, booleans as true and false."""
    return as_array(column.cast(pa.string()))


def hex_text(column: pa.BinaryArray) -> pa.StringArray:
    """Return bytes as hex; null stays null."""
    count = len(column)
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32, count + 1, column.offset * 4)
    digits = hexlify(memoryview(data or b"")[offsets[0] : offsets[-1]])
    text = pa.StringArray.from_buffers(count, pa.py_buffer((offsets - offsets[0]) * 2), pa.py_buffer(digits))
    return as_array(pc.if_else(column.is_valid(), text, None)) if column.null_count else text


def with_null(text: Callable[[pa.Array], pa.StringArray], null: str, column: pa.Array) -> Text:
    """Return `text(column)`, and `null` where the column is null."""
    if column.null_count == len(column):
        return null
    texts = text(column)
    return as_array(pc.fill_null(texts, null)) if column.null_count else texts


def pairs_text(column: pa.ListArray, *, between: str, pair: tuple[str, str, str]) -> pa.StringArray:
    """Return lists of number pairs (or of longer tuples of one length) as text, joined by `between`.

    `pair` is the text before, between and after the numbers of a pair.
    """
    inner = column.flatten()
    numbers = inner.flatten().to_numpy()
    width = len(numbers) // len(inner) if len(inner) else 1
    before, middle, after = pair
    words = pa.array([], pa.string())
    if len(inner):
        texts = [number_text(pa.array(numbers[i::width])) for i in range(width)]
        words = join([before, *[part for text in texts for part in (middle, text)][1:], after], len(inner))
    starts = column.offsets.to_numpy()
    if len(words) == len(column) and (np.diff(starts) == 1).all():
        return words
    lists = pa.ListArray.from_arrays(pa.array(starts - starts[0], pa.int32()), words)
    return as_array(pc.binary_join(lists, between))


class ChosenRows:
    """Some rows of records as columns; a column is gathered, and converted to text, when it is first read.

    `makers` are the functions that make columns of text, by the placeholder's name.
    """

    def __init__(self, records: Records, rows: pa.Int64Array, makers: "Makers") -> None:
        self._records = records
        self._rows = rows
        self._makers = makers
        self._texts: dict[str, Text] = {}
        self.metadata_partition = records.metadata_partition

    @property
    def offsets(self) -> pa.Int64Array:
        """Return the metadata offsets."""
        return self._of(self._records.offsets)

    @property
    def timestamps_ms(self) -> pa.Int64Array:
        """Return the timestamps of the records, null where they are not known."""
        return self._of(self._records.timestamps_ms)

    def column(self, name: str) -> pa.Array:
        """Return a column of the events."""
        return self._of(as_array(self._records.events.column(name)))

    def filled(self, parts: Template) -> pa.StringArray:
        """Return the rows of the template; a row with a null column is null."""
        texts = [self._text(part.name) if isinstance(part, Named) else part for part in parts]
        return join(texts, len(self._rows))

    def _text(self, name: str) -> Text:
        if name not in self._texts:
            maker = self._makers.get(name)
            self._texts[name] = maker(self) if maker else _plain(self.column(name))
        return self._texts[name]

    def _of(self, column: pa.Array) -> pa.Array:
        return column if len(self._rows) == len(column) else column.take(self._rows)


Makers = dict[str, Callable[[ChosenRows], Text]]


def _plain(column: pa.Array) -> Text:
    if pa.types.is_fixed_size_binary(column.type):
        return id_text(column)
    if pa.types.is_string(column.type):
        return mapped(column, printable)
    if pa.types.is_dictionary(column.type):
        return mapped(column, str)
    return number_text(column)


POSITION: Makers = {
    "metadata_partition": lambda rows: str(rows.metadata_partition),
    "metadata_offset": lambda rows: number_text(rows.offsets),
}


_Shape = tuple[str, Dialect]


class TemplateFormatter(ABC):
    """A formatter whose template depends on event type and dialect; columns replace the placeholders."""

    makers: Makers = POSITION

    @abstractmethod
    def template(self, event_type: str, dialect: Dialect) -> Template:
        """Return the template of an event type in a dialect; it may not name a column with nulls."""

    @abstractmethod
    def other_line(self, record: Record) -> str:
        """Return the line of a tombstone or of an unreadable record."""

    def lines(self, records: Records) -> TextLines:
        """Implement `Formatter.lines`."""
        groups = list(_by_shape(records.events))
        texts = [self._texts(records, pa.array(rows), shape) for rows, shape in groups]
        if len(texts) == 1:
            return TextLines.of_array(texts[0])
        grouped = pa.concat_arrays([pa.array([], pa.string()), *texts])
        # The texts of all groups in the order of their records: `places[row]` is the index of a row's text.
        places = np.empty(len(records), np.int64)
        places[np.concatenate([rows for rows, _ in groups] or [places])] = np.arange(len(records))
        return TextLines.of_array(grouped.take(pa.array(places)))

    def _texts(self, records: Records, rows: pa.Int64Array, shape: _Shape | None) -> pa.StringArray:
        """Return the lines of `rows`, each with its newline."""
        if shape is None:
            others = records.take(rows).rows()
            return pa.array([f"{self.other_line(record)}\n" for record in others], pa.string())
        return ChosenRows(records, rows, self.makers).filled([*self.template(*shape), "\n"])


def _by_shape(events: pa.Table) -> Iterator[tuple[npt.NDArray[np.intp], _Shape | None]]:
    """Yield the row numbers of each pair of event type and dialect; None for rows without an event.

    A pair is yielded once for each state, so that the state is the same text in all rows.
    """
    names = [as_array(events.column(name)) for name in ("type", "dialect", "state")]
    codes = np.zeros(len(events), np.int64)
    for column in names:
        codes = codes * len(column.dictionary) + pc.fill_null(column.indices, 0).to_numpy()
    codes[names[0].is_null().to_numpy(zero_copy_only=False)] = -1
    for code in np.flatnonzero(np.bincount(codes + 1)) - 1:
        rows = np.flatnonzero(codes == code)
        if code < 0:
            yield rows, None
        else:
            event_type, dialect = (column[int(rows[0])].as_py() for column in names[:2])
            yield rows, (event_type, Dialect(dialect))


def require_known(style: str, properties: Iterable[str], known: Sequence[str] = ()) -> None:
    """Raise UsageError for the first of the names `properties` that is none of `known`."""
    unknown = next((name for name in properties if name not in known), None)
    if unknown is not None:
        has = ", ".join(known) or "none"
        raise UsageError(f"--style {style} has no property {printable(unknown)!r}", hint=f"it has {has}")
