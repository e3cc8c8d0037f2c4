"""Render records as text on executors, by ranges of offsets: events of the metadata topic, and user records.

The driver prints the text in the order of offsets.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Event
from typing import NamedTuple, TypeVar

import pyarrow as pa

from tierctl.errors import TierctlError
from tierctl.in_order import one_ahead
from tierctl.kernel import expect
from tierctl.metadata.topic import MetadataSplit, cut, read_chunks
from tierctl.model import TopicIdPartition, Uuid
from tierctl.model.location import TopicLocation
from tierctl.read import record_rows
from tierctl.read.partition_reader import FetchedRecord
from tierctl.read.segment import with_lost_offsets
from tierctl.read.tasks import ReadTask, read_task
from tierctl.report.formatters.pages import Filter, Page, Printer
from tierctl.report.formatters.records import load
from tierctl.report.formatters.sources import from_chunk
from tierctl.report.render import OutputFormat, View, render
from tierctl.spark.executors.task import shared_tier
from tierctl.spark.executors.transport import Executors
from tierctl.storage.open_tier import TierSpec

Job = TypeVar("Job")
Result = TypeVar("Result")
Stopped = Callable[[], bool]


def _in_turn(
    do: Callable[[Stopped, Job], Result], jobs: Iterable[Job], *, is_short: bool
) -> Iterator[Result]:
    """Yield the result of each job; the next one runs while a result is used, unless few are wanted.

    Jobs do not run side by side, because Spark's settings belong to the session. One that runs is told to
    stop when no more results are wanted.
    """
    over = Event()
    work = partial(do, over.is_set)
    found = map(work, jobs) if is_short else one_ahead(work, jobs)
    try:
        # Not `yield from`, by whose end the running job would be awaited before it is told to stop.
        for result in found:  # noqa: UP028
            yield result
    finally:
        over.set()


# Events of the metadata topic.

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

    `spans` has the offsets that are read of each metadata partition. With `by_time` the pages contain
    positions, because the caller merges the lines of all partitions by time.
    """

    location: TopicLocation
    spans: Spans
    style: str
    properties: Mapping[str, str]
    chosen: Filter
    by_time: bool = False


def render_split(rendering: Rendering, split: MetadataSplit) -> list[Page]:
    """Return the lines of a split in the order of offsets; raises as `read_chunks`."""
    formatter = load(rendering.style, rendering.properties)
    printer = Printer(formatter=formatter, chosen=rendering.chosen, with_positions=rendering.by_time)
    pages: list[Page] = []
    start, _ = rendering.spans[split.metadata_partition]
    expect(split.end_offset - split.start_offset)
    for chunk in read_chunks(split):
        pages.extend(printer.pages(from_chunk(chunk, start, first_offset=split.start_offset)))
    return pages


