"""The whole of `verify`: compares metadata, a listing of the store, logs, segments' bytes and a cluster."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

from tierctl.checks.deep import (
    Candidates,
    Chosen,
    DeepReads,
    PartitionTask,
    ReadCounts,
    SegmentsTask,
    Task,
    TaskRunner,
    tasks_of,
)
from tierctl.checks.findings import Finding, FindingKind, finding_of, metadata_finding
from tierctl.checks.metadata import (
    DeletedAmong,
    DeletedOf,
    DeletedPrefixes,
    KnownTopics,
    Removals,
    SegmentKey,
    check_events,
    check_partition_delete,
    check_topics,
    live_segments,
    without_gone,
)
from tierctl.checks.objects import (
    Audit,
    Orphan,
    Suspect,
    Unlisted,
    audit_listing,
    orphan_finding,
    stem_of,
    suspect_findings,
)
from tierctl.checks.segments import DANGLING_AFTER_MS, ClusterCheck, Unconfirmed, sound_partitions
from tierctl.files import TEMP_SUFFIX
from tierctl.in_order import in_order
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
from tierctl.storage.layouts.kafka import is_temporary, segment_object_name
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import RemoteObject

_K = FindingKind


def check_histories(
    state: TierState, incomplete: Mapping[TopicIdPartition, str], unseen: Iterable[MissingEvents]
) -> Iterator[Finding]:
    """Yield a finding for each partition in `incomplete`, with the offsets below its first known segment.

    A finding about `unseen` events of unknown user partitions has the offsets of the metadata topic.
    """
    for missing in unseen:
        text = f"{missing}, and no later event names a user partition"
        offsets = missing.first_offset, missing.end_offset - 1
        check, severity = _K.INCOMPLETE_HISTORY, Severity.WARNING
        yield metadata_finding(check, severity, text, missing.metadata_partition, offsets)
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
_ASKED_AT_ONCE = 1_000_000
"""Number of orphans about which executors are asked in one job, which reads the whole metadata topic."""
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

    A question for `TierState.map_in_order`. With `open_tier` an index in the store may be read; otherwise
    the findings are those of the metadata alone.
    """

    selection: PartitionSet
    logs: Sequence[LocalLog]
    leaders: Mapping[TopicIdPartition, ClusterLog]
    configs: Mapping[str, TopicConfig]
    now_ms: int
    copy_limit_ms: int
    open_tier: Callable[[], RemoteStorageManager] | None = None

    def __call__(self, state: TierState) -> Iterator[tuple[TopicIdPartition, list[Finding]]]:
        """Yield the findings of each partition."""
        runner = TaskRunner(remote=None if self.open_tier is None else self.open_tier())
        # An index in the tier may tell more about a partition than its segments.
        sound = sound_partitions(state, self.now_ms) if self.open_tier is None else ()
        for readable in tiered_partitions(state, self.logs, self.selection):
            partition = readable.topic_id_partition
            yield partition, runner.findings(self.task(readable, is_sound=partition in sound))

    def task(self, readable: ReadablePartition, *, is_sound: bool = False) -> PartitionTask:
        """Return the task to check a partition; `is_sound` as in `check_partition`."""
        is_legal = illegal_name_error(readable.topic_id_partition) is None
        return PartitionTask(
            readable=readable,
            now_ms=self.now_ms,
            copy_limit_ms=self.copy_limit_ms,
            config=self.configs.get(readable.topic_id_partition.topic),
            leader=self.leaders.get(readable.topic_id_partition),
            reads_store=self.open_tier is not None and is_legal,
            is_sound=is_sound,
        )


