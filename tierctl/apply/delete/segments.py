"""Delete segments: used by sweep, by partition deletes and by the clean-up after a failed copy.

Order: DELETE_SEGMENT_STARTED → delete by exact key → check that the objects are gone →
DELETE_SEGMENT_FINISHED (KIP-405; RemoteLogManager.deleteRemoteLogSegment). A sweep raises the log start
offset first (RLMExpirationTask.cleanupExpiredRemoteLogSegments).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from tierctl.apply.labels import Label, effect
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.run_context import RunContext
from tierctl.apply.side_effects import SideEffectContext, SideEffectInput, SideEffectResult
from tierctl.errors import RemoteResourceNotFound, RemoteStorageError, TierctlError
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.plan.steps import Step
from tierctl.state.tier import TierState
from tierctl.storage.base import RemoteStorageManager

_S = RemoteLogSegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionLabels:
    """The labels of the three side effects of a deletion; they differ by command."""

    started: Label
    delete: Label
    finished: Label


SWEEP_LABELS = DeletionLabels(
    started="sweep.started.publish", delete="sweep.segment.delete", finished="sweep.finished.publish"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The outcome of deleting one segment: finished, failed with `error`, or `stopped` before it began."""

    segment: RemoteLogSegmentMetadata
    error: TierctlError | None = None
    stopped: bool = False

    @property
    def done(self) -> bool:
        """Return True if the objects are gone and DELETE_SEGMENT_FINISHED is published."""
        return self.error is None and not self.stopped


def outcome_of(step: Step, deletion: Deletion) -> Outcome:
    """Return the outcome of `step`, which asked for `deletion`."""
    if deletion.error is not None:
        return Outcome(step=step, status=Status.FAILED, error=deletion.error)
    if deletion.stopped:
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    return Outcome(step=step, status=Status.DONE)


def find_segment(step: Step, state: TierState) -> RemoteLogSegmentMetadata | None:
    """Return the current metadata of the segment that `step` names, or None if it is deleted."""
    part = state.partition(step.topic_id_partition)
    return None if part is None or step.segment_id is None else part.cache.get(step.segment_id)


def segment_update(
    segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, context: RunContext
) -> RemoteLogSegmentMetadataUpdate:
    """Return the event that moves `segment` to `state`, with its custom metadata and the current time."""
    return RemoteLogSegmentMetadataUpdate(
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        segment_id=segment.segment_id,
        broker_id=context.broker_id,
        event_timestamp_ms=context.clock_ms(),
        state=state,
        custom_metadata=segment.custom_metadata,
    )


def delete_steps(
    steps: Sequence[Step],
    segments: Sequence[RemoteLogSegmentMetadata],
    context: RunContext,
    labels: DeletionLabels,
    *,
    refused: Mapping[Uuid, TierctlError],
) -> list[Outcome]:
    """Delete the segments of one wave, `segments[i]` for `steps[i]`, except those `refused`.

    Errors of publishing are raised.
    """
    deletions = delete_except(refused, segments, context, labels)
    return [outcome_of(step, deletion) for step, deletion in zip(steps, deletions, strict=True)]


def delete_except(
    refused: Mapping[Uuid, TierctlError],
    segments: Sequence[RemoteLogSegmentMetadata],
    context: RunContext,
    labels: DeletionLabels,
) -> list[Deletion]:
    """Delete `segments` as `delete_segments` does; those in `refused` fail with their error, untouched."""
    deletions = iter(delete_segments([s for s in segments if s.segment_id not in refused], context, labels))
    return [
        Deletion(segment=segment, error=refused[segment.segment_id])
        if segment.segment_id in refused
        else next(deletions)
        for segment in segments
    ]


