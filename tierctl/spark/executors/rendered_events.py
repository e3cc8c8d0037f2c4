"""Render records of the metadata topic as text, on executors, by ranges of offsets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Event

from tierctl.in_order import one_ahead
from tierctl.metadata.topic import MetadataSplit, cut, read_chunks
from tierctl.model.location import TopicLocation
from tierctl.report.formatters.pages import Filter, Page, Printer
from tierctl.report.formatters.records import load
from tierctl.report.formatters.sources import from_chunk
from tierctl.spark.executors.transport import Executors

RECORDS_PER_JOB = 200_000
"""The records of one job. The lines of two jobs may wait to be printed; a line has about 300 bytes."""
RECORDS_PER_SPLIT_MIN, RECORDS_PER_SPLIT_MAX = 1_000, 50_000
LEAST_RECORDS = 10_000
"""The number of records that are rendered in the time that a task takes to start."""

Spans = Mapping[int, tuple[int, int]]
"""The offset range [start, end) of each metadata partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """The records to print and their format.

    With `by_time` the pages contain positions, because the caller merges the lines of all partitions by time.
    """

    location: TopicLocation
    style: str
    properties: Mapping[str, str]
    chosen: Filter
    by_time: bool = False


def render(rendering: Rendering, split: MetadataSplit) -> list[Page]:
    """Return the lines of a split in the order of offsets; raises as `read_chunks`."""
    formatter = load(rendering.style, rendering.properties)
    printer = Printer(formatter=formatter, chosen=rendering.chosen, with_positions=rendering.by_time)
    pages: list[Page] = []
    for chunk in read_chunks(split):
        pages.extend(printer.pages(from_chunk(chunk, first_offset=split.start_offset)))
    return pages


def rendered(
    executors: Executors, rendering: Rendering, spans: Spans, *, max_messages: int | None = None
) -> list[Iterator[Page]]:
    """Return streams of the pages of `spans`, which executors render while the streams are read.

    With `rendering.by_time` there is one stream per partition, to be read side by side. Otherwise there is
    one stream, partition after partition. With `max_messages` the first jobs are small, so that little is
    rendered beyond these lines. The streams raise the errors of `render`, and EngineError.
    """
    if not rendering.by_time:
        return [_one_after_another(executors, rendering, spans, is_short=max_messages is not None)]
    splits = _cut(rendering, spans, RECORDS_PER_JOB // max(len(spans), 1))
    side_by_side = _SideBySide(executors, rendering)
    for number in spans:
        side_by_side.add(number, [split for split in splits if split.metadata_partition == number])
    return [side_by_side.stream(number) for number in spans]


def _cut(rendering: Rendering, spans: Spans, records: int) -> list[MetadataSplit]:
    records_per_split = min(max(records, RECORDS_PER_SPLIT_MIN), RECORDS_PER_SPLIT_MAX)
    return cut(rendering.location, spans, records_per_split=records_per_split)


def _offsets(split: MetadataSplit) -> int:
    return split.end_offset - split.start_offset


def _one_after_another(
    executors: Executors, rendering: Rendering, spans: Spans, *, is_short: bool
) -> Iterator[Page]:
    """Yield pages; the next job runs while a job's pages are printed, unless few lines are wanted."""
    width = 2 * executors.slots
    splits = _cut(rendering, spans, RECORDS_PER_SPLIT_MIN if is_short else RECORDS_PER_JOB // width)
    jobs = _growing(splits, width) if is_short else _even(splits, width)
    over = Event()

    def pages_of(job: Sequence[MetadataSplit]) -> list[Page]:
        found = executors.run(
            partial(render, rendering),
            job,
            cost=_offsets,
            min_task_cost=LEAST_RECORDS,
            stopped=over.is_set,
        )
        return [page for pages in found for page in pages]

    # Jobs do not run side by side, because Spark's settings belong to the session.
    found = map(pages_of, jobs) if is_short else one_ahead(pages_of, jobs)
    try:
        for pages in found:
            yield from pages
    finally:
        over.set()


def _even(splits: Sequence[MetadataSplit], width: int) -> Iterator[Sequence[MetadataSplit]]:
    for first in range(0, len(splits), width):
        yield splits[first : first + width]


def _growing(splits: Sequence[MetadataSplit], width: int) -> Iterator[Sequence[MetadataSplit]]:
    """Yield one split, then twice as many as before, up to the number that keeps all executors busy."""
    left, count = iter(splits), 1
    while job := list(islice(left, count)):
        yield job
        count = min(2 * count, width * RECORDS_PER_SPLIT_MAX // RECORDS_PER_SPLIT_MIN)


@dataclass(frozen=True, slots=True)
class _SideBySide:
    """Renders partitions that are read side by side, each only as far as its stream was read.

    When a partition has no rendered page left, a job renders the next splits of it, twice as many as the last
    time, and one split of every other partition without pages.
    """

    executors: Executors
    rendering: Rendering
    left: dict[int, deque[MetadataSplit]] = field(default_factory=dict)
    ready: dict[int, deque[Page]] = field(default_factory=dict)
    depth: dict[int, int] = field(default_factory=dict)

    def add(self, number: int, splits: Sequence[MetadataSplit]) -> None:
        self.left[number], self.ready[number], self.depth[number] = deque(splits), deque(), 1

    def stream(self, number: int) -> Iterator[Page]:
        while self.ready[number] or self.left[number]:
            if self.ready[number]:
                yield self.ready[number].popleft()
            else:
                self._refill(number)

    def _refill(self, number: int) -> None:
        counts = {n: 1 for n in self.left if not self.ready[n]} | {number: self.depth[number]}
        self.depth[number] = min(2 * self.depth[number], 2 * self.executors.slots)
        job = [
            self.left[n].popleft()
            for n, count in counts.items()
            for _ in range(min(count, len(self.left[n])))
        ]
        function = partial(render, self.rendering)
        found = self.executors.run(function, job, cost=_offsets, min_task_cost=LEAST_RECORDS)
        for split, pages in zip(job, found, strict=True):
            self.ready[split.metadata_partition].extend(pages)
