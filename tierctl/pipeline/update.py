"""A run of the pipeline: the tables, the commits that the tasks of buckets prepare, and Spark's stream.

    with pipeline.opened() as run:
        run_stream(executors, run, on_commit)

Only the tasks read events and write files; their results are valid once the driver has made the commit.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

import tierctl
from tierctl.checks.findings import FindingKind
from tierctl.errors import (
    CorruptInputError,
    MetadataError,
    NotFoundError,
    RemoteResourceNotFound,
    RemoteStorageError,
    SafetyRefusal,
    UsageError,
)
from tierctl.files import exists, is_dir, is_link
from tierctl.metadata.parallel_fold import last_records, other_record
from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.metadata.topic.open_topic import RECORDS_PER_SPLIT
from tierctl.model import TopicIdPartition, Uuid
from tierctl.model.location import TopicLocation
from tierctl.pipeline.bucket_task import EVENT_COLUMNS, BucketJob, BucketResult, read_bucket
from tierctl.pipeline.tables import SCHEMAS
from tierctl.pipeline.warehouse import (
    ANOMALIES,
    COMMITS,
    COMMITS_SCHEMA,
    PARTITIONS,
    SEGMENTS,
    TABLES,
    Commit,
    Effect,
    WarehouseSpec,
    last_batch,
    no_op,
    offsets_of,
    query_of,
    require_deltalake,
)
from tierctl.spark.executors.task import task_number
from tierctl.spark.executors.transport import Executors
from tierctl.spark.session.jvm import is_connect
from tierctl.state.stored_rows import COUNTS
from tierctl.state.tier_state import MissingEvents, Quarantined, TierState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from tierctl.pipeline.commits import Commits, LakeTable

FoldBuckets = Callable[[BucketJob], Iterable[BucketResult]]
"""Runs the tasks of a job; yields their results, without those of buckets where nothing was to be done."""

BUCKETS_MIN, BUCKETS_MAX = 8, 256
BUCKET_OFFSETS = 500_000
"""The first commit decides on the number of buckets: so many of its offsets are to be in each."""

TASK_RECORDS_MIN = 5_000
"""So many records are read by one task although other cores have nothing to do."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """The number of the last commit, and what the step added; nothing if `offsets` and `rows` are 0.

    `parts` is the number of metadata partitions with new events.
    """

    commit: int
    offsets: int = 0
    rows: int = 0
    parts: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a stream of Spark: the id of the stream, and the number of the batch."""

    query: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The metadata topic, the warehouse, and the clock of a run.

    `effect` is called before each change of the warehouse.
    """

    location: TopicLocation
    warehouse: WarehouseSpec
    clock_ms: Callable[[], int]
    effect: Effect = no_op

    @contextmanager
    def opened(self) -> Iterator[PipelineRun]:
        """Hold the lock of the warehouse during the block, and first complete its last commit.

        Raise LockedError if another pipeline holds the lock, SafetyRefusal if the warehouse belongs to
        another topic, UsageError if the folder has other content, and as `open_topic` for a complete topic
        and `require_continued`.
        """
        require_deltalake()
        # It imports deltalake, which is optional, and not needed on executors.
        from tierctl.pipeline.commits import Commits

        warehouse = self.warehouse.open()
        with closing(open_topic(self.location, complete=True)) as topic, warehouse.held():
            commits = Commits(warehouse, self.effect)
            commits.begin()
            latest = commits.latest()
            latest.require_same_topic(_topic_id(topic), topic.partition_count)
            commits.finish(latest)
            commits.require_rows_of(latest)
            run = PipelineRun(self, topic, commits, latest, warehouse.checkpoint)
            run.require_continued(latest.ends)
            yield run


class PipelineRun:
    """A run that holds the lock of the warehouse; `latest` is its last commit.

    `checkpoint` is the folder for that of a stream; None for a warehouse in a bucket.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        topic: MetadataTopic,
        commits: Commits,
        latest: Commit,
        checkpoint: Path | None,
    ) -> None:
        self.pipeline = pipeline
        self.checkpoint = checkpoint
        self._topic = topic
        self._commits = commits
        self.latest = latest
        # A copy of the topic may lack its id.
        topic_id = _topic_id(topic) or latest.topic_id
        self._opened = replace(latest, topic_id=topic_id, metadata_partitions=topic.partition_count)

    def missing(self) -> list[MissingEvents]:
        """Return the events that the topic's retention deleted before a commit had them."""
        return self._missing(self._topic.beginning_offsets())

    def _missing(self, begins: Mapping[int, int]) -> list[MissingEvents]:
        return [
            MissingEvents(number, self.latest.ends.get(number, 0), begin)
            for number, begin in sorted(begins.items())
            if begin > self.latest.ends.get(number, 0)
        ]

    def new_offsets(self) -> int:
        """Return how many offsets the topic has after those of the last commit."""
        ends, read = self._topic.end_offsets(), self.latest.ends
        return sum(max(end - read.get(number, 0), 0) for number, end in ends.items())

    def is_due(self) -> bool:
        """Return whether there is something to commit without new events.

        That is the first commit, rows that change with time, and a log that was cut or lost its events.
        """
        now_ms = self.pipeline.clock_ms()
        is_known = self.latest.number > 0
        return not is_known or bool(self._due(now_ms) or self._cuts(self.latest.ends) or self.missing())

    def has_batch(self, batch: Batch) -> bool:
        """Return whether a batch of the stream was committed that made the last commit of a stream."""
        return self.latest.query == batch.query and self.latest.batch >= batch.number

    def step(
        self, fold: FoldBuckets, ends: Mapping[int, int] | None = None, batch: Batch | None = None
    ) -> StepResult:
        """Commit the events that `fold` gives to the tasks: those up to `ends`, none without it.

        A `batch` that was committed before changes nothing. Raises errors of reading, RemoteStorageError,
        LockedError, and SafetyRefusal for another topic; the last commit is then unchanged.
        """
        before, now_ms = self.latest, self.pipeline.clock_ms()
        if batch is not None and self.has_batch(batch):
            return StepResult(before.number)
        self._commits.refresh(before)
        ends = ends or {}
        self._require_same_topic(ends)
        begins = self._topic.beginning_offsets()
        starts = {
            number: max(before.ends.get(number, 0), begins.get(number, 0))
            for number in sorted({*before.ends, *begins, *ends})
        }
        goal = {number: max(start, ends.get(number, 0)) for number, start in starts.items()}
        offsets = {number: end - starts[number] for number, end in goal.items()}
        changed = {number: at for number, at in starts.items() if at < goal[number]}
        self.require_continued(changed)
        missing = (*before.missing, *self._missing(begins))
        job = self._job(goal, sum(offsets.values()), missing, now_ms)
        results = list(fold(job))
        self._require_same_topic(ends)
        self._require_kept(changed, goal)
        commit = self._commit(job, results, goal, batch)
        last = {**before.last_records, **last_records(self._topic, changed, goal)}
        commit = replace(commit, last_records=last)
        self._commits.commit(commit, is_batch=batch is not None)
        self.latest = commit
        self._commits.maintain(commit.number)
        parts = sum(count > 0 for count in offsets.values())
        rows = sum(each.events for each in results)
        return StepResult(commit.number, sum(offsets.values()), rows, parts)

    def _require_same_topic(self, ends: Mapping[int, int]) -> None:
        """Raise SafetyRefusal if the topic was created again, or got more partitions, since it was opened.

        Spark opens the topic for each batch, and would go on with the events of the new one, up to `ends`.
        """
        count = max([self._topic.partition_count, *(number + 1 for number in ends)])
        self._opened.require_same_topic(_topic_id(self._topic), count)

    def _require_kept(self, starts: Mapping[int, int], goal: Mapping[int, int]) -> None:
        """Raise MetadataError if retention deleted events above `starts` since the step began.

        Spark plans the tasks after that: whether they read these events is unknown. Raise it as well if the
        log ends below `goal`: it was cut, or is that of a replica that lags.
        """
        for number, begin in sorted(self._topic.beginning_offsets().items()):
            start = starts.get(number, begin)
            if begin > start:
                raise MetadataError(
                    f"metadata partition {number}: retention deleted the offsets from {start} to "
                    f"{begin - 1} while they were read",
                    hint="run again: the next commit states which events are gone",
                )
        for number in self.lacking({number: goal[number] for number in starts}):
            raise MetadataError(
                f"metadata partition {number} ends below offset {goal[number]}, up to which it is to be read",
                hint="run again: a new stream begins where the tables end",
            )

    def lacking(self, ends: Mapping[int, int]) -> list[int]:
        """Return the metadata partitions that end below their offset in `ends`."""
        found = self._topic.end_offsets()
        return [number for number, end in sorted(ends.items()) if found.get(number, 0) < end]

    def require_continued(self, numbers: Iterable[int]) -> None:
        """Raise SafetyRefusal if a metadata partition has another record where a commit read its last one.

        Its log was cut, and has grown again: the tables have lost events, and lack those with their offsets.
        """
        begins, ends = self._topic.beginning_offsets(), self._topic.end_offsets()
        # The cuts tell of a log that ends lower.
        for number in (each for each in numbers if self.latest.ends.get(each, 0) <= ends.get(each, 0)):
            last = self.latest.last_records.get(number)
            error = other_record(last, self._topic, number, begins.get(number, 0))
            if error is not None:
                raise SafetyRefusal(
                    f"the log was cut and has grown again: expected {error.expected}, found {error.found}",
                    hint="the tables have events that the topic lost: use a new --warehouse",
                )

    def _due(self, now_ms: int) -> list[int]:
        return [bucket for bucket, due_ms in self.latest.due_ms.items() if due_ms <= now_ms]

    def _cuts(self, goal: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return the offset that was read and the end of each log that ends below it.

        A truncated log is reported once for each offset where it ends.
        """
        found = {}
        for number, end in self._topic.end_offsets().items():
            position = goal.get(number, 0)
            if end < position and self.latest.cuts.get(number) != end:
                found[number] = position, end
        return found

    def _job(
        self, goal: Mapping[int, int], offsets: int, missing: tuple[MissingEvents, ...], now_ms: int
    ) -> BucketJob:
        before = self.latest
        cuts = self._cuts(goal)
        count = before.buckets or min(max(offsets // BUCKET_OFFSETS, BUCKETS_MIN), BUCKETS_MAX)
        woken = {*self._due(now_ms), *(number % count for number in cuts)}
        if missing != before.missing:
            # Rows of dropped events say whether the events that are missing explain them.
            woken.update(bucket for bucket, dropped in before.dropped.items() if dropped)
        return BucketJob(
            warehouse=self.pipeline.warehouse,
            number=before.number + 1,
            now_ms=now_ms,
            partition_count=self._topic.partition_count,
            bucket_count=count,
            woken=frozenset(woken),
            files={table: self._commits.files(table) for table in TABLES},
            missing=missing,
            cuts=cuts,
            dropped=before.dropped,
            has_all_events=self._commits.has_all_events(before),
        )

    def _commit(
        self, job: BucketJob, results: list[BucketResult], goal: Mapping[int, int], batch: Batch | None
    ) -> Commit:
        before, done = self.latest, {each.bucket: each for each in results}
        added = tuple(file for each in results for file in each.added)
        removed = tuple(file for each in results for file in each.removed)
        due_ms = {bucket: at for bucket, at in before.due_ms.items() if bucket not in done}
        due_ms |= {bucket: each.due_ms for bucket, each in done.items() if each.due_ms is not None}
        return Commit(
            number=job.number,
            committed_ms=job.now_ms,
            tierctl=tierctl.__version__,
            topic_id=self._opened.topic_id,
            metadata_partitions=self._opened.metadata_partitions,
            # A commit of an empty topic leaves it to the next one to decide.
            buckets=job.bucket_count if before.buckets or any(goal.values()) else 0,
            query=before.query if batch is None else batch.query,
            batch=before.batch if batch is None else batch.number,
            path=f"part-{job.number:05d}-{uuid4().hex[:12]}.parquet",
            ends=goal,
            cuts=dict(before.cuts) | {number: end for number, (_, end) in job.cuts.items()},
            due_ms=due_ms,
            dropped={**before.dropped, **{bucket: each.dropped for bucket, each in done.items()}},
            rows=self._commits.rows_after(before, added, removed),
            missing=job.missing,
            added=added,
            removed=removed,
        )


def _topic_id(topic: MetadataTopic) -> str | None:
    return None if topic.topic_id is None else str(topic.topic_id)


# The pipeline as a query of Structured Streaming over the metadata topic.
#
# Spark plans micro-batches of the source `remote_log_metadata` and keeps their offsets in a checkpoint beside
# the tables. Each batch is spread by topic id and partition over the buckets of the warehouse, whose tasks
# fold the events and write files, and becomes one commit. A batch that Spark repeats changes nothing if it
# was committed.
#
# The tables decide where a stream begins: a checkpoint that does not fit them is replaced. Spark can't reach
# a bucket without a client of its own, so a warehouse there has a checkpoint for the time of a run only.

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
    with checkpoint_of(run) as checkpoint:
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
        self._sessions = [executors.session]

    def commit_batch(self, events: DataFrame, number: int) -> None:
        """Commit a micro-batch, for `foreachBatch`. It raises what ends the stream: the batch is repeated."""
        with self.lock:
            if self.stopping or self.error is not None:
                raise InterruptedError("the run was told to stop")
            # A stream runs its batches in a session of its own.
            self._sessions = [self.executors.session, events.sparkSession]
            ends = offsets_of(self.checkpoint, number)

            def fold(job: BucketJob) -> Iterable[BucketResult]:
                spread = events.repartition(job.bucket_count, "topic_id", "partition")
                ordered = spread.sortWithinPartitions("metadata_partition", "metadata_offset")
                found = _results(self.executors, ordered, partial(_bucket, job))
                # Spark runs no task at all if the batch has no rows.
                others = replace(job, woken=job.woken - {each.bucket for each in found})
                return [*found, *fold_woken(lambda: self.executors)(others)]

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
            for session in self._sessions:
                session.interruptAll()
        self.lock.release()


@contextmanager
def _started(batches: _Batches, interval_s: float | None) -> Iterator[StreamingQuery]:
    # Imported here, because only a run with new events needs PySpark.
    from tierctl.spark.frames import metadata_stream

    run, executors = batches.run, batches.executors
    # All cores read: with few events, most of the time is that in which their Python workers start.
    of_a_core = ceil(run.new_offsets() / executors.session.sparkContext.defaultParallelism)
    stream = metadata_stream(
        executors.session,
        run.pipeline.location,
        EVENT_COLUMNS,
        run.latest.ends,
        records_per_task=min(max(of_a_core, TASK_RECORDS_MIN), RECORDS_PER_SPLIT),
    )
    trigger: dict[str, Any] = {"availableNow": True}
    if interval_s is not None:
        trigger = {"processingTime": f"{round(interval_s * 1000)} milliseconds"}
    query = (
        stream.writeStream.foreachBatch(batches.commit_batch)
        .trigger(**trigger)
        # Not `as_uri`: Hadoop's paths take escapes as they are written.
        .option("checkpointLocation", f"file://{batches.checkpoint}")
        .start()
    )
    try:
        yield query
    finally:
        batches.stop()
        query.stop()


@contextmanager
def checkpoint_of(run: PipelineRun) -> Iterator[Path]:
    """Provide the folder of the checkpoint, without one that does not fit the tables.

    Raise SafetyRefusal for one that does not fit and may be something else.
    """
    kept = run.checkpoint
    if kept is not None:
        if not _fits(kept, run):
            _discard(kept)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="tierctl-stream-") as folder:
        yield Path(folder)


_OF_A_CHECKPOINT = frozenset({"metadata", "offsets", "commits", "sources", "state"})


def _discard(checkpoint: Path) -> None:
    """Delete a checkpoint, so that a stream does not go on from it; do nothing if there is none.

    Raise SafetyRefusal, and delete nothing, if it is a link or has what Spark writes to no checkpoint.
    """
    if not exists(checkpoint, follow_symlinks=False):
        return
    found = "a symbolic link" if is_link(checkpoint) else "a file"
    if is_dir(checkpoint) and not is_link(checkpoint):
        # A file that Spark has not completed is named `.metadata.<id>.tmp`, a checksum `.metadata.crc`.
        names = sorted(each.name for each in checkpoint.iterdir())
        others = [each for each in names if each.lstrip(".").partition(".")[0] not in _OF_A_CHECKPOINT]
        if not others:
            shutil.rmtree(checkpoint)
            return
        found = f"{others[0]} in it"
    raise SafetyRefusal(
        f"{checkpoint} does not fit the tables, and is not deleted: expected a folder that has only the "
        f"checkpoint of a stream, found {found}",
        hint="move it away: a new one begins where the tables end",
    )


def _fits(checkpoint: Path, run: PipelineRun) -> bool:
    """Return whether a stream that goes on from the checkpoint begins where the tables end."""
    if is_link(checkpoint):
        return False
    try:
        query, last = query_of(checkpoint), last_batch(checkpoint)
        if not run.has_batch(Batch(query, last)):
            if exists(checkpoint / "commits" / str(last)) or run.lacking(offsets_of(checkpoint, last)):
                return False
            # A run was killed after Spark had planned the batch: it is repeated.
            last -= 1
        if last < 0:
            return run.latest.number == 0
        return (run.latest.query, run.latest.batch) == (query, last) and offsets_of(checkpoint, last) == dict(
            run.latest.ends
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


_NAMED = ("topic", "topic_id", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseContents:
    """The last commit of a warehouse.

    `files` are the files of the tables `segments`, `partitions` and `anomalies` by bucket, `partitions` all
    user partitions with an event, and `live` those with segments that are not being deleted. `unusable` are
    the records that could not be used.
    """

    commit: Commit
    files: Mapping[str, Mapping[int, list[str]]]
    partitions: tuple[TopicIdPartition, ...]
    live: frozenset[TopicIdPartition]
    unusable: tuple[Quarantined, ...]


def read_warehouse(spec: WarehouseSpec) -> WarehouseContents:
    """Return the last commit. Create nothing.

    Raise NotFoundError if there is no commit, RemoteStorageError if a table does not follow it, and
    UsageError if deltalake is not installed.
    """
    require_deltalake()
    # It imports deltalake, which is optional.
    from tierctl.pipeline.commits import LakeTable

    warehouse = spec.open()
    commits = LakeTable(warehouse, COMMITS, COMMITS_SCHEMA)
    tables = {name: LakeTable(warehouse, name, SCHEMAS[name]) for name in (SEGMENTS, PARTITIONS, ANOMALIES)}
    commit = _complete_commit(spec, commits, tables)
    rows = tables[PARTITIONS].rows((*_NAMED, *COUNTS, "delete_state"))
    named = [TopicIdPartition(Uuid.parse(row["topic_id"]), row["topic"], row["partition"]) for row in rows]
    return WarehouseContents(
        commit=commit,
        files={name: table.paths() for name, table in tables.items()},
        partitions=tuple(sorted(named)),
        live=frozenset(
            partition
            for partition, row in zip(named, rows, strict=True)
            if row["delete_state"] is None and any(row[name] for name in COUNTS)
        ),
        unusable=tuple(_unusable(tables[ANOMALIES].rows(_OF_RECORD))),
    )


_READS = 10


def _complete_commit(spec: WarehouseSpec, commits: LakeTable, tables: Mapping[str, LakeTable]) -> Commit:
    """Read the newest versions of the tables, until all of them follow the last commit, which is returned."""
    # It imports deltalake, which is optional.
    from tierctl.pipeline.commits import latest_commit

    for attempt in range(_READS):
        if attempt:
            time.sleep(_POLL_S)
        if not all(table.refresh() for table in (commits, *tables.values())) or not commits.number():
            raise NotFoundError(
                f"no tables in {spec.uri}", hint="tierctl pipeline run --warehouse ... writes them"
            )
        commit = latest_commit(commits)
        changed = {file.table for file in (*commit.added, *commit.removed)}
        numbers = {name: table.number() for name, table in tables.items()}
        # A table without files of the commit stays at an earlier one.
        others = [
            n for n, at in numbers.items() if at > commit.number or (at < commit.number and n in changed)
        ]
        if not others:
            for table in tables.values():
                table.require_rows_of(commit)
            return commit
    raise RemoteStorageError(
        f"commit {commit.number} of {spec.uri} is not complete: table {others[0]} is at another one",
        hint="run again once the commit is made; if a run was killed in it, tierctl pipeline run finishes it",
    )


_OF_RECORD = ("check", "metadata_partition", "metadata_offset", "found")


def _unusable(rows: Iterable[Mapping[str, Any]]) -> Iterator[Quarantined]:
    for row in rows:
        if row["check"] == FindingKind.CORRUPT_METADATA:
            error = CorruptInputError("record", expected="one that can be used", found=row["found"])
            yield Quarantined(row["metadata_partition"], row["metadata_offset"], error)


def read_folded(spec: WarehouseSpec, contents: WarehouseContents, bucket: int) -> TierState:
    """Return the state of a bucket's user partitions.

    Raise CorruptInputError for a damaged file, and RemoteStorageError if a pipeline replaced one meanwhile.
    """
    try:
        state = read_bucket(spec.open_store(), contents.files, bucket).state
    except RemoteResourceNotFound as e:
        raise RemoteStorageError(
            f"the tables changed while they were read: {e.message}",
            hint="a pipeline run made a commit at the same time: run again",
        ) from e
    state.missing, state.quarantined = list(contents.commit.missing), list(contents.unusable)
    state.read = dict(contents.commit.ends)
    return state
