"""Checks a plan against newer metadata: drops the steps whose segments or partitions have changed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.plan.preconditions import why_undecided, why_unknown, why_unreadable
from tierctl.plan.steps import FOLLOWS, LINEAGE_EPOCH, SEGMENTS, STATES, VERIFY, Action, Plan, Step
from tierctl.state.tier_state import PartitionState, TierState

_S = RemoteLogSegmentState
_DELETING = _S.DELETE_SEGMENT_STARTED
_Key = tuple[Uuid, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A step that is no longer valid; `is_done` if its effect is there already."""

    step: Step
    reason: str
    is_done: bool


class _Done(str):
    """The reason to drop a step whose effect is there already."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """The plan with its valid steps, and the steps that were dropped."""

    plan: Plan
    dropped: tuple[Dropped, ...]


def recheck(
    plan: Plan,
    state: TierState,
    broken: set[_Key] | None = None,
    staying: Collection[Uuid] = frozenset(),
) -> Recheck:
    """Drop every step of `plan` that is not valid with `state`, the metadata read to their new end.

    A copy or an expiry depends on the earlier steps of its partition: if one of them is dropped without being
    done, was removed from the plan, or is about one of the segments `staying`, which can't be deleted, the
    later ones are dropped, too, so that the tier gets no hole. The steps about `staying` are kept.
    `broken` has the partitions of which such a step is missing already; new ones are added. The remaining
    plan counts as decided from `state.read`.
    """
    checker = _Checker(plan.command, state)
    kept: list[Step] = []
    dropped: list[Dropped] = []
    kept_ids: set[str | None] = set()
    broken = set() if broken is None else broken
    for step in plan.steps:
        key, depends_on_earlier = step.topic_id_partition.key, LINEAGE_EPOCH in step.details
        reason, stays = checker.check(step), step.segment_id in staying
        if reason is None and not stays:
            reason = checker.check_contiguous(step, kept_ids)
            if reason is None and key in broken and depends_on_earlier:
                reason = "an earlier step of the partition no longer holds"
        is_done = isinstance(reason, _Done)
        if reason is not None:
            dropped.append(Dropped(step=step, reason=reason, is_done=is_done))
        else:
            kept.append(step)
            if not stays:
                kept_ids.add(step.segment_id)
        if depends_on_earlier and not is_done and (stays or reason is not None):
            broken.add(key)
    return Recheck(plan=replace(plan, steps=tuple(kept), read=dict(state.read)), dropped=tuple(dropped))


class _Checker:
    def __init__(self, command: str, state: TierState) -> None:
        self._command = command
        self._state = state
        self._segments: dict[_Key, list[RemoteLogSegmentMetadata]] = {}
        self._newest_epochs: dict[_Key, int] = {}

    def check(self, step: Step) -> str | None:
        """Return the reason for dropping `step`; None if it is valid."""
        part = self._state.partition(step.topic_id_partition)
        if part is not None and part.topic_id_partition.topic != step.topic:
            return f"the metadata call this topic {part.topic_id_partition.topic!r}"
        return self._check_action(step, part)

    def _check_action(self, step: Step, part: PartitionState | None) -> str | None:
        match step.action:
            case Action.COPY_SEGMENT:
                return self._check_copy(step, part)
            case Action.MARK_PARTITION:
                return _check_mark(part)
            case Action.DELETE_PARTITION:
                return _check_delete_partition(self._state, part)
            case Action.DELETE_SEGMENT:
                return self._check_delete(step, part)
            case Action.PUBLISH_SEGMENT | Action.DISCARD_SEGMENT | Action.WRITE_CHECKPOINTS:
                return None if part is None else self._check_publish(step, part)
            case (
                Action.MATERIALISE_PARTITION
                | Action.STORE_INDEXES
                | Action.RESTORE_PARTITION
                | Action.CREATE_TOPIC
                | Action.COPY_OBJECTS
                | Action.LOWER_OFFSET
            ):
                has_indexes = step.action is Action.STORE_INDEXES
                return _check_indexes(step, part) if has_indexes else _check_materialise(step, part)
            case _:
                assert_never(step.action)

    def _check_copy(self, step: Step, part: PartitionState | None) -> str | None:
        reason = why_undecided(self._state, step.topic_id_partition)
        if part is None:
            return reason
        reason = reason or self._why_other_lineage(step, part)
        if reason:
            return reason
        for segment in self._listed(part):
            if segment.start_offset > (step.end_offset or 0) or segment.end_offset < (step.start_offset or 0):
                continue
            if segment.state is _S.COPY_SEGMENT_FINISHED and _is_copy_of(segment, step):
                return _Done(f"already copied as {segment.segment_id}")
            if segment.state is _S.COPY_SEGMENT_STARTED and segment.segment_id not in _begun(step.details):
                return f"another copy, {segment.segment_id}, was started since"
        return None

    def _check_publish(self, step: Step, part: PartitionState) -> str | None:
        segment = None if step.segment_id is None else part.get(step.segment_id)
        if segment is not None:
            target = _S.COPY_SEGMENT_FINISHED if step.action is Action.PUBLISH_SEGMENT else _DELETING
            if segment.state is target:
                return _Done(f"already {segment.state}")
            if segment.state is not _S.COPY_SEGMENT_STARTED:
                return f"the segment is {segment.state} by now"
            if step.action is Action.DISCARD_SEGMENT:
                # DISCARD_SEGMENT is planned only for object sets without metadata: metadata that exist now
                # show that a copy has begun since, which may still be running.
                return f"a copy of the segment was started since, by broker {segment.broker_id}"
        elif step.segment_id is not None and not introduces(step):
            return "the segment was deleted since"
        if part.delete_state is not None:
            return f"the partition is being deleted ({part.delete_state})"
        return self._why_other_lineage(step, part)

    def _listed(self, part: PartitionState) -> list[RemoteLogSegmentMetadata]:
        key = part.topic_id_partition.key
        if key not in self._segments:
            self._segments[key] = list(part.cache.list_remote_log_segments())
        return self._segments[key]

    def _check_delete(self, step: Step, part: PartitionState | None) -> str | None:
        segment = part.get(step.segment_id) if part is not None and step.segment_id else None
        if segment is None and introduces(step):
            return why_undecided(self._state, step.topic_id_partition)
        if part is None or segment is None:
            return _Done("the segment is deleted already")
        reason = self._why_not_deleted(step, part) or _why_other_segment(step, segment)
        if reason is None and not self._removes(part):
            reason = _why_changed(step, segment)
        return reason

    def check_contiguous(self, step: Step, kept_ids: Collection[str | None]) -> str | None:
        """Return the reason for dropping `step` if the segment to be deleted before it stays, or None."""
        before, part = step.details.get(FOLLOWS), self._state.partition(step.topic_id_partition)
        if part is None or not isinstance(before, str) or before in kept_ids:
            return None
        segment = part.get(Uuid.parse(before))
        if segment is None or segment.state is not _S.COPY_SEGMENT_FINISHED:
            return None
        return f"segment {before}, which must be deleted before it, stays"

    def _why_other_lineage(self, step: Step, part: PartitionState) -> str | None:
        decided_in, key = step.details.get(LINEAGE_EPOCH), part.topic_id_partition.key
        if key not in self._newest_epochs:
            self._newest_epochs[key] = part.segments.latest_epoch()
        newest = self._newest_epochs[key]
        if isinstance(decided_in, int) and newest > decided_in:
            return f"a leader of epoch {newest} wrote since; this was decided in epoch {decided_in}"
        return None

    def _removes(self, part: PartitionState) -> bool:
        """Return whether the steps of this partition delete it as a whole."""
        return self._command == "delete" or (self._command == VERIFY and part.delete_state is not None)

    def _why_not_deleted(self, step: Step, part: PartitionState) -> str | None:
        if not self._removes(part):
            return why_unknown(self._state, part) or self._why_other_lineage(step, part)
        reason = _check_delete_partition(self._state, part)
        # A segment that is left is not done, although its partition is.
        return None if reason is None else str(reason)


def introduces(step: Step) -> bool:
    """Return whether the step publishes COPY_SEGMENT_STARTED of a segment that is not in the metadata."""
    states = step.details.get(STATES)
    return isinstance(states, str) and states.startswith(_S.COPY_SEGMENT_STARTED)


def _begun(details: Mapping[str, Any]) -> list[str]:
    begun = details.get("begun_copies", [])
    return begun if isinstance(begun, list) else []


def _is_copy_of(segment: RemoteLogSegmentMetadata, step: Step) -> bool:
    if (segment.start_offset, segment.end_offset) != (step.start_offset, step.end_offset):
        return False
    planned = step.details.get("segment_leader_epochs")
    return isinstance(planned, list) and _are_of_one_log(segment.segment_leader_epochs, planned)


def _are_of_one_log(copied: Sequence[Sequence[int]], planned: Sequence[Sequence[int]]) -> bool:
    """Return whether two segmentLeaderEpochs of the same offsets are equal above the higher log start.

    The log start may have risen between the copy and the plan: it cuts the epochs below it, and raises the
    first remaining one.
    """
    if not copied or not planned:
        return False
    first = max(copied[0][0], planned[0][0])
    kept, wanted = ([list(entry) for entry in entries if entry[0] >= first] for entries in (copied, planned))
    if not kept or not wanted:
        return False
    return kept[0][0] == wanted[0][0] == first and kept[1:] == wanted[1:]


def _why_other_segment(step: Step, segment: RemoteLogSegmentMetadata) -> str | None:
    if (segment.start_offset, segment.end_offset) != (step.start_offset, step.end_offset):
        return "the segment's offsets have changed since this was decided"
    return None


def _why_changed(step: Step, segment: RemoteLogSegmentMetadata) -> str | None:
    # A started deletion is resumed, whichever program started it; other state changes need a new decision.
    if segment.state not in {_S.DELETE_SEGMENT_STARTED, step.details.get("state")}:
        return f"the segment is {segment.state} now, it was {step.details.get('state')}"
    return None


def _check_materialise(step: Step, part: PartitionState | None) -> str | None:
    # Only the segments to read are checked here. The step's other changes do not depend on metadata; whether
    # the node was started is checked before they are made.
    for segment_id in (each["segment_id"] for each in step.details.get(SEGMENTS, ())):
        segment = None if part is None else part.get(Uuid.parse(segment_id))
        if segment is None or segment.state is not _S.COPY_SEGMENT_FINISHED:
            return f"segment {segment_id} can't be read any more"
    return None


def _check_indexes(step: Step, part: PartitionState | None) -> str | None:
    segment = None if part is None or step.segment_id is None else part.get(step.segment_id)
    if part is None or segment is None:
        return "the segment was deleted since"
    reason = _why_other_segment(step, segment)
    if segment.state is not _S.COPY_SEGMENT_FINISHED:
        reason = f"the segment is {segment.state} by now"
    elif part.delete_state is not None:
        reason = f"the partition is being deleted ({part.delete_state})"
    return reason


def _check_mark(part: PartitionState | None) -> str | None:
    if part is not None and part.delete_state is not None:
        return _Done(f"already {part.delete_state}")
    return None


def _check_delete_partition(state: TierState, part: PartitionState | None) -> str | None:
    if part is None or part.delete_state is None:
        return "the partition is not marked for deletion"
    if not part.is_to_remove:
        return _Done("the partition is deleted already")
    return why_unreadable(state, part)
