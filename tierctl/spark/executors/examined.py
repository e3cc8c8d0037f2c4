"""Run the tasks of `verify` and `doctor` on executors.

For `verify` they list folders of the store, and check partitions and segment bytes; for `doctor` they report
their versions, the sources that they reach, and who wrote events.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from tierctl.checks.cross_check import DeepTasks, OfPartition
from tierctl.checks.deep import Candidate, Candidates, ReadCounts, SegmentsTask, Task, TaskRunner
from tierctl.checks.environment import ExecutorFacts, Versions
from tierctl.checks.findings import Finding
from tierctl.checks.metadata import PartitionKey
from tierctl.checks.objects import Audit, StoreAudit, Suspect, earliest, flag_writers
from tierctl.checks.registry import DoctorCheck
from tierctl.errors import EngineError, TierctlError
from tierctl.files import is_dir
from tierctl.in_order import in_order
from tierctl.metadata.parallel_fold import part_of
from tierctl.model import ListedSet, TopicIdPartition, Uuid
from tierctl.model.location import TopicLocation
from tierctl.model.progress import Advance
from tierctl.model.selection import SHOWN_MAX, counted
from tierctl.spark.executors.task import shared_cluster, shared_tier, shared_topic
from tierctl.spark.executors.transport import Executors, grouped
from tierctl.state.tier_state import PartitionState, Question, Spread, TierState
from tierctl.storage import object_sets as sets
from tierctl.storage.index_cache import spool_folder
from tierctl.storage.layouts.kafka import owner_of_folder, segment_object_name
from tierctl.storage.object_sets import folders_of
from tierctl.storage.open_tier import TierSpec
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import RemoteObject

ITEMS_PER_JOB = 100_000
"""The results of one job are in memory as bytes, about 1 KiB for the metadata of a segment."""
REQUEST_US: Final = 20_000
"""The time that a request to a store takes, in microseconds: tasks are combined by estimated duration."""
_LEAST_US, _GROUP_US_MAX, _JOB_US_PER_SLOT = 100_000, 5_000_000, 300_000_000
_GROUPS_PER_SLOT, _READ_BYTES_PER_US = 8, 100
_LISTING_THREADS = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


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
        partition_folders(remote) if partitions is None else list(folders_of(remote, partitions))
    )
    here = [each for each in listing if isinstance(each, RemoteObject)]
    found = sets.sets_among(remote, here, advance, others=others)
    folders = [each for each in listing if isinstance(each, str)]
    return sets.ordered([*found, *sets_in_folders(executors, spec, folders, advance, others=others)])


def sets_in_folders(
    executors: Executors,
    spec: TierSpec,
    folders: Sequence[str],
    advance: Advance,
    *,
    others: Callable[[RemoteObject], object] = id,
) -> Iterator[ListedSet]:
    """Yield the sets in folders, each of which is an input; `others` and `advance` as for `sets_among`."""
    function = partial(_list_folder, spec.shared(lambda: executors.slots))
    for own, unknown, count in executors.run(function, folders):
        yield from own
        for each in unknown:
            others(each)
        advance(count)


def _list_folder(spec: TierSpec, folder: str) -> tuple[list[ListedSet], list[RemoteObject], int]:
    """Return the sets of a folder, its objects that belong to no set, and the number of objects of sets."""
    remote = shared_tier(spec)
    others: list[RemoteObject] = []
    counts: list[int] = []
    found = sets.sets_among(remote, remote.list_objects(folder), counts.append, others=others.append)
    return found, others, sum(counts)


def partitions_by_folder(
    executors: Executors,
    spec: TierSpec,
    remote: RemoteStorageManager,
    advance: Advance,
    *,
    others: Callable[[RemoteObject], object] = id,
) -> dict[str, frozenset[TopicIdPartition]]:
    """Return the partitions that have sets of objects in each folder of `remote`.

    `others` receives the first objects of each folder that belong to no set, maybe several times.
    """
    listing = partition_folders(remote)
    folders = {each for each in listing if isinstance(each, str)}
    # Objects beside the folders of partitions are listed with the folder that they are in.
    folders |= {
        each.key[: each.key.rindex("/") + 1]
        for each in listing
        if not isinstance(each, str) and "/" in each.key
    }
    function, ordered = partial(_partitions_in, spec.shared(lambda: executors.slots)), sorted(folders)
    found: dict[str, frozenset[TopicIdPartition]] = {}
    for folder, (partitions, foreign, count) in zip(ordered, executors.run(function, ordered), strict=True):
        found[folder] = partitions
        for each in foreign:
            others(each)
        advance(count)
    for one in listing:
        if not isinstance(one, str) and "/" not in one.key:
            others(one)
    return found


def _partitions_in(
    spec: TierSpec, folder: str
) -> tuple[frozenset[TopicIdPartition], list[RemoteObject], int]:
    """Return the partitions that have sets in a folder, its first other objects, and how many sets have."""
    found, others, count = _list_folder(spec, folder)
    return frozenset(each.partition for each in found), others[:SHOWN_MAX], count


def partition_folders(remote: RemoteStorageManager) -> list[str | RemoteObject]:
    """Return the folders of partitions, other folders, and the objects outside of them, ordered by key."""
    listing = remote.list_folder().by_key()
    topics = [each for each in listing if isinstance(each, str) and _is_topic(each)]
    found = in_order(remote.list_folder, topics, threads=_LISTING_THREADS, ahead=_LISTING_THREADS)
    inner = dict(zip(topics, found, strict=True))
    return [
        one
        for each in listing
        for one in (inner[each].by_key() if isinstance(each, str) and each in inner else [each])
    ]


def _is_topic(folder: str) -> bool:
    owner = owner_of_folder(folder)
    return owner is not None and owner[1] is None


SEGMENTS_AT_ONCE = 1_000_000
"""The number of segments that one job examines; those that the driver has take about 100 bytes each."""
_OBJECTS_PER_SEGMENT = 5
# Approximate microseconds on an executor: tasks are combined by their estimated duration.
_OBJECT_US, _SEGMENT_US = 10, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAudit:
    """The objects in the folders of a user partition, compared with its live segments.

    `others` are, by folder, the objects that belong to none of these. `claimed` are the keys of the objects
    of other folders that do. `listed` counts the objects in its folders. `candidates` are those of `Audit`.
    """

    others: Mapping[str, Sequence[RemoteObject]]
    claimed: Sequence[str]
    suspects: Sequence[Suspect]
    listed: int
    candidates: Sequence[Candidate]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderAudits:
    """The question for `TierState.map_parts` which objects user partitions have in the store.

    `folders` are those of each partition, and `flagged_since` the times of `flag_writers` for the whole tier.
    With `more`, only its partitions are examined, each together with these objects of other folders.
    """

    spec: TierSpec
    folders: Mapping[PartitionKey, Sequence[str]]
    flagged_since: Mapping[int, int]
    candidates: Candidates | None
    more: Mapping[PartitionKey, Sequence[RemoteObject]] = field(default_factory=dict)

    def __call__(self, state: TierState) -> Iterator[tuple[TopicIdPartition, PartitionAudit]]:
        """Yield the audit of each partition; raise RemoteStorageError if the store fails."""
        remote = shared_tier(self.spec)
        for part in state.by_metadata_partition():
            if not self.more or part.topic_id_partition.key in self.more:
                yield part.topic_id_partition, self._audit(remote, part)

    def _audit(self, remote: RemoteStorageManager, part: PartitionState) -> PartitionAudit:
        key, audit = part.topic_id_partition.key, StoreAudit([part], remote.layout)
        folders = self.folders.get(key, ())
        others = {folder: list(audit.unaccounted(remote.list_objects(folder))) for folder in folders}
        listed = audit.objects + sum(map(len, others.values()))
        return PartitionAudit(
            others=others,
            claimed=[each.key for each in self.more.get(key, ()) if audit.add_listed(each)],
            suspects=list(audit.suspects(self.flagged_since)),
            listed=listed,
            candidates=list(audit.candidates(self.candidates)),
        )


def list_part(spec: TierSpec, folder: str) -> list[RemoteObject]:
    """Return the objects of a folder; raise RemoteStorageError if the store fails."""
    return list(shared_tier(spec).list_objects(folder))


def answer(question: Question, state: TierState) -> list[Any]:
    """Return the answers of a state to a question."""
    return list(question(state))


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
        if not is_dir(log.directory):
            raise EngineError(
                f"an executor can't find {log.directory}",
                hint="with --deep, executors compare segments with --log-dir: leave --log-dir out, or use a "
                "shared file system",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRunner:
    """RemoteRunner on executors; `advance` is called with numbers of listed objects."""

    executors: Executors
    remote: RemoteStorageManager
    spec: TierSpec
    advance: Callable[[int], None]
    segments_per_task: int = 16

    @property
    def open_tier(self) -> Callable[[], RemoteStorageManager]:
        """Implement `RemoteRunner.open_tier`."""
        return partial(shared_tier, self.spec)

    def spread(self, state: TierState) -> TierState:
        """Implement `RemoteRunner.spread`: executors receive the segments that `state` has here."""
        return state if state.elsewhere is not None else replace(state, elsewhere=partial(self._ask, state))

    def _ask(
        self, state: TierState, question: Question, metadata_partitions: Collection[int]
    ) -> Iterator[Any]:
        """Implement `Elsewhere`: send executors the tables of the metadata partitions."""
        parts = (part_of(state, [number]) for number in sorted(metadata_partitions))
        for job in grouped(parts, _segments_in, SEGMENTS_AT_ONCE):
            if isinstance(question, Spread):
                spread = question.divide, job, question.gather
                yield from self.executors.run_spread(*spread, title="reading segments")
                continue
            for answers in self.executors.run(
                partial(answer, question), job, cost=_asking_us, min_task_cost=_LEAST_US
            ):
                yield from answers

    def audit(self, state: TierState, candidates: Candidates | None) -> Audit:
        """Implement `RemoteRunner.audit`: each partition's folders are listed where its segments are.

        An object in another folder is sent to the partition that it names: custom metadata may name it there.
        """
        spread, listing = self.spread(state), partition_folders(self.remote)
        folders: dict[PartitionKey, list[str]] = {}
        foreign: list[str] = []
        for each in listing:
            if isinstance(each, str):
                key = _key_of(each)
                (foreign if key not in state.partitions else folders.setdefault(key, [])).append(each)
        question = FolderAudits(
            spec=self.spec,
            folders=folders,
            flagged_since=earliest(spread.map_parts(flag_writers)),
            candidates=candidates,
        )
        audits = dict(spread.map_in_order(question))
        others = {folder: found for each in audits.values() for folder, found in each.others.items()}
        others |= dict(zip(foreign, self.executors.run(partial(list_part, self.spec), foreign), strict=True))
        self.advance(sum(each.listed for each in audits.values()))
        self.advance(sum(len(others[folder]) for folder in foreign))
        self.advance(sum(isinstance(each, RemoteObject) for each in listing))
        claimed: set[str] = set()
        more = _in_other_folders(listing, others, state)
        if more:
            audits |= spread.map_in_order(replace(question, more=more), more)
            claimed |= {key for each in audits.values() for key in each.claimed}
        unaccounted = _in_order(listing, others)
        return Audit(
            unaccounted=(each for each in unaccounted if each.key not in claimed),
            suspects=lambda: (suspect for each in audits.values() for suspect in each.suspects),
            candidates=lambda: (candidate for each in audits.values() for candidate in each.candidates),
        )

    def findings(self, state: TierState, tasks: DeepTasks, done: ReadCounts) -> Iterator[list[Finding]]:
        """Implement `RemoteRunner.findings`: tasks are made where the segments are, and then distributed.

        A job examines the partitions with SEGMENTS_AT_ONCE segments, so that findings come and are counted
        while segments are read.
        """
        parts = (part for part in state if part.topic_id_partition in tasks.checks.selection)
        for job in grouped(parts, lambda part: part.segment_count + 1, SEGMENTS_AT_ONCE):
            chosen = frozenset(part.topic_id_partition for part in job)
            own = replace(tasks, checks=replace(tasks.checks, selection=chosen))
            read = ReadTasks(spec=self.spec, was_read=done.was_read, keeps=done.keeps)
            question = Spread(partial(divided, self.spec, own), read)
            found: list[tuple[OfPartition, list[Finding]]] = []
            for some, counts in state.map_parts(question, {each.key for each in chosen}):
                found += some
                done.merge(counts)
            order = {part.topic_id_partition: number for number, part in enumerate(job)}
            for _, findings in sorted(found, key=lambda each: (order[each[0][0]], each[0][1])):
                yield findings


Work = tuple[OfPartition, SegmentsTask | list[Finding]]


def divided(spec: TierSpec, tasks: DeepTasks, state: TierState) -> Iterator[Work]:
    """Yield the segments of `state` that are to be read, and the findings of the other tasks."""
    for place, task in tasks(state):
        if isinstance(task, SegmentsTask):
            yield place, task
        elif findings := check(spec, task):
            yield place, findings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTasks:
    """Carry out what `divided` yields: return the findings, and the segments that were read."""

    spec: TierSpec
    was_read: Mapping[PartitionKey, Collection[Uuid]]
    keeps: bool

    def __call__(self, work: Iterable[Work]) -> tuple[list[tuple[OfPartition, list[Finding]]], ReadCounts]:
        """Return the findings with their places; raises as `check`."""
        done = ReadCounts(self.was_read, self.keeps)
        found = []
        for place, task in work:
            findings = check(self.spec, task) if isinstance(task, SegmentsTask) else task
            if isinstance(task, SegmentsTask):
                done.add(task, findings)
            if findings:
                found.append((place, findings))
        return found, done.answer()


def _key_of(folder: str) -> PartitionKey | None:
    """Return the partition whose segments belong in `folder`, by topic id and number; None if it has none."""
    owner = owner_of_folder(folder)
    return None if owner is None or owner[1] is None else (owner[0], owner[1])


def _in_order(
    listing: Sequence[str | RemoteObject], others: Mapping[str, Sequence[RemoteObject]]
) -> Iterator[RemoteObject]:
    for each in listing:
        if isinstance(each, str):
            yield from others[each]
        else:
            yield each


def _in_other_folders(
    listing: Sequence[str | RemoteObject], others: Mapping[str, Sequence[RemoteObject]], state: TierState
) -> dict[PartitionKey, list[RemoteObject]]:
    """Return the objects in other folders than those of the known partitions that their keys name."""
    found: dict[PartitionKey, list[RemoteObject]] = {}
    for place in listing:
        own = _key_of(place) if isinstance(place, str) else None
        for each in others[place] if isinstance(place, str) else [place]:
            name = None if each.problem is not None else segment_object_name(each.key)
            if name is not None:
                key = (name.topic_id, name.partition)
                if key != own and key in state.partitions:
                    found.setdefault(key, []).append(each)
    return found


def _segments_in(state: TierState) -> int:
    return sum(part.segment_count for part in state.partitions.values()) + 1


def _asking_us(state: TierState) -> int:
    requests = len(state.partitions) * REQUEST_US
    return requests + _segments_in(state) * (_SEGMENT_US + _OBJECTS_PER_SEGMENT * _OBJECT_US)


# Reports of executors, for `doctor`.

_SAME_FILES = "executors must see the same files as the driver: use a shared file system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources that executors are to reach, and what the driver found there.

    `cluster_id` is that of the driver's `cluster`, `end_offsets` are those of its `metadata` topic, and `key`
    is an object in its `tier`; None for a tier without objects. A source that is None is not examined.
    """

    cluster: TopicLocation | None = None
    cluster_id: str = ""
    metadata: TopicLocation | None = None
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    tier: TierSpec | None = None
    key: str | None = None


