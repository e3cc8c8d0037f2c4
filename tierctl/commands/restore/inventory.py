"""Which sets of objects a tier has, and what is derived from them, on either engine.

A command reads the sets (`TierSets`), and the logs by which they are judged (`DecidingLogs`).
`DerivedMetadata` has the state of a tier without a metadata topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from tierctl.apply.tier_check import tier_name
from tierctl.commands.copy.source import check_and_hash
from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    MetadataError,
    NotFoundError,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteTierMissing,
    SafetyRefusal,
    UsageError,
)
from tierctl.locallog.folders import SegmentFiles
from tierctl.locallog.log_end import items_between
from tierctl.metadata.daily_changes import SegmentsOf
from tierctl.metadata.manager import no_op
from tierctl.model import (
    ClusterIdentity,
    ListedSet,
    LocalLog,
    MetadataEvent,
    ObjectPart,
    ObjectSet,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.choices import NOT_A_BROKER_ID, THREADS
from tierctl.model.selection import SHOWN_MAX
from tierctl.plan.choose_sets import LocalHole
from tierctl.plan.partition_choice import PartitionDecision, PartitionInputs, decide_partition, is_lost_below
from tierctl.plan.preconditions import WRONG_TIER, newest_replicas
from tierctl.plan.reasons import Reason, ReasonKind, is_not_understood
from tierctl.spark.executors import examined as spark_tier
from tierctl.state.fold import fold_event
from tierctl.state.log_start import Log
from tierctl.state.tier_state import TierState
from tierctl.storage.index_cache import spool_folder, spooled
from tierctl.storage.object_sets import (
    by_partition,
    checked_end,
    derived_set,
    end_claims,
    list_object_sets,
    producer_snapshot,
    read_each,
    with_judged_indexes,
    with_lineage,
)
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.wire.batches.scan import BadRange

if TYPE_CHECKING:
    from tierctl.commands.mutation import Mutation
    from tierctl.commands.resources import Resources
    from tierctl.model.progress import Advance
    from tierctl.storage.open_tier import TierSpec
    from tierctl.storage.stores.base import RemoteObject


def why_unsound(
    remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata, *, may_lack_indexes: bool = False
) -> Reason | None:
    """Return why the segment's bytes are not sound, or can't be read; None if they are sound.

    With `may_lack_indexes`, indexes that are missing count as sound: they follow from the log. Raise
    RemoteTierMissing.
    """
    try:
        with spool_folder() as spool, spooled(remote, segment, spool) as files:
            indexes = files.index_bytes()
            if may_lack_indexes:
                indexes = {kind: data for kind, data in indexes.items() if data is not None}
            problem = check_and_hash(segment, files.log, indexes).error
    except (CorruptInputError, RemoteResourceNotFound) as e:
        return _damaged(e.message)
    except RemoteTierMissing:
        raise
    except (UsageError, AuthenticationError, RemoteStorageError, SafetyRefusal) as e:
        return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"{e.message}; {e.hint or 'see tierctl verify'}")
    return None if problem is None else _damaged(problem.message)


def _damaged(problem: str) -> Reason:
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"its objects are damaged: {problem}")


Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Foreign:
    """Keeps the first keys of the objects that belong to no set, each of which `others` receives."""

    others: Callable[[RemoteObject], object] = id
    keys: list[str] = field(default_factory=list)

    def __call__(self, found: RemoteObject) -> None:
        self.others(found)
        self.keys = sorted({*self.keys, found.key})[:SHOWN_MAX]


def _small(_item: object) -> int:
    """Return 0: the time of a request does not depend on the size of a small object."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSets:
    """The sets of objects of `remote`, which executors open by `spec`.

    With `--engine spark`, executors list the tier and read its objects; otherwise `threads` of this process
    read them. Results and errors are the same.
    """

    resources: Resources
    remote: RemoteStorageManager
    spec: TierSpec
    threads: int = THREADS

    @classmethod
    def of(cls, resources: Resources, threads: int = THREADS) -> Self:
        """Return the sets of the tier that the request names."""
        remote, spec = resources.remote, resources.tier_spec()
        return cls(resources=resources, remote=remote, spec=spec, threads=threads)

    @classmethod
    def to_change(cls, run: Mutation) -> Self:
        """Return the sets of the tier of a command that may change it."""
        return cls.of(run.resources, run.request.threads)

    def listed(self, *, others: Callable[[RemoteObject], object] = id) -> list[ListedSet]:
        """Return every set of objects in the tier; raise NotFoundError if the tier has no set.

        `others` is called with each object that belongs to no set; the first ones are named in a note.
        """
        foreign = _Foreign(others)
        with self.resources.progress.bar("listing the tier", unit="objects") as advance:
            found = self._list(advance, others=foreign)
        self._require_any(found)
        self._note(foreign)
        return found

    @property
    def shared_spec(self) -> TierSpec:
        """How executors open the tier, which share its limits."""
        return self.spec.resolved(self.remote).shared(lambda: self.resources.executors.slots)

    def sets_in(self, folders: Collection[str]) -> list[ListedSet]:
        """Return the sets in some folders, which executors list."""
        spec, executors = self.spec.resolved(self.remote), self.resources.executors
        with self.resources.progress.bar("listing partitions", unit="objects") as advance:
            return list(spark_tier.sets_in_folders(executors, spec, sorted(folders), advance))

    def partitions_by_folder(self) -> dict[str, frozenset[TopicIdPartition]]:
        """Return which partitions have sets in each folder, listed by executors; raise as `listed`."""
        executors, spec = self.resources.executors, self.spec.resolved(self.remote)
        foreign = _Foreign()
        with self.resources.progress.bar("listing the tier", unit="objects") as advance:
            found = spark_tier.partitions_by_folder(executors, spec, self.remote, advance, others=foreign)
        self._require_any([each for each in found.values() if each])
        self._note(foreign)
        return found

    def _note(self, foreign: _Foreign) -> None:
        if foreign.keys:
            self.resources.progress.note(
                f"the tier has objects that belong to no segment, such as {', '.join(foreign.keys)}: nothing "
                "is derived from them; with --metadata, verify lists them"
            )

    def _require_any(self, found: Collection[object]) -> None:
        if not found:
            raise NotFoundError(f"{tier_name(self.remote)} has no object of a segment", hint=WRONG_TIER)

    def listed_of(self, partitions: Collection[tuple[Uuid, int]]) -> list[ListedSet]:
        """Return the sets of these partitions, by topic id and partition."""
        with self.resources.progress.bar("listing partitions", unit="objects") as advance:
            return self._list(advance, partitions)

    def derived(
        self,
        listed: Sequence[ListedSet],
        *,
        finished: Iterable[RemoteLogSegmentMetadata] = (),
        with_lineages: bool = False,
        is_part: bool = False,
    ) -> list[ObjectSet]:
        """Return the sets with their metadata, in the order of `listed`.

        The objects of `finished` segments are not read, since their metadata are known; only with
        `with_lineages` are their leader-epoch indexes read, in partitions that also have other sets: one of
        them may be the only object that has the log start. The number of sets whose leader-epoch index can't
        be read without a private key is reported. Raise AuthenticationError if the store lets no set be read,
        unless `listed` is only a part of the sets (`is_part`), and those of the others are known.
        """
        # The objects of a topic may have been copied under another topic id: segment ids alone are not
        # unique.
        known = _by_key(finished)
        unknown = [each for each in listed if _key(each) not in known]
        found = {_key(each.listed): each for each in self._derive(unknown)}
        refused = [each for each in found.values() if each.lacks_rights]
        if refused and len(refused) == len(listed) and not is_part:
            raise _no_rights(refused[0])
        incomplete = {each.partition for each in unknown} if with_lineages else set()
        own = {
            _key(each): ObjectSet(listed=each, segment=known[_key(each)])
            for each in listed
            if _key(each) in known
        }
        beside = [each for each in own.values() if each.listed.partition in incomplete]
        own |= {_key(each.listed): each for each in self.read(with_lineage, beside)}
        sealed = sum(each.segment is not None and each.lineage is None for each in found.values())
        if sealed:
            self.resources.progress.note(
                f"{sealed} sets are encrypted and no --aiven-private-key is given for their key ids: their "
                "lineage is taken "
                "from the leader epochs of the segments alone, and the log start from the first segment"
            )
        found |= own
        of_partition = [with_judged_indexes(sets) for sets in by_partition(found.values()).values()]
        found = {_key(each.listed): each for sets in of_partition for each in sets}
        claims = [
            claim
            for sets in of_partition
            for claim in end_claims(sets)
            if _key(claim.known.listed) not in known
        ]
        found |= {_key(each.listed): each for each in self.read(checked_end, claims)}
        return [found[_key(each)] for each in listed]

    def unsound(
        self, segments: Sequence[RemoteLogSegmentMetadata], *, may_lack_indexes: bool = False
    ) -> dict[Uuid, str]:
        """Return, by segment id, why the bytes of segments are not sound; their objects are read whole."""
        why = partial(why_unsound, may_lack_indexes=may_lack_indexes)
        reasons = self.read(why, segments, size_bytes=lambda s: s.segment_size_in_bytes, threads=1)
        found = zip((segment.segment_id for segment in segments), reasons, strict=True)
        return {segment_id: reason for segment_id, reason in found if reason is not None}

    def producer_snapshots(
        self, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> dict[TopicIdPartition, bytes | None]:
        """Return the producer snapshot of each partition's last segment; None if its private key is missing.

        The number of unreadable snapshots is reported.
        """
        fetched = self.read(producer_snapshot, segments)
        found = dict(zip((each.topic_id_partition for each in segments), fetched, strict=True))
        missing = sum(each is None for each in found.values())
        if missing:
            self.resources.progress.warn(
                f"the producer snapshots of {missing} partitions can't be read without --aiven-private-key: "
                "read_committed serves the records of transactions that have no end in the tier; with it "
                "they are aborted"
            )
        return found

    def read(
        self,
        read: Callable[[RemoteStorageManager, Item], Result],
        items: Sequence[Item],
        *,
        size_bytes: Callable[[Item], int] = _small,
        threads: int | None = None,
    ) -> Iterator[Result]:
        """Yield the result of `read` for each item, in the order of `items`; `threads` read some at a time.

        `size_bytes` returns how many bytes `read` reads of an item: executors get about equal shares. Raise
        what `read` raises when its item is reached.
        """
        threads = self.threads if threads is None else threads
        if not self.resources.is_on_spark:
            return read_each(self.remote, read, items, threads=threads)
        return spark_tier.read_each(
            self.resources.executors,
            self.spec.resolved(self.remote),
            read,
            items,
            size_bytes=size_bytes,
            threads=threads,
        )

    def _list(
        self,
        advance: Advance,
        partitions: Collection[tuple[Uuid, int]] | None = None,
        *,
        others: Callable[[RemoteObject], object] = id,
    ) -> list[ListedSet]:
        if not self.resources.is_on_spark:
            return list_object_sets(self.remote, advance, partitions, others=others)
        executors, spec = self.resources.executors, self.spec.resolved(self.remote)
        return spark_tier.list_object_sets(executors, spec, self.remote, advance, partitions, others=others)

    def _derive(self, listed: Sequence[ListedSet]) -> Iterator[ObjectSet]:
        total = len(listed)
        with self.resources.progress.bar("reading segments", unit="segments", total=total) as advance:
            for each in self.read(derived_set, listed, size_bytes=_derived_from_bytes):
                advance(1)
                yield each


def _no_rights(refused: ObjectSet) -> AuthenticationError:
    return AuthenticationError(
        f"no set of objects can be read; the first, segment {refused.listed.segment_id} of "
        f"{refused.listed.partition}: {refused.why_not_understood}",
        hint="nothing is decided from a tier whose objects can't be read: give this user the right to read",
    )


def _derived_from_bytes(listed: ListedSet) -> int:
    """Return the number of bytes from which the metadata of a set are derived; a manifest states them all."""
    return 0 if listed.parts & ObjectPart.MANIFEST else listed.sizes_bytes.get(ObjectPart.LOG, 0)


def _key(listed: ListedSet) -> tuple[tuple[Uuid, int], Uuid, int]:
    """Return the key of a set; misplaced objects may have the id of a segment at another offset."""
    return (listed.partition.key, listed.segment_id, listed.start_offset)


def _by_key(
    segments: Iterable[RemoteLogSegmentMetadata],
) -> dict[tuple[tuple[Uuid, int], Uuid, int], RemoteLogSegmentMetadata]:
    """Return the segments by the keys of their sets."""
    return {(s.topic_id_partition.key, s.segment_id, s.start_offset): s for s in segments}


def known_sets(
    listed: Sequence[ListedSet], segments: Iterable[RemoteLogSegmentMetadata]
) -> list[ObjectSet] | None:
    """Return the sets with the metadata of their finished segments; None if one has no such segment."""
    known = _by_key(each for each in segments if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    found = [known.get(_key(each)) for each in listed]
    if None in found:
        return None
    return [ObjectSet(listed=each, segment=segment) for each, segment in zip(listed, found, strict=True)]


def with_deleted(known: SegmentsOf, listed: Iterable[ListedSet], deleted: SegmentsOf) -> SegmentsOf:
    """Return `known`, the segments in the metadata, with those deleted ones of which a set is `listed`.

    Their objects were left, or put back from a copy or an older version: they are not published again.
    `deleted` is called for partitions that have a set of no known segment.
    """
    ids: dict[TopicIdPartition, set[Uuid]] = defaultdict(set)
    for each in listed:
        ids[each.partition].add(each.segment_id)

    def segments_of(partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        found = list(known(partition))
        lost = ids[partition].difference(each.segment_id for each in found)
        return [*(each for each in (deleted(partition) if lost else ()) if each.segment_id in lost), *found]

    return segments_of


_NO_LEADER = "it has no leader now, so its log start is unknown: wait until it has one"
_NO_DIRECTORY = (
    "no log directory has this partition, but others of its topic: name the log directories of all replicas"
)


@dataclass(frozen=True, slots=True)
class DecidingLogs:
    """The log of each partition that a rebuild is based on; for partitions without one, the reason.

    Without a cluster and without log directories both are empty: then a rebuild uses the tier alone.
    """

    leaders: Mapping[TopicIdPartition, Log] = field(default_factory=dict)
    missing: Mapping[TopicIdPartition, str] = field(default_factory=dict)
    replicas: Sequence[LocalLog] = ()
    """The logs of all replicas in log directories."""

    @classmethod
    def of(cls, run: Mutation, partitions: Sequence[TopicIdPartition], logs: Sequence[LocalLog]) -> Self:
        """Return the logs of `partitions`, which must all exist; `logs` are those in the log directories.

        Unreadable logs are neither in `leaders` nor in `missing`: `run.unreadable` has them.
        """
        if run.cluster is not None:
            on_cluster = run.cluster.leader_logs(partitions)
            leaders: dict[TopicIdPartition, Log] = {
                p: on_cluster[p.key] for p in partitions if p.key in on_cluster
            }
            absent = dict.fromkeys((p for p in partitions if p not in leaders), _NO_LEADER)
            return cls(leaders, absent, logs)
        if not run.request.log_dir:
            return cls(replicas=logs)
        found = cls.newest(partitions, logs)
        missing = (p for p in partitions if p not in found.leaders)
        absent = {p: _NO_DIRECTORY for p in missing if p.topic_partition not in run.unreadable}
        return replace(found, missing=absent)

    @classmethod
    def newest(cls, partitions: Iterable[TopicIdPartition], logs: Sequence[LocalLog]) -> Self:
        """Return the newest replica of each of `partitions` that is in the log directories."""
        newest = newest_replicas(logs)
        return cls({p: newest[p.key] for p in partitions if p.key in newest}, {}, logs)


def require_read_logs(run: Mutation) -> None:
    """Raise SafetyRefusal if a log in the log directories can't be read."""
    if run.unreadable:
        names = ", ".join(map(str, sorted(run.unreadable)))
        raise SafetyRefusal(f"the logs of {names} can't be read, so their log starts are unknown")


def inputs_of(
    partition: TopicIdPartition,
    sets: Sequence[ObjectSet],
    known: Iterable[RemoteLogSegmentMetadata] = (),
    logs: DecidingLogs | None = None,
) -> PartitionInputs:
    """Return the inputs of the decision about the `sets` of one partition, the same for every target.

    `known` are the segments in the metadata that are left, `logs` those by which sets are judged; None if
    there are none.
    """
    logs = DecidingLogs() if logs is None else logs
    leader = logs.leaders.get(partition)
    return PartitionInputs(
        partition=partition,
        sets=sets,
        known=states_of(known),
        leader=leader,
        local_holes=_local_holes(sets, leader),
        why_no_log=logs.missing.get(partition),
        replicas=[log for log in logs.replicas if log.topic_id_partition == partition],
    )


def states_of(segments: Iterable[RemoteLogSegmentMetadata]) -> dict[Uuid, RemoteLogSegmentState]:
    """Return the states of segments by their ids."""
    return {segment.segment_id: segment.state for segment in segments}


def _local_holes(sets: Sequence[ObjectSet], log: Log | None) -> dict[int, LocalHole]:
    """Return the holes of a partition's `log` that begin where the log of one of the `sets` ends.

    Only the batches at both ends of each are read. A log that is not on this host has none.
    """
    if not isinstance(log, LocalLog):
        return {}
    starts = {each.listed.start_offset for each in sets}
    ends = {each.segment.end_offset + 1 for each in sets if each.segment and each.log_end}
    holes = {end: _local_hole(log, end) for end in ends - starts}
    return {end: hole for end, hole in holes.items() if hole is not None}


def _local_hole(log: LocalLog, offset: int) -> LocalHole | None:
    """Return the hole that begins at `offset`; None if there is none, or if bytes beside it are damaged."""
    files = [SegmentFiles(log.directory, each.base_offset) for each in log.segments]
    is_after_a_batch, is_whole, found, next_offset = False, False, 0, log.log_end_offset
    try:
        for buf, item in items_between(files, offset - 1, log.log_end_offset):
            if isinstance(item, BadRange):
                return None
            if item.base_offset >= offset:
                found, next_offset = 1, item.base_offset
                is_whole |= item.position > 0
                break
            is_after_a_batch, is_whole = item.next_offset == offset, item.end == len(buf)
    except FileNotFoundError:
        # A running broker has deleted the file meanwhile.
        return None
    # Bytes after the last whole batch of a file, and a file without one, may have records of the hole.
    begun = [each for each in log.segments if offset <= each.base_offset <= next_offset]
    unread = sum(each.size_bytes > 0 for each in begun) > found
    if not is_after_a_batch or not is_whole or unread or next_offset <= offset:
        return None
    rolled_at = next((each.base_offset for each in begun if each.base_offset > offset), None)
    return LocalHole(next_offset, rolled_at)


def read_rebuilt(resources: Resources) -> TierState:
    """Derive the state of the selected partitions from the objects of the tier; resolve the selection.

    The state has the segments of each partition that `rebuild` would publish. If log directories are given,
    the choice of segments depends on them as in `rebuild`. Four kinds of problems go to
    `resources.problems`: missing offsets, sets that are not understood (the others are read), incomplete sets
    whose records are in no known log, and partitions that `rebuild` would refuse for another reason.
    """

    def report(partition: TopicIdPartition, decision: PartitionDecision, has_log: bool) -> None:
        for problem in problems_of(partition, decision, has_log=has_log):
            resources.problems.report(problem)

    return derive_state(resources, resources.logs_if_given, report)


OnDecision = Callable[[TopicIdPartition, PartitionDecision, bool], None]
"""Called with each partition, the decision about it, and whether a local log was used for the decision."""


def derive_state(
    resources: Resources, logs: Callable[[], Sequence[LocalLog]], on_decision: OnDecision
) -> TierState:
    """Return the state that `read_rebuilt` describes; `logs` decide, `on_decision` receives the decisions.

    Raise CorruptInputError if there are no logs, and no set of the selected partitions is understood.
    """
    tier = TierSets.of(resources)
    listed = tier.listed()
    selection = resources.resolve_selection(each.partition for each in listed)
    chosen = [each for each in listed if each.partition in selection]
    sets = tier.derived(chosen)
    state, given = TierState(), logs()
    for event in _events(sets, given, on_decision):
        # All events are put in metadata partition 0: nobody reads these events from a topic.
        offset = state.read.get(0, 0)
        fold_event(event, state, metadata_partition=0, metadata_offset=offset)
        state.read[0] = offset + 1
    if sets and not given and all(each.why_not_understood is not None for each in sets):
        raise CorruptInputError(
            f"all {len(sets)} sets of objects of the selected partitions",
            expected="one that is understood",
            found=f"{sets[0].why_not_understood} ({sets[0].listed.segment_id})",
        )
    return state


def _events(
    sets: Sequence[ObjectSet], logs: Sequence[LocalLog], on_decision: OnDecision
) -> Iterator[MetadataEvent]:
    of_partition = by_partition(sets)
    deciding = DecidingLogs.newest(of_partition, logs)
    for partition, own in of_partition.items():
        decision = decide_partition(inputs_of(partition, own, logs=deciding))
        on_decision(partition, decision, partition in deciding.leaders)
        if decision.refused is not None and not is_not_understood(decision.refused):
            continue
        for segment in decision.choice.chain:
            yield segment
            yield RemoteLogSegmentMetadataUpdate.of(
                segment,
                RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                broker_id=NOT_A_BROKER_ID,
                event_timestamp_ms=segment.event_timestamp_ms,
            )


def problems_of(
    partition: TopicIdPartition, decision: PartitionDecision, *, has_log: bool
) -> Iterator[CorruptInputError]:
    """Yield an error for each range of offsets that the tier has or had and that is not read."""
    if is_not_understood(decision.refused):
        yield CorruptInputError(
            f"{partition}: only the sets that are understood are read",
            expected="every set",
            found=str(decision.refused),
        )
    elif decision.refused is not None:
        yield CorruptInputError(
            f"{partition}: not read from the tier",
            expected="a tier and logs that are one log",
            found=decision.refused,
            hint="without --log-dir, the tier alone decides" if has_log else None,
        )
        return
    hole = decision.choice.hole
    if hole is not None:
        yield CorruptInputError(
            f"{partition}: segments below offset {decision.choice.first_offset} are left out",
            expected="segments without a hole",
            found=f"no segment has offsets {hole.first} to {hole.last}",
        )
    for each, reason in decision.choice.left:
        # Without a log, the first segment that can be read is the log start: one below it may be damaged.
        is_below_log = has_log and reason.kind is ReasonKind.LOG_START_OFFSET
        is_other = reason.kind is ReasonKind.ABOVE_HOLE or is_below_log
        if each.segment is None and not is_other:
            yield CorruptInputError(
                f"{partition}: segment {each.listed.segment_id} is not read",
                expected="a complete set of objects",
                found=each.why_not_understood or str(each.why_incomplete),
                hint="its objects are damaged, half copied or half deleted: see tierctl verify",
            )
        elif each.segment is not None and is_lost_below(decision.choice, reason):
            yield CorruptInputError(
                f"{partition}: segment {each.listed.segment_id} is not read",
                expected=f"segments that join offset {decision.choice.first_offset}, where the others begin",
                found=str(reason),
            )


class DerivedMetadata:
    """Metadata derived once from the tier; `decisions` has the decision about each partition's sets."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._state: TierState | None = None
        self.decisions: dict[TopicIdPartition, PartitionDecision] = {}

    @property
    def state(self) -> TierState:
        """Implement `RemoteLogMetadataManager.state`."""
        return self.refresh()

    def refresh(self) -> TierState:
        """Implement `RemoteLogMetadataManager.refresh`; resolve the selection at the first call."""
        if self._state is None:
            self._state = derive_state(self._resources, list, self._decided)
        return self._state

    def _decided(self, partition: TopicIdPartition, decision: PartitionDecision, _has_log: bool) -> None:
        self.decisions[partition] = decision

    def publish(self, events: Sequence[MetadataEvent], *, before_append: Callable[[], None] = no_op) -> None:
        """Raise MetadataError, because derived metadata has no topic to which events could be published."""
        del events, before_append
        raise MetadataError("metadata that was derived from a tier can't be published")

    def identity(self) -> ClusterIdentity:
        """Implement `RemoteLogMetadataManager.identity`: the cluster and the topic id are unknown."""
        return ClusterIdentity(cluster_id=None, metadata_topic_id=None)

    def deleted_segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield nothing: objects do not show which segments were deleted."""
        return iter(())

    def close(self) -> None:
        """Implement `RemoteLogMetadataManager.close`."""
