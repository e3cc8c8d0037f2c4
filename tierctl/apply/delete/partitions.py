"""Delete the remote segments of deleted partitions, as the RemotePartitionRemover of KIP-405 does.

Order: DELETE_PARTITION_MARKED (published by --mark, as the KIP's controller would) → STARTED → delete every
segment → list the segments again, because a broker may still have been copying → FINISHED → commit the
processed offsets. A partition is identified by (topic id, partition), so that a topic recreated under the
same name is not touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tierctl.apply.delete.segments import Deletion, DeletionLabels, outcome_of
from tierctl.apply.delete.waves import Wave, delete_waves
from tierctl.apply.labels import Label, effect
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.run_context import RunContext
from tierctl.apply.tier_check import require_known_tier, why_not_deletable
from tierctl.errors import PartialFailure, TierctlError
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.preconditions import why_unreadable
from tierctl.plan.steps import Step

_P = RemotePartitionDeleteState

ROUNDS_MAX = 10
"""The number of times that new segments may appear during a partition delete before the run gives up."""

_LABELS = DeletionLabels(
    started="delete.segment_started.publish",
    delete="delete.segment.delete",
    finished="delete.segment_finished.publish",
)


def mark_partition(step: Step, context: RunContext) -> Outcome:
    """Publish DELETE_PARTITION_MARKED, unless the partition is marked already."""
    known = context.metadata.refresh().partition(step.topic_id_partition)
    if known is not None and known.delete_state is not None:
        return Outcome(step=step, status=Status.DONE, reason=f"already {known.delete_state}")
    if context.stop.asked():
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    _publish(step.topic_id_partition, _P.DELETE_PARTITION_MARKED, context, "delete.marked.publish")
    return Outcome(step=step, status=Status.DONE)


def remove_partition(step: Step, segments: Sequence[Step], context: RunContext) -> list[Outcome]:
    """Delete every segment of a marked partition; return the outcome of `step`, then those of `segments`.

    `segments` are the plan's steps for the segments known when it was made; later ones are deleted too. The
    outcome is DONE only if no segment is left and DELETE_PARTITION_FINISHED is published. The process may be
    killed at any point: the next call resumes from the metadata.
    """
    partition = step.topic_id_partition
    settled = _settled(step, context)
    if settled is not None:
        return [settled, *(replace(settled, step=segment) for segment in segments)]
    known = context.metadata.state.partition(partition)
    if known is not None and known.delete_state is _P.DELETE_PARTITION_MARKED:
        require_known_tier({partition}, context)
        _publish(partition, _P.DELETE_PARTITION_STARTED, context, "delete.partition_started.publish")
    drained = _drain(partition, context)
    outcome = _partition_outcome(step, drained, context)
    if outcome.status is Status.DONE:
        # FINISHED is published last: after it, no run looks for the partition's segments again.
        _publish(partition, _P.DELETE_PARTITION_FINISHED, context, "delete.partition_finished.publish")
    return [outcome, *(_segment_outcome(segment, drained, outcome) for segment in segments)]


def _settled(step: Step, context: RunContext) -> Outcome | None:
    """Return the outcome of a partition that is unknown, not marked or finished, or of a stopped run."""
    state = context.metadata.refresh()
    known = state.partition(step.topic_id_partition)
    if known is None or known.delete_state is None:
        reason = "the partition is not marked for deletion"
        return Outcome(step=step, status=Status.DROPPED, reason=reason)
    if not known.is_to_remove:
        return Outcome(step=step, status=Status.DONE, reason="already deleted")
    unreadable = why_unreadable(state, known)
    if unreadable is not None:
        return Outcome(step=step, status=Status.DROPPED, reason=unreadable)
    return Outcome(step=step, status=Status.PENDING, reason=STOPPED) if context.stop.asked() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drained:
    """Deletions by segment id; `error` states why segments that appeared later were not deleted."""

    deletions: Mapping[Uuid, Deletion]
    error: TierctlError | None = None

    @property
    def first_error(self) -> TierctlError | None:
        return self.error or next((d.error for d in self.deletions.values() if d.error), None)


def _drain(partition: TopicIdPartition, context: RunContext) -> _Drained:
    """Delete segments until the metadata list none; a segment that fails does not hold up the others."""
    deletions: dict[Uuid, Deletion] = {}
    for _ in range(ROUNDS_MAX):
        segments = _listed(partition, context)
        if not segments:
            return _Drained(deletions=deletions)
        waves = (
            Wave(segments=each, refused=why_not_deletable(each, context))
            for each in context.delete_waves(segments)
        )
        for found in delete_waves(waves, context, _LABELS):
            deletions |= {deletion.segment.segment_id: deletion for deletion in found}
        if not all(deletion.done for deletion in deletions.values()):
            return _Drained(deletions=deletions)
    error = PartialFailure(
        f"segments of {partition} kept appearing while it was being deleted ({ROUNDS_MAX} rounds)",
        hint="something still copies this partition; stop it and run delete again",
    )
    return _Drained(deletions=deletions, error=error)


def _partition_outcome(step: Step, drained: _Drained, context: RunContext) -> Outcome:
    if drained.first_error is not None:
        return Outcome(step=step, status=Status.FAILED, error=drained.first_error)
    if context.stop.asked():
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    return Outcome(step=step, status=Status.DONE)


def _segment_outcome(step: Step, drained: _Drained, partition: Outcome) -> Outcome:
    deletion = None if step.segment_id is None else drained.deletions.get(step.segment_id)
    if deletion is not None:
        return outcome_of(step, deletion)
    if partition.status is Status.DONE:
        return Outcome(step=step, status=Status.DONE, reason="already deleted")
    return Outcome(step=step, status=Status.PENDING, reason=partition.reason or "not reached")


def _listed(partition: TopicIdPartition, context: RunContext) -> list[RemoteLogSegmentMetadata]:
    context.metadata.refresh()
    return sorted(
        context.metadata.list_remote_log_segments(partition), key=lambda s: (s.start_offset, s.segment_id)
    )


def _publish(
    partition: TopicIdPartition, state: RemotePartitionDeleteState, context: RunContext, label: Label
) -> None:
    event = RemotePartitionDeleteMetadata(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        broker_id=context.broker_id,
        event_timestamp_ms=context.clock_ms(),
        state=state,
    )
    with effect(label):
        context.publish([event])