OfPartition = tuple[TopicIdPartition, int]
"""A user partition, and the number of a task or of its findings there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepTasks:
    """The question for `TierState.map_parts` which tasks a run of --deep has, in the order of their findings.

    `suspects` are the segments with objects that the listing of the store has reported, and `chosen` those
    to read; None for all.
    """

    checks: PartitionChecks
    suspects: Collection[Uuid]
    chosen: Chosen | None
    segments_per_task: int

    def __call__(self, state: TierState) -> Iterator[tuple[OfPartition, Task]]:
        """Yield the tasks of each partition."""
        for readable in tiered_partitions(state, self.checks.logs, self.checks.selection):
            partition = readable.topic_id_partition
            tasks = tasks_of(
                self.checks.task(readable),
                segments_per_task=self.segments_per_task,
                suspects=self.suspects,
                chosen=None if self.chosen is None else self.chosen.of(state.partitions[partition.key]),
            )
            for number, task in enumerate(tasks):
                yield (partition, number), task


class RemoteRunner(Protocol):
    """Lists the store, answers questions about segments, and carries out tasks outside this process."""

    @property
    def segments_per_task(self) -> int:
        """Number of segments whose bytes one task checks."""
        ...

    @property
    def open_tier(self) -> Callable[[], RemoteStorageManager]:
        """Return a picklable function that opens the tier where work is carried out."""
        ...

    def spread(self, state: TierState) -> TierState:
        """Return `state` with a `map_parts` that asks outside this process."""
        ...

    def audit(self, state: TierState, candidates: Candidates | None) -> Audit:
        """List the whole store and compare it with `state`."""
        ...

    def findings(self, state: TierState, tasks: DeepTasks, done: ReadCounts) -> Iterator[list[Finding]]:
        """Yield the findings of tasks that have some, in order; add the segments that were read to `done`."""
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
    deleted_among: DeletedAmong
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
    """Partitions with missing events that matter, and the reasons; see `plan.preconditions`."""
    unseen: Sequence[MissingEvents] = ()
    """Missing events of metadata partitions in which no later event names a user partition."""
    _suspects: set[Uuid] = field(default_factory=set)
    """Segments that lack objects or whose log has another size."""

    def findings(self) -> Iterator[Finding]:
        """Yield every finding as soon as it is made; RemoteStorageError if the store fails."""
        state = self.refresh()
        if self.remote is not None:
            state = yield from self._store_findings(self.remote, state)
        yield from (f for f in check_events(state, self.deleted_among) if self._selects_event(f))
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

    def _spread(self, state: TierState) -> TierState:
        return state if self.runner is None else self.runner.spread(state)

    def _selects_event(self, finding: Finding) -> bool:
        # A record that can't be decoded may be about any partition, so it is reported for every selection.
        return finding.topic_id is None or self._selects(finding)

    def _selects(self, finding: Finding) -> bool:
        return self.selection.matches(finding.topic, finding.topic_id, finding.partition)

    def _store_findings(
        self, remote: RemoteStorageManager, state: TierState
    ) -> Generator[Finding, None, TierState]:
        """Yield the findings of a listing of the store; return the state after the listing."""
        young: list[Orphan] = []
        topics = self._topic_names(state)
        unlisted = Unlisted()
        candidates = None
        if self.deep is not None:
            candidates = self.deep.reads.begin(self._spread(state), self.selection)
        if self.runner is None:
            audit = audit_listing(state, self._listed(remote), remote.layout, candidates)
        else:
            audit = self.runner.audit(state, candidates)

        def reported(orphan: Orphan, deleted: Collection[Uuid], live: Collection[str]) -> Iterator[Finding]:
            topic = topics.get(orphan.name.topic_id) if orphan.name else None
            name = orphan.name
            partition = None if name is None else TopicIdPartition(name.topic_id, "", name.partition)
            missing = [] if partition is None else missing_of(state, partition)
            is_live = orphan.key in live
            finding = orphan_finding(orphan, topic, deleted, self.now_ms, missing, is_live=is_live)
            if self._selects(finding):
                yield finding

        orphans = orphans_among(audit.unaccounted)
        while page := list(islice(orphans, 1 if self.runner is None else _ASKED_AT_ONCE)):
            old = [each for each in page if isinstance(each, Orphan) and not self._is_young(each)]
            deleted, live = self.deleted_among(_named_ids(old)), _live_names(old, state)
            for orphan in page:
                if isinstance(orphan, RemoteObject):
                    finding = unlisted.finding(orphan, topics.get)
                    # A folder of an unknown partition may contain objects of every selected one.
                    if self._selects(finding) or finding.partition is None:
                        yield finding
                elif self._is_young(orphan):
                    young.append(orphan)
                else:
                    yield from reported(orphan, deleted, live)
        if self.deep is not None and candidates is not None:
            self.deep.reads.choose(candidates, audit.candidates(), dict(state.read))
        suspects = [s for s in audit.suspects() if s.partition in self.selection]
        # Read the metadata again, so that a segment that was started or deleted during the listing is not
        # reported.
        state = self.refresh()
        yield from self._suspect_findings(remote, state, suspects, unlisted)
        live = _live_names(young, state)
        # A segment that was started during the listing has its objects where they are read.
        started = {key for key, segment in live.items() if stem_of(remote.layout, segment) == key}
        young = [orphan for orphan in young if orphan.key not in started]
        deleted = self.deleted_among(_named_ids(young))
        for orphan in young:
            yield from reported(orphan, deleted, live)
        return state

    def _topic_names(self, state: TierState) -> dict[Uuid, str]:
        """Return the names of topics by id, from the metadata and the log directories."""
        names = {part.topic_id_partition.topic_id: part.topic_id_partition.topic for part in state}
        in_logs = {} if self.topics is None else self.topics.ids
        return names | {topic_id: topic for topic, ids in in_logs.items() for topic_id in ids}

    def _is_young(self, orphan: Orphan) -> bool:
        """Return whether the orphan may be of a segment whose first event was not read yet."""
        return orphan.modified_ms is None or self.now_ms - orphan.modified_ms <= DANGLING_AFTER_MS

    def _suspect_findings(
        self,
        remote: RemoteStorageManager,
        state: TierState,
        suspects: Sequence[Suspect],
        unlisted: Unlisted,
    ) -> Iterator[Finding]:
        """Yield the findings about suspects that are still finished segments of `state`."""
        self._suspects.update(each.segment_id for each in suspects)
        live = live_segments(state, ((each.partition.key, each.segment_id) for each in suspects))
        for number, suspect in enumerate(suspects):
            if not unlisted.may_hold(suspect.partition):
                segment = live.get((suspect.partition.key, suspect.segment_id))
                # To find out why an object is missing takes one request each, so only the first ones are
                # asked.
                asked = remote if number < _EXPLAINED_MAX else None
                yield from suspect_findings(suspect, segment, asked)

    def _listed(self, remote: RemoteStorageManager) -> Iterator[RemoteObject]:
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
        checks = replace(self._checks(leaders, {}), selection=frozenset(leaders), open_tier=None)
        keys = [partition.key for partition in leaders]
        for _, found in self.refresh().map_in_order(checks, keys):
            yield from found

    def _checks(
        self, leaders: Mapping[TopicIdPartition, ClusterLog], configs: Mapping[str, TopicConfig]
    ) -> PartitionChecks:
        """Return the checks of all partitions, which may read the tier where they are made."""
        remote, open_tier = self.remote, None
        if remote is not None:
            open_tier = (lambda: remote) if self.runner is None else self.runner.open_tier
        return PartitionChecks(
            open_tier=open_tier,
            selection=self.selection,
            logs=self.logs,
            leaders=leaders,
            configs=configs,
            now_ms=self.now_ms,
            copy_limit_ms=self.copy_limit_ms,
        )

    def _results(self, state: TierState, checks: PartitionChecks) -> Iterator[list[Finding]]:
        """Yield the findings of each partition; with --deep, those of each task."""
        if self.deep is None:
            total = sum(part.topic_id_partition in self.selection for part in state)
            answers = self._spread(state).map_in_order(checks)
            with self.progress.bar("checking", unit="partitions", total=total) as advance:
                for _, found in answers:
                    advance(1)
                    yield found
            return
        tasks = DeepTasks(
            checks=checks,
            suspects=frozenset(self._suspects),
            chosen=self.deep.reads.chosen,
            segments_per_task=1 if self.runner is None else self.runner.segments_per_task,
        )
        if self.runner is None:
            yield from self._read_here(self.deep, (task for _, task in tasks(state)))
        else:
            yield from self.runner.findings(self.runner.spread(state), tasks, self.deep.reads.done)

    def _read_here(self, deep: Deep, tasks: Iterator[Task]) -> Iterator[list[Finding]]:
        local = TaskRunner(remote=self.remote, spool=deep.spool)
        threads, total = deep.threads, deep.reads.planned_bytes
        results = in_order(lambda task: (task, local.findings(task)), tasks, threads=threads, ahead=threads)
        with self.progress.bar("reading segments", unit="bytes", total=total) as advance:
            for task, found in results:
                if isinstance(task, SegmentsTask):
                    advance(task.size_bytes)
                    deep.reads.done.add(task, found)
                yield found


def orphans_among(unaccounted: Iterable[RemoteObject]) -> Iterator[Orphan | RemoteObject]:
    """Yield the objects of no live segment; consecutive objects of one segment are one orphan.

    Entries with a problem are yielded as they are.
    """
    last: Orphan | None = None
    for listed in unaccounted:
        if listed.problem is not None:
            yield listed
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


def _orphan(key: str, name: SegmentObjectName | None) -> Orphan:
    if not is_temporary(key):
        return Orphan(key, name)
    return Orphan(key, segment_object_name(key.removesuffix(TEMP_SUFFIX)), is_temporary=True)


def _named_ids(orphans: Iterable[Orphan]) -> set[Uuid]:
    return {each.name.segment_id for each in orphans if each.name is not None and not each.is_temporary}


def _live_names(orphans: Iterable[Orphan], state: TierState) -> Mapping[str, RemoteLogSegmentMetadata]:
    """Return the segments that are not deleted and whose names orphans have, by the orphans' keys."""
    names: dict[str, tuple[SegmentKey, int]] = {}
    for orphan in orphans:
        name = orphan.name
        if name is not None and not orphan.is_temporary:
            whose = (name.topic_id, name.partition), name.segment_id
            names[orphan.key] = whose, name.start_offset
    live = live_segments(state, (whose for whose, _ in names.values()))
    found = {key: (live.get(whose), start_offset) for key, (whose, start_offset) in names.items()}
    return {
        key: segment
        for key, (segment, start_offset) in found.items()
        if segment is not None and segment.start_offset == start_offset
    }
