"""The driver of the pipeline: finds metadata partitions with new events, runs their tasks, makes the commit.

    with pipeline.opened() as run:
        done = run.step()

Only tasks read events, one task per metadata partition, in this process or on executors. Their results are
valid once the driver has made the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from tierctl.errors import NotFoundError
from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.model import TopicIdPartition, Uuid
from tierctl.model.location import TopicLocation
from tierctl.pipeline.partition_task import Task, do_task
from tierctl.pipeline.tables import PARTITIONS, SCHEMAS
from tierctl.pipeline.warehouse.layout import (
    STATE,
    STATE_SCHEMA,
    Commit,
    Effect,
    PartState,
    WarehouseSpec,
    no_op,
    require_deltalake,
)
from tierctl.spark.executors.transport import Executors
from tierctl.state.tier_state import MissingEvents

if TYPE_CHECKING:
    from tierctl.pipeline.warehouse.commits import Commits

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
    """The number of the last commit, and the rows that the step added; none if `parts` is 0."""

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
        """Hold the lock of the warehouse during the block, and first complete its last commit.

        Raise LockedError if another pipeline holds the lock, SafetyRefusal if the warehouse belongs to
        another topic, and UsageError if the folder has other content.
        """
        require_deltalake()
        # It imports deltalake, which is optional, and not needed on executors.
        from tierctl.pipeline.warehouse.commits import Commits, require_same_topic

        warehouse = self.warehouse.open()
        with closing(open_topic(self.location)) as topic, warehouse.held():
            commits = Commits(warehouse, SCHEMAS, self.effect)
            commits.begin()
            latest = commits.latest()
            require_same_topic(latest, _topic_id(topic), topic.partition_count)
            commits.finish(latest)
            yield PipelineRun(self, topic, commits, latest)


class PipelineRun:
    """A run that holds the lock of the warehouse; `latest` is its last commit."""

    def __init__(self, pipeline: Pipeline, topic: MetadataTopic, commits: Commits, latest: Commit) -> None:
        self._pipeline = pipeline
        self._topic = topic
        self._commits = commits
        self.latest = latest

    def missing(self) -> list[MissingEvents]:
        """Return the events that the topic's retention deleted before a commit had them."""
        read = {number: part.end_offset for number, part in self.latest.parts.items()}
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
        self._commits.refresh(self.latest)
        tasks = self._tasks(now_ms, up_to, self._commits.lost(self.latest))
        if not tasks and self.latest.number:
            return StepResult(self.latest.number)
        number = self.latest.number + 1
        results = list(self._pipeline.run_tasks(tasks))
        parts = dict(self.latest.parts)
        parts |= {
            task.metadata_partition: PartState.of_row(result["part"])
            for task, result in zip(tasks, results, strict=True)
        }
        commit = Commit(number=number, parts=parts)
        self._commits.require_stored(commit)
        self._commits.commit(commit, self.latest)
        self.latest = commit
        self._commits.maintain(number)
        rows = sum(result["rows"] for result in results)
        return StepResult(number, sum(task.offsets for task in tasks), rows, len(tasks))

    def _tasks(self, now_ms: int, up_to: Mapping[int, int] | None, lost: set[int]) -> list[Task]:
        begins, ends = self._topic.beginning_offsets(), self._topic.end_offsets()
        tasks = []
        for number, end in sorted(ends.items()):
            since = self.latest.parts.get(number)
            goal = end if up_to is None else min(up_to.get(number, 0), end)
            if since is not None:
                goal = max(goal, min(since.end_offset, end))
            has_changed = goal if since is None else _has_changed(since, begins[number], goal, now_ms)
            if has_changed or number in lost:
                tasks.append(self._task(number, begins[number], goal, now_ms, is_lost=number in lost))
        return tasks

    def _task(self, number: int, begin: int, goal: int, now_ms: int, *, is_lost: bool) -> Task:
        pipeline, since = self._pipeline, self.latest.parts.get(number)
        return Task(
            location=pipeline.location,
            warehouse=pipeline.warehouse,
            metadata_partition=number,
            partition_count=self._topic.partition_count,
            topic_id=_topic_id(self._topic),
            begin=begin,
            end=goal,
            number=self.latest.number + 1,
            now_ms=now_ms,
            since=replace(since, files=()) if since is not None and is_lost else since,
            history=self._commits.history(number),
        )


def _topic_id(topic: MetadataTopic) -> str | None:
    return None if topic.topic_id is None else str(topic.topic_id)


def _has_changed(since: PartState, begin: int, goal: int, now_ms: int) -> bool:
    is_due = since.due_ms is not None and since.due_ms <= now_ms
    # A truncated log is reported once for each offset where it ends.
    is_truncated = goal < since.end_offset and since.cut_at != goal
    return goal > since.end_offset or begin > since.end_offset or is_truncated or is_due


_PARTITIONS = "partitions"
_NAMED = ("topic", "topic_id", "partition")
_COUNTS = ("copy_segment_started", "copy_segment_finished", "delete_segment_started")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseContents:
    """The last commit of a warehouse.

    `parts` are the metadata partitions by number, `partitions` all user partitions with an event, and `live`
    those with segments that are not being deleted. `committed_ms` is the time of the newest part.
    """

    number: int
    parts: dict[int, PartState]
    partitions: tuple[TopicIdPartition, ...]
    live: frozenset[TopicIdPartition]
    committed_ms: int


def read_warehouse(spec: WarehouseSpec) -> WarehouseContents:
    """Return the last commit. Create nothing.

    Raise NotFoundError if there is no commit, and UsageError if deltalake is not installed.
    """
    require_deltalake()
    # They import deltalake, which is optional.
    from tierctl.pipeline.warehouse.commits import LakeTable, TablePlace, latest_commit

    warehouse = spec.open()
    place = TablePlace(warehouse.tables_uri, warehouse.table_options, warehouse.synced)
    state, partitions = LakeTable(place, STATE, STATE_SCHEMA), LakeTable(place, _PARTITIONS, PARTITIONS)
    if not state.refresh() or not partitions.refresh() or not state.number():
        raise NotFoundError(
            f"no tables in {spec.uri}", hint="tierctl pipeline run --warehouse ... writes them"
        )
    commit = latest_commit(state)
    rows = partitions.rows((*_NAMED, *_COUNTS, "delete_state"))
    named = [TopicIdPartition(Uuid.parse(row["topic_id"]), row["topic"], row["partition"]) for row in rows]
    return WarehouseContents(
        number=commit.number,
        parts=dict(commit.parts),
        partitions=tuple(sorted(named)),
        live=frozenset(
            partition
            for partition, row in zip(named, rows, strict=True)
            if row["delete_state"] is None and any(row[name] for name in _COUNTS)
        ),
        committed_ms=max(row["committed_ms"] for row in state.rows(("committed_ms",))),
    )
