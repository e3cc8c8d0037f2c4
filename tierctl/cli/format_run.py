"""From rounds of streams of pages to the pages that are printed.

A round is what there is to read now: one stream of pages for each partition, file or pipe. Following the
topic means one round after another.
"""

import heapq
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from tierctl.report.formatters.pages import Page, Position

Stream = Iterator[Page]
Round = Sequence[Stream]

_LINES_A_PAGE = 4096


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


def pages(streams: Round, *, by_time: bool) -> Iterator[Page]:
    """The pages of one round, stream after stream; by time the pages must have positions."""
    if not by_time:
        for stream in streams:
            yield from stream
        return
    merged = heapq.merge(*map(_lines, streams), key=_by_position)
    while rows := list(islice(merged, _LINES_A_PAGE)):
        lines = [line for _, line, _ in rows]
        yield Page(lines, [row for row, (_, _, is_bad) in enumerate(rows) if is_bad])


_Line = tuple[Position, str, bool]


def _lines(stream: Stream) -> Iterator[_Line]:
    """Within a partition the order is that of the offsets, whatever the clocks said."""
    for page in stream:
        bad_rows = frozenset(page.bad_rows)
        for row, (position, line) in enumerate(zip(page.positions, page.lines, strict=True)):
            yield position, line, row in bad_rows


def _by_position(line: _Line) -> Position:
    return line[0]


def first(every: Iterable[Page], count: int | None) -> Iterator[Page]:
    """Pages up to so many lines; None is all. Reads no further than it needs."""
    left = count
    for page in every:
        if left is None:
            yield page
            continue
        yield page.first(left)
        left -= len(page.lines)
        if left <= 0:
            return
