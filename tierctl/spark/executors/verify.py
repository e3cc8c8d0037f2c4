"""Run the tasks of `verify` on executors: list folders of the store, check partitions and segment bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import numpy as np

from tierctl.checks.deep import PartitionTask, SegmentsTask, Task, TaskRunner
from tierctl.checks.findings import Finding
from tierctl.checks.objects import Expected, Found, PartitionKey, Tally
from tierctl.errors import EngineError
from tierctl.metadata.daily_changes import deleted_segment_ids
from tierctl.model.location import TopicLocation
from tierctl.spark.executors.fold import LEAST_EVENTS
from tierctl.spark.executors.task import shared_tier, shared_topic
from tierctl.spark.executors.tier import REQUEST_US, folders_to_list
from tierctl.spark.executors.transport import Executors, grouped
from tierctl.state.segments.columns import SegmentIds
from tierctl.storage.base import RemoteObject, RemoteStorageManager
from tierctl.storage.index_cache import spool_folder
from tierctl.storage.layouts.kafka import owner_of_folder
from tierctl.storage.open import TierSpec

SEGMENTS_AT_ONCE = 1_000_000
"""The number of segments that one job sends to executors; each takes about 100 bytes."""
_OBJECTS_PER_SEGMENT = 5
# Approximate microseconds on an executor: tasks are combined by their estimated duration.
_OBJECT_US, _SEGMENT_US, _BYTES_PER_US = 10, 20, 200
_LEAST_US = 100_000


@dataclass(frozen=True, slots=True)
class FolderPart:
    """A folder of the store, and the live segments that its objects may belong to."""

    folder: str
    expected: Expected

    @property
    def segments(self) -> int:
        """Return the number of these segments."""
        return sum(len(starts) for _, starts in self.expected.segments.values())


@dataclass(frozen=True, slots=True)
class ListedPart:
    """The result of listing a folder: the objects of known segments, and all others.

    `others` has key, size, modification time, problem and archive class of each object that
    belongs to no known segment.
    """

    found: Found
    others: list[tuple[str, int, int | None, str | None, str | None]]
    objects: int


def list_part(spec: TierSpec, part: FolderPart) -> ListedPart:
    """List one folder; raise RemoteStorageError if the store fails."""
    tally, others, count = Tally(part.expected), [], 0
    for listed in shared_tier(spec).list_objects(part.folder):
        count += 1
        if not tally.add_listed(listed):
            facts = (listed.key, listed.size_bytes, listed.modified_ms, listed.problem, listed.archive_class)
            others.append(facts)
    return ListedPart(tally.found(), others, count)


def check(spec: TierSpec | None, task: Task) -> list[Finding]:
    """Return the findings of one task; raises as `TaskRunner.findings`."""
    remote = None if spec is None else shared_tier(spec)
    with ExitStack() as held:
        spool = None
        if isinstance(task, SegmentsTask):
            _require_logs(task)
            spool = held.enter_context(spool_folder())
        return TaskRunner(remote=remote, spool=spool).findings(task)


def _require_logs(task: SegmentsTask) -> None:
    # A missing folder must not count as a replica that agrees with the tier.
    for log in task.logs:
        if not log.directory.is_dir():
            raise EngineError(
                f"an executor can't find {log.directory}",
                hint="with --deep, executors compare segments with --log-dir: leave --log-dir out, or use a "
                "shared file system",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRunner:
    """RemoteRunner on executors; `advance` is called with the number of objects listed."""

    executors: Executors
    remote: RemoteStorageManager | None
    spec: TierSpec | None
    advance: Callable[[int], None]
    segments_per_task: int = 16

    def unaccounted(self, tally: Tally) -> Iterator[RemoteObject]:
        """Implement `RemoteRunner.unaccounted`: one task lists one folder of the store."""
        assert self.remote is not None
        assert self.spec is not None
        keys = _by_topic(tally.keys())
        listing = folders_to_list(self.executors, self.remote)
        parts = (
            FolderPart(each, tally.expected(_keys_in(each, keys)))
            for each in listing
            if isinstance(each, str)
        )
        list_folder = partial(list_part, self.spec)
        jobs = grouped(parts, lambda part: part.segments + 1, SEGMENTS_AT_ONCE)
        listed = (
            found
            for job in jobs
            for found in self.executors.run(list_folder, job, cost=_listing_us, min_task_cost=_LEAST_US)
        )
        for each in listing:
            if isinstance(each, RemoteObject):
                yield each
                continue
            found = next(listed)
            tally.absorb(found.found)
            self.advance(found.objects)
            yield from (RemoteObject(*facts) for facts in found.others)

    def findings(self, tasks: Iterable[Task]) -> Iterator[list[Finding]]:
        """Implement `RemoteRunner.findings`: a Spark task carries out several tasks."""
        function = partial(check, self.spec)
        for job in grouped(tasks, _segments_of, SEGMENTS_AT_ONCE):
            yield from self.executors.run(function, job, cost=_checking_us, min_task_cost=_LEAST_US)


def _by_topic(keys: Iterable[PartitionKey]) -> dict[str, list[PartitionKey]]:
    found: dict[str, list[PartitionKey]] = {}
    for key in keys:
        found.setdefault(key[0], []).append(key)
    return found


def _keys_in(folder: str, keys: Mapping[str, list[PartitionKey]]) -> list[PartitionKey]:
    """Return the partitions in `keys` whose objects belong into `folder`, by topic id and partition."""
    owner = owner_of_folder(folder)
    if owner is None:
        return []
    topic_id, partition = owner
    return [key for key in keys.get(topic_id, ()) if partition in {None, key[1]}]


def _segments_of(task: Task) -> int:
    if isinstance(task, PartitionTask):
        return len(task.readable.cache) + 1
    return len(task.segments) * 10 + sum(len(log.segments) for log in task.logs)


def _listing_us(part: FolderPart) -> int:
    return REQUEST_US + part.segments * _OBJECTS_PER_SEGMENT * _OBJECT_US


def _checking_us(task: Task) -> int:
    if isinstance(task, PartitionTask):
        return REQUEST_US * task.reads_store + len(task.readable.cache) * _SEGMENT_US
    return len(task.segments) * REQUEST_US + task.size_bytes // _BYTES_PER_US


def deleted_ids(executors: Executors, location: TopicLocation, end_offsets: Mapping[int, int]) -> SegmentIds:
    """Return the ids of deleted segments, found by one input per metadata partition."""
    found = SegmentIds()
    inputs = [(number, end) for number, end in sorted(end_offsets.items()) if end]
    function = partial(_deleted_in, location, uuid4().hex)
    for part in executors.run(function, inputs, cost=_events, min_task_cost=LEAST_EVENTS):
        ids = part.as_words()
        ids = ids[found.find_many(ids) < 0]
        found.extend(ids, np.ones(len(ids), dtype=bool))
    return found


def _deleted_in(location: TopicLocation, job: str, span: tuple[int, int]) -> SegmentIds:
    number, end = span
    return deleted_segment_ids(shared_topic(location, job), {number: end})


def _events(span: tuple[int, int]) -> int:
    return span[1]
