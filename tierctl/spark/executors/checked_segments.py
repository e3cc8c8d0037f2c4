"""Run the tasks of `verify` on executors: list folders of the store, check partitions and segment bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar
from uuid import uuid4

from tierctl.checks.deep import PartitionTask, SegmentsTask, Task, TaskRunner
from tierctl.checks.findings import Finding
from tierctl.checks.objects import Expected, Found, PartitionKey, Tally
from tierctl.errors import EngineError
from tierctl.metadata.daily_changes import deleted_segment_ids
from tierctl.model import ListedSet, Uuid
from tierctl.model.location import TopicLocation
from tierctl.model.progress import Advance
from tierctl.spark.executors.task import shared_tier, shared_topic
from tierctl.spark.executors.transport import LEAST_EVENTS, Executors, grouped
from tierctl.state.segment_ids import SegmentIds
from tierctl.storage import object_sets as sets
from tierctl.storage.base import RemoteObject, RemoteStorageManager
from tierctl.storage.index_cache import spool_folder
from tierctl.storage.layouts.kafka import owner_of_folder
from tierctl.storage.object_sets import folders_of
from tierctl.storage.open_tier import TierSpec

FOLDERS_PER_SLOT: Final = 4
"""With fewer folders per slot executors would be idle, so that the folders inside them are listed instead."""
ITEMS_PER_JOB = 100_000
"""The results of one job are in memory as bytes, about 1 KiB for the metadata of a segment."""
REQUEST_US: Final = 20_000
"""The time that a request to a store takes, in microseconds: tasks are combined by estimated duration."""
_LEAST_US, _GROUP_US_MAX, _JOB_US_PER_SLOT = 100_000, 5_000_000, 300_000_000
_GROUPS_PER_SLOT, _READ_BYTES_PER_US = 8, 100

Item = TypeVar("Item")
Result = TypeVar("Result")

_Other = tuple[str, int, int | None, str | None, str | None]
"""Key, size, modification time and problem of an object."""


def read_each(
    executors: Executors,
    spec: TierSpec,
    read: Callable[[RemoteStorageManager, Item], Result],
    items: Sequence[Item],
    *,
    size_bytes: Callable[[Item], int],
    threads: int,
) -> Iterator[Result]:
    """Yield the result of `read` for each item, in the order of `items`, as `storage.object_sets.read_each`.

    `read` must be importable by name; `size_bytes` returns how many bytes it reads. Each task uses `threads`,
    because a core waits for the store most of the time. Raise what `read` raises when its item is reached,
    and EngineError if Spark fails.
    """
    if not items:
        return
    spec = spec.shared(lambda: executors.slots)
    function = partial(_read_group, spec, read, threads)

    def cost_us(item: Item) -> int:
        return REQUEST_US + size_bytes(item) // _READ_BYTES_PER_US

    job_us = _JOB_US_PER_SLOT * executors.slots
    group_us = sum(map(cost_us, items)) // (executors.slots * _GROUPS_PER_SLOT)
    group_us = min(max(group_us, _LEAST_US), _GROUP_US_MAX)

    def cost_of_group(group: Sequence[Item]) -> int:
        return sum(map(cost_us, group))

    for job in grouped(items, lambda each: max(cost_us(each), -(-job_us // ITEMS_PER_JOB)), job_us):
        groups = list(grouped(job, cost_us, group_us))
        for results in executors.run(function, groups, cost=cost_of_group, min_task_cost=_LEAST_US):
            yield from results


def _read_group(
    spec: TierSpec, read: Callable[[RemoteStorageManager, Item], Result], threads: int, group: Sequence[Item]
) -> list[Result]:
    return list(sets.read_each(shared_tier(spec), read, group, threads=min(threads, len(group))))


def list_object_sets(
    executors: Executors,
    spec: TierSpec,
    remote: RemoteStorageManager,
    advance: Advance,
    partitions: Collection[tuple[Uuid, int]] | None = None,
    *,
    others: Callable[[RemoteObject], object] = id,
) -> list[ListedSet]:
    """Return what `storage.object_sets.list_object_sets` returns; one input lists one folder of `remote`."""
    listing: Sequence[str | RemoteObject] = (
        folders_to_list(executors, remote) if partitions is None else list(folders_of(remote, partitions))
    )
    here = [each for each in listing if isinstance(each, RemoteObject)]
    found = sets.sets_among(remote, here, advance, others=others)
    folders = [each for each in listing if isinstance(each, str)]
    function = partial(_list_folder, spec.shared(lambda: executors.slots))
    for own, unknown, count in executors.run(function, folders):
        found += own
        for each in unknown:
            others(RemoteObject(*each))
        advance(count)
    return sets.ordered(found)


def _list_folder(spec: TierSpec, folder: str) -> tuple[list[ListedSet], list[_Other], int]:
    """Return the sets of a folder, its objects that belong to no set, and the number of objects of sets."""
    remote = shared_tier(spec)
    others: list[RemoteObject] = []
    counts: list[int] = []
    found = sets.sets_among(remote, remote.list_objects(folder), counts.append, others=others.append)
    facts = [
        (each.key, each.size_bytes, each.modified_ms, each.problem, each.archive_class) for each in others
    ]
    return found, facts, sum(counts)


def folders_to_list(executors: Executors, remote: RemoteStorageManager) -> list[str | RemoteObject]:
    """Return folders of `remote` for executors to list, and the objects outside of them, ordered by key."""
    listing = remote.list_folder().by_key()
    if len(listing) >= FOLDERS_PER_SLOT * executors.slots:
        return listing
    inner: list[str | RemoteObject] = []
    for each in listing:
        owner = owner_of_folder(each) if isinstance(each, str) else None
        is_topic = owner is not None and owner[1] is None
        inner += remote.list_folder(each).by_key() if isinstance(each, str) and is_topic else [each]
    return inner


SEGMENTS_AT_ONCE = 1_000_000
"""The number of segments that one job sends to executors; each takes about 100 bytes."""
_OBJECTS_PER_SEGMENT = 5
# Approximate microseconds on an executor: tasks are combined by their estimated duration.
_OBJECT_US, _SEGMENT_US, _CHECKED_BYTES_PER_US = 10, 20, 200


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


def check(spec: TierSpec, task: Task) -> list[Finding]:
    """Return the findings of one task; raises as `TaskRunner.findings`."""
    with ExitStack() as held:
        spool = None
        if isinstance(task, SegmentsTask):
            _require_logs(task)
            spool = held.enter_context(spool_folder())
        return TaskRunner(remote=shared_tier(spec), spool=spool).findings(task)


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
    remote: RemoteStorageManager
    spec: TierSpec
    advance: Callable[[int], None]
    segments_per_task: int = 16

    def unaccounted(self, tally: Tally) -> Iterator[RemoteObject]:
        """Implement `RemoteRunner.unaccounted`: one task lists one folder of the store."""
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
    return len(task.segments) * REQUEST_US + task.size_bytes // _CHECKED_BYTES_PER_US


def deleted_ids(executors: Executors, location: TopicLocation, end_offsets: Mapping[int, int]) -> SegmentIds:
    """Return the ids of deleted segments, found by one input per metadata partition."""
    found = SegmentIds()
    inputs = [(number, end) for number, end in sorted(end_offsets.items()) if end]
    function = partial(_deleted_in, location, uuid4().hex)
    for part in executors.run(function, inputs, cost=_events, min_task_cost=LEAST_EVENTS):
        found.add(part.words)
    return found


def _deleted_in(location: TopicLocation, job: str, span: tuple[int, int]) -> SegmentIds:
    number, end = span
    return deleted_segment_ids(shared_topic(location, job), {number: end})


def _events(span: tuple[int, int]) -> int:
    return span[1]
