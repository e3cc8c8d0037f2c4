"""Decide the repairs that `verify --plan-out` plans; pure functions.

`plan_repair` decides all partitions, by the verdicts on `sets` of objects and the rule for `orphans`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from tierctl.errors import UsageError
from tierctl.model import (
    IndexType,
    ListedSet,
    ObjectSet,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.local import unknown_segment
from tierctl.model.times import duration_text, iso_utc
from tierctl.plan.dangling import DANGLING_AGE_MS_MIN, Dangling
from tierctl.plan.partition_choice import PartitionDecision, PartitionInputs, beside, publish_step, reason_of
from tierctl.plan.partition_deletes import plan_removal
from tierctl.plan.preconditions import CurrentTopics, why_undecided, why_unknown
from tierctl.plan.reasons import RESUMED, Reason, ReasonKind, is_not_understood
from tierctl.plan.steps import FILE, STATES, VERIFY, Action, Plan, Skip, Step, delete_step, segment_step
from tierctl.state.tier_state import PartitionState, TierState

# Decide about one partition's sets of objects that the metadata do not have as finished segments.
#
# A set is published, deleted, or left with the reason. The choice of sets is that of a rebuild
# (`plan.partition_choice`), but a segment that the metadata have as finished is never given up for another.

_S = RemoteLogSegmentState
_DAY_MS = 24 * 60 * 60 * 1000

ORPHAN_AGE_MS = 7 * _DAY_MS
"""Default of --orphan-age: the age from which orphans are deleted."""

ORPHAN_AGE_MS_MIN = _DAY_MS
"""The lowest --orphan-age: a younger object may belong to a copy that is still running."""

SIGHTINGS_APART_MS = _DAY_MS
"""An orphan is deleted only if two sightings are at least this far apart."""

INTRODUCED = f"{_S.COPY_SEGMENT_STARTED},{_S.DELETE_SEGMENT_STARTED}"
"""The states that are published about an orphan before its objects are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRule:
    """The rule for orphans: older than `age_ms`, and seen at least a day before `now_ms`.

    `first_seen_ms` has the time of the first sighting by segment id; None without a state directory, which
    keeps the sightings. `foreign` has the time of the last write to a topic that is unknown to the metadata
    and the cluster, and the object; None without one. UsageError if `age_ms` is less than 24 hours.
    """

    now_ms: int
    age_ms: int = ORPHAN_AGE_MS
    first_seen_ms: Mapping[Uuid, int] | None = field(default_factory=dict)
    foreign: tuple[int, str] | None = None

    def __post_init__(self) -> None:
        if self.age_ms < ORPHAN_AGE_MS_MIN:
            raise UsageError(
                f"--orphan-age {duration_text(self.age_ms)}: a younger object may belong to a copy that is "
                "still running",
                hint=f"use at least {duration_text(ORPHAN_AGE_MS_MIN)}",
            )

    def why_kept(self, listed: ListedSet) -> str | None:
        """Return why the objects of `listed` may not be deleted yet; None if they may."""
        young = self.why_young(listed, self.age_ms)
        if young is not None:
            return f"{young} (--orphan-age)"
        if self.first_seen_ms is None:
            return "orphan: it must be seen twice, a day apart: give --state-dir, which keeps the sightings"
        seen_ms = self.first_seen_ms.get(listed.segment_id, self.now_ms)
        if self.now_ms - seen_ms < SIGHTINGS_APART_MS:
            return (
                f"orphan: first seen at {iso_utc(seen_ms)}; run this command again from "
                f"{iso_utc(seen_ms + SIGHTINGS_APART_MS)} on, with the same --state-dir"
            )
        return None

    def why_foreign(self) -> str | None:
        """Return why a topic that is unknown may be another cluster's; None if nothing shows one.

        Brokers publish an event about each segment before they store it; nobody writes to a deleted topic.
        """
        if self.foreign is None or self.now_ms - self.foreign[0] > self.age_ms:
            return None
        return (
            f"orphan: the metadata never had its topic, nor that of {self.foreign[1]}: another cluster may "
            "have its tier here; make sure that none has, and that this user can read the whole tier"
        )

    def why_young(self, listed: ListedSet, age_ms: int) -> str | None:
        """Return why the objects of `listed` may not be older than `age_ms`; None if they are."""
        written_ms = listed.modified_ms
        if written_ms is None:
            return "orphan: the store does not say when its objects were written"
        if self.now_ms - written_ms <= age_ms:
            return f"orphan: last written at {iso_utc(written_ms)}, not {duration_text(age_ms)} ago"
        return None


