"""The whole of `verify`: compares metadata, a listing of the store, logs, segments' bytes and a cluster."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

from tierctl.checks.deep import (
    DeepReads,
    PartitionTask,
    SegmentsTask,
    Task,
    TaskRunner,
    stored_segments,
    tasks_of,
)
from tierctl.checks.findings import Finding, FindingKind, finding_of
from tierctl.checks.metadata import (
    DeletedOf,
    DeletedPrefixes,
    KnownTopics,
    Removals,
    WasDeleted,
    check_events,
    check_partition_delete,
    check_topics,
    without_gone,
)
from tierctl.checks.objects import Orphan, StoreAudit, Tally, Unlisted, orphan_finding, suspect_findings
from tierctl.checks.segments import DANGLING_AFTER_MS, ClusterCheck, Unconfirmed, sound_partitions
from tierctl.errors import RemoteStorageError, SafetyRefusal
from tierctl.files import TEMP_SUFFIX
from tierctl.in_order import in_order
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import (
    LocalLog,
    RemoteLogSegmentMetadata,
    SegmentObjectName,
    Selection,
    TopicConfig,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.choices import COPY_LIMIT_MS, Severity
from tierctl.model.local import ClusterLog
from tierctl.model.progress import Advance, Progress, SilentProgress, no_op
from tierctl.plan.preconditions import missing_of, newest_replicas
from tierctl.read.partition_reader import (
    PartitionSet,
    ReadablePartition,
    illegal_name_error,
    tiered_partitions,
)
from tierctl.state.tier_state import MissingEvents, TierState
from tierctl.storage.base import RemoteObject, RemoteStorageManager
from tierctl.storage.layouts.kafka import is_temporary, segment_object_name

_K = FindingKind


def check_histories(
    state: TierState, incomplete: Mapping[TopicIdPartition, str], unseen: Iterable[MissingEvents]
) -> Iterator[Finding]:
    """Yield a finding for each partition in `incomplete`, with the offsets below its first known segment.

    A finding about `unseen` events of unknown user partitions has the offsets of the metadata topic.
    """
    for missing in unseen:
        yield Finding(
            check=_K.INCOMPLETE_HISTORY,
            severity=Severity.WARNING,
            topic=METADATA_TOPIC,
            topic_id=None,
            partition=missing.metadata_partition,
            start_offset=missing.first_offset,
            end_offset=missing.end_offset - 1,
            found=f"{missing}, and no later event names a user partition",
        )
    for partition, reason in incomplete.items():
        part = state.partition(partition)
        first = None if part is None else part.lowest_start_offset
        found = finding_of(partition, _K.INCOMPLETE_HISTORY, Severity.WARNING, reason)
        yield replace(found, start_offset=0, end_offset=first - 1) if first else found


def without_explained_gaps(findings: Iterable[Finding], histories: Sequence[Finding]) -> Iterator[Finding]:
    """Yield `findings` without the gaps below the first known segment of a partition in `histories`."""
    ends = {(each.topic_id, each.partition): each.end_offset for each in histories}
    for finding in findings:
        key = (finding.topic_id, finding.partition)
        known_from = ends.get(key)
        is_below = known_from is None or (finding.end_offset or 0) <= known_from
        if finding.check is not _K.GAP or key not in ends or not is_below:
            yield finding


_PAGE = 1000
_EXPLAINED_MAX = 100
"""The store is queried for the reason for at most this number of segments with missing objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deep:
    """How --deep fetches segments: `threads` at a time, each to a folder below `spool`.

    `reads` chooses the segments, and counts those that were read.
    """

    spool: Path
    threads: int = 1
    reads: DeepReads = field(default_factory=DeepReads)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChecks:
    """Check the partitions in `selection`; `leaders` and `logs` are those of `Verification`.

    A question for `TierState.map_in_order`, whose answers are the findings of the metadata alone.
    """

    selection: PartitionSet
    logs: Sequence[LocalLog]
    leaders: Mapping[TopicIdPartition, ClusterLog]
    configs: Mapping[str, TopicConfig]
    now_ms: int
    copy_limit_ms: int

    def __call__(self, state: TierState) -> Iterator[tuple[TopicIdPartition, list[Finding]]]:
        """Yield the findings of each partition."""
        runner, sound = TaskRunner(remote=None), sound_partitions(state, self.now_ms)
        for readable in tiered_partitions(state, self.logs, self.selection):
            partition = readable.topic_id_partition
            task = self.task(readable, reads_store=False, is_sound=partition in sound)
            yield partition, runner.findings(task)

    def task(
        self, readable: ReadablePartition, *, reads_store: bool, is_sound: bool = False
    ) -> PartitionTask:
        """Return the task to check a partition; with `reads_store` it may read an index in the store."""
        return PartitionTask(
            readable=readable,
            now_ms=self.now_ms,
            copy_limit_ms=self.copy_limit_ms,
            config=self.configs.get(readable.topic_id_partition.topic),
            leader=self.leaders.get(readable.topic_id_partition),
            reads_store=reads_store,
            is_sound=is_sound,
        )


