"""Base of formatters with one template per event type and dialect, filled column by column."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import UsageError
from tierctl.model.events import Dialect
from tierctl.report.formatters.column_texts import ChosenRows, EventTexts, Makers, Template, fill, number_text
from tierctl.report.formatters.records import Record, Records, as_array
from tierctl.report.formatters.text_lines import TextLines

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
        columns = EventTexts(ChosenRows(records, rows), self.makers)
        return fill([*self.template(*shape), "\n"], columns, len(rows))


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


def no_properties(style: str, properties: object) -> None:
    """Raise UsageError if `properties` are given to a style that has none."""
    if properties:
        raise UsageError(f"--style {style} has no properties", hint="they belong to --style kip")
