"""Fold the metadata topic on executors: each task reads, decodes and folds whole metadata partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from tierctl.errors import EngineError
from tierctl.metadata import open_metadata
from tierctl.metadata.fold.parallel import FoldResult, FoldTask, run_fold_task
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.resources import shared_topic
from tierctl.spark.executors.transport import Executors
from tierctl.state.tier import TierState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_EVENTS = 20_000
"""The number of events that are folded in the time that a task takes to start."""


class SparkFold:
    """FoldRunner on executors, which must reach the topic at `location` as the driver does."""

    def __init__(self, executors: Executors, location: TopicLocation) -> None:
        self._executors = executors
        self._location = location

    def __call__(self, tasks: Sequence[FoldTask]) -> Iterator[FoldResult]:
        """Implement `FoldRunner.__call__`; raise EngineError if Spark fails."""
        fold = partial(_fold, self._location, uuid4().hex)
        return self._executors.run(fold, tasks, cost=_events, min_task_cost=LEAST_EVENTS)


def _fold(location: TopicLocation, job: str, task: FoldTask) -> FoldResult:
    done = run_fold_task(shared_topic(location, job), task)
    for each in task.ranges:
        reached = done.state.read[each.metadata_partition]
        if reached < each.end:
            raise EngineError(
                f"an executor finds metadata partition {each.metadata_partition} up to offset {reached} "
                f"only, and it goes to {each.end}",
                hint="executors must see the files that this machine sees: use a shared file system",
            )
    return done


def _events(task: FoldTask) -> int:
    return task.unread


def fold_topic(spark: SparkSession, location: TopicLocation, *, tasks_max: int | None = None) -> TierState:
    """Return the state of the topic at `location`, folded on executors; no state directory is used.

    Raises as `open_metadata`, and EngineError if Spark fails.
    """
    bulk = SparkFold(Executors(spark, tasks_max), location)
    with closing(open_metadata(location, fold_runner=bulk)) as manager:
        return manager.refresh()
