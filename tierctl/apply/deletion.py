"""One wave of segment deletions, as sweep, partition delete and a failed copy's clean-up all need it.

DELETE_SEGMENT_STARTED → delete by exact key → see that nothing is left → DELETE_SEGMENT_FINISHED
(KIP-405; RemoteLogManager.deleteRemoteLogSegment).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tierctl.apply.effects import Label, effect
from tierctl.apply.tools import Tools
from tierctl.errors import RemoteResourceNotFound, RemoteStorageError, TierctlError
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState


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


def segment_update(
    segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, tools: Tools, custom: bytes | None
) -> RemoteLogSegmentMetadataUpdate:
    """The event that moves `segment` to `state`, written by this run now."""
    return RemoteLogSegmentMetadataUpdate(
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        segment_id=segment.segment_id,
        broker_id=tools.broker_id,
        event_timestamp_ms=tools.clock_ms(),
        state=state,
        custom_metadata=custom,
    )


def delete_segments(
    segments: Sequence[RemoteLogSegmentMetadata], tools: Tools, labels: DeletionLabels
) -> list[Deletion]:
    """Delete `segments` as one wave; results in the same order.

    A publishing error is raised: what the metadata log holds is then not known, and nothing more may be
    done on that basis.
    """
    if not segments or tools.stop:
        return [Deletion(segment=segment, stopped=True) for segment in segments]
    # DELETE_SEGMENT_STARTED is published first: a crash leaves work to resume, never a dangling pointer.
    _publish(
        [s for s in segments if s.state is not RemoteLogSegmentState.DELETE_SEGMENT_STARTED],
        RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
        tools,
        labels.started,
    )

    def delete(segment: RemoteLogSegmentMetadata) -> Deletion:
        return _delete_one(segment, tools, labels.delete)

    deletions = tools.engine.map(delete, segments)
    if tools.stop:
        return [d if d.error else Deletion(segment=d.segment, stopped=True) for d in deletions]
    # Never after a partial error: whoever reads FINISHED may forget the keys.
    _publish(
        [d.segment for d in deletions if d.done],
        RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
        tools,
        labels.finished,
    )
    return deletions


def _publish(
    segments: Sequence[RemoteLogSegmentMetadata], state: RemoteLogSegmentState, tools: Tools, label: Label
) -> None:
    if not segments:
        return
    events = [segment_update(segment, state, tools, segment.custom_metadata) for segment in segments]
    with effect(label):
        tools.metadata.publish(events)


def _delete_one(segment: RemoteLogSegmentMetadata, tools: Tools, label: Label) -> Deletion:
    if tools.stop:
        return Deletion(segment=segment, stopped=True)
    try:
        with effect(label):
            _delete_and_look(segment, tools)
    except TierctlError as e:
        return Deletion(segment=segment, error=e)
    except OSError as e:
        return Deletion(segment=segment, error=RemoteStorageError(f"deleting {segment.segment_id}: {e}"))
    return Deletion(segment=segment)


def _delete_and_look(segment: RemoteLogSegmentMetadata, tools: Tools) -> None:
    try:
        tools.remote.delete_log_segment_data(segment)
    except RemoteResourceNotFound:
        # A crash between the delete and FINISHED comes back here: already gone is what was wanted.
        pass
    left = tools.remote.objects_of(segment)
    if left:
        raise RemoteStorageError(
            f"segment {segment.segment_id} of {segment.topic}-{segment.partition} was deleted, "
            f"but {len(left)} of its objects are still there: {', '.join(o.key for o in left[:5])}",
            hint="run the command again: it resumes the deletion",
        )
