"""Read user records and render them as text on executors, by ranges of offsets.

The driver prints the text in the order of offsets.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import NamedTuple

import pyarrow as pa

from tierctl.errors import TierctlError
from tierctl.in_order import one_ahead
from tierctl.model import TopicIdPartition, Uuid
from tierctl.read import record_rows
from tierctl.read.partition_reader import FetchedRecord
from tierctl.read.readable_log import with_lost_offsets
from tierctl.read.tasks import ReadTask, read_task
from tierctl.report import render
from tierctl.report.render import View
from tierctl.spark.executors.task import shared_tier
from tierctl.spark.executors.transport import Executors
from tierctl.storage.open_tier import TierSpec

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
    """How to render records: `output` is jsonl or csv (without header), `binary` a `record_rows.Binary`."""

    spec: TierSpec
    output: str
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


def rendered(text_format: TextFormat, work: RenderInput) -> Rendered:
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
    """Write records as `render` does, without the header of csv."""
    encode = record_rows.encoder(record_rows.Binary(text_format.binary))

    def report(error: TierctlError) -> None:
        problems.append((error, -1))

    made = (record_rows.record_row(partition, record, encode, report) for record in _records(columns))
    render(made, text_format.output, record_rows.RECORDS, View(no_header=True), stream=text)


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
        self._over = Event()
        self._text_per_byte = _TEXT_PER_BYTE

    def run(self, steps: Iterator[PrintStep]) -> Iterator[Output]:
        jobs = self._jobs(steps)
        # Jobs do not run side by side, because Spark's settings belong to the session.
        found = map(self._rendered, jobs) if self._is_short else one_ahead(self._rendered, jobs)
        try:
            for job, results in found:
                yield from self._print(job, iter(results))
                if self._left == 0:
                    return
        finally:
            self._over.set()

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

    def _rendered(self, job: Sequence[PrintStep]) -> tuple[Sequence[PrintStep], list[Rendered]]:
        work = [RenderInput(step.task, rows_max=self._left) for step in job if step.task is not None]
        return job, self._run(work)

    def _run(self, work: Sequence[RenderInput]) -> list[Rendered]:
        found = self._executors.run(
            partial(rendered, self._format),
            work,
            cost=_cost,
            min_task_cost=LEAST_BYTES,
            stopped=self._over.is_set,
        )
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
