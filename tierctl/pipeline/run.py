"""The pipeline's driver: which metadata partitions have something new, and their commit.

    with open_pipeline(pipeline) as run:
        done = run.step()

The driver reads no event. Tasks do, one a metadata partition, here or on executors; what they did counts
once the driver has made the commit.
"""

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
from tierctl.pipeline.tables import SCHEMAS
from tierctl.pipeline.task import Task, do_task
from tierctl.pipeline.warehouse.base import Commit, PartState, Warehouse
from tierctl.pipeline.warehouse.ledger import Effect, Ledger, unobserved
from tierctl.pipeline.warehouse.open import WarehouseSpec
from tierctl.spark.executors.transport import Executors

LEAST_EVENTS = 20_000
"""Of fewer, several metadata partitions make one task: starting it takes as long."""


class RunTasks(Protocol):
    """Does tasks, somewhere; what came of each, in their order."""

    def __call__(self, tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
        """Raises what a task raised."""
        ...


def run_here(tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
    """RunTasks of engine=local: one after the other."""
    return map(do_task, tasks)


def run_on(executors: Executors) -> RunTasks:
    """RunTasks on executors; no event travels, and nothing is shuffled but the tasks."""

    def run(tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
        return executors.run(do_task, tasks, cost=_offsets, min_task_cost=LEAST_EVENTS)

    return run


def _offsets(task: Task) -> int:
    return task.offsets


@dataclass(frozen=True, slots=True)
class Progress:
    """What a step came to: the last commit, and what is new in it; nothing when `parts` is 0."""

    commit: int
    offsets: int = 0
    rows: int = 0
    parts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """From which metadata topic to which warehouse, how, and by which clock."""

    location: TopicLocation
    warehouse: WarehouseSpec
    clock_ms: Callable[[], int]
    run_tasks: RunTasks = run_here
    effect: Effect = unobserved

    @contextmanager
    def opened(self) -> "Iterator[PipelineRun]":
        """The warehouse, held for the block, with its last commit shown.

        LockedError when another pipeline has it; SafetyRefusal when it is another topic's; UsageError.
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
    """A warehouse in hand; `latest` is its last commit."""

    def __init__(
        self, pipeline: Pipeline, topic: MetadataTopic, warehouse: Warehouse, ledger: Ledger, latest: Commit
    ) -> None:
        self._pipeline = pipeline
        self._topic = topic
        self._warehouse = warehouse
        self._ledger = ledger
        self.latest = latest

    def step(self, up_to: Mapping[int, int] | None = None) -> Progress:
        """Read on to the topic's end, or to `up_to` by metadata partition, and commit what is new.

        Raises what reading raises, RemoteStorageError and LockedError; then nothing of it counts.
        """
        now_ms = self._pipeline.clock_ms()
        tasks = self._tasks(now_ms, up_to)
        if not tasks and self.latest.number:
            return Progress(self.latest.number)
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
        return Progress(number, sum(task.offsets for task in tasks), rows, len(tasks))

    def _tasks(self, now_ms: int, up_to: Mapping[int, int] | None) -> list[Task]:
        begins, ends = self._topic.beginning_offsets(), self._topic.end_offsets()
        tasks = []
        for number, end in sorted(ends.items()):
            since = self.latest.parts.get(number)
            goal = end if up_to is None else min(up_to.get(number, 0), end)
            if since is not None:
                goal = max(goal, min(since.end, end))
            if goal if since is None else _has_news(since, begins[number], goal, now_ms):
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
        """That this process sees what the tasks stored."""
        keys = sorted(commit.keys())
        missing = sorted(set(keys) - self._warehouse.sizes_bytes(keys).keys()) if keys else []
        if missing:
            raise RemoteStorageError(
                f"{len(missing)} files that tasks stored are not in the warehouse, {missing[0]} for one",
                hint="executors must reach --warehouse under the same name: a shared folder, or s3://",
            )


def _has_news(since: PartState, begin: int, goal: int, now_ms: int) -> bool:
    is_due = since.due_ms is not None and since.due_ms <= now_ms
    # A log that was cut is told of once for each place where it ends.
    is_cut = goal < since.end and since.cut_at != goal
    return goal > since.end or begin > since.end or is_cut or is_due


def empty_tables() -> dict[str, bytes]:
    """A Parquet file without rows of each table."""
    files = {}
    for name, schema in SCHEMAS.items():
        sink = pa.BufferOutputStream()
        pq.write_table(schema.empty_table(), sink)
        files[name] = sink.getvalue().to_pybytes()
    return files
