"""Acts that several commands share: delete segments in waves, and publish segments that are in the tier.

Sweep, partition deletes and the clean-up after a failed copy delete segments. Order for each segment:
DELETE_SEGMENT_STARTED acknowledged → delete its objects by exact key → list them, to prove that they are gone
→ DELETE_SEGMENT_FINISHED (KIP-405; RemoteLogManager.deleteRemoteLogSegment). A sweep raises the log start
offset first (RLMExpirationTask.cleanupExpiredRemoteLogSegments).

While the store deletes the objects of one wave, the next wave is prepared, and its DELETE_SEGMENT_STARTED
events are published:

    publisher   STARTED 1 | STARTED 2 | prove 1, FINISHED 1, STARTED 3 | prove 2, FINISHED 2 | …
    store                 | delete 1  | delete 2                       | delete 3            | …
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat

from tierctl.apply.run import Run
from tierctl.apply.run_context import (
    STOPPED,
    Label,
    Outcome,
    RunContext,
    SideEffectContext,
    SideEffectResult,
    Status,
    Stop,
    effect,
    slices,
)
from tierctl.apply.tier_check import why_not_deletable
from tierctl.errors import RemoteStorageError, TierctlError
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.steps import STATES, Step
from tierctl.state.tier_state import TierState
from tierctl.storage.stores.base import RemoteObject


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteInput:
    """Segments whose DELETE_SEGMENT_STARTED is acknowledged; small and picklable."""

    segments: Sequence[RemoteLogSegmentMetadata]

    @property
    def topics(self) -> set[str]:
        """Return the topics of the segments."""
        return {segment.topic for segment in self.segments}


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


_S = RemoteLogSegmentState
_Segments = Sequence[RemoteLogSegmentMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Segments to delete together; those in `refused`, by segment id, fail with that error, untouched."""

    segments: _Segments
    refused: Mapping[Uuid, TierctlError] = field(default_factory=dict)


def delete_segments(
    segments: _Segments,
    context: RunContext,
    labels: DeletionLabels,
    *,
    custom_metadata_max_bytes: int | None = None,
) -> list[Deletion]:
    """Delete `segments` as one wave, as `delete_waves` does, and return their deletions in the same order."""
    waves = [Wave(segments=segments)]
    (deletions,) = delete_waves(waves, context, labels, custom_metadata_max_bytes=custom_metadata_max_bytes)
    return deletions


def delete_waves(
    waves: Iterable[Wave],
    context: RunContext,
    labels: DeletionLabels,
    *,
    custom_metadata_max_bytes: int | None = None,
) -> Iterator[list[Deletion]]:
    """Delete the segments of each wave; yield the deletions of each wave in the order of its segments.

    The next wave is taken from `waves` while the objects of the one before it are deleted. The published
    events contain the segments' custom metadata, so that a later run can resume the deletion, unless these
    exceed `custom_metadata_max_bytes` (KIP-917: such custom metadata are never stored).
    Errors of `waves` and of publishing are raised: the content of the metadata log is then unknown, so no
    further request is sent to the store, and the caller must begin nothing more. Of the waves that were not
    yielded, each segment is then DELETE_SEGMENT_STARTED or unchanged.
    """
    publisher = _Publisher(context, labels, custom_metadata_max_bytes)
    current: _StartedWave | None = None
    try:
        for wave in waves:
            started = _StartedWave(wave, publisher)
            previous, current = current, started
            if previous is None:
                started.begin()
            else:
                previous.wait()
                started.begin()
                yield previous.finished()
        if current is not None:
            last, current = current, None
            yield last.finished()
    finally:
        if current is not None:
            current.abandon()


