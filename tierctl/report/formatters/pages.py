"""Pages: the lines that a formatter writes for the records that a filter accepts."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tierctl.model import TopicIdPartition
from tierctl.report.formatters.record_filter import Filter
from tierctl.report.formatters.records import Formatter, Records

NO_TIME = -1

_LINES_PER_PAGE = 4096

Position = tuple[int, int, int]
"""The sort key of a line among those of several partitions: time, metadata partition, offset."""


@dataclass(frozen=True, slots=True)
class Page:
    """Lines in their order; `bad_rows` are the indexes of unreadable records' lines, ascending.

    `positions` has one entry per line, or is empty if the lines are not merged with others. `partitions` are
    the user partitions of all records, also of those that the filter leaves out; it is empty if the filter
    does not restrict them.
    """

    lines: list[str]
    bad_rows: Sequence[int] = ()
    positions: Sequence[Position] = ()
    partitions: frozenset[TopicIdPartition] = frozenset()

    def first(self, count: int) -> "Page":
        """Return the first `count` lines."""
        bad_rows = [row for row in self.bad_rows if row < count]
        return Page(self.lines[:count], bad_rows, self.positions[:count], self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Printer:
    """Filters and formats records."""

    formatter: Formatter
    chosen: Filter
    with_positions: bool = False

    def page(self, records: Records) -> Page:
        """Return one line for each record that the filter accepts."""
        shown = self.chosen.of(records)
        return Page(
            lines=list(self.formatter.lines(shown)),
            bad_rows=_bad_rows(shown) if shown.bad_count else [],
            positions=_positions(shown) if self.with_positions else (),
            partitions=records.user_partitions() if self.chosen.restricts_partitions else frozenset(),
        )


def merge_pages(streams: Sequence[Iterator[Page]], *, by_time: bool) -> Iterator[Page]:
    """Yield the pages of each stream in turn, or with `by_time` pages of all lines merged by position.

    Within a partition the order stays that of the offsets, whatever the clocks of the producers were.
    """
    if not by_time:
        for stream in streams:
            yield from stream
        return
    merged = heapq.merge(*map(_positioned_lines, streams), key=_position_of)
    while rows := list(islice(merged, _LINES_PER_PAGE)):
        lines = [line for _, line, _ in rows]
        yield Page(lines, [row for row, (_, _, is_bad) in enumerate(rows) if is_bad])


_PositionedLine = tuple[Position, str, bool]


def _positioned_lines(stream: Iterator[Page]) -> Iterator[_PositionedLine]:
    for page in stream:
        bad_rows = frozenset(page.bad_rows)
        for row, (position, line) in enumerate(zip(page.positions, page.lines, strict=True)):
            yield position, line, row in bad_rows


def _position_of(line: _PositionedLine) -> Position:
    return line[0]


def first_lines(pages: Iterable[Page], count: int | None) -> Iterator[Page]:
    """Yield pages with the first `count` lines in all (None: every line); read no page beyond them."""
    left = count
    for page in pages:
        if left is None:
            yield page
            continue
        yield page.first(left)
        left -= len(page.lines)
        if left <= 0:
            return


def _bad_rows(shown: Records) -> list[int]:
    errors = shown.events.column("error").is_valid().to_numpy()
    rows: list[int] = np.flatnonzero(errors).tolist()
    return rows


def _positions(shown: Records) -> list[Position]:
    columns = zip(shown.timestamps_ms.to_pylist(), shown.offsets.to_pylist(), strict=True)
    return [(time_ms or NO_TIME, shown.metadata_partition, offset) for time_ms, offset in columns]