class RemoteRunner(Protocol):
    """Lists the store and carries out tasks outside this process."""

    @property
    def segments_per_task(self) -> int:
        """Number of segments whose bytes one task checks."""
        ...

    def unaccounted(self, tally: Tally) -> Iterator[RemoteObject]:
        """Yield, by key, every object of the store that belongs to no live segment, and possibly others.

        All objects that are not yielded have been added to `tally` when the iterator ends.
        """
        ...

    def findings(self, tasks: Iterable[Task]) -> Iterator[list[Finding]]:
        """Yield the findings of each task, in the order of `tasks`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The inputs of one run of `verify`, and the time as of which it decides.

    `refresh` reads the metadata to the present end. Without `remote` the store is not checked. `topics` are
    those that the brokers have, None if unknown, and `configs` their settings by name. With `cluster` both
    come from the cluster, whose leaders also replace `logs` as the source of offsets and lineage. `runner`
    lists the store and carries out tasks if this process does not. `deleted_of` is called if offsets from the
    log start on are missing. `advance` receives numbers of listed objects; `progress` displays the work of
    this process.
    """

    refresh: Callable[[], TierState]
    was_deleted: WasDeleted
    deleted_of: DeletedOf
    selection: Selection
    now_ms: int
    copy_limit_ms: int = COPY_LIMIT_MS
    logs: Sequence[LocalLog] = ()
    topics: KnownTopics | None = None
    configs: Mapping[str, TopicConfig] = field(default_factory=dict)
    cluster: ClusterCheck | None = None
    remote: RemoteStorageManager | None = None
    deep: Deep | None = None
    runner: RemoteRunner | None = None
    advance: Advance = no_op
    progress: Progress = field(default_factory=SilentProgress)
    incomplete: Mapping[TopicIdPartition, str] = field(default_factory=dict)
    """Partitions with missing events that matter, and the reasons; see `plan.history`."""
    unseen: Sequence[MissingEvents] = ()
    """Missing events of metadata partitions in which no later event names a user partition."""
    _suspects: set[Uuid] = field(default_factory=set)
    """Segments that lack objects or whose log has another size."""

    def findings(self) -> Iterator[Finding]:
        """Yield every finding as soon as it is made; RemoteStorageError if the store fails."""
        state = self.refresh()
        if self.remote is not None:
            state = yield from self._store_findings(self.remote, StoreAudit(state), state)
        yield from (f for f in check_events(state, self.was_deleted) if self._selects_event(f))
        histories = list(check_histories(state, self.incomplete, self.unseen))
        yield from histories
        parts = [part for part in state if part.topic_id_partition in self.selection]
        known = self.topics if self.cluster is None else self.cluster.topics(state)
        removals = [*check_topics(parts, known), *(f for part in parts for f in check_partition_delete(part))]
        yield from removals
        found = self._partition_findings(state)
        found = without_gone(Removals.of(removals).applied(found), parts, known)
        yield from without_explained_gaps(found, histories)
        not_read = None if self.deep is None else self.deep.reads.not_read()
        if not_read is not None:
            yield not_read

    def _is_readable(self, partition: TopicIdPartition) -> bool:
        return partition in self.selection and illegal_name_error(partition) is None

    def _selects_event(self, finding: Finding) -> bool:
        # A record that can't be decoded may be about any partition, so it is reported for every selection.
        return finding.topic_id is None or self._selects(finding)

    def _selects(self, finding: Finding) -> bool:
        return self.selection.matches(finding.topic, finding.topic_id, finding.partition)

    def _store_findings(
        self, remote: RemoteStorageManager, audit: StoreAudit, state: TierState
    ) -> Generator[Finding, None, TierState]:
        """Yield the findings of a listing of the store; return the state after the listing."""
        young: list[Orphan] = []
        topics = {part.topic_id_partition.topic_id: part.topic_id_partition.topic for part in state}
        in_logs = {} if self.topics is None else self.topics.ids
        topics |= {topic_id: topic for topic, ids in in_logs.items() for topic_id in ids}
        unlisted = Unlisted()

        def reported(orphan: Orphan) -> Iterator[Finding]:
            topic = topics.get(orphan.name.topic_id) if orphan.name else None
            finding = orphan_finding(orphan, topic, self.was_deleted, self.now_ms, _missing_of(orphan, state))
            if self._selects(finding):
                yield finding

        for orphan in self._orphans(remote, audit):
            if isinstance(orphan, RemoteObject):
                finding = unlisted.finding(orphan, topics.get)
                # A folder of an unknown partition may contain objects of every selected one.
                if self._selects(finding) or finding.partition is None:
                    yield finding
            elif orphan.modified_ms is None or self.now_ms - orphan.modified_ms <= DANGLING_AFTER_MS:
                young.append(orphan)
            else:
                yield from reported(orphan)
        if self.deep is not None:
            self.deep.reads.begin(stored_segments(state, audit.tally, self._is_readable))
        suspects = [s for s in audit.suspects() if s.partition in self.selection]
        # Read the metadata again, so that a segment that was started or deleted during the listing is not
        # reported.
        state = self.refresh()
        for number, suspect in enumerate(suspects):
            part = state.partition(suspect.partition)
            segment = part.get(suspect.segment_id) if part is not None else None
            self._suspects.add(suspect.segment_id)
            if not unlisted.may_hold(suspect.partition):
                # To find out why an object is missing takes one request each, so only the first ones are
                # asked.
                why_missing = partial(_why_missing, remote) if number < _EXPLAINED_MAX else _not_asked
                yield from suspect_findings(suspect, segment, why_missing)
        for orphan in young:
            if not _is_live(orphan, state):
                yield from reported(orphan)
        return state

    def _orphans(self, remote: RemoteStorageManager, audit: StoreAudit) -> Iterator[Orphan | RemoteObject]:
        """Yield the objects of no live segment; consecutive objects of one segment are one orphan.

        Entries with a problem are yielded as they are.
        """
        last: Orphan | None = None
        for listed in self._listed(remote, audit.tally):
            if listed.problem is not None:
                yield listed
                continue
            if audit.tally.add_listed(listed):
                continue
            name = segment_object_name(listed.key)
            key = name.stem if name else listed.key
            if last is None or last.key != key:
                if last is not None:
                    yield last
                last = _orphan(key, name)
            last.add(listed.size_bytes, listed.modified_ms)
        if last is not None:
            yield last

    def _listed(self, remote: RemoteStorageManager, tally: Tally) -> Iterator[RemoteObject]:
        if self.runner is not None:
            return self.runner.unaccounted(tally)
        return self._listed_here(remote)

    def _listed_here(self, remote: RemoteStorageManager) -> Iterator[RemoteObject]:
        objects = remote.list_objects()
        with self.progress.bar("listing", unit="objects") as shown:
            while page := list(islice(objects, _PAGE)):
                self.advance(len(page))
                shown(len(page))
                yield from page

    def _partition_findings(self, state: TierState) -> Iterator[Finding]:
        if self.cluster is None:
            prefixes = DeletedPrefixes(newest_replicas(self.logs), self.deleted_of)
            for found in self._results(state, self._checks({}, self.configs)):
                yield from prefixes.applied(found)
            return
        partitions = [p for part in state if (p := part.topic_id_partition) in self.selection]
        leaders, unseen = self.cluster.leaders(partitions)
        yield from unseen
        unconfirmed = Unconfirmed(leaders)
        configs = self.cluster.configs({partition.topic for partition in partitions})
        for found in self._results(state, self._checks(leaders, configs)):
            yield from (finding for finding in found if not unconfirmed.add_if_transient(finding))
        yield from self.cluster.confirmed(unconfirmed, self._checked_again)

    def _checked_again(self, leaders: Mapping[TopicIdPartition, ClusterLog]) -> Iterator[Finding]:
        """Yield the findings about the partitions of `leaders`, with the metadata at their present end."""
        checks = replace(self._checks(leaders, {}), selection=frozenset(leaders))
        keys = [partition.key for partition in leaders]
        for _, found in self.refresh().map_in_order(checks, keys):
            yield from found

    def _checks(
        self, leaders: Mapping[TopicIdPartition, ClusterLog], configs: Mapping[str, TopicConfig]
    ) -> PartitionChecks:
        return PartitionChecks(
            selection=self.selection,
            logs=self.logs,
            leaders=leaders,
            configs=configs,
            now_ms=self.now_ms,
            copy_limit_ms=self.copy_limit_ms,
        )

    def _results(self, state: TierState, checks: PartitionChecks) -> Iterator[list[Finding]]:
        """Yield the findings of each task; without a tier, those of each partition."""
        if self.remote is None:
            total = sum(part.topic_id_partition in self.selection for part in state)
            answers = state.map_in_order(checks)
            with self.progress.bar("checking", unit="partitions", total=total) as advance:
                for _, found in answers:
                    advance(1)
                    yield found
            return
        readables = tiered_partitions(state, self.logs, self.selection)
        begun = deque[Task]()
        tasks = _noted(self._tasks(readables, checks), begun)
        results = self._results_here(tasks, readables) if self.runner is None else self.runner.findings(tasks)
        for found in results:
            task = begun.popleft()
            if self.deep is not None and isinstance(task, SegmentsTask):
                self.deep.reads.add(task, found)
            yield found

    def _tasks(self, readables: Sequence[ReadablePartition], checks: PartitionChecks) -> Iterator[Task]:
        segments_per_task = 0 if self.deep is None else 1
        if self.deep is not None and self.runner is not None:
            segments_per_task = self.runner.segments_per_task
        chosen = None if self.deep is None else self.deep.reads.chosen
        for readable in readables:
            yield from tasks_of(
                checks.task(readable, reads_store=illegal_name_error(readable.topic_id_partition) is None),
                segments_per_task=segments_per_task,
                suspects=self._suspects,
                chosen=None if chosen is None else chosen.segment_ids,
            )

    def _results_here(
        self, tasks: Iterator[Task], readables: Sequence[ReadablePartition]
    ) -> Iterator[list[Finding]]:
        local = TaskRunner(remote=self.remote, spool=None if self.deep is None else self.deep.spool)
        threads = 1 if self.deep is None else self.deep.threads
        results = in_order(lambda task: (task, local.findings(task)), tasks, threads=threads, ahead=threads)
        if self.deep is None:
            bar = self.progress.bar("checking", unit="partitions", total=len(readables))
        else:
            size_bytes = self.deep.reads.planned_bytes
            bar = self.progress.bar("reading segments", unit="bytes", total=size_bytes)
        with bar as advance:
            for task, found in results:
                if self.deep is None:
                    advance(1)
                elif isinstance(task, SegmentsTask):
                    advance(task.size_bytes)
                yield found


def _why_missing(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> str | None:
    try:
        remote.objects_of(segment)
    except (RemoteStorageError, SafetyRefusal) as e:
        return e.message
    return None


def _not_asked(_segment: RemoteLogSegmentMetadata) -> None:
    """Return no reason."""


def _orphan(key: str, name: SegmentObjectName | None) -> Orphan:
    if not is_temporary(key):
        return Orphan(key, name)
    return Orphan(key, segment_object_name(key.removesuffix(TEMP_SUFFIX)), is_temporary=True)


def _noted(tasks: Iterable[Task], begun: deque[Task]) -> Iterator[Task]:
    """Yield the tasks, and add each to `begun` first."""
    for task in tasks:
        begun.append(task)
        yield task


def _missing_of(orphan: Orphan, state: TierState) -> list[MissingEvents]:
    name = orphan.name
    return [] if name is None else missing_of(state, TopicIdPartition(name.topic_id, "", name.partition))


def _is_live(orphan: Orphan, state: TierState) -> bool:
    name = orphan.name
    if name is None or orphan.is_temporary:
        return False
    part = state.partitions.get((name.topic_id, name.partition))
    segment = part.get(name.segment_id) if part is not None else None
    return segment is not None and segment.start_offset == name.start_offset
