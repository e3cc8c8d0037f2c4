"""The pipeline as a query of Structured Streaming over the metadata topic.

Spark plans micro-batches of the source `remote_log_metadata` and keeps their offsets in a checkpoint beside
the tables. Each batch is spread by topic id and partition over the buckets of the warehouse, whose tasks fold
the events and write files, and becomes one commit. A batch that Spark repeats changes nothing if it was
committed.

The tables decide where a stream begins: a checkpoint that does not fit them is replaced. Spark can't reach a
bucket without a client of its own, so a warehouse there has a checkpoint for the time of a run only.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tierctl.errors import UsageError
from tierctl.pipeline.bucket_task import EVENT_COLUMNS, BucketJob, BucketResult
from tierctl.pipeline.update import Batch, PipelineRun, StepResult
from tierctl.spark.executors.task import task_number
from tierctl.spark.executors.transport import Executors
from tierctl.spark.session.jvm import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

OnCommit = Callable[[StepResult], None]
_POLL_S = 0.2


def refuse_connect(master: str) -> None:
    """Raise UsageError for a master of Spark Connect, whose server would call the batch function itself."""
    if master.startswith("sc://"):
        raise UsageError(
            "pipeline run can't be used with Spark Connect",
            hint="its server would need access to the warehouse; use spark://, yarn, k8s:// or local",
        )


def run_stream(
    executors: Executors, run: PipelineRun, on_commit: OnCommit, *, interval_s: float | None = None
) -> None:
    """Commit the topic's events; with `interval_s` go on until stopped, with a batch in that time at most.

    `on_commit` is called for each commit. Raise the errors of a step and of Spark.
    """
    refuse_connect("sc://" if is_connect(executors.session) else "")
    with _checkpoint(run) as checkpoint:
        batches = _Batches(executors, run, on_commit, checkpoint)
        with _started(batches, interval_s) as query:
            checked_s = time.monotonic()
            while query.isActive and batches.error is None:
                time.sleep(_POLL_S)
                if interval_s is not None and time.monotonic() - checked_s > interval_s:
                    batches.commit_due()
                    checked_s = time.monotonic()
        if batches.error is not None:
            raise batches.error
        error = query.exception()
        if error is not None:
            raise error


def fold_woken(executors: Callable[[], Executors]) -> Callable[[BucketJob], Iterable[BucketResult]]:
    """Return the function that makes the rows of a job's woken buckets again, without events."""

    def fold(job: BucketJob) -> Iterable[BucketResult]:
        woken = sorted(job.woken)
        if not woken:
            return ()
        rows = executors().session.range(0, len(woken), 1, len(woken))
        return _results(executors(), rows, partial(_woken_bucket, job, woken))

    return fold


def _woken_bucket(
    job: BucketJob, woken: Sequence[int], _rows: Iterator[pa.RecordBatch]
) -> BucketResult | None:
    return job.run(woken[task_number()], ())


def _bucket(job: BucketJob, events: Iterator[pa.RecordBatch]) -> BucketResult | None:
    return job.run(task_number(), events)


def _results(
    executors: Executors,
    rows: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], BucketResult | None],
) -> list[BucketResult]:
    """Return the results of the tasks; raise the error of the first one that failed, and EngineError."""
    found = executors.run_on_rows(function, rows, title="writing tables")
    return [result for result in found if result is not None]


class _Batches:
    """Receives micro-batches on threads of the stream; only one step runs at a time."""

    def __init__(self, executors: Executors, run: PipelineRun, on_commit: OnCommit, checkpoint: Path) -> None:
        self.executors = executors
        self.run = run
        self.checkpoint = checkpoint
        self._on_commit = on_commit
        self.lock = threading.Lock()
        self.stopping = False
        self.error: Exception | None = None

    def commit_batch(self, events: DataFrame, number: int) -> None:
        """Commit a micro-batch, for `foreachBatch`. It raises what ends the stream: the batch is repeated."""
        with self.lock:
            if self.stopping or self.error is not None:
                raise InterruptedError("the run was told to stop")
            ends = offsets_of(self.checkpoint, number)

            def fold(job: BucketJob) -> Iterable[BucketResult]:
                spread = events.repartition(job.bucket_count, "topic_id", "partition")
                ordered = spread.sortWithinPartitions("metadata_partition", "metadata_offset")
                return _results(self.executors, ordered, partial(_bucket, job))

            self._step(fold, ends, Batch(query_of(self.checkpoint), number))

    def commit_due(self) -> None:
        """Commit rows that change with time, although no event was appended since the first commit."""
        if self.lock.acquire(blocking=False):
            try:
                if self.run.latest.number and self.run.is_due():
                    self._step(fold_woken(lambda: self.executors))
            finally:
                self.lock.release()

    def _step(self, *how: Any) -> None:
        try:
            self._on_commit(self.run.step(*how))
        except Exception as e:
            # The exception is stored and raised later: Spark would only pass on its text.
            self.error = e
            raise

    def stop(self) -> None:
        """Cancel the tasks of a batch that has begun, unless its commit has: that is completed."""
        self.stopping = True
        while not self.lock.acquire(timeout=_POLL_S):
            self.executors.session.interruptAll()
        self.lock.release()


@contextmanager
def _started(batches: _Batches, interval_s: float | None) -> Iterator[StreamingQuery]:
    # Imported here, because only a run with new events needs PySpark.
    from tierctl.spark.frames import metadata_stream

    run = batches.run
    stream = metadata_stream(batches.executors.session, run.pipeline.location, EVENT_COLUMNS, run.latest.ends)
    trigger: dict[str, Any] = {"availableNow": True}
    if interval_s is not None:
        trigger = {"processingTime": f"{round(interval_s * 1000)} milliseconds"}
    query = (
        stream.writeStream.foreachBatch(batches.commit_batch)
        .trigger(**trigger)
        .option("checkpointLocation", batches.checkpoint.as_uri())
        .start()
    )
    try:
        yield query
    finally:
        batches.stop()
        query.stop()


# The checkpoint of a stream: its id in the file `metadata`, and a file per batch in `offsets`.


@contextmanager
def _checkpoint(run: PipelineRun) -> Iterator[Path]:
    """Provide the folder of the checkpoint, without one that does not fit the tables."""
    kept = run.checkpoint
    if kept is not None:
        if not _fits(kept, run):
            shutil.rmtree(kept, ignore_errors=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="tierctl-stream-") as folder:
        yield Path(folder)


def _fits(checkpoint: Path, run: PipelineRun) -> bool:
    """Return whether a stream that goes on from the checkpoint begins where the tables end."""
    try:
        numbers = [int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal()]
        query, last = query_of(checkpoint), max(numbers)
        if not run.has_batch(Batch(query, last)):
            if (checkpoint / "commits" / str(last)).exists():
                return False
            # A run was killed after Spark had planned the batch: it is repeated.
            last -= 1
        if last < 0:
            return run.latest.number == 0
        return (run.latest.query, run.latest.batch) == (query, last) and offsets_of(checkpoint, last) == dict(
            run.latest.ends
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def query_of(checkpoint: Path) -> str:
    """Return the id of the checkpoint's stream."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def offsets_of(checkpoint: Path, batch: int) -> dict[int, int]:
    """Return the next offset of each metadata partition after a batch, from Spark's log of offsets."""
    # A line with the version, one with settings, and one with the offset of each source.
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    return {int(number): at for number, at in json.loads(lines[-1])["next_offsets"].items()}
