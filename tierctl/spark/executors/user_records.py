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
from tierctl.read.segment import Report
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
    """The records that an executor renders: those of `task` from `from_offset` on."""

    task: ReadTask
    from_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A part of the output: the lines of records of a topic, then problems and a note for stderr."""

    text: str = ""
    topic_id: Uuid | None = None
    problems: tuple[TierctlError, ...] = ()
    note: str | None = None


Rendered = tuple[bytes, list[TierctlError], int | None, TierctlError | None]
"""Text, problems, next offset to render (None at the end), and the error that ended it."""


def rendered(text_format: TextFormat, work: RenderInput) -> Rendered:
    """Render the records of `work`; an error of the store is returned after the records before it."""
    text, partition = io.StringIO(), work.task.topic_id_partition
    problems: list[TierctlError] = []
    next_offset, ended = None, None
    found = read_task(
        work.task,
        shared_tier(text_format.spec),
        report=problems.append,
        report_lost=lambda error, first, last: problems.append(with_lost_offsets(error, first, last)),
        from_offset=work.from_offset,
    )
    try:
        for columns in found:
            _write(columns, text_format, partition, text, problems.append)
            if text.tell() >= TEXT_BYTES_PER_TASK:
                next_offset = columns["offset"][-1].as_py() + 1
                break
    except TierctlError as e:
        ended = e
    return text.getvalue().encode(), problems, next_offset, ended


def _write(
    columns: pa.RecordBatch,
    text_format: TextFormat,
    partition: TopicIdPartition,
    text: io.StringIO,
    report: Report,
) -> None:
    """Write records as `render` does, without the header of csv."""
    encode = record_rows.encoder(record_rows.Binary(text_format.binary))
    made = (record_rows.record_row(partition, record, encode, report) for record in _records(columns))
    render(made, text_format.output, record_rows.RECORDS, View(no_header=True), stream=text)


def _records(columns: pa.RecordBatch) -> Iterator[FetchedRecord]:
    names = FetchedRecord._fields[:-1]
    fields = zip(*(columns[name].to_pylist() for name in names), strict=True)
    for values, headers in zip(fields, columns["headers"].to_pylist(), strict=True):
        yield FetchedRecord._make((*values, tuple((each["key"], each["value"]) for each in headers)))


def printed(executors: Executors, text_format: TextFormat, steps: Iterator[PrintStep]) -> Iterator[Output]:
    """Yield the output of `steps` in order; memory use is bounded.

    The next job runs while the text of a job is printed. Raises errors of reading, once the records before
    them are yielded, and EngineError.
    """
    return _Printer(executors, text_format).run(steps)


class _Printer:
    def __init__(self, executors: Executors, text_format: TextFormat) -> None:
        self._executors = executors
        self._format = text_format
        self._over = Event()
        self._text_per_byte = _TEXT_PER_BYTE

    def run(self, steps: Iterator[PrintStep]) -> Iterator[Output]:
        # Jobs do not run side by side, because Spark's settings belong to the session.
        found = one_ahead(self._rendered, self._jobs(steps))
        try:
            for job, results in found:
                yield from self._print(job, iter(results))
        finally:
            self._over.set()

    def _jobs(self, steps: Iterator[PrintStep]) -> Iterator[list[PrintStep]]:
        job: list[PrintStep] = []
        size = 0.0
        for step in steps:
            job.append(step)
            size += (step.task.size_bytes if step.task is not None else 0) * self._text_per_byte
            if size >= TEXT_BYTES_PER_JOB or len(job) >= STEPS_PER_JOB:
                yield job
                job, size = [], 0.0
        if job:
            yield job

    def _rendered(self, job: Sequence[PrintStep]) -> tuple[Sequence[PrintStep], list[Rendered]]:
        return job, self._run([RenderInput(step.task) for step in job if step.task is not None])

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
            yield Output(note=step.note)

    def _print_task(self, task: ReadTask, result: Rendered) -> Iterator[Output]:
        size_bytes = 0
        while True:
            data, problems, next_offset, ended = result
            size_bytes += len(data)
            topic_id = task.topic_id_partition.topic_id
            yield Output(text=data.decode(), topic_id=topic_id, problems=tuple(problems))
            if ended is not None:
                raise ended
            if next_offset is None:
                break
            # The text of this task was too large for one job: another job continues at `next_offset`.
            (result,) = self._run([RenderInput(task, next_offset)])
        self._learn(task.size_bytes, size_bytes)

    def _learn(self, size_bytes: int, text_bytes: int) -> None:
        if size_bytes:
            self._text_per_byte = max(text_bytes / size_bytes, 1.0, self._text_per_byte / 2)


def _cost(work: RenderInput) -> int:
    return work.task.size_bytes
