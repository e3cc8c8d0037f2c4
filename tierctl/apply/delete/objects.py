"""Delete the objects of several segments by one call of the store: the side effect of a deletion."""

from collections.abc import Sequence
from dataclasses import dataclass

from tierctl.apply.labels import Label, effect
from tierctl.apply.side_effects import SideEffectContext, SideEffectResult
from tierctl.errors import RemoteStorageError, TierctlError
from tierctl.model import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteInput:
    """Segments whose DELETE_SEGMENT_STARTED is acknowledged; small and picklable."""

    segments: Sequence[RemoteLogSegmentMetadata]


def delete_objects(label: Label, context: SideEffectContext, work: DeleteInput) -> SideEffectResult:
    """Delete the objects of `work.segments`; the result has an error per segment.

    That the objects are gone is for the caller to prove, once for all inputs of a wave.
    """
    if context.stop.asked():
        return SideEffectResult(stopped=True)
    try:
        with effect(label):
            errors = context.remote.delete_log_segments(work.segments)
    except TierctlError as e:
        return SideEffectResult(error=e, begun=True)
    except OSError as e:
        error = RemoteStorageError(f"deleting {work.segments[0].segment_id} and others: {e}")
        return SideEffectResult(error=error, begun=True)
    context.deleted(sum(error is None for error in errors))
    return SideEffectResult(begun=True, errors=errors)
