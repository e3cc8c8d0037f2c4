"""User records as text, read and rendered on executors by ranges of offsets, printed here in their order."""

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import NamedTuple

import pyarrow as pa

from tierctl.errors import TierctlError
from tierctl.model import TopicIdPartition
from tierctl.read import record_rows
from tierctl.read.parallel.task import ReadTask, read_task
from tierctl.read.partition_reader import FetchedRecord
from tierctl.read.range_reader import with_lost_offsets
from tierctl.report import render
from tierctl.spark.executors.transport import Executors
from tierctl.spark.executors.worker import tier_of
from tierctl.storage import TierSpec

SPLIT_BYTES = 8 << 20
"""Of a log, for one task: so much is rendered in about the time that two tasks take to begin."""
LEAST_BYTES = 2 << 20
"""Less is rendered while a task begins."""
TEXT_BYTES_A_TASK = 32 << 20
"""A task that has made more stops, and another goes on there: records may be packed a thousandfold."""
TEXT_BYTES_A_JOB = 128 << 20
"""Two jobs' text may wait to be printed, however long the log is."""
PIECES_A_JOB = 1000
_TEXT_PER_BYTE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How records are written: `output` is jsonl or csv (without header), `binary` a `record_rows.Binary`."""

    spec: TierSpec
    output: str
    binary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What is printed next: records of `task`, then `note`; `problems` were met while it was found.

    `ended` is why nothing follows.
    """

    task: ReadTask | None = None
    problems: tuple[TierctlError, ...] = ()
    note: str | None = None
    ended: TierctlError | None = None


class Work(NamedTuple):
    """What an executor has to do: records of `task` from `from_offset` on, `rows_max` of them (None: all)."""

    task: ReadTask
    from_offset: int = 0
    rows_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """Some of what is printed: lines, `rows` records in all, and what is to be said on stderr after them."""

    text: str = ""
    rows: int = 0
    problems: tuple[TierctlError, ...] = ()
    note: str | None = None


Rendered = tuple[bytes, int, list[TierctlError], int | None, TierctlError | None]
"""Text, its rows, problems, where to go on (None: it is all), and the error that ended it."""


def rendered(form: Form, work: Work) -> Rendered:
    """What an executor makes of its work; errors of the store are in it, after what was read before them."""
    text = io.StringIO()
    problems: list[tuple[TierctlError, int]] = []
    count, last_offset, next_offset, ended = 0, -1, None, None
    try:
        for columns in _columns(form, work, problems):
            shown = columns if work.rows_max is None else columns.slice(0, work.rows_max - count)
            _write(shown, form, work.task.topic_id_partition, text)
            count += shown.num_rows
            last_offset = shown["offset"][-1].as_py()
            if count == work.rows_max:
                # Reading is some records ahead; what was wrong with those is nobody's concern.
                problems = [(error, first) for error, first in problems if first <= last_offset]
                break
            if text.tell() >= TEXT_BYTES_A_TASK:
                next_offset = last_offset + 1
                break
    except TierctlError as e:
        ended = e
    return text.getvalue().encode(), count, [error for error, _ in problems], next_offset, ended


def _columns(form: Form, work: Work, problems: list[tuple[TierctlError, int]]) -> Iterator[pa.RecordBatch]:
    """The records; problems come with the first offset that they may cost, -1 for none."""
    found = read_task(
        work.task,
        tier_of(form.spec),
        report=lambda error: problems.append((error, -1)),
        report_lost=lambda error, first, last: problems.append(
            (with_lost_offsets(error, first, last), first)
        ),
        from_offset=work.from_offset,
    )
    return (columns for columns in found if columns.num_rows)


def _write(columns: pa.RecordBatch, form: Form, partition: TopicIdPartition, text: io.StringIO) -> None:
    """As `render` prints them, but for csv's header."""
    encode = record_rows.encoder(record_rows.Binary(form.binary))
    made = (record_rows.record_row(partition, record, encode) for record in _records(columns))
    if form.output == "csv":
        header = io.StringIO()
        render([], "csv", record_rows.COLUMNS, stream=header)
        whole = io.StringIO()
        render(made, "csv", record_rows.COLUMNS, stream=whole)
        text.write(whole.getvalue()[len(header.getvalue()) :])
    else:
        render(made, "jsonl", stream=text)


