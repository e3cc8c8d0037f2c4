"""Base of formatters with one template per event type and dialect, filled column by column."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import UsageError
from tierctl.model.events import Dialect
from tierctl.report.formatters.column_texts import EventTexts, Template, fill, number_text
from tierctl.report.formatters.records import Record, Records, as_array

Makers = dict[str, Callable[[Records], pa.Array]]

POSITION: Makers = {
    "metadata_partition": lambda records: pa.array([str(records.metadata_partition)] * len(records)),
    "metadata_offset": lambda records: number_text(records.offsets),
}


class TemplateFormatter(ABC):
    """A formatter whose template depends on event type and dialect; columns fill the placeholders."""

    makers: Makers = POSITION

    @abstractmethod
    def template(self, event_type: str, dialect: Dialect) -> Template:
        """Return the template of an event type in a dialect; it may not name a column with nulls."""

    @abstractmethod
    def other_line(self, record: Record) -> str:
        """Return the line of a tombstone or of an unreadable record."""

    def lines(self, records: Records) -> Iterator[str]:
        """Implement `Formatter.lines`."""
        out: list[str | None] = [None] * len(records)
        for rows, shape in _by_shape(records.events):
            chosen = records.take(pa.array(rows))
            if shape is None:
                texts = [self.other_line(record) for record in chosen.rows()]
            else:
                filled = fill(self.template(*shape), EventTexts(chosen, self.makers), len(rows))
                texts = filled.to_pylist()
            for row, text in zip(rows.tolist(), texts, strict=True):
                out[row] = text
        return (text for text in out if text is not None)


Shape = tuple[str, Dialect]


def _by_shape(events: pa.Table) -> Iterator[tuple[np.ndarray, Shape | None]]:
    """Yield the row numbers of each pair of event type and dialect; None for rows without an event."""
    types, dialects = (as_array(events.column(name)).cast(pa.string()) for name in ("type", "dialect"))
    keys = as_array(pc.binary_join_element_wise(types, dialects, "/")).dictionary_encode()
    codes = pc.fill_null(keys.indices, -1).to_numpy(zero_copy_only=False)
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        if code < 0:
            yield rows, None
        else:
            event_type, _, dialect = keys.dictionary[int(code)].as_py().partition("/")
            yield rows, (event_type, Dialect(dialect))


def no_properties(style: str, properties: object) -> None:
    """Raise UsageError if `properties` are given to a style that has none."""
    if properties:
        raise UsageError(f"--style {style} has no properties", hint="they belong to --style kip")
