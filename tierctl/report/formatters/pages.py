"""Pages of lines: what a formatter makes of the chosen ones of some records."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tierctl.report.formatters.base import Formatter, Records
from tierctl.report.formatters.choice import Filter

NO_TIME = -1

Position = tuple[int, int, int]
"""What lines of several partitions are merged by: time, metadata partition, offset."""


@dataclass(frozen=True, slots=True)
class Page:
    """Lines in their order; `bad_rows` are those of records that could not be read, ascending.

    `positions` are the lines', or empty where nobody merges them.
    """

    lines: list[str]
    bad_rows: Sequence[int] = ()
    positions: Sequence[Position] = ()

    def first(self, count: int) -> "Page":
        """So many lines of it."""
        return Page(self.lines[:count], [row for row in self.bad_rows if row < count], self.positions[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class Printer:
    """Chooses and formats records."""

    formatter: Formatter
    chosen: Filter
    with_positions: bool = False

    def page(self, records: Records) -> Page:
        """A line for each record to show."""
        shown = self.chosen.of(records)
        lines = list(self.formatter.lines(shown))
        bad_rows = _bad_rows(shown) if shown.bad_count else []
        return Page(lines, bad_rows, _positions(shown) if self.with_positions else ())


def _bad_rows(shown: Records) -> list[int]:
    errors = shown.events.column("error").is_valid().to_numpy()
    rows: list[int] = np.flatnonzero(errors).tolist()
    return rows


def _positions(shown: Records) -> list[Position]:
    columns = zip(shown.timestamps_ms.to_pylist(), shown.offsets.to_pylist(), strict=True)
    return [(time_ms or NO_TIME, shown.metadata_partition, offset) for time_ms, offset in columns]