def orphan_step(each: ObjectSet, deleted: RemoteLogSegmentMetadata | None, reason: str) -> Step:
    """Return the step that makes the set of `each` known as being deleted, and then deletes it.

    `deleted` are its metadata if its deletion has finished before.
    """
    segment = deleted or each.segment or _invented(each.listed)
    segment = replace(segment, state=_S.COPY_SEGMENT_STARTED)
    custom = segment.custom_metadata
    return delete_step(
        segment,
        reason,
        breach="orphan",
        **{STATES: INTRODUCED},
        custom_metadata=None if custom is None else custom.hex(),
        txn_index_empty=segment.txn_index_empty,
    )


def _invented(listed: ListedSet) -> RemoteLogSegmentMetadata:
    """Return metadata for an incomplete set, of which only the names of its objects are known.

    No reader uses it, because the segment is being deleted.
    """
    return replace(
        unknown_segment(listed),
        event_timestamp_ms=listed.modified_ms or 0,
        segment_leader_epochs=((0, listed.start_offset),),
        segment_size_in_bytes=sum(listed.sizes_bytes.values()),
    )


Verdict = Step | Skip | Reason
"""A step that publishes a set, why the set is left, or why nobody needs it."""
_CLEAN = "copy --clean-dangling deletes its objects"