def executor_facts() -> ExecutorFacts:
    """Return the versions of this executor, and the space for segments in its folder for temporary files."""
    versions = Versions.here()
    try:
        scratch = tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=scratch) as file:
            file.write(b"x")
        disk = os.statvfs(scratch)
    except OSError as e:
        folder = os.environ.get("TMPDIR", "the folder for temporary files")
        return ExecutorFacts(versions=versions, scratch=folder, scratch_error=e.strerror or str(e))
    free_bytes = disk.f_bavail * disk.f_frsize
    return ExecutorFacts(versions=versions, scratch=scratch, free_bytes=free_bytes)


def reach_sources(sources: Sources, job: str) -> dict[str, str | TierctlError]:
    """Return what this executor found at each source, by the name of the check: a text, or an error."""
    found: dict[str, str | TierctlError] = {}
    if sources.cluster is not None:
        found[DoctorCheck.SPARK_CLUSTER.value] = _attempt(lambda: _reach_cluster(sources, job), None)
    if (topic := sources.metadata) is not None:
        hint = _SAME_FILES if topic.is_local else None
        found[DoctorCheck.SPARK_METADATA.value] = _attempt(lambda: _reach_metadata(sources, job), hint)
    if (tier := sources.tier) is not None:
        hint = _SAME_FILES if tier.uri.startswith("file:") else None
        found[DoctorCheck.SPARK_STORE.value] = _attempt(lambda: _reach_store(sources), hint)
    return found


