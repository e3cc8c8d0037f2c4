"""Decide the repairs of the findings of `verify`, for `verify --plan-out` and again for `apply`.

Repairs are of sets of objects without metadata, unfinished copies and deletions, missing or damaged indexes,
and unsafe committed offsets in the log directories of brokers before Kafka 3.6.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from tierctl.apply.run import Acts, DeleteSegments, publish_in_waves
from tierctl.checks.findings import Finding, FindingKind, metadata_finding
from tierctl.checks.metadata import DeletedOf
from tierctl.commands.change import Change
from tierctl.commands.delete import deletion_evidence, remove_partitions
from tierctl.commands.mutation import Mutation
from tierctl.commands.offsets import (
    FILE_NAME,
    OffsetsRequest,
    RepairOffsetsRequest,
    check_offsets,
    repair_offsets,
)
from tierctl.commands.request import MutationRequest, Request
from tierctl.commands.restore.inventory import DecidingLogs, TierSets, inputs_of
from tierctl.commands.verify.act import lower_offsets, repaired_indexes, store_indexes
from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    RemoteStorageError,
    SafetyRefusal,
    UsageError,
)
from tierctl.files import exists
from tierctl.metadata.daily_changes import deleted_of
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import (
    ListedSet,
    ObjectSet,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.checked_values import natural_number
from tierctl.model.choices import Severity
from tierctl.model.events import PARTITION_MAX, ZERO_UUID
from tierctl.model.local import ClusterLog
from tierctl.model.progress import Progress
from tierctl.model.times import iso_utc
from tierctl.plan.dangling import Dangling
from tierctl.plan.partition_choice import decide_partition
from tierctl.plan.preconditions import CurrentTopics, check_limits, why_unknown
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.repair import (
    ORPHAN_AGE_MS,
    ExaminedSets,
    OrphanRule,
    RepairInputs,
    has_unfinished,
    index_step,
    lower_offset,
    plan_repair,
)
from tierctl.plan.steps import VERIFY, Action, Basis, Plan, Skip, Step
from tierctl.state.log_start import replica_start
from tierctl.state.tier_state import TierState
from tierctl.storage.index_cache import spool_folder
from tierctl.storage.layouts.kafka import owner_of_folder
from tierctl.storage.object_sets import by_partition
from tierctl.storage.stores.base import RemoteObject

_S = RemoteLogSegmentState


def _is_misplaced(listed: ListedSet, known: Mapping[Uuid, RemoteLogSegmentMetadata]) -> bool:
    """Return whether the objects have the id of a known segment, but begin at another offset."""
    segment = known.get(listed.segment_id)
    return segment is not None and segment.start_offset != listed.start_offset


def decide_indexes(run: Mutation, state: TierState, names: Sequence[str]) -> Iterator[Step | Skip]:
    """Yield a step per named segment that stores its indexes, or a skip with the reason for no step.

    The log object of each segment is fetched, to derive the indexes from it. A segment is left out if it is
    no longer finished, or if its indexes are sound now.
    """
    if not names:
        return
    bars = run.progress.bar("deriving indexes", unit="segments", total=len(names))
    with spool_folder() as spool, bars as advance:
        for name in names:
            advance(1)
            key, _, segment_text = name.rpartition(":")
            part, segment_id = state.partitions.get(_parsed(key)), Uuid.parse(segment_text)
            segment = None if part is None else part.get(segment_id)
            if part is None or segment is None or part.topic_id_partition not in run.resources.selection:
                continue
            if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                continue
            partition = part.topic_id_partition
            reason = why_unknown(state, part)
            if reason is not None:
                yield Skip.of(partition, reason, segment_id)
                continue
            try:
                found = repaired_indexes(segment, part, run.remote, spool)
                if found and not isinstance(found, str):
                    run.remote.check_indexes(segment, found)
            except (RemoteStorageError, SafetyRefusal) as e:
                yield Skip.of(partition, f"no index is derived: {e.message}", segment_id)
                continue
            except (CorruptInputError, AuthenticationError) as e:
                reason = Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"no index is derived: {e.message}")
                yield Skip.of(partition, reason, segment_id)
                continue
            if isinstance(found, str):
                yield Skip.of(partition, found, segment_id)
            elif found:
                yield index_step(segment, found)


_R = TypeVar("_R", bound=OffsetsRequest)


def unsafe_offsets(request: Request, progress: Progress) -> Iterator[Finding]:
    """Yield a finding for each unsafe committed offset, and for each damaged file of committed offsets."""
    for folder in request.log_dir:
        path = Path(folder) / FILE_NAME
        if not exists(path):
            continue
        try:
            found = check_offsets(_asked(OffsetsRequest, request, path), progress).findings
        except CorruptInputError as e:
            finding = metadata_finding(FindingKind.UNREADABLE_LOG, Severity.ERROR, e.message, key=str(path))
            yield replace(finding, own_fix=e.hint)
            continue
        for each in found:
            message = f"the committed offset {each.committed_offset} is unsafe: {each.problem}; {each.detail}"
            unsafe, severity = FindingKind.UNSAFE_COMMITTED_OFFSET, Severity.WARNING
            yield metadata_finding(unsafe, severity, message, each.metadata_partition, key=str(path))


def lower_offset_steps(run: Mutation, files: Sequence[str]) -> list[Step]:
    """Return a step per file that lowers its unsafe offsets."""
    topic_id = run.metadata.identity().metadata_topic_id or ZERO_UUID
    return [
        lower_offset(
            file,
            TopicIdPartition(topic_id, METADATA_TOPIC, step.metadata_partition),
            (step.from_offset, step.to_offset),
            step.reason,
        )
        for file in files
        for step in repair_offsets(_asked(RepairOffsetsRequest, run.request, Path(file)), run.progress).steps
        if step.metadata_partition is not None and step.from_offset is not None
    ]


def _asked(kind: type[_R], request: Request, path: Path) -> _R:
    return kind(
        metadata=request.metadata,
        bootstrap_server=request.bootstrap_server,
        command_config=request.command_config,
        log_dir=(path.parent,),
        file=path,
    )


_Key = tuple[Uuid, int]
# Source: RemoteIndexCache, which makes its folder at start only, and keeps files mapped that are removed.
_CACHED = (
    "a broker that has the old indexes of these segments in its cache goes on with them: stop the broker, "
    "remove remote-log-index-cache from the first of its log.dirs, and start it; if the folder is removed "
    "while the broker runs, reads from the tier fail. A run with another --state-dir has such a cache there"
)
_NO_LOGS = (
    "which of its objects the log needs is not known: name the log directories of all replicas with "
    "--log-dir, or the cluster with --bootstrap-server"
)
_EVIDENCE = (
    "name the cluster with --bootstrap-server, or the log directories of all replicas with --log-dir and "
    "--all-log-dirs"
)
_FORGOTTEN = (
    "its leader does not tier and forgot the log start, so which objects the log needs is not known: plan "
    "the repairs with the brokers stopped, and name the log directories of all replicas with --log-dir"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest(MutationRequest):
    """A request to repair what `verify` found."""

    orphans_of: Sequence[str] = ()
    """Partitions with objects that belong to no live segment (orphans), as `TOPIC_ID:PARTITION`."""
    orphan_age_ms: int | None = None
    """The minimum age in milliseconds of orphans that are deleted; default 7 days."""
    max_deletes: int | None = None
    """The maximum number of segments that a run deletes; default 10,000."""
    max_fraction: float | None = None
    """The maximum share of a partition's segments that a run deletes, if it has 20 or more; default 0.5."""
    indexes_of: Sequence[str] = ()
    """Segments with a missing or damaged index, as `TOPIC_ID:PARTITION:SEGMENT_ID`."""
    offset_files: Sequence[str] = ()
    """Files of committed offsets in the log directories that contain unsafe offsets."""
    all_log_dirs: bool = False
    """`log_dir` names all replicas' log directories: topics without a folder in them count as deleted."""
    unrepaired: Sequence[tuple[FindingKind, Skip]] = ()
    """The kinds of the findings for which no repair exists, and each as a skipped part of the plan."""