@dataclass(frozen=True, kw_only=True)
class ExaminedSets:
    """The sets of one partition, and the choice among them.

    `is_live` states whether its topic id exists. `deleted` has the metadata of segments whose deletion has
    finished, and `started` that of copies that were started. `unsound` says of each set whose bytes are
    contradictory, or can't be read, why it is not published; of the finished segments it has those that serve
    offsets of other sets.
    """

    inputs: PartitionInputs
    decision: PartitionDecision
    is_live: bool = True
    deleted: Mapping[Uuid, RemoteLogSegmentMetadata] = field(default_factory=dict)
    started: Mapping[Uuid, RemoteLogSegmentMetadata] = field(default_factory=dict)
    unsound: Mapping[Uuid, str] = field(default_factory=dict)
    misplaced: Collection[Uuid] = ()
    """Segments of the metadata with objects at another start offset, which are not in `inputs`."""

    @cached_property
    def sets(self) -> dict[Uuid, ObjectSet]:
        """The sets by segment id."""
        return {each.listed.segment_id: each for each in self.inputs.sets}

    @property
    def is_unknown(self) -> bool:
        """Return whether neither the metadata nor the cluster has, or the metadata had, the partition."""
        return not (self.is_live or self.inputs.known or self.deleted)

    @cached_property
    def unfinished(self) -> list[RemoteLogSegmentMetadata]:
        """The segments of the chain that could be published as finished, in order of offsets."""
        if not self.is_live or self.decision.refused is not None:
            return []
        known = self.inputs.known
        return [s for s in self.decision.choice.chain if s.segment_id not in known or self._is_started(s)]

    def _is_started(self, segment: RemoteLogSegmentMetadata) -> bool:
        return self.inputs.known[segment.segment_id] is _S.COPY_SEGMENT_STARTED

    @cached_property
    def _finished(self) -> list[RemoteLogSegmentMetadata]:
        known = self.inputs.known
        return [
            each.segment
            for key, each in self.sets.items()
            if each.segment is not None and known.get(key) is _S.COPY_SEGMENT_FINISHED
        ]

    def repeats(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Return whether a finished segment has the start of `segment`, or contains all its offsets."""
        return any(
            each.start_offset == segment.start_offset
            or (each.start_offset < segment.start_offset and segment.end_offset <= each.end_offset)
            for each in self._finished
        )

    @cached_property
    def verdicts(self) -> dict[Uuid, Verdict]:
        """The decision about each unfinished set: a step to publish it, or why it is left or discarded."""
        found = dict(self._published())
        choice = self.decision.choice
        for segment, reason in choice.discarded:
            found.setdefault(segment.segment_id, self._given_up(segment.segment_id, reason))
        for each, reason in choice.left:
            key = each.listed.segment_id
            # Object sets below the log start are not deleted either: a broker may have raised the log start
            # wrongly (see `state.log_start`).
            found.setdefault(key, self._skip(key, reason))
        return found

    def _published(self) -> Iterator[tuple[Uuid, Verdict]]:
        earlier: str | None = None
        for segment in self.unfinished:
            key = segment.segment_id
            if self.repeats(segment):
                yield key, self._given_up(key, Reason(ReasonKind.DUPLICATE_SET, kept="that is finished"))
                continue
            reason = earlier or self._why_not_published(segment)
            if reason is None:
                yield key, publish_step(segment, self.inputs.known, self.decision)
            else:
                yield key, self._skip(key, reason)
                earlier = f"segment {key} before it is not published"

    def _why_not_published(self, segment: RemoteLogSegmentMetadata) -> str | None:
        key = segment.segment_id
        if key in self.unsound:
            return self.unsound[key]
        begun = self.started.get(key)
        if begun is None:
            return None
        changed = [name for name in _FACTS if getattr(begun, name) != getattr(segment, name)]
        if changed:
            name = changed[0]
            said, found = getattr(begun, name), getattr(segment, name)
            return f"its event says {name} {said}, its objects say {found}; {_CLEAN}"
        return None

    def _given_up(self, segment_id: Uuid, reason: Reason) -> Verdict:
        """Return `reason`, unless the set may be the only sound copy of what an unsound one serves."""
        return self._skip(segment_id, beside(reason, self.unsound)) if self.unsound else reason

    def _skip(self, segment_id: Uuid, reason: str) -> Skip:
        return Skip.of(self.inputs.partition, reason, segment_id)


_FACTS = ("start_offset", "end_offset", "max_timestamp_ms", "segment_leader_epochs", "segment_size_in_bytes")


def decide_dangling(examined: ExaminedSets, cleaning: Step) -> Step | Skip:
    """Return the decision about a dangling copy: it is finished, deleted by the step `cleaning`, or left."""
    segment_id = cleaning.segment_id
    assert segment_id is not None
    if segment_id not in examined.sets:
        return cleaning
    refused = examined.decision.refused
    if refused is not None:
        return Skip.of(cleaning.topic_id_partition, refused, segment_id)
    match examined.verdicts.get(segment_id):
        case Step() | Skip() as verdict:
            return verdict
        case _:
            return cleaning


def decide_orphans(examined: ExaminedSets, rule: OrphanRule) -> Iterator[Step | Skip]:
    """Yield the decision about each set that is not in the metadata."""
    for segment_id in examined.misplaced:
        reason = "objects of it begin at another offset than the metadata say: look at them"
        yield Skip.of(examined.inputs.partition, reason, segment_id)
    for segment_id, each in examined.sets.items():
        if segment_id in examined.inputs.known:
            continue
        verdict = _why_given_up(examined, segment_id)
        match verdict:
            case Step():
                # Newer objects may belong to a copy whose first event was not read yet.
                kept = rule.why_young(each.listed, DANGLING_AGE_MS_MIN)
                yield verdict if kept is None else Skip.of(examined.inputs.partition, kept, segment_id)
            case Skip():
                yield verdict
            case _:
                kept = rule.why_kept(each.listed) or (rule.why_foreign() if examined.is_unknown else None)
                if kept is None:
                    yield orphan_step(each, examined.deleted.get(segment_id), f"orphan: {verdict}")
                else:
                    yield Skip.of(examined.inputs.partition, kept, segment_id)


def _why_given_up(examined: ExaminedSets, segment_id: Uuid) -> Step | Skip | str:
    """Return why an orphan is not needed, or the step that publishes it, or why it is left."""
    if segment_id in examined.deleted:
        return "the metadata say that its deletion has finished"
    refused = examined.decision.refused
    if examined.is_live and refused is None:
        return examined.verdicts[segment_id]
    each = examined.sets[segment_id]
    if each.why_not_understood is not None:
        refused = reason_of(each)
    elif not examined.is_live:
        return "its topic is deleted"
    elif each.why_incomplete is not None and not is_not_understood(refused):
        refused = Reason(ReasonKind.INCOMPLETE_SET, detail=f"{each.why_incomplete}; {refused}")
    assert refused is not None
    return Skip.of(examined.inputs.partition, refused, segment_id)


_Key = tuple[Uuid, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairInputs:
    """The inputs from which repairs are decided.

    `topics` are the existing topics. `examined` has the sets of objects by partition, `unexamined` the reason
    for each partition whose sets could not be examined.
    """

    topics: CurrentTopics
    dangling: Dangling
    orphans: OrphanRule
    examined: Mapping[_Key, ExaminedSets] = field(default_factory=dict)
    unexamined: Mapping[_Key, str] = field(default_factory=dict)
    indexes: Sequence[Step | Skip] = ()
    """The decision about each segment with a missing or damaged index."""


def plan_repair(state: TierState, inputs: RepairInputs) -> Plan:
    """Return the plan of the repairs of copies, deletions and orphans.

    Deletions of segments and of partitions that were started are resumed. A dangling copy is published as
    finished if its objects are complete and the log needs them, and so are such objects without metadata;
    other dangling copies are deleted as `copy --clean-dangling` does, and other orphans under the rule for
    them. If a case may not be decided, the plan has the reason.
    """
    removal = plan_removal(state)
    steps: list[Step] = list(removal.steps)
    skipped: list[Skip] = list(removal.skipped)
    for found in chain(_of_copies(state, inputs), _of_orphans(state, inputs), inputs.indexes):
        if isinstance(found, Step):
            steps.append(found)
        else:
            skipped.append(found)
    return Plan(command=VERIFY, steps=tuple(steps), read=dict(state.read), skipped=tuple(skipped))


def has_unfinished(part: PartitionState) -> bool:
    """Return whether the partition, which is not being deleted, has unfinished copies or deletions."""
    count = part.segments.count_in
    unfinished = count(_S.COPY_SEGMENT_STARTED) + count(_S.DELETE_SEGMENT_STARTED)
    return part.delete_state is None and unfinished > 0


def _of_copies(state: TierState, inputs: RepairInputs) -> Iterator[Step | Skip]:
    for part in filter(has_unfinished, state):
        partition = part.topic_id_partition
        reason = why_unknown(state, part) or inputs.topics.why_not_current(partition)
        if reason is not None:
            yield Skip.of(partition, reason)
            continue
        steps, skips = inputs.dangling.clean(part)
        yield from skips
        for step in steps:
            yield step if step.reason == RESUMED else _of_dangling(partition, step, inputs)


def _of_dangling(partition: TopicIdPartition, step: Step, inputs: RepairInputs) -> Step | Skip:
    examined = inputs.examined.get(partition.key)
    if examined is not None:
        return decide_dangling(examined, step)
    reason = inputs.unexamined.get(partition.key, "its objects were not examined")
    return Skip.of(partition, reason, step.segment_id)


def _of_orphans(state: TierState, inputs: RepairInputs) -> Iterator[Step | Skip]:
    for examined in inputs.examined.values():
        partition = examined.inputs.partition
        found = list(decide_orphans(examined, inputs.orphans))
        reason = why_undecided(state, partition) if found else None
        if reason is None:
            yield from found
        else:
            yield Skip.of(partition, reason)


INDEXES = "indexes"
"""Detail: the names of the indexes that are stored."""


def index_step(segment: RemoteLogSegmentMetadata, kinds: Collection[IndexType]) -> Step:
    """Return the step that stores the indexes `kinds` of `segment`."""
    names = [kind.value for kind in IndexType if kind in kinds]
    reason = f"missing or damaged, derived from the log: {', '.join(names)}"
    return segment_step(Action.STORE_INDEXES, segment, reason, {INDEXES: names})


def index_types(step: Step) -> frozenset[IndexType]:
    """Return the indexes that the step stores."""
    return frozenset(IndexType(name) for name in step.details[INDEXES])


FROM_OFFSET, TO_OFFSET = "from_offset", "to_offset"
"""Details: the committed offset in the file, and the safe one; None removes the entry."""


def lower_offset(
    file: str, partition: TopicIdPartition, offsets: tuple[int, int | None], reason: str
) -> Step:
    """Return the step about a partition of the metadata topic; `offsets` are the old and the new one."""
    return Step(
        action=Action.LOWER_OFFSET,
        reason=reason,
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        details={FILE: file, FROM_OFFSET: offsets[0], TO_OFFSET: offsets[1]},
    )