def _attempt(reach: Callable[[], str], hint: str | None) -> str | TierctlError:
    """Return the result of `reach`, or its error, with `hint` unless it is None."""
    try:
        return reach()
    except OSError as e:
        return EngineError(f"{e.filename or 'a file'} can't be read: {e.strerror or e}", hint=hint)
    except TierctlError as e:
        e.hint = hint or e.hint
        return e


def _reach_cluster(sources: Sources, job: str) -> str:
    assert sources.cluster is not None
    cluster_id = shared_cluster(sources.cluster, job).cluster_id()
    if cluster_id != sources.cluster_id:
        raise EngineError(
            f"{sources.cluster.servers} is cluster {cluster_id}; for the driver it is {sources.cluster_id}"
        )
    return f"reached cluster {cluster_id}"


def _reach_metadata(sources: Sources, job: str) -> str:
    """Read the last record of the first metadata partition that has one."""
    assert sources.metadata is not None
    topic = shared_topic(sources.metadata, job)
    begins, ends = topic.beginning_offsets(), topic.end_offsets()
    for number, end in sorted(sources.end_offsets.items()):
        if ends.get(number, 0) < end:
            raise EngineError(
                f"metadata partition {number} ends at offset {ends.get(number, 0)}, "
                f"but at {end} for the driver"
            )
    written = [each for each in sorted(ends) if ends[each] > begins[each]]
    if not written:
        return f"{counted(len(ends), 'metadata partition')}, all of them empty"
    first = written[0]
    for _ in topic.read(first, ends[first] - 1, ends[first]):
        pass
    return f"read the last record of metadata partition {first} of {len(ends)}"


def _reach_store(sources: Sources) -> str:
    assert sources.tier is not None
    store = shared_tier(sources.tier).store
    listed = store.list_folder("")
    names = f"{counted(len(listed.folders), 'folder')} and {counted(len(listed.objects), 'object')}"
    if sources.key is None:
        return f"listed the top folder: {names}"
    with store.open(sources.key, 0, 1) as stream:
        stream.read()
    return f"listed the top folder: {names}; read the first byte of an object"
