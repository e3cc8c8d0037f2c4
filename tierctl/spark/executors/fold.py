"""Fold the metadata topic on executors: each task reads, decodes and folds whole metadata partitions.

A metadata partition with more than its part of the events is divided: tasks read and decode ranges of its
offsets, and further tasks fold a share of its user partitions each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from tierctl.errors import EngineError
from tierctl.metadata import open_metadata
from tierctl.metadata.fold.parallel import FoldResult, FoldTask, PartitionRange, run_fold_task
from tierctl.metadata.fold.shares import (
    DividedRange,
    divided_ranges,
    fold_share,
    is_divisible,
    joined_shares,
    pieces_of,
)
from tierctl.metadata.topic.splits import RECORDS_PER_SPLIT
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.memory import keep_freed_memory
from tierctl.spark.executors.resources import shared_layouts, shared_topic
from tierctl.spark.executors.transport import Executors
from tierctl.state.tier import TierState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_EVENTS = 20_000
"""The number of events that are folded in the time that a task takes to start."""
DIVIDED_EVENTS_MIN = 1_000_000
"""A metadata partition with fewer events is not divided: the shuffle would cost more than it saves."""
EVENTS_PER_SHARE_MAX = 2_000_000
"""The events of a share are in memory as compressed records, about 40 bytes each, until they are folded."""


class SparkFold:
    """FoldRunner on executors, which must reach the topic at `location` as the driver does."""

    def __init__(self, executors: Executors, location: TopicLocation) -> None:
        self._executors = executors
        self._location = location

    def __call__(self, tasks: Sequence[FoldTask]) -> Iterator[FoldResult]:
        """Implement `FoldRunner.__call__`; raise EngineError if Spark fails."""
        job = uuid4().hex
        fold = partial(_fold, self._location, job)
        divided = self._divided(tasks)
        others = [task for number, task in enumerate(tasks) if number not in divided]
        whole = self._executors.run(fold, others, cost=_events, min_task_cost=LEAST_EVENTS)
        for number, task in enumerate(tasks):
            if number not in divided:
                yield next(whole)
                continue
            result = self._fold_divided(task, job)
            yield next(self._executors.run(fold, [task])) if result is None else result

    def _divided(self, tasks: Sequence[FoldTask]) -> frozenset[int]:
        """Return the numbers of the tasks that one core would still fold when all others are done."""
        large = [
            number
            for number, task in enumerate(tasks)
            if task.unread >= DIVIDED_EVENTS_MIN and is_divisible(task)
        ]
        if not large:
            return frozenset()
        slots, total = self._executors.slots, sum(map(_events, tasks))
        return frozenset(number for number in large if slots > 1 and tasks[number].unread * slots > total)

    def _fold_divided(self, task: FoldTask, job: str) -> FoldResult | None:
        """Return the result of `task`, folded by shares; None if it cannot be divided."""
        slots = self._executors.slots
        shares = slots * -(-task.unread // (slots * EVENTS_PER_SHARE_MAX))
        found = self._executors.run_shuffled(
            partial(_divide, self._location, job),
            divided_ranges(task, shares=shares, records=RECORDS_PER_SPLIT),
            partial(fold_share, task),
            shares=shares,
            cost=_offsets,
        )
        results: list[FoldResult] = []
        for result in found:
            if result is None:
                return None
            results.append(result)
        return joined_shares(task, results)


def _divide(location: TopicLocation, job: str, divided: DividedRange) -> Iterator[tuple[int, bytes]]:
    keep_freed_memory()
    reached = divided.range.begin
    for piece in pieces_of(shared_topic(location, job), divided, shared_layouts(job)):
        yield piece.share, piece.data
        reached = piece.next_offset
    _require_read(divided.range, reached)


def _fold(location: TopicLocation, job: str, task: FoldTask) -> FoldResult:
    keep_freed_memory()
    done = run_fold_task(shared_topic(location, job), task, shared_layouts(job))
    for each in task.ranges:
        _require_read(each, done.state.read[each.metadata_partition])
    return done


def _require_read(wanted: PartitionRange, reached: int) -> None:
    """Raise EngineError if a range of a metadata partition was read up to `reached` only."""
    if reached < wanted.end:
        raise EngineError(
            f"an executor found metadata partition {wanted.metadata_partition} only up to offset {reached}, "
            f"but it ends at {wanted.end}",
            hint="executors must see the same files as this machine: use a shared file system",
        )


def _events(task: FoldTask) -> int:
    return task.unread


def _offsets(divided: DividedRange) -> int:
    return divided.range.end - divided.range.begin


def fold_topic(spark: SparkSession, location: TopicLocation, *, tasks_max: int | None = None) -> TierState:
    """Return the state of the topic at `location`, folded on executors; no state directory is used.

    Raises as `open_metadata`, and EngineError if Spark fails.
    """
    bulk = SparkFold(Executors(spark, tasks_max), location)
    with closing(open_metadata(location, fold_runner=bulk)) as manager:
        return manager.refresh()
