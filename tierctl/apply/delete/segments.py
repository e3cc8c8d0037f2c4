"""The deletion of one segment: its events, the labels of its side effects, and its outcome."""

from dataclasses import dataclass

from tierctl.apply.labels import Label
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.run_context import RunContext
from tierctl.errors import TierctlError
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierctl.plan.steps import Step
from tierctl.state.tier import TierState


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
    """Return the outcome of `step`, for which `deletion` was made."""
    if deletion.error is not None:
        return Outcome(step=step, status=Status.FAILED, error=deletion.error)
    if deletion.stopped:
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    return Outcome(step=step, status=Status.DONE)


def find_segment(step: Step, state: TierState) -> RemoteLogSegmentMetadata | None:
    """Return the current metadata of the segment that `step` names, or None if it is deleted."""
    return None if step.segment_id is None else state.segment(step.topic_id_partition, step.segment_id)


def segment_update(
    segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, context: RunContext
) -> RemoteLogSegmentMetadataUpdate:
    """Return the event that moves `segment` to `state`, as of the current time."""
    return RemoteLogSegmentMetadataUpdate.of(
        segment, state, broker_id=context.broker_id, event_timestamp_ms=context.clock_ms()
    )