class Repair(Change[RepairRequest]):
    """One run that repairs what `verify` found."""

    command = VERIFY
    request_type = RepairRequest
    saved = ("orphans_of", "orphan_age_ms", "indexes_of", "offset_files")
    logs_decide = True

    def decide(self) -> Plan:
        """Implement `Change.decide`."""
        run, request = self.run, self.request
        state = self._state = run.metadata.refresh()
        unfinished = {part.topic_id_partition for part in state if has_unfinished(part)}
        listed = _listed(run, request, unfinished)
        logs = run.logs
        run.resolve_selection(
            (part.topic_id_partition for part in state), (each.partition for each in listed)
        )
        run.inspect_tier()
        run.histories.examine(state, lambda: logs)
        chosen = [each for each in listed if each.partition in run.resources.selection]
        with_objects = {each.partition.key for each in listed}
        without = {each for each in unfinished if each.key not in with_objects}
        partitions = {each.partition for each in chosen}
        partitions |= {each for each in without if each in run.resources.selection}
        live, unknown = _existing(run, request, partitions)
        self._live = live
        deciding = self._deciding = DecidingLogs.of(run, sorted(live), logs)
        unexamined = unknown | _unexamined(run, deciding, partitions)
        judged = {each for each in partitions if each.key not in unexamined}
        examined = {each.inputs.partition.key: each for each in self._examine(judged, chosen)}
        existing = {each.topic_id for each in live if each.key not in unknown}
        now_ms, alive = run.resources.now_ms, () if run.cluster is None else run.cluster.cluster.broker_ids()
        inputs = RepairInputs(
            topics=_topics(run, state),
            dangling=Dangling(now_ms=now_ms, alive=alive),
            orphans=self._orphan_rule(_sightings(run, state, chosen), judged, existing),
            examined=examined,
            unexamined=unexamined,
            # A segment with objects at two offsets is only reported, because it is unknown which objects
            # belong to it.
            indexes=[
                found
                for found in decide_indexes(run, state, request.indexes_of)
                if not any(found.segment_id in each.misplaced for each in examined.values())
            ],
        )
        plan = plan_repair(state, inputs)
        starts = {partition: log.log_start_offset for partition, log in deciding.leaders.items()}
        plan = run.narrowed(replace(plan, basis=Basis(log_starts=starts)))
        offsets = lower_offset_steps(run, request.offset_files)
        plan = replace(plan, steps=(*plan.steps, *offsets))
        plan = replace(
            plan, skipped=(*plan.skipped, *_orphans_without_logs(request, plan, unexamined, chosen))
        )
        return replace(plan, skipped=(*plan.skipped, *_unrepaired(request, plan)))

    def _orphan_rule(
        self,
        first_seen_ms: Mapping[Uuid, int] | None,
        judged: Iterable[TopicIdPartition],
        existing: Collection[Uuid],
    ) -> OrphanRule:
        topic_ids = {part.topic_id_partition.topic_id for part in self._state} | set(existing)
        is_known = topic_ids.issuperset(each.topic_id for each in judged)
        asked = self.request.orphan_age_ms
        return OrphanRule(
            now_ms=self.run.resources.now_ms,
            age_ms=ORPHAN_AGE_MS if asked is None else asked,
            first_seen_ms=first_seen_ms,
            foreign=None if is_known else _last_write_beside(self.run, topic_ids),
        )

    def _examine(
        self, partitions: Collection[TopicIdPartition], chosen: Sequence[ListedSet]
    ) -> Iterator[ExaminedSets]:
        """Yield the sets of each of `partitions` with the choice among them; those are read completely."""
        listed = [each for each in chosen if each.partition in partitions]
        known = self._segments(partitions)
        misplaced = {id(each) for each in listed if _is_misplaced(each, known[each.partition])}
        placed = [each for each in listed if id(each) not in misplaced]
        finished = [
            s for each in known.values() for s in each.values() if s.state is _S.COPY_SEGMENT_FINISHED
        ]
        sets = self._tier.derived(placed, finished=finished, is_part=True)
        of_partition = by_partition(sets)
        for partition in sorted(partitions):
            found = self._examined(partition, of_partition.get(partition, ()), known[partition])
            odd = [e.segment_id for e in listed if e.partition == partition and id(e) in misplaced]
            yield replace(found, misplaced=odd)

    def _segments(
        self, partitions: Collection[TopicIdPartition]
    ) -> dict[TopicIdPartition, dict[Uuid, RemoteLogSegmentMetadata]]:
        return {
            partition: {segment.segment_id: segment for segment in self._state.segments_of(partition)}
            for partition in partitions
        }

    def _examined(
        self,
        partition: TopicIdPartition,
        sets: Sequence[ObjectSet],
        known: Mapping[Uuid, RemoteLogSegmentMetadata],
    ) -> ExaminedSets:
        is_known = all(each.listed.segment_id in known for each in sets)
        deleted = {} if is_known else {each.segment_id: each for each in self._deleted_of(partition)}
        sets = [each for each in sets if not self._is_below(partition, each, known)]
        states = {key: segment.state for key, segment in known.items()}
        inputs = replace(
            inputs_of(partition, sets, logs=self._deciding),
            known=states | dict.fromkeys(deleted.keys() - known.keys(), _S.DELETE_SEGMENT_FINISHED),
        )
        # The same plan stores the indexes that a segment lacks.
        inputs = replace(inputs, unsound=self._tier.unsound(inputs.serving, may_lack_indexes=True))
        decision = decide_partition(inputs)
        examined = ExaminedSets(
            inputs=replace(inputs, known=states),
            decision=decision,
            is_live=partition in self._live,
            deleted=deleted,
            started={key: s for key, s in known.items() if s.state is _S.COPY_SEGMENT_STARTED},
        )
        return replace(examined, unsound={**inputs.unsound, **self._tier.unsound(examined.unfinished)})

    def _is_below(
        self, partition: TopicIdPartition, each: ObjectSet, known: Mapping[Uuid, RemoteLogSegmentMetadata]
    ) -> bool:
        """Return whether the set is of a finished segment below the log start; its metadata are not lost."""
        log = self._deciding.leaders.get(partition)
        segment = known.get(each.listed.segment_id)
        if log is None or segment is None or segment.state is not _S.COPY_SEGMENT_FINISHED:
            return False
        return segment.end_offset < replica_start(log)

    @cached_property
    def _tier(self) -> TierSets:
        return TierSets.to_change(self.run)

    @cached_property
    def _deleted_of(self) -> DeletedOf:
        return deleted_of(self.run.metadata.deleted_segments)

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`: no broker may do this work itself, and the limits hold."""
        request = self.request
        self.fence({step.topic_id_partition for step in plan.steps})
        note = check_limits(
            plan,
            self.run.metadata.state,
            max_deletes=request.max_deletes,
            max_fraction=request.max_fraction,
        )
        if note is not None:
            self.run.progress.note(note)
        if any(step.action is Action.STORE_INDEXES for step in plan.steps):
            self.run.progress.note(_CACHED)

    def fence(self, partitions: Collection[TopicIdPartition]) -> None:
        """Implement `Change.fence`: also a topic that is planned as deleted must not exist.

        Partitions of the metadata topic are not checked here: to change their committed-offset file, a run
        must hold the lock of the broker's log directory.
        """
        others = [partition for partition in partitions if partition.topic != METADATA_TOPIC]
        gone = {partition for partition in others if _gone(self.run, self._live, partition)}
        self.run.check_deleted(gone)
        self.run.check_fence([partition for partition in others if partition not in gone])

    def acts(self) -> Acts:
        """Implement `Change.acts`."""
        return {
            Action.DELETE_PARTITION: remove_partitions,
            Action.PUBLISH_SEGMENT: publish_in_waves,
            Action.STORE_INDEXES: partial(store_indexes, state_dir=self.request.state_dir),
            Action.LOWER_OFFSET: lower_offsets,
            Action.DELETE_SEGMENT: DeleteSegments(),
        }


def partition_text(key: _Key) -> str:
    """Return a partition as an item of `RepairRequest.orphans_of`, which also begins one of `indexes_of`."""
    return f"{key[0]}:{key[1]}"


def _parsed(text: str) -> _Key:
    topic_id, colon, partition = text.rpartition(":")
    number = natural_number(partition, PARTITION_MAX)
    if not colon or number is None:
        raise UsageError(f"{text!r} is no TOPIC_ID:PARTITION", hint="make the plan again with --plan-out")
    return Uuid.parse(topic_id), number


def _listed(run: Mutation, request: RepairRequest, unfinished: Iterable[TopicIdPartition]) -> list[ListedSet]:
    """Return the sets of objects of the partitions with orphans, and of those with `unfinished` segments."""
    keys = {_parsed(each) for each in request.orphans_of}
    keys |= {each.key for each in unfinished}
    if not keys:
        return []
    return TierSets.to_change(run).listed_of(keys)


def _unexamined(
    run: Mutation, deciding: DecidingLogs, partitions: Collection[TopicIdPartition]
) -> dict[_Key, str]:
    """Return, per partition whose objects can't be judged because its log start is unknown, the reason."""
    if run.cluster is None:
        return {} if run.request.log_dir else dict.fromkeys((each.key for each in partitions), _NO_LOGS)
    logs = {each: log for each, log in deciding.leaders.items() if isinstance(log, ClusterLog)}
    seen = run.cluster.seen_of(logs)
    return {**seen.unseen, **dict.fromkeys(seen.forgetful, _FORGOTTEN)}


def _existing(
    run: Mutation, request: RepairRequest, partitions: Collection[TopicIdPartition]
) -> tuple[set[TopicIdPartition], dict[_Key, str]]:
    """Return the partitions whose topic id may exist, and the reason for each whose existence is unknown.

    Decided by the same evidence of deletion that `delete --mark` requires.
    """
    if not partitions:
        return set(), {}
    topic_ids = {partition.topic_id for partition in partitions}
    evidence = deletion_evidence(run, topic_ids, all_log_dirs=request.all_log_dirs, i_know_it_is_deleted=())
    existing = {topic_id for log_dir in evidence.log_dirs for topic_id in log_dir.topic_ids}
    if evidence.cluster is not None:
        existing |= evidence.cluster.existing
    live, unknown = set[TopicIdPartition](), dict[_Key, str]()
    for partition in partitions:
        reason = evidence.why_not_deleted(partition.topic_id, partition.topic)
        if partition.topic_id in existing:
            live.add(partition)
        elif reason is not None:
            live.add(partition)
            unknown[partition.key] = f"its topic is not known to be deleted: {reason}; {_EVIDENCE}"
    return live, unknown


def _topics(run: Mutation, state: TierState) -> CurrentTopics:
    if run.cluster is None:
        return CurrentTopics.of(run.logs)
    return run.cluster.current_topics(state.topics)


def _sightings(run: Mutation, state: TierState, listed: Sequence[ListedSet]) -> Mapping[Uuid, int] | None:
    """Record a sighting of the sets without metadata; return each one's first sighting, None if unknown."""
    if run.journal is None:
        return None
    seen: dict[_Key, dict[Uuid, int]] = {}
    for each in listed:
        part = state.partition(each.partition)
        written_ms = seen.setdefault(each.partition.key, {})
        if part is None or part.get(each.segment_id) is None:
            written_ms[each.segment_id] = max(each.modified_ms or 0, written_ms.get(each.segment_id, 0))
    # --now is no sighting at that time.
    return run.journal.record_sightings(seen, run.request.clock_ms())


def _last_write_beside(run: Mutation, topic_ids: Collection[Uuid]) -> tuple[int, str] | None:
    """Return when an object of a topic other than `topic_ids` was last written, and which object shows it.

    All folders of such topics are listed: an idle topic of another cluster looks like a deleted one, and its
    busy topics may not be selected. What has no time, or can't be read, counts as written now.
    """

    def is_other(folder: str) -> bool:
        owner = owner_of_folder(folder)
        return owner is not None and owner[0] not in topic_ids

    def written(each: RemoteObject) -> tuple[int, str]:
        if each.problem is not None:
            return run.resources.now_ms, f"{each.key}, which can't be read ({each.problem})"
        if each.modified_ms is None:
            return run.resources.now_ms, f"{each.key}, whose time the store does not say"
        return each.modified_ms, f"{each.key}, last written at {iso_utc(each.modified_ms)}"

    root = run.remote.list_folder()
    inside = chain.from_iterable(map(run.remote.list_objects, filter(is_other, root.folders)))
    beside = (each for each in root.objects if is_other(f"{each.key}/"))
    return max(map(written, chain(beside, inside)), default=None)


def _orphans_without_logs(
    request: RepairRequest, plan: Plan, unexamined: Mapping[_Key, str], listed: Sequence[ListedSet]
) -> Iterator[Skip]:
    """Yield why orphans of partitions were not judged, for partitions that `plan` did not skip already."""
    said = {skip.topic_id_partition for skip in plan.skipped}
    wanted = {_parsed(each) for each in request.orphans_of}
    for partition in sorted({each.partition for each in listed} - said):
        if partition.key in wanted and partition.key in unexamined:
            yield Skip.of(partition, unexamined[partition.key])


def _unrepaired(request: RepairRequest, plan: Plan) -> Iterator[Skip]:
    """Yield the findings without a repair; omit gaps of partitions for which segments are published."""
    published = {step.topic_id_partition.key for step in plan.steps if step.action is Action.PUBLISH_SEGMENT}
    for kind, skip in request.unrepaired:
        if kind is not FindingKind.GAP or skip.topic_id_partition.key not in published:
            yield skip


def _gone(run: Mutation, live: Collection[TopicIdPartition], partition: TopicIdPartition) -> bool:
    """Return whether the topic counts as deleted: then no broker copies or deletes its segments."""
    part = run.metadata.state.partition(partition)
    if part is not None and part.delete_state is not None:
        return True
    return part is None and partition not in live