def rendered_pages(
    executors: Executors, rendering: Rendering, *, max_messages: int | None = None
) -> list[Iterator[Page]]:
    """Return streams of pages, which executors render while the streams are read.

    With `rendering.by_time` there is one stream per partition, to be read side by side. Otherwise there is
    one stream, partition after partition. With `max_messages` the first jobs are small, so that little is
    rendered beyond these lines. The streams raise the errors of `render_split`, and EngineError.
    """
    if not rendering.by_time:
        return [_one_after_another(executors, rendering, is_short=max_messages is not None)]
    splits = _cut(rendering, RECORDS_PER_JOB // max(len(rendering.spans), 1))
    side_by_side = _SideBySide(executors, rendering)
    for number in rendering.spans:
        side_by_side.add(number, [split for split in splits if split.metadata_partition == number])
    return [side_by_side.stream(number) for number in rendering.spans]


def _cut(rendering: Rendering, records: int) -> list[MetadataSplit]:
    records_per_split = min(max(records, RECORDS_PER_SPLIT_MIN), RECORDS_PER_SPLIT_MAX)
    return cut(rendering.location, rendering.spans, records_per_split=records_per_split)


def _offsets(split: MetadataSplit) -> int:
    return split.end_offset - split.start_offset


def _one_after_another(executors: Executors, rendering: Rendering, *, is_short: bool) -> Iterator[Page]:
    """Yield pages; the next job runs while a job's pages are printed, unless few lines are wanted."""
    width = 2 * executors.slots
    splits = _cut(rendering, RECORDS_PER_SPLIT_MIN if is_short else RECORDS_PER_JOB // width)
    most = width * RECORDS_PER_SPLIT_MAX // RECORDS_PER_SPLIT_MIN if is_short else width
    jobs = _growing(splits, 1 if is_short else width, most)

    def pages_of(stopped: Stopped, job: Sequence[MetadataSplit]) -> list[Page]:
        function = partial(render_split, rendering)
        found = executors.run(function, job, cost=_offsets, min_task_cost=LEAST_RECORDS, stopped=stopped)
        return [page for pages in found for page in pages]

    for pages in _in_turn(pages_of, jobs, is_short=is_short):
        yield from pages


def _growing(splits: Sequence[MetadataSplit], count: int, most: int) -> Iterator[Sequence[MetadataSplit]]:
    """Yield `count` splits, then twice as many as before, up to `most`, which keep all executors busy."""
    left = iter(splits)
    while job := list(islice(left, count)):
        yield job
        count = min(2 * count, most)


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
        function = partial(render_split, self.rendering)
        found = self.executors.run(function, job, cost=_offsets, min_task_cost=LEAST_RECORDS)
        for split, pages in zip(job, found, strict=True):
            self.ready[split.metadata_partition].extend(pages)


# User records.

SPLIT_BYTES = 8 << 20
"""The bytes of a log per task: rendered in about the time that two tasks take to start."""
LEAST_BYTES = 2 << 20
"""The bytes of a log that are rendered in the time that a task takes to start."""
TEXT_BYTES_PER_TASK = 32 << 20
"""A task stops at this size of text and another continues: compressed records may expand a thousandfold."""
TEXT_BYTES_PER_JOB = 128 << 20
"""The text of one job. The text of two jobs may be in memory, however long the log is."""
STEPS_PER_JOB = 1000
_TEXT_PER_BYTE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """Where records are, and how their bytes are rendered: `binary` is a `record_rows.Binary`."""

    spec: TierSpec
    binary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintStep:
    """One step of the output: the records of `task`, then `note`.

    `problems` were found while `task` was planned. `ended` is the error that ends the output.
    """

    task: ReadTask | None = None
    problems: tuple[TierctlError, ...] = ()
    note: str | None = None
    ended: TierctlError | None = None


class RenderInput(NamedTuple):
    """The records that an executor renders: those of `task` from `from_offset` on, at most `rows_max`."""

    task: ReadTask
    from_offset: int = 0
    rows_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A part of the output: the lines of records of a topic, then problems and a note for stderr."""

    text: str = ""
    topic_id: Uuid | None = None
    problems: tuple[TierctlError, ...] = ()
    note: str | None = None


Rendered = tuple[bytes, int, list[TierctlError], int | None, TierctlError | None]
"""Text, number of rows, problems, next offset to render (None at the end), and the error that ended it."""


def render_task(text_format: TextFormat, work: RenderInput) -> Rendered:
    """Render the records of `work`; an error of the store is returned after the records before it."""
    text = io.StringIO()
    problems: list[tuple[TierctlError, int]] = []
    count, last_offset, next_offset, ended = 0, -1, None, None
    try:
        for columns in _columns(text_format, work, problems):
            shown = columns if work.rows_max is None else columns.slice(0, work.rows_max - count)
            _write(shown, text_format, work.task.topic_id_partition, text, problems)
            count += shown.num_rows
            last_offset = shown["offset"][-1].as_py()
            if count == work.rows_max:
                # The reader has read further than the last printed record: drop the problems found after it.
                problems = [(error, first) for error, first in problems if first <= last_offset]
                break
            if text.tell() >= TEXT_BYTES_PER_TASK:
                next_offset = last_offset + 1
                break
    except TierctlError as e:
        ended = e
    return text.getvalue().encode(), count, [error for error, _ in problems], next_offset, ended


def _columns(
    text_format: TextFormat, work: RenderInput, problems: list[tuple[TierctlError, int]]
) -> Iterator[pa.RecordBatch]:
    """Yield the records; add each problem to `problems` with the first offset that may be missing, or -1."""
    found = read_task(
        work.task,
        shared_tier(text_format.spec),
        report=lambda error: problems.append((error, -1)),
        report_lost=lambda error, first, last: problems.append(
            (with_lost_offsets(error, first, last), first)
        ),
        from_offset=work.from_offset,
    )
    return (columns for columns in found if columns.num_rows)


def _write(
    columns: pa.RecordBatch,
    text_format: TextFormat,
    partition: TopicIdPartition,
    text: io.StringIO,
    problems: list[tuple[TierctlError, int]],
) -> None:
    """Write records as `render` does."""
    encode = record_rows.encoder(record_rows.Binary(text_format.binary))

    def report(error: TierctlError) -> None:
        problems.append((error, -1))

    made = (record_rows.record_row(partition, record, encode, report) for record in _records(columns))
    render(made, OutputFormat.JSONL, record_rows.RECORDS, View(), stream=text)


def _records(columns: pa.RecordBatch) -> Iterator[FetchedRecord]:
    names = FetchedRecord._fields[:-1]
    fields = zip(*(columns[name].to_pylist() for name in names), strict=True)
    for values, headers in zip(fields, columns["headers"].to_pylist(), strict=True):
        yield FetchedRecord._make((*values, tuple((each["key"], each["value"]) for each in headers)))


def printed(
    executors: Executors, text_format: TextFormat, steps: Iterator[PrintStep], *, rows_max: int | None = None
) -> Iterator[Output]:
    """Yield the output of `steps` in order, up to `rows_max` records; memory use is bounded.

    The next job runs while the text of a job is printed; with `rows_max` it starts only when it is needed, so
    that little is read beyond these records. Raises errors of reading, once the records before them are
    yielded, and EngineError.
    """
    return _Printer(executors, text_format, rows_max).run(steps)


class _Printer:
    def __init__(self, executors: Executors, text_format: TextFormat, rows_max: int | None) -> None:
        self._executors = executors
        self._format = text_format
        self._left = rows_max
        self._is_short = rows_max is not None
        self._text_per_byte = _TEXT_PER_BYTE

    def run(self, steps: Iterator[PrintStep]) -> Iterator[Output]:
        for job, results in _in_turn(self._rendered, self._jobs(steps), is_short=self._is_short):
            yield from self._print(job, iter(results))
            if self._left == 0:
                return

    def _jobs(self, steps: Iterator[PrintStep]) -> Iterator[list[PrintStep]]:
        """Group steps into jobs; with `rows_max` the first has one step, and each next one twice as many."""
        count = 1 if self._is_short else STEPS_PER_JOB
        job: list[PrintStep] = []
        size = 0.0
        for step in steps:
            job.append(step)
            size += (step.task.size_bytes if step.task is not None else 0) * self._text_per_byte
            if size >= TEXT_BYTES_PER_JOB or len(job) >= count:
                yield job
                job, size, count = [], 0.0, min(2 * count, STEPS_PER_JOB)
        if job:
            yield job

    def _rendered(
        self, stopped: Stopped, job: Sequence[PrintStep]
    ) -> tuple[Sequence[PrintStep], list[Rendered]]:
        work = [RenderInput(step.task, rows_max=self._left) for step in job if step.task is not None]
        return job, self._run(work, stopped)

    def _run(self, work: Sequence[RenderInput], stopped: Stopped = lambda: False) -> list[Rendered]:
        function = partial(render_task, self._format)
        found = self._executors.run(function, work, cost=_cost, min_task_cost=LEAST_BYTES, stopped=stopped)
        return list(found)

    def _print(self, job: Sequence[PrintStep], results: Iterator[Rendered]) -> Iterator[Output]:
        for step in job:
            yield Output(problems=step.problems)
            if step.ended is not None:
                raise step.ended
            if step.task is not None:
                yield from self._print_task(step.task, next(results))
            if self._left == 0:
                return
            yield Output(note=step.note)

    def _print_task(self, task: ReadTask, result: Rendered) -> Iterator[Output]:
        from_offset = size_bytes = 0
        while True:
            data, count, problems, next_offset, ended = result
            if self._left is not None and count > self._left:
                # Tasks before this one printed more records than was known when this job began, so fewer are
                # left to print: render this task again with the new limit.
                (result,) = self._run([RenderInput(task, from_offset, self._left)])
                continue
            size_bytes += len(data)
            topic_id = task.topic_id_partition.topic_id
            yield Output(text=data.decode(), topic_id=topic_id, problems=tuple(problems))
            if self._left is not None:
                self._left -= count
            if self._left == 0:
                return
            if ended is not None:
                raise ended
            if next_offset is None:
                break
            # The text of this task was too large for one job: another job continues at `next_offset`.
            from_offset = next_offset
            (result,) = self._run([RenderInput(task, from_offset, self._left)])
        self._learn(task.size_bytes, size_bytes)

    def _learn(self, size_bytes: int, text_bytes: int) -> None:
        if size_bytes:
            self._text_per_byte = max(text_bytes / size_bytes, 1.0, self._text_per_byte / 2)


def _cost(work: RenderInput) -> int:
    return work.task.size_bytes
