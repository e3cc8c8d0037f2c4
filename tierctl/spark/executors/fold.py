"""The metadata topic folded on executors: a task reads, decodes and folds whole metadata partitions."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from tierctl.errors import EngineError
from tierctl.metadata.base import MetadataTopic
from tierctl.metadata.open import open_metadata
from tierctl.metadata.parallel_fold import FoldedPiece, FoldPiece, fold_piece
from tierctl.metadata.topic.splits import TopicLocation, open_topic
from tierctl.spark.executors.transport import Executors
from tierctl.state.tier import TierState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_EVENTS = 20_000
"""Fewer are folded while a task starts."""


class SparkFold:
    """BulkFold on the executors of a session, which must reach the topic at `location` as the driver does."""

    def __init__(self, executors: Executors, location: TopicLocation) -> None:
        self._executors = executors
        self._location = location

    def __call__(self, pieces: Sequence[FoldPiece]) -> Iterator[FoldedPiece]:
        """BulkFold.__call__; EngineError when Spark fails."""
        do = partial(_fold, self._location, uuid4().hex)
        return self._executors.run(do, pieces, cost=_events, least_cost=LEAST_EVENTS)


@lru_cache(maxsize=1)
def topic_at(location: TopicLocation, job: str) -> MetadataTopic:
    """The topic, opened once for all pieces of a job that a process does."""
    del job
    return open_topic(location)


def _fold(location: TopicLocation, job: str, piece: FoldPiece) -> FoldedPiece:
    done = fold_piece(topic_at(location, job), piece)
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


def fold_topic(
    spark: "SparkSession",
    uri: str,
    *,
    command_config: Path | None = None,
    server_config: Path | None = None,
    tasks_max: int | None = None,
) -> TierState:
    """The state of the topic at `uri`, as reading it here would give it; nothing is kept.

    Raises as `open_metadata`, and EngineError.
    """
    location = TopicLocation(
        uri=uri,
        command_config=None if command_config is None else str(command_config),
        config=None if server_config is None else str(server_config),
    )
    manager = open_metadata(
        uri,
        command_config=command_config,
        server_config=server_config,
        bulk=SparkFold(Executors(spark, tasks_max), location),
    )
    with closing(manager):
        return manager.refresh()