def _records(columns: pa.RecordBatch) -> Iterator[FetchedRecord]:
    names = FetchedRecord._fields[:-1]
    fields = zip(*(columns[name].to_pylist() for name in names), strict=True)
    for values, headers in zip(fields, columns["headers"].to_pylist(), strict=True):
        yield FetchedRecord._make((*values, tuple((each["key"], each["value"]) for each in headers)))


def printed(
    executors: Executors, form: Form, pieces: Iterator[Piece], *, rows_max: int | None = None
) -> Iterator[Printed]:
    """The pieces' records in order, up to `rows_max`; memory here is constant, however much there is.

    While one job's text is printed the next one runs, unless it may not be wanted: who wants few records has
    little more than these read. Raises what reading raised, once what comes before is printed, and
    EngineError.
    """
    return _Printer(executors, form, rows_max).run(pieces)


class _Printer:
    def __init__(self, executors: Executors, form: Form, rows_max: int | None) -> None:
        self._executors = executors
        self._form = form
        self._left = rows_max
        self._is_short = rows_max is not None
        self._over = Event()
        self._text_per_byte = _TEXT_PER_BYTE

    def run(self, pieces: Iterator[Piece]) -> Iterator[Printed]:
        jobs = self._jobs(pieces)
        with ThreadPoolExecutor(1) as pool:
            try:
                job = next(jobs, None)
                running = self._submit(pool, job or [])
                while job is not None:
                    following, ahead = None, None
                    if not self._is_short and (following := next(jobs, None)) is not None:
                        ahead = self._submit(pool, following)
                    yield from self._print(job, running)
                    if self._left == 0:
                        return
                    if self._is_short and (following := next(jobs, None)) is not None:
                        ahead = self._submit(pool, following)
                    job, running = following, ahead or running
            finally:
                self._over.set()

    def _jobs(self, pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
        """Pieces together worth a job; when few records are wanted, one, then twice as many each time."""
        count = 1 if self._is_short else PIECES_A_JOB
        job: list[Piece] = []
        size = 0.0
        for piece in pieces:
            job.append(piece)
            size += (piece.task.size_bytes if piece.task is not None else 0) * self._text_per_byte
            if size >= TEXT_BYTES_A_JOB or len(job) >= count:
                yield job
                job, size, count = [], 0.0, min(2 * count, PIECES_A_JOB)
        if job:
            yield job

    def _submit(self, pool: ThreadPoolExecutor, job: Sequence[Piece]) -> "Future[list[Rendered]]":
        work = [Work(piece.task, rows_max=self._left) for piece in job if piece.task is not None]
        return pool.submit(self._run, work)

    def _run(self, work: Sequence[Work]) -> list[Rendered]:
        do = partial(rendered, self._form)
        return list(
            self._executors.run(do, work, cost=_cost, least_cost=LEAST_BYTES, stopped=self._over.is_set)
        )

    def _print(self, job: Sequence[Piece], running: "Future[list[Rendered]]") -> Iterator[Printed]:
        results = iter(running.result())
        for piece in job:
            yield Printed(problems=piece.problems)
            if piece.ended is not None:
                raise piece.ended
            if piece.task is not None:
                yield from self._print_task(piece.task, next(results))
            if self._left == 0:
                return
            yield Printed(note=piece.note)

    def _print_task(self, task: ReadTask, result: Rendered) -> Iterator[Printed]:
        from_offset = size_bytes = 0
        while True:
            data, count, problems, next_offset, ended = result
            if self._left is not None and count > self._left:
                # What came before it had more records than was known when its job began.
                (result,) = self._run([Work(task, from_offset, self._left)])
                continue
            size_bytes += len(data)
            yield Printed(text=data.decode(), rows=count, problems=tuple(problems))
            if self._left is not None:
                self._left -= count
            if self._left == 0:
                return
            if ended is not None:
                raise ended
            if next_offset is None:
                break
            # One job more for what was packed so densely; all others of its job wait for it.
            from_offset = next_offset
            (result,) = self._run([Work(task, from_offset, self._left)])
        self._learn(task.size_bytes, size_bytes)

    def _learn(self, size_bytes: int, text_bytes: int) -> None:
        if size_bytes:
            self._text_per_byte = max(text_bytes / size_bytes, 1.0, self._text_per_byte / 2)


def _cost(work: Work) -> int:
    return work.task.size_bytes