def delete_segments(
    segments: Sequence[RemoteLogSegmentMetadata],
    context: RunContext,
    labels: DeletionLabels,
    *,
    custom_metadata_max_bytes: int | None = None,
) -> list[Deletion]:
    """Delete `segments` as one wave and return the results in the same order.

    The published events contain the segments' custom metadata, so that a later run can resume the deletion,
    unless these exceed `custom_metadata_max_bytes` (KIP-917: such custom metadata are never stored).
    Errors of publishing are raised: the content of the metadata log is then unknown, so the caller must
    begin nothing more.
    """
    if segments:
        context.engine.ready()
    if not segments or context.stop.asked():
        return [Deletion(segment=segment, stopped=True) for segment in segments]

    def publish(
        chosen: Sequence[RemoteLogSegmentMetadata], state: RemoteLogSegmentState, label: Label
    ) -> None:
        events = [segment_update(_storable(s, custom_metadata_max_bytes), state, context) for s in chosen]
        if events:
            with effect(label):
                context.publish(events)

    # DELETE_SEGMENT_STARTED is published first: a crash leaves work to resume, never a dangling pointer.
    begun = _S.DELETE_SEGMENT_STARTED
    publish([s for s in segments if s.state is not begun], begun, labels.started)

    deletions = _delete_objects(segments, context, labels.delete)
    if context.stop.asked():
        return [d if d.error else Deletion(segment=d.segment, stopped=True) for d in deletions]
    # FINISHED is never published after a partial error: its readers forget the keys.
    publish([d.segment for d in deletions if d.done], _S.DELETE_SEGMENT_FINISHED, labels.finished)
    return deletions


def _storable(segment: RemoteLogSegmentMetadata, max_bytes: int | None) -> RemoteLogSegmentMetadata:
    if max_bytes is None or len(segment.custom_metadata or b"") <= max_bytes:
        return segment
    return replace(segment, custom_metadata=None)


def _delete_objects(
    segments: Sequence[RemoteLogSegmentMetadata], context: RunContext, label: Label
) -> list[Deletion]:
    side_effects = context.side_effect_context()
    inputs = [SideEffectInput(metadata=segment) for segment in segments]
    results = context.engine.map(partial(delete_segment, label), inputs, side_effects)
    if context.engine.verify_on_driver:
        remote = side_effects.remote
        results = [_verified(result, s, remote) for result, s in zip(results, segments, strict=True)]
    return [
        Deletion(segment=segment, error=result.error, stopped=result.stopped)
        for segment, result in zip(segments, results, strict=True)
    ]


def delete_segment(label: Label, context: SideEffectContext, work: SideEffectInput) -> SideEffectResult:
    """Delete the objects of one segment and check that they are gone: the side effect of a deletion."""
    segment = work.metadata
    if context.stop.asked():
        return SideEffectResult(stopped=True)
    try:
        with effect(label):
            _delete_and_check(segment, context.remote)
    except TierctlError as e:
        return SideEffectResult(error=e, begun=True)
    except OSError as e:
        return SideEffectResult(error=RemoteStorageError(f"deleting {segment.segment_id}: {e}"), begun=True)
    context.advance(segment.segment_size_in_bytes)
    return SideEffectResult(begun=True)


def _delete_and_check(segment: RemoteLogSegmentMetadata, remote: RemoteStorageManager) -> None:
    # After a crash between the delete and FINISHED, the objects are gone already: that is the goal.
    with suppress(RemoteResourceNotFound):
        remote.delete_log_segment_data(segment)
    _require_gone(segment, remote)


def _require_gone(segment: RemoteLogSegmentMetadata, remote: RemoteStorageManager) -> None:
    left = remote.objects_of(segment)
    if left:
        raise RemoteStorageError(
            f"segment {segment.segment_id} of {segment.topic}-{segment.partition} was deleted, "
            f"but {len(left)} of its objects are still there: {', '.join(o.key for o in left[:5])}",
            hint="run the command again: it resumes the deletion",
        )


def _verified(
    result: SideEffectResult, segment: RemoteLogSegmentMetadata, remote: RemoteStorageManager
) -> SideEffectResult:
    """Return `result`, with an error if objects of `segment` are still visible to this process."""
    if result.error is not None or result.stopped:
        return result
    try:
        _require_gone(segment, remote)
    except RemoteStorageError as e:
        return replace(result, error=e)
    return result
