"""Fold the metadata topic on executors: each task reads, decodes and folds whole metadata partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from tierctl.errors import EngineError
from tierctl.metadata import open_metadata
from tierctl.metadata.parallel_fold import FoldedPiece, FoldPiece, fold_piece
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.resources import shared_topic
from tierctl.spark.executors.transport import Executors
from tierctl.state.tier import TierState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_EVENTS = 20_000
"""The number of events that are folded in the time that a task takes to start."""


class SparkFold:
    """BulkFold on executors, which must reach the topic at `location` as the driver does."""

    def __init__(self, executors: Executors, location: TopicLocation) -> None:
        self._executors = executors
        self._location = location

    def __call__(self, pieces: Sequence[FoldPiece]) -> Iterator[FoldedPiece]:
        """Implement `BulkFold.__call__`; raise EngineError if Spark fails."""
        fold = partial(_fold, self._location, uuid4().hex)
        return self._executors.run(fold, pieces, cost=_events, min_task_cost=LEAST_EVENTS)


def _fold(location: TopicLocation, job: str, piece: FoldPiece) -> FoldedPiece:
    done = fold_piece(shared_topic(location, job), piece)
    for span in piece.spans:
        reached = done.state.read[span.metadata_partition]
        if reached < span.end:
            raise EngineError(
                f"an executor finds metadata partition {span.metadata_partition} up to offset {reached} "
                f"only, and it goes to {span.end}",
                hint="executors must see the files that this machine sees: use a shared file system",
            )
    return done


def _events(piece: FoldPiece) -> int:
    return piece.left


def fold_topic(spark: SparkSession, location: TopicLocation, *, tasks_max: int | None = None) -> TierState:
    """Return the state of the topic at `location`, folded on executors; no state directory is used.

    Raises as `open_metadata`, and EngineError if Spark fails.
    """
    bulk = SparkFold(Executors(spark, tasks_max), location)
    with closing(open_metadata(location, bulk=bulk)) as manager:
        return manager.refresh()
