"""Follow the metadata topic: `pipeline run --follow` makes a commit for each micro-batch until it is stopped.

The warehouse's commits record the offsets read, so the stream's checkpoint is temporary: a new stream begins
where the last commit ends. A batch that has begun is finished before the stream stops.
"""

from __future__ import annotations

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
from tierctl.pipeline.update import PipelineRun, StepResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OnCommit = Callable[[StepResult], None]
_POLL_S = 0.5


def follow_here(run: PipelineRun, on_commit: OnCommit, *, interval_s: float) -> None:
    """Commit new events every `interval_s` until interrupted; call `on_commit` for each commit."""
    while True:
        _report(run.step(), on_commit)
        time.sleep(interval_s)


def follow_on(
    spark: SparkSession,
    location: TopicLocation,
    run: PipelineRun,
    on_commit: OnCommit,
    *,
    interval_s: float,
) -> None:
    """Commit new events as `follow_here` does, driven by a stream of Spark.

    Raise the errors of a step and of Spark. Raise UsageError with Spark Connect, whose server would call the
    batch function in a process without the lock of the warehouse.
    """
    refuse_connect("sc://" if "connect" in type(spark).__module__ else "")
    # Events that were appended before the stream starts are in none of its micro-batches.
    _report(run.step(), on_commit)
    batches = _Batches(run, on_commit)
    with _started(spark, location, batches, interval_s) as query:
        checked_s = time.monotonic()
        while query.isActive and batches.error is None:
            time.sleep(_POLL_S)
            if time.monotonic() - checked_s > interval_s:
                batches.commit_due()
                checked_s = time.monotonic()
    if batches.error is not None:
        raise batches.error
    error = query.exception()
    if error is not None:
        raise error


def refuse_connect(master: str) -> None:
    """Raise UsageError for a master of Spark Connect."""
    if master.startswith("sc://"):
        raise UsageError(
            "--follow can't be used with Spark Connect",
            hint="its server would need access to the warehouse; use spark://, yarn, k8s:// or local",
        )


def _report(done: StepResult, on_commit: OnCommit) -> None:
    if done.parts:
        on_commit(done)


class _Batches:
    """Receives micro-batches on threads of the stream; only one step runs at a time."""

    def __init__(self, run: PipelineRun, on_commit: OnCommit) -> None:
        self.run = run
        self._on_commit = on_commit
        self._lock = threading.Lock()
        self.stopping = False
        self.error: TierctlError | None = None

    def commit_batch(self, ranges: DataFrame, _batch: int) -> None:
        """Commit the offsets of a micro-batch, for `foreachBatch`; offsets already committed are skipped."""
        with self._lock:
            if self.stopping or self.error is not None:
                return
            found = ranges.collect()
            ends = {row["metadata_partition"]: row["end_offset"] for row in found}
            self._step(ends)

    def commit_due(self) -> None:
        """Commit rows that change with time, although no event was appended."""
        if self._lock.acquire(blocking=False):
            try:
                self._step({})
            finally:
                self._lock.release()

    def _step(self, ends: dict[int, int]) -> None:
        try:
            _report(self.run.step(ends), self._on_commit)
        except TierctlError as e:
            # The exception is stored and raised later: Spark would only pass on its text.
            self.error = e


@contextmanager
def _started(
    spark: SparkSession, location: TopicLocation, batches: _Batches, interval_s: float
) -> Iterator[StreamingQuery]:
    # Imported here, because only following on Spark needs PySpark.
    from tierctl.pipeline.ranges_source import ranges_stream

    ends = {str(number): part.end_offset for number, part in batches.run.latest.parts.items()}
    options = {"metadata": location.uri, "starting_offsets": json.dumps(ends)}
    options |= {"command_config": location.command_config} if location.command_config else {}
    options |= {"broker_config": location.broker_config} if location.broker_config else {}
    with tempfile.TemporaryDirectory(prefix="tierctl-stream-") as checkpoint:
        query = (
            ranges_stream(spark, options)
            .writeStream.foreachBatch(batches.commit_batch)
            .trigger(processingTime=f"{round(interval_s * 1000)} milliseconds")
            .option("checkpointLocation", Path(checkpoint).as_uri())
            .start()
        )
        try:
            yield query
        finally:
            batches.stopping = True
            query.stop()
