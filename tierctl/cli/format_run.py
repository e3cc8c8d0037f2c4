"""From rounds of record streams to pages of lines.

A round is what there is to read now: one stream of records for each partition, file or pipe. Following the
topic means one round after another.
"""

import heapq
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from tierctl.cli.format_filter import Filter
from tierctl.report.formatters.base import Formatter, Records

Stream = Iterator[Records]
Round = Sequence[Stream]

_LINES_A_PAGE = 4096
_NO_TIME = -1


class Patience:
    """Waits between rounds, and knows when nothing has come for too long. None waits for ever."""

    def __init__(self, *, poll_interval_s: float, timeout_s: float | None) -> None:
        self._poll_interval_s = poll_interval_s
        self._timeout_s = timeout_s
        self._seen: dict[int, int] | None = None
        self._since_s = 0.0

    def wait(self, positions: Mapping[int, int]) -> bool:
        """Whether to look again, after a while; `positions` are where each partition was read to."""
        now_s = time.monotonic()
        if self._seen != positions:
            self._seen, self._since_s = dict(positions), now_s
        left_s = math.inf if self._timeout_s is None else self._since_s + self._timeout_s - now_s
        if left_s <= 0:
            return False
        time.sleep(min(self._poll_interval_s, left_s))
        return True


class Printer:
    """Filters and formats records, and counts those that could not be read."""

    def __init__(self, formatter: Formatter, chosen: Filter) -> None:
        self._formatter = formatter
        self._chosen = chosen
        self.bad_count = 0

    def page(self, records: Records) -> tuple[Records, list[str]]:
        """The records to show, and a line for each."""
        shown = self._chosen.of(records)
        self.bad_count += shown.bad_count
        return shown, list(self._formatter.lines(shown))


def pages(streams: Round, printer: Printer, *, by_time: bool) -> Iterator[list[str]]:
    """The lines of one round, stream after stream or merged by the records' time."""
    if by_time:
        merged = (line for *_, line in heapq.merge(*(_timed(stream, printer) for stream in streams)))
        while page := list(islice(merged, _LINES_A_PAGE)):
            yield page
        return
    for stream in streams:
        for records in stream:
            yield printer.page(records)[1]


def _timed(stream: Stream, printer: Printer) -> Iterator[tuple[int, int, int, str]]:
    """Lines with what they are merged by: time, metadata partition, offset.

    Within a partition the order is that of the offsets, whatever the clocks said.
    """
    for records in stream:
        shown, lines = printer.page(records)
        columns = zip(shown.timestamps_ms.to_pylist(), shown.offsets.to_pylist(), lines, strict=True)
        for timestamp_ms, offset, line in columns:
            yield timestamp_ms or _NO_TIME, shown.metadata_partition, offset, line


def first(lines: Iterable[list[str]], count: int | None) -> Iterator[list[str]]:
    """Pages up to so many lines; None is all. Reads no further than it needs."""
    left = count
    for page in lines:
        if left is None:
            yield page
            continue
        yield page[:left]
        left -= len(page)
        if left <= 0:
            return
