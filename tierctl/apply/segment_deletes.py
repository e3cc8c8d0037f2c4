"""One wave of segment deletions, as sweep, partition delete and a failed copy's clean-up all need it.

DELETE_SEGMENT_STARTED → delete by exact key → see that nothing is left → DELETE_SEGMENT_FINISHED
(KIP-405; RemoteLogManager.deleteRemoteLogSegment).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.run_context import Tools
from tierctl.apply.side_effect_context import Answer, Bench, Piece
from tierctl.apply.side_effects import Label, effect
from tierctl.errors import RemoteResourceNotFound, RemoteStorageError, TierctlError
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.plan.plan import Step
from tierctl.storage.base import RemoteStorageManager

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
    if segments:
        tools.engine.ready()
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

    deletions = _delete_all(segments, tools, labels.delete)
    if tools.stop.asked():
        return [d if d.error else Deletion(segment=d.segment, stopped=True) for d in deletions]
    # Never after a partial error: whoever reads FINISHED may forget the keys.
    publish([d.segment for d in deletions if d.done], _S.DELETE_SEGMENT_FINISHED, labels.finished)
    return deletions


def delete_others(
    refused: Mapping[Uuid, TierctlError],
    segments: Sequence[RemoteLogSegmentMetadata],
    tools: Tools,
    labels: DeletionLabels,
) -> list[Deletion]:
    """`delete_segments` without those `refused`, of which nothing is begun: they fail with their error."""
    deletions = iter(delete_segments([s for s in segments if s.segment_id not in refused], tools, labels))
    return [
        Deletion(segment=segment, error=refused[segment.segment_id])
        if segment.segment_id in refused
        else next(deletions)
        for segment in segments
    ]


def _storable(segment: RemoteLogSegmentMetadata, max_bytes: int | None) -> RemoteLogSegmentMetadata:
    if max_bytes is None or len(segment.custom_metadata or b"") <= max_bytes:
        return segment
    return replace(segment, custom_metadata=None)


def _delete_all(segments: Sequence[RemoteLogSegmentMetadata], tools: Tools, label: Label) -> list[Deletion]:
    bench = tools.bench()
    work = [Piece(metadata=segment) for segment in segments]
    answers = tools.engine.map(partial(delete_one, label), work, bench)
    if tools.engine.is_elsewhere:
        answers = [_seen(answer, s, bench) for answer, s in zip(answers, segments, strict=True)]
    return [
        Deletion(segment=segment, error=answer.error, stopped=answer.stopped)
        for segment, answer in zip(segments, answers, strict=True)
    ]


def delete_one(label: Label, bench: Bench, piece: Piece) -> Answer:
    """Delete one segment's objects and see that they are gone: the side effect of a deletion."""
    segment = piece.metadata
    if bench.stop.asked():
        return Answer(stopped=True)
    try:
        with effect(label):
            _delete_and_look(segment, bench.remote)
    except TierctlError as e:
        return Answer(error=e, begun=True)
    except OSError as e:
        return Answer(error=RemoteStorageError(f"deleting {segment.segment_id}: {e}"), begun=True)
    bench.advance(segment.segment_size_in_bytes)
    return Answer(begun=True)


def _delete_and_look(segment: RemoteLogSegmentMetadata, remote: RemoteStorageManager) -> None:
    # A crash between the delete and FINISHED comes back here: already gone is what was wanted.
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


def _seen(answer: Answer, segment: RemoteLogSegmentMetadata, bench: Bench) -> Answer:
    """The answer, if the objects are gone where this process sees them, too."""
    if answer.error is not None or answer.stopped:
        return answer
    try:
        _require_gone(segment, bench.remote)
    except RemoteStorageError as e:
        return replace(answer, error=e)
    return answer
