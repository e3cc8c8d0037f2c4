"""The driver of the pipeline: finds metadata partitions with new events, runs their tasks, makes the commit.

    with pipeline.opened() as run:
        done = run.step()

Only tasks read events, one task per metadata partition, in this process or on executors. Their results are
valid once the driver has made the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

import tierctl
from tierctl.errors import RemoteStorageError
from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.model.location import TopicLocation
from tierctl.pipeline.partition_task import Task, do_task
from tierctl.pipeline.tables import SCHEMAS
from tierctl.pipeline.warehouse.base import Commit, PartState, Warehouse
from tierctl.pipeline.warehouse.ledger import Effect, Ledger, no_op
from tierctl.pipeline.warehouse.open import WarehouseSpec
from tierctl.spark.executors.transport import Executors
from tierctl.state.tier import MissingEvents

LEAST_EVENTS = 20_000
"""The number of events that are processed in the time that a task takes to start."""


class RunTasks(Protocol):
    """Runs tasks and yields their results, in the order of the tasks."""

    def __call__(self, tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
        """Yield the results; raise the error of a task."""
        ...


def run_here(tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
    """Implement `RunTasks` in this process: one task after the other."""
    return map(do_task, tasks)


def run_on(executors: Executors) -> RunTasks:
    """Return RunTasks on executors; no events are sent to or from the driver."""

    def run(tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
        return executors.run(do_task, tasks, cost=_offsets, min_task_cost=LEAST_EVENTS)

    return run


def _offsets(task: Task) -> int:
    return task.offsets


@dataclass(frozen=True, slots=True)
class StepResult:
    """The number of the last commit, and what the step added to it; nothing if `parts` is 0."""

    commit: int
    offsets: int = 0
    rows: int = 0
    parts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The metadata topic, the warehouse, and the clock and tasks of a run.

    `effect` is called before each change of the warehouse.
    """

    location: TopicLocation
    warehouse: WarehouseSpec
    clock_ms: Callable[[], int]
    run_tasks: RunTasks = run_here
    effect: Effect = no_op

    @contextmanager
    def opened(self) -> Iterator[PipelineRun]:
        """Hold the warehouse during the block; its tables first show its last commit.

        Raise LockedError if another pipeline holds it, SafetyRefusal if it is of another topic, and
        UsageError if the place has other content.
        """
        warehouse = self.warehouse.open()
        with closing(open_topic(self.location)) as topic, warehouse.held():
            ledger = Ledger(warehouse, self.effect)
            topic_id = None if topic.topic_id is None else str(topic.topic_id)
            ledger.begin(topic_id, topic.partition_count, empty_tables())
            latest = ledger.latest()
            if latest.number:
                ledger.publish(latest)
            ledger.clean(latest)
            yield PipelineRun(self, topic, warehouse, ledger, latest)


class PipelineRun:
    """A run that holds the warehouse; `latest` is its last commit."""

    def __init__(
        self, pipeline: Pipeline, topic: MetadataTopic, warehouse: Warehouse, ledger: Ledger, latest: Commit
    ) -> None:
        self._pipeline = pipeline
        self._topic = topic
        self._warehouse = warehouse
        self._ledger = ledger
        self.latest = latest

    def missing(self) -> list[MissingEvents]:
        """Return the events that the topic's retention deleted before a commit had them."""
        read = {number: part.end for number, part in self.latest.parts.items()}
        return [
            MissingEvents(number, read.get(number, 0), begin)
            for number, begin in sorted(self._topic.beginning_offsets().items())
            if begin > read.get(number, 0)
        ]

    def step(self, up_to: Mapping[int, int] | None = None) -> StepResult:
        """Commit the events up to the topic's end, or up to the offset in `up_to` of each metadata partition.

        Raises errors of reading, RemoteStorageError and LockedError; the last commit is then unchanged.
        """
        now_ms = self._pipeline.clock_ms()
        tasks = self._tasks(now_ms, up_to)
        if not tasks and self.latest.number:
            return StepResult(self.latest.number)
        number = self.latest.number + 1
        results = list(self._pipeline.run_tasks(tasks))
        parts, events, rows = dict(self.latest.parts), {}, 0
        for task, result in zip(tasks, results, strict=True):
            parts[task.metadata_partition] = PartState(**result["part"])
            if result["events"] is not None:
                events[task.metadata_partition] = result["events"]
            rows += result["rows"]
        commit = Commit(
            number=number,
            made_ms=now_ms,
            tierctl=tierctl.__version__,
            parts=parts,
            events=events,
            starts={task.metadata_partition: task.start for task in tasks},
        )
        self._require_files(commit)
        self._ledger.commit(commit)
        self.latest = commit
        self._ledger.publish(commit)
        self._ledger.clean(commit)
        return StepResult(number, sum(task.offsets for task in tasks), rows, len(tasks))

    def _tasks(self, now_ms: int, up_to: Mapping[int, int] | None) -> list[Task]:
        begins, ends = self._topic.beginning_offsets(), self._topic.end_offsets()
        tasks = []
        for number, end in sorted(ends.items()):
            since = self.latest.parts.get(number)
            goal = end if up_to is None else min(up_to.get(number, 0), end)
            if since is not None:
                goal = max(goal, min(since.end, end))
            if goal if since is None else _has_changed(since, begins[number], goal, now_ms):
                tasks.append(self._task(number, begins[number], goal, since, now_ms))
        return tasks

    def _task(self, number: int, begin: int, goal: int, since: PartState | None, now_ms: int) -> Task:
        pipeline = self._pipeline
        return Task(
            location=pipeline.location,
            warehouse=pipeline.warehouse,
            metadata_partition=number,
            partition_count=self._topic.partition_count,
            begin=begin,
            end=goal,
            number=self.latest.number + 1,
            now_ms=now_ms,
            since=since,
        )

    def _require_files(self, commit: Commit) -> None:
        """Raise RemoteStorageError if this process does not see the files that the tasks stored."""
        keys = sorted(commit.keys())
        missing = sorted(set(keys) - self._warehouse.sizes_bytes(keys).keys()) if keys else []
        if missing:
            raise RemoteStorageError(
                f"{len(missing)} files that tasks stored are not in the warehouse, {missing[0]} for one",
                hint="executors must reach --warehouse under the same name: a shared folder, or s3://",
            )


def _has_changed(since: PartState, begin: int, goal: int, now_ms: int) -> bool:
    is_due = since.due_ms is not None and since.due_ms <= now_ms
    # A truncated log is reported once for each offset where it ends.
    is_truncated = goal < since.end and since.cut_at != goal
    return goal > since.end or begin > since.end or is_truncated or is_due


def empty_tables() -> dict[str, bytes]:
    """Return a Parquet file without rows for each table."""
    files = {}
    for name, schema in SCHEMAS.items():
        sink = pa.BufferOutputStream()
        pq.write_table(schema.empty_table(), sink)
        files[name] = sink.getvalue().to_pybytes()
    return files
