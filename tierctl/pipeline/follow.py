"""`tierctl pipeline run --follow`: a commit for each micro-batch, until somebody stops it.

What was read is in the warehouse's commits, so the stream's own checkpoint is thrown away with it: a new one
begins where the last commit ends. A batch that was begun is finished before the stream stops.
"""

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tierctl.errors import TierctlError, UsageError
from tierctl.model.location import TopicLocation
from tierctl.pipeline.run import PipelineRun, Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Told = Callable[[Progress], None]
_POLL_S = 0.5


def follow_here(run: PipelineRun, told: Told, *, interval_s: float) -> None:
    """Look for what is new every so often, for ever; `told` hears of each commit."""
    while True:
        _tell(run.step(), told)
        time.sleep(interval_s)


def follow_on(
    spark: "SparkSession", location: TopicLocation, run: PipelineRun, told: Told, *, interval_s: float
) -> None:
    """As `follow_here`, by a stream of Spark's. Raises what a step raises, and what Spark does.

    UsageError over Spark Connect: its server would call us back in a process that has no warehouse.
    """
    refuse_connect("sc://" if "connect" in type(spark).__module__ else "")
    # What was written while nobody followed is no micro-batch.
    _tell(run.step(), told)
    batches = _Batches(run, told)
    with _started(spark, location, batches, interval_s) as query:
        looked_s = time.monotonic()
        while query.isActive and batches.error is None:
            time.sleep(_POLL_S)
            if time.monotonic() - looked_s > interval_s:
                batches.look_at_the_clock()
                looked_s = time.monotonic()
    if batches.error is not None:
        raise batches.error
    error = query.exception()
    if error is not None:
        raise error


def refuse_connect(master: str) -> None:
    """UsageError for a master of Spark Connect."""
    if master.startswith("sc://"):
        raise UsageError(
            "--follow does not go over Spark Connect",
            hint="its server would have to hold the warehouse; use spark://, yarn, k8s:// or local",
        )


def _tell(done: Progress, told: Told) -> None:
    if done.parts:
        told(done)


class _Batches:
    """Takes micro-batches, each in a thread of the stream's; steps never run side by side."""

    def __init__(self, run: PipelineRun, told: Told) -> None:
        self.run = run
        self._told = told
        self._one_at_a_time = threading.Lock()
        self.stopping = False
        self.error: TierctlError | None = None

    def take(self, ranges: "DataFrame", _batch: int) -> None:
        """foreachBatch: commit exactly the batch's offsets, those left out that a commit has already."""
        with self._one_at_a_time:
            if self.stopping or self.error is not None:
                return
            found = ranges.collect()
            ends = {row["metadata_partition"]: row["end_offset"] for row in found}
            self._step(ends)

    def look_at_the_clock(self) -> None:
        """Commit what is other than it was although nothing was written."""
        if self._one_at_a_time.acquire(blocking=False):
            try:
                self._step({})
            finally:
                self._one_at_a_time.release()

    def _step(self, ends: dict[int, int]) -> None:
        try:
            _tell(self.run.step(ends), self._told)
        except TierctlError as e:
            # Spark would make text of it.
            self.error = e


@contextmanager
def _started(
    spark: "SparkSession", location: TopicLocation, batches: _Batches, interval_s: float
) -> "Iterator[StreamingQuery]":
    from tierctl.pipeline.stream import ranges_stream

    ends = {str(number): part.end for number, part in batches.run.latest.parts.items()}
    options = {"metadata": location.uri, "starting_offsets": json.dumps(ends)}
    options |= {"command_config": location.command_config} if location.command_config else {}
    options |= {"config": location.config} if location.config else {}
    with tempfile.TemporaryDirectory(prefix="tierctl-stream-") as checkpoint:
        query = (
            ranges_stream(spark, options)
            .writeStream.foreachBatch(batches.take)
            .trigger(processingTime=f"{interval_s} seconds")
            .option("checkpointLocation", Path(checkpoint).as_uri())
            .start()
        )
        try:
            yield query
        finally:
            batches.stopping = True
            query.stop()
