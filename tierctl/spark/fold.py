"""Fold the metadata topic on executors: each task reads, decodes and folds whole metadata partitions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from datetime import date
from functools import cache, partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

from tierctl.errors import EngineError
from tierctl.files import exists
from tierctl.metadata.daily_changes import (
    DailyChanges,
    DayChanges,
    RecentWriters,
    deleted_segment_ids,
    recent_writers,
)
from tierctl.metadata.offset_repair import Held, Missing, Unread, first_missing
from tierctl.metadata.parallel_fold import FoldResult, FoldTask, Kept
from tierctl.metadata.topic import MetadataTopic
from tierctl.model import Selection, Uuid
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.task import fold_in_worker, shared_topic
from tierctl.spark.executors.transport import (
    LEAST_EVENTS,
    Executors,
    grouped,
)
from tierctl.spark.fold_rows import FOLDED, SLOWNESS
from tierctl.state.table_arrays import SegmentIds
from tierctl.state.tier_state import Question, Spread, TierState, add_sizes

_FIRST_DAY = date(1970, 1, 1)
_end = itemgetter(1)
TASK_EVENTS_MAX = 20_000_000
"""The events of a larger metadata partition are distributed by user partition, if only sizes are wanted.

One task folds so many in half a minute and about 1 GB. To distribute them costs ten times the work of the
fold.
"""


class SparkFold:
    """FoldRunner on executors, which must reach the topic at `location` as the driver does."""

    def __init__(self, executors: Executors, location: TopicLocation) -> None:
        self._executors = executors
        self._location = location

    def __call__(self, tasks: Sequence[FoldTask]) -> Iterator[FoldResult]:
        """Implement `FoldRunner.__call__`; raise EngineError if Spark fails."""
        is_large = any(task.kept is Kept.SIZES and task.unread > TASK_EVENTS_MAX for task in tasks)
        # Only a fold of whole metadata partitions notes the events that their topic has lost.
        is_whole = not any(each.begin for task in tasks for each in task.ranges)
        sizes = self._sizes(tasks) if is_large and is_whole else None
        if sizes is not None:
            yield from sizes
            return
        question, place = tasks[0].question if tasks else None, (self._location, uuid4().hex)
        # The question is sent with the function, not with each task: it may have the logs of all partitions.
        plain = [replace(task, question=None) for task in tasks]
        if isinstance(question, Spread):
            divide = partial(_divided, *place, question.divide)
            answers = self._executors.run_spread(divide, plain, question.gather, title="reading segments")
            yield FoldResult(metadata_partitions=(), state=TierState(), answers=list(answers))
            return
        fold = partial(_folded, *place, question)
        yield from self._executors.run(fold, plain, cost=attrgetter("unread"), min_task_cost=LEAST_EVENTS)

    def _sizes(self, tasks: Sequence[FoldTask]) -> list[FoldResult] | None:
        """Return the sizes of user partitions, which Spark sums up: only these come to the driver.

        Return None if there is a record that a broker can't use: the fold of whole metadata partitions
        describes it.
        """
        # It imports PySpark, which the local engine works without.
        from tierctl.spark.frames import events_before, fold_segments, user_partition_sums

        ends = {each.metadata_partition: each.end for task in tasks for each in task.ranges}
        events = events_before(self._executors.session, self._location, ends, FOLDED)
        folded = fold_segments(events, partition_count=tasks[0].partition_count)
        sums = user_partition_sums(folded)
        rows = self._executors.rows(sums, title="reading", what="folding the metadata topic")
        self._executors.note_slowness({row[SLOWNESS] for row in rows})
        if any(row["unusable"] for row in rows):
            return None
        by_number: dict[int, list[Mapping[str, Any]]] = {number: [] for number in ends}
        for row in rows:
            by_number[row["metadata_partition"]].append(row)
        return [_summed(task, by_number) for task in tasks]


def _summed(task: FoldTask, rows: Mapping[int, Sequence[Mapping[str, Any]]]) -> FoldResult:
    """Return the result of a task from the rows of `user_partition_sums` of its metadata partitions."""
    state = TierState()
    for each in task.ranges:
        state.read[each.metadata_partition] = each.end
        add_sizes(state, each.metadata_partition, rows[each.metadata_partition])
    numbers = tuple(each.metadata_partition for each in task.ranges)
    return FoldResult(metadata_partitions=numbers, state=state)


def _folded(location: TopicLocation, job: str, question: Question | None, task: FoldTask) -> FoldResult:
    return fold_in_worker(location, job, replace(task, question=question))


def _divided(location: TopicLocation, job: str, divide: Question, task: FoldTask) -> Iterable[Any]:
    return divide(fold_in_worker(location, job, task).state)


def changes_by_day(
    executors: Executors, location: TopicLocation, end_offsets: Mapping[int, int], selection: Selection
) -> DailyChanges:
    """Return the result of `read_daily_changes`, which Spark sums up: only the sums come to the driver."""
    from tierctl.spark.frames import OF_CHANGES, daily_changes, events_before, selected

    events = events_before(executors.session, location, end_offsets, ("metadata_partition", *OF_CHANGES))
    sums = daily_changes(selected(events, selection))
    what = "reading copies and deletions"
    found = DailyChanges()
    for row in executors.rows(sums, title=what, what=what):
        found.unknown_segments += row.pop("unknown_events")
        topic, day = (row.pop("topic"), Uuid(row.pop("topic_id"))), row.pop("day")
        if day is not None:
            found.days[*topic, (day - _FIRST_DAY).days] = DayChanges(**row)
    return found


BYTES_PER_JOB = 64 << 20
"""The files of one job: all of its results are in memory before the first is used."""
LEAST_BYTES = 1 << 20
"""The bytes of files that are read and decoded in the time that a task takes to start."""
_FILE_BYTES = 16 << 10
"""Opening a file takes as long as reading this number of bytes."""
_HINT = "executors must see the same files as this machine: use a shared file system"

Input = TypeVar("Input")
Result = TypeVar("Result")


class _File(NamedTuple):
    path: str
    size_bytes: int


def read_files(
    executors: Executors, function: Callable[[Path], Result], paths: Iterable[Path]
) -> Iterator[Result]:
    """Yield the result of `function` for each file, in the order of `paths`.

    Relative paths are relative to the current folder of this process. Raise the TierctlError that `function`
    raised, and EngineError if an executor can't read a file, or finds another size than this process.
    """
    read = partial(_read, function, str(Path.cwd()))
    files = [_File(str(path), _size_bytes(path)) for path in paths]
    for job in grouped(files, _cost, BYTES_PER_JOB):
        yield from executors.run(read, job, cost=_cost, min_task_cost=LEAST_BYTES)


def _size_bytes(path: Path) -> int:
    """Return the size of a file, or of a link that leads nowhere; raise OSError for a missing one."""
    return path.stat(follow_symlinks=exists(path)).st_size


def _cost(file: _File) -> int:
    return file.size_bytes + _FILE_BYTES


def _read(function: Callable[[Path], Result], folder: str, file: _File) -> Result:
    """Call `function` with the path as the operator wrote it, because messages and rows name it so."""
    _name_package_fully()
    try:
        # A Python worker has one thread.
        with chdir(os.curdir if Path(file.path).is_absolute() else folder):
            found_bytes = _size_bytes(Path(file.path))
            if found_bytes != file.size_bytes:
                raise EngineError(
                    f"{file.path} has {found_bytes} bytes on an executor, and {file.size_bytes} here",
                    hint=_HINT,
                )
            return function(Path(file.path))
    except OSError as e:
        raise EngineError(f"an executor can't read {file.path}: {e.strerror or e}", hint=_HINT) from e


@cache
def _name_package_fully() -> None:
    """Make tierctl's modules importable in every folder: an executor's archive has a relative path.

    Once per process: packages that are imported later have the whole path from theirs.
    """
    for name, module in sys.modules.items():
        if name.partition(".")[0] == "tierctl" and "__path__" in vars(module):
            module.__path__[:] = map(os.path.abspath, module.__path__)


def read_topic(
    executors: Executors,
    location: TopicLocation,
    read: Callable[[MetadataTopic, Input], Result],
    inputs: Sequence[Input],
    *,
    events: Callable[[Input], int],
) -> Iterator[Result]:
    """Yield the result of `read` for each input, in their order; `events` returns how many events it reads.

    As the function of `Executors.run`, `read` must be importable by name; raises as that.
    """
    function = partial(_read_topic, location, uuid4().hex, read)
    return executors.run(function, inputs, cost=events, min_task_cost=LEAST_EVENTS)


def _read_topic(
    location: TopicLocation, job: str, read: Callable[[MetadataTopic, Input], Result], each: Input
) -> Result:
    return read(shared_topic(location, job), each)


def find_missing(
    executors: Executors, location: TopicLocation, unread: Sequence[Unread], held: Held
) -> Iterator[Missing | None]:
    """Implement `FindMissing` on executors, which read one metadata partition per input."""
    read = partial(_first_missing, held)
    return read_topic(executors, location, read, unread, events=_end)


def _first_missing(held: Held, topic: MetadataTopic, unread: Unread) -> Missing | None:
    return first_missing(topic, held, unread)


def deleted_among(
    executors: Executors, location: TopicLocation, end_offsets: Mapping[int, int], ids: SegmentIds
) -> SegmentIds:
    """Return those of `ids` whose segments are deleted, found by one input per metadata partition."""
    found = SegmentIds()
    inputs = [(number, end) for number, end in sorted(end_offsets.items()) if end]
    for part in read_topic(executors, location, partial(_deleted_in, ids), inputs, events=_end):
        found.add(part.words)
    return found


def _deleted_in(ids: SegmentIds, topic: MetadataTopic, span: tuple[int, int]) -> SegmentIds:
    number, end = span
    deleted = deleted_segment_ids(topic, {number: end}).words
    return SegmentIds(deleted[ids.find_many(deleted) >= 0])


def newest_events(
    executors: Executors,
    location: TopicLocation,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    since_ms: int,
) -> Iterator[RecentWriters]:
    """Yield the result of `recent_writers` for each metadata partition; raises as `Executors.run`."""
    spans = [(number, end, begins[number]) for number, end in sorted(ends.items())]
    return read_topic(executors, location, partial(_recent_writers, since_ms), spans, events=_end)


def _recent_writers(since_ms: int, topic: MetadataTopic, span: tuple[int, int, int]) -> RecentWriters:
    number, end, begin = span
    return recent_writers(topic, number, begin, end, since_ms)
