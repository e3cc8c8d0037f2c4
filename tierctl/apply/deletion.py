"""One wave of segment deletions, as sweep, partition delete and a failed copy's clean-up all need it.

DELETE_SEGMENT_STARTED → delete by exact key → see that nothing is left → DELETE_SEGMENT_FINISHED
(KIP-405; RemoteLogManager.deleteRemoteLogSegment).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tierctl.apply.effects import Label, effect
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.tools import Tools
from tierctl.errors import RemoteResourceNotFound, RemoteStorageError, TierctlError
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierctl.plan.model import Step

_S = RemoteLogSegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionLabels:
    """The labels of a deletion's three side effects; they differ by command."""

    started: Label
    delete: Label
    finished: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What became of one segment: gone and FINISHED, failed with `error`, or not begun (`stopped`)."""

    segment: RemoteLogSegmentMetadata
    error: TierctlError | None = None
    stopped: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing is left of the segment and the metadata say so."""
        return self.error is None and not self.stopped


def outcome_of(step: Step, deletion: Deletion) -> Outcome:
    """What the deletion means for the step that asked for it."""
    if deletion.error is not None:
        return Outcome(step=step, status=Status.FAILED, error=deletion.error)
    if deletion.stopped:
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    return Outcome(step=step, status=Status.DONE)


def segment_update(
    segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, tools: Tools
) -> RemoteLogSegmentMetadataUpdate:
    """The event that moves `segment`, its custom metadata included, to `state`; written by this run, now."""
    return RemoteLogSegmentMetadataUpdate(
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        segment_id=segment.segment_id,
        broker_id=tools.broker_id,
        event_timestamp_ms=tools.clock_ms(),
        state=state,
        custom_metadata=segment.custom_metadata,
    )


def delete_segments(
    segments: Sequence[RemoteLogSegmentMetadata],
    tools: Tools,
    labels: DeletionLabels,
    *,
    custom_metadata_max_bytes: int | None = None,
) -> list[Deletion]:
    """Delete `segments` as one wave; results in the same order.

    Events carry the segments' custom metadata, so that whoever resumes a deletion has them, unless they
    have more than `custom_metadata_max_bytes` (KIP-917: those are never stored).
    A publishing error is raised: what the metadata log holds is then not known, and nothing more may be
    done on that basis.
    """
    if not segments or tools.stop.asked():
        return [Deletion(segment=segment, stopped=True) for segment in segments]

    def publish(
        chosen: Sequence[RemoteLogSegmentMetadata], state: RemoteLogSegmentState, label: Label
    ) -> None:
        events = [segment_update(_storable(s, custom_metadata_max_bytes), state, tools) for s in chosen]
        if events:
            with effect(label):
                tools.metadata.publish(events)

    # DELETE_SEGMENT_STARTED is published first: a crash leaves work to resume, never a dangling pointer.
    begun = _S.DELETE_SEGMENT_STARTED
    publish([s for s in segments if s.state is not begun], begun, labels.started)

    def delete(segment: RemoteLogSegmentMetadata) -> Deletion:
        return _delete_one(segment, tools, labels.delete)

    deletions = tools.engine.map(delete, segments)
    if tools.stop.asked():
        return [d if d.error else Deletion(segment=d.segment, stopped=True) for d in deletions]
    # Never after a partial error: whoever reads FINISHED may forget the keys.
    publish([d.segment for d in deletions if d.done], _S.DELETE_SEGMENT_FINISHED, labels.finished)
    return deletions


def _storable(segment: RemoteLogSegmentMetadata, max_bytes: int | None) -> RemoteLogSegmentMetadata:
    if max_bytes is None or len(segment.custom_metadata or b"") <= max_bytes:
        return segment
    return replace(segment, custom_metadata=None)


def _delete_one(segment: RemoteLogSegmentMetadata, tools: Tools, label: Label) -> Deletion:
    if tools.stop.asked():
        return Deletion(segment=segment, stopped=True)
    try:
        with effect(label):
            _delete_and_look(segment, tools)
    except TierctlError as e:
        return Deletion(segment=segment, error=e)
    except OSError as e:
        return Deletion(segment=segment, error=RemoteStorageError(f"deleting {segment.segment_id}: {e}"))
    tools.advance(segment.segment_size_in_bytes)
    return Deletion(segment=segment)


def _delete_and_look(segment: RemoteLogSegmentMetadata, tools: Tools) -> None:
    # A crash between the delete and FINISHED comes back here: already gone is what was wanted.
    with suppress(RemoteResourceNotFound):
        tools.remote.delete_log_segment_data(segment)
    left = tools.remote.objects_of(segment)
    if left:
        raise RemoteStorageError(
            f"segment {segment.segment_id} of {segment.topic}-{segment.partition} was deleted, "
            f"but {len(left)} of its objects are still there: {', '.join(o.key for o in left[:5])}",
            hint="run the command again: it resumes the deletion",
        )
