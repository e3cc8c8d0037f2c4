"""Decide about one partition's sets of objects that the metadata do not have as finished segments.

A set is published, deleted, or left with the reason. The choice of sets is that of a rebuild
(`plan.rebuild.partition`), but a segment that the metadata have as finished is never given up for another.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tierctl.model import ObjectSet, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.plan.copy.dangling import DANGLING_AGE_MS_MIN
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.rebuild.not_understood import beside, is_not_understood, reason_of
from tierctl.plan.rebuild.partition import PartitionDecision, PartitionInputs
from tierctl.plan.rebuild.plan import publish_step
from tierctl.plan.repair.orphans import OrphanRule, orphan_step
from tierctl.plan.steps import Skip, Step

_S = RemoteLogSegmentState
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
            # wrongly (see `plan.rebuild.log_start`).
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
                kept = rule.why_kept(each.listed)
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
