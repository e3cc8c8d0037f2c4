"""The metadata topic as text, decoded and rendered on executors by ranges of offsets."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Event

from tierctl.errors import EngineError
from tierctl.metadata.topic.splits import MetadataSplit, TopicLocation, cut, read_chunks
from tierctl.report.formatters.choice import Filter
from tierctl.report.formatters.chunks import from_chunk
from tierctl.report.formatters.pages import Page, Printer
from tierctl.report.formatters.registry import load
from tierctl.spark.executors.transport import Executors

RECORDS_A_JOB = 200_000
"""Two jobs' lines may wait to be printed, some 300 bytes each; by time, this many records' lines."""
RECORDS_A_SPLIT_MIN, RECORDS_A_SPLIT_MAX = 1_000, 50_000
LEAST_RECORDS = 10_000
"""Fewer are rendered while a task starts."""

Spans = Mapping[int, tuple[int, int]]
"""The offsets, from one up to another that is not included, of each metadata partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """What is printed, and how; pages have positions where lines of several partitions are merged by time."""

    location: TopicLocation
    style: str
    properties: Mapping[str, str]
    chosen: Filter
    by_time: bool = False


def render(rendering: Rendering, split: MetadataSplit) -> list[Page]:
    """The lines of a split, in order of offsets; raises as the topic does."""
    formatter = load(rendering.style, rendering.properties)
    printer = Printer(formatter=formatter, chosen=rendering.chosen, with_positions=rendering.by_time)
    pages, reached = [], split.start_offset
    for chunk in read_chunks(split):
        reached = chunk.next_offset
        pages.append(printer.page(from_chunk(chunk, first_offset=split.start_offset)))
    if reached < split.end_offset:
        raise EngineError(
            f"an executor finds metadata partition {split.metadata_partition} up to offset {reached} only, "
            f"and it goes to {split.end_offset}",
            hint="executors must see the files that this machine sees: use a shared file system",
        )
    return pages


def rendered(
    executors: Executors, rendering: Rendering, spans: Spans, *, max_messages: int | None = None
) -> list[Iterator[Page]]:
    """What executors print of `spans`, rendered as it is asked for; to be read as one round of `format`.

    By time a stream for each partition, which are read side by side; else one, partition after partition.
    Who wants no more than `max_messages` lines gets them without reading far beyond. Raises what `render`
    does, and EngineError.
    """
    if not rendering.by_time:
        return [_one_after_another(executors, rendering, spans, is_short=max_messages is not None)]
    splits = _cut(rendering, spans, RECORDS_A_JOB // max(len(spans), 1))
    side_by_side = _SideBySide(executors, rendering)
    for number in spans:
        side_by_side.add(number, [split for split in splits if split.metadata_partition == number])
    return [side_by_side.stream(number) for number in spans]


def _cut(rendering: Rendering, spans: Spans, records: int) -> list[MetadataSplit]:
    records_per_split = min(max(records, RECORDS_A_SPLIT_MIN), RECORDS_A_SPLIT_MAX)
    return cut(rendering.location, spans, records_per_split=records_per_split)


def _offsets(split: MetadataSplit) -> int:
    return split.end_offset - split.start_offset


def _one_after_another(
    executors: Executors, rendering: Rendering, spans: Spans, *, is_short: bool
) -> Iterator[Page]:
    """While one job's lines are printed the next job runs, unless its lines may not be wanted."""
    width = 2 * executors.slots
    splits = _cut(rendering, spans, RECORDS_A_SPLIT_MIN if is_short else RECORDS_A_JOB // width)
    jobs = _growing(splits, width) if is_short else _even(splits, width)
    over = Event()

    def pages_of(job: Sequence[MetadataSplit]) -> list[Page]:
        do = partial(render, rendering)
        found = executors.run(do, job, cost=_offsets, least_cost=LEAST_RECORDS, stopped=over.is_set)
        return [page for pages in found for page in pages]

    with ThreadPoolExecutor(1) as pool:
        try:
            running = pool.submit(pages_of, next(jobs, ()))
            for job in jobs:
                following = None if is_short else pool.submit(pages_of, job)
                yield from running.result()
                running = following or pool.submit(pages_of, job)
            yield from running.result()
        finally:
            over.set()


def _even(splits: Sequence[MetadataSplit], width: int) -> Iterator[Sequence[MetadataSplit]]:
    for first in range(0, len(splits), width):
        yield splits[first : first + width]


def _growing(splits: Sequence[MetadataSplit], width: int) -> Iterator[Sequence[MetadataSplit]]:
    """One, then twice as many each time, up to what a job is worth starting for."""
    left, count = iter(splits), 1
    while job := list(islice(left, count)):
        yield job
        count = min(2 * count, width * RECORDS_A_SPLIT_MAX // RECORDS_A_SPLIT_MIN)


@dataclass(frozen=True, slots=True)
class _SideBySide:
    """Splits of partitions that are read at the same time, each as far as it is asked for.

    A partition that runs dry gets twice as much as the last time; those that are dry as well get one split
    each by the same job.
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
        do = partial(render, self.rendering)
        found = self.executors.run(do, job, cost=_offsets, least_cost=LEAST_RECORDS)
        for split, pages in zip(job, found, strict=True):
            self.ready[split.metadata_partition].extend(pages)

    def _taken(self, number: int, count: int) -> list[MetadataSplit]:
        left = self.left[number]
        return [left.popleft() for _ in range(min(count, len(left)))]