class _Publisher:
    """Publishes the events of deletions."""

    def __init__(self, context: RunContext, labels: DeletionLabels, max_bytes: int | None) -> None:
        self.context = context
        self.labels = labels
        self._max_bytes = max_bytes

    def publish(self, segments: _Segments, state: RemoteLogSegmentState, label: Label) -> None:
        """Publish the event that moves each of `segments` to `state`, with one acknowledgement for all."""
        events = [segment_update(self._storable(each), state, self.context) for each in segments]
        if events:
            with effect(label):
                self.context.publish(events)

    def _storable(self, segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        if self._max_bytes is None or len(segment.custom_metadata or b"") <= self._max_bytes:
            return segment
        return replace(segment, custom_metadata=None)


class _StartedWave:
    """A wave whose DELETE_SEGMENT_STARTED events are acknowledged, unless the run was told to stop."""

    def __init__(self, wave: Wave, publisher: _Publisher) -> None:
        self._wave = wave
        self._publisher = publisher
        self._context = publisher.context
        # A failure to publish the events of another wave stops this wave, but is no request to stop the run.
        self._stop = Stop()
        self._stop.guard(self._context.stop.asked)
        self._segments = [each for each in wave.segments if each.segment_id not in wave.refused]
        self._inputs = [
            DeleteInput(segments=each) for each in slices(self._segments, self._context.remote.delete_batch)
        ]
        self._wait_for_results: Callable[[], list[SideEffectResult]] = self._not_begun
        if self._segments:
            self._context.engine.ready()
        if not self._context.stop.asked():
            # DELETE_SEGMENT_STARTED is published first: a crash leaves work to resume, never a dangling
            # pointer.
            begun = _S.DELETE_SEGMENT_STARTED
            unbegun = [each for each in self._segments if each.state is not begun]
            publisher.publish(unbegun, begun, publisher.labels.started)

    def _not_begun(self) -> list[SideEffectResult]:
        return [SideEffectResult(stopped=True) for _ in self._inputs]

    def begin(self) -> None:
        """Begin to delete the objects of the wave, unless the run was told to stop."""
        if self._inputs and not self._stop.asked():
            side_effects = replace(self._context.side_effect_context(), stop=self._stop)
            delete = partial(delete_objects, self._publisher.labels.delete)
            self._wait_for_results = self._context.engine.begin(delete, self._inputs, side_effects)

    def wait(self) -> list[SideEffectResult]:
        """Wait until no request of this wave is under way; return a result for each input."""
        return self._wait_for_results()

    def abandon(self) -> None:
        """Start no further request, and wait for the running ones."""
        self._stop.ask()
        self.wait()

    def finished(self) -> list[Deletion]:
        """Publish DELETE_SEGMENT_FINISHED for the segments whose objects are gone.

        Return one deletion for each segment of the wave, in its order.
        """
        results = zip(self._inputs, self.wait(), strict=True)
        deletions = [deletion for work, result in results for deletion in _deletions(work, result)]
        if not self._context.stop.asked():
            deletions = self._proven(deletions)
        if self._context.stop.asked():
            deletions = [d if d.error else Deletion(segment=d.segment, stopped=True) for d in deletions]
        # FINISHED is never published after a partial error: its readers forget the keys.
        gone = [d.segment for d in deletions if d.done and self._is_known(d.segment)]
        self._publisher.publish(gone, _S.DELETE_SEGMENT_FINISHED, self._publisher.labels.finished)
        return self._with_refused(deletions)

    def _is_known(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Return False if another program published DELETE_SEGMENT_FINISHED for the segment meanwhile."""
        state = self._context.metadata.state
        return state.segment(segment.topic_id_partition, segment.segment_id) is not None

    def _proven(self, deletions: Sequence[Deletion]) -> list[Deletion]:
        """Return `deletions`, with an error for each segment that still has objects, as this process sees.

        `file:` may name another folder in the process that deleted them.
        """
        done = [deletion.segment for deletion in deletions if deletion.done]
        try:
            listed = iter(self._context.remote.objects_of_each(done))
        except TierctlError as e:
            listed = repeat(e)
        return [
            replace(deletion, error=_why_not_gone(deletion.segment, next(listed)))
            if deletion.done
            else deletion
            for deletion in deletions
        ]

    def _with_refused(self, deletions: Sequence[Deletion]) -> list[Deletion]:
        tried, refused = iter(deletions), self._wave.refused
        return [
            Deletion(segment=each, error=refused[each.segment_id])
            if each.segment_id in refused
            else next(tried)
            for each in self._wave.segments
        ]


def _deletions(work: DeleteInput, result: SideEffectResult) -> list[Deletion]:
    errors = result.errors or [result.error] * len(work.segments)
    return [
        Deletion(segment=segment, error=error, stopped=result.stopped)
        for segment, error in zip(work.segments, errors, strict=True)
    ]


def _why_not_gone(
    segment: RemoteLogSegmentMetadata, left: list[RemoteObject] | TierctlError
) -> TierctlError | None:
    if isinstance(left, TierctlError):
        return left
    if not left:
        return None
    return RemoteStorageError(
        f"segment {segment.segment_id} of {segment.topic}-{segment.partition} was deleted, "
        f"but {len(left)} of its objects are still there: {', '.join(o.key for o in left[:5])}",
        hint="run the command again: it resumes the deletion",
    )


RaiseLogStarts = Callable[[Mapping[TopicIdPartition, int]], None]
"""Stores each log start offset that is above the stored one; durable on return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSegments:
    """The act of DELETE_SEGMENT: it deletes wave by wave, and checks each wave when it is begun.

    Before a wave is deleted, `raise_log_starts` stores the log start offsets that its steps state; None if
    nobody keeps them.
    """

    labels: DeletionLabels = SWEEP_LABELS
    raise_log_starts: RaiseLogStarts | None = None

    def __call__(self, run: Run, steps: Sequence[Step]) -> None:
        """Implement `Act`."""
        begun: list[Step] = []
        with run.halting(begun):
            waiting = deque[Sequence[Step]]()
            for deletions in delete_waves(self._waves(run, steps, begun, waiting), run.context, self.labels):
                kept = zip(waiting.popleft(), deletions, strict=True)
                run.record(outcome_of(step, deletion) for step, deletion in kept)
        run.end(steps)

    def _waves(
        self, run: Run, steps: Sequence[Step], begun: list[Step], waiting: deque[Sequence[Step]]
    ) -> Iterator[Wave]:
        """Yield the waves that delete the segments of `steps`; each wave is checked when it is requested.

        Add the steps of each wave to `begun`, and those that are still valid, as one item, to `waiting`.
        """
        for wave in run.context.delete_waves(steps):
            if not run.may_begin():
                return
            begun += wave
            run.fence({step.topic_id_partition for step in wave})
            kept, _ = run.recheck(wave)
            state = _introduced(kept, run.context)
            segments = [segment for step in kept if (segment := find_segment(step, state)) is not None]
            refused = why_not_deletable(segments, run.context)
            starts = new_log_starts([step for step in kept if step.segment_id not in refused])
            raise_log_starts(starts, self.raise_log_starts)
            waiting.append(kept)
            yield Wave(segments=segments, refused=refused)


def _introduced(steps: Sequence[Step], context: RunContext) -> TierState:
    """Return the state after the metadata has every segment of `steps`, including those of orphans.

    Orphans are published as being deleted: a crash leaves deletions that every run resumes.
    """
    orphans = [step for step in steps if find_segment(step, context.metadata.state) is None]
    if not orphans:
        return context.metadata.state
    publish_segments(orphans, context, "repair.orphans.publish")
    return context.metadata.refresh()


def new_log_starts(steps: Sequence[Step]) -> dict[TopicIdPartition, int]:
    """Return the log start offset of each partition after `steps`; steps that do not move it are left out."""
    starts: dict[TopicIdPartition, int] = {}
    for step in steps:
        offset = step.details.get("new_log_start_offset")
        if isinstance(offset, int):
            partition = step.topic_id_partition
            starts[partition] = max(offset, starts.get(partition, 0))
    return starts


def raise_log_starts(starts: Mapping[TopicIdPartition, int], write: RaiseLogStarts | None) -> None:
    """Raise log start offsets through `write`, if there is one.

    Call this before anything is deleted: a log start above an existing segment only wastes space until the
    segment is deleted, but a log start below a deleted segment sends readers to missing objects.
    """
    if write is not None and starts:
        with effect("sweep.log_start.write"):
            write(starts)


_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def publish_segments(
    steps: Sequence[Step], context: RunContext, label: Label = "rebuild.segments.publish"
) -> list[Outcome]:
    """Publish the events of `steps` in their order, with one acknowledgement for all.

    The order of a partition's steps is that of offsets: after a crash the metadata lack only newer segments,
    which the next run publishes.
    """
    state = context.metadata.state
    fields = EventFields(
        broker_id=context.broker_id,
        timestamp_ms=context.clock_ms(),
        has_txn_index_empty=context.kafka_version.has_txn_index_empty,
    )
    events = [
        event
        for step in steps
        for event in segment_events(
            step,
            fields,
            is_known=state.segment(step.topic_id_partition, _segment_id(step)) is not None,
        )
    ]
    with effect(label):
        context.publish(events)
    return [Outcome(step=step, status=Status.DONE) for step in steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFields:
    """The fields of events that do not come from their step."""

    broker_id: int
    timestamp_ms: int
    has_txn_index_empty: bool


def segment_events(step: Step, fields: EventFields, *, is_known: bool) -> Iterator[MetadataEvent]:
    """Yield COPY_SEGMENT_STARTED, unless the metadata have it (`is_known`), and the step's later states."""
    segment = _segment(step, fields)
    if not is_known:
        # As in brokers' events, COPY_SEGMENT_STARTED has no custom metadata; the events after the copy have
        # it.
        yield replace(segment, custom_metadata=None)
    for name in step.details[STATES].split(","):
        target = RemoteLogSegmentState(name)
        if target is not _STARTED:
            yield RemoteLogSegmentMetadataUpdate.of(
                segment, target, broker_id=fields.broker_id, event_timestamp_ms=fields.timestamp_ms
            )


def introduces(step: Step) -> bool:
    """Return whether the metadata that the step was decided from lack its segment."""
    return str(step.details[STATES]).startswith(_STARTED)


def _segment_id(step: Step) -> Uuid:
    if step.segment_id is None:
        raise ValueError(f"a step to publish names no segment: {step}")
    return step.segment_id


def _segment(step: Step, fields: EventFields) -> RemoteLogSegmentMetadata:
    if step.start_offset is None or step.end_offset is None:
        raise ValueError(f"a step to publish names no offsets: {step}")
    details = step.details
    custom = details["custom_metadata"]
    return RemoteLogSegmentMetadata(
        topic=step.topic,
        topic_id=step.topic_id,
        partition=step.partition,
        segment_id=_segment_id(step),
        start_offset=step.start_offset,
        end_offset=step.end_offset,
        broker_id=fields.broker_id,
        max_timestamp_ms=details["max_timestamp_ms"],
        event_timestamp_ms=fields.timestamp_ms,
        segment_leader_epochs=tuple((epoch, start) for epoch, start in details["segment_leader_epochs"]),
        segment_size_in_bytes=details["segment_size_in_bytes"],
        custom_metadata=None if custom is None else bytes.fromhex(custom),
        state=_STARTED,
        txn_index_empty=details["txn_index_empty"] and fields.has_txn_index_empty,
    )


def publish_in_waves(run: Run, steps: Sequence[Step]) -> None:
    """Publish the events of valid steps; the act of PUBLISH_SEGMENT and DISCARD_SEGMENT."""
    for wave in run.context.delete_waves(steps):
        run.attempt(wave, lambda kept: publish_segments(kept, run.context), rechecked=True)
