"""Carry out a plan in waves, by the act of each step's action, and acts that several commands share.

A step that fails is reported, not raised. The acts here delete segments, and publish those of the tier.

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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat

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
from tierctl.apply.tier_check import claim_tier, why_not_deletable
from tierctl.errors import (
    MetadataError,
    RemoteStorageError,
    StoreRefused,
    TierctlError,
    disk_message,
    hint_of,
)
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.recheck import Dropped, recheck
from tierctl.plan.steps import STATES, Action, Plan, Step
from tierctl.state.tier_state import TierState
from tierctl.storage.stores.base import RemoteObject

_Key = tuple[Uuid, int]

Fence = Callable[[Collection[TopicIdPartition]], None]
"""Raises SafetyRefusal if a broker or another program may be changing one of these partitions."""

Act = Callable[["Run", Sequence[Step]], None]
"""Carries out the steps of one action, by waves that it passes to `Run.attempt`.

It is called once, without steps, too, and gets only steps that no earlier act carried out. What it raises
outside of `attempt` and `halting` ends the run without outcomes.
"""

Acts = Mapping[Action, Act]
"""What is done for each action of a command's plans, in the order in which a run does it."""


def run(
    plan: Plan, context: RunContext, acts: Acts, *, fence: Fence | None = None, changes_tier: bool = True
) -> list[Outcome]:
    """Carry out `plan` and return one outcome per step, in the plan's order.

    `fence` is called before each wave, because brokers may start while the plan is carried out; None if no
    other program can change the partitions. If publishing fails, the content of the metadata log is unknown,
    so the run begins nothing more. Raise SafetyRefusal before the first step if objects are changed
    (`changes_tier`) and the tier belongs to another metadata topic; ValueError for an action without an act.
    """
    unknown = {step.action for step in plan.steps} - acts.keys()
    if unknown:
        raise ValueError(f"{plan.command} can't carry out {', '.join(sorted(unknown))}")
    if changes_tier:
        claim_tier(context, plan)
    this = Run(plan, context, fence)
    for action, act in acts.items():
        act(this, [step for step in plan.steps if step.action is action and this.outcome(step) is None])
    return this.outcomes()


class Run:
    """A plan while it is carried out: what each act has in common."""

    def __init__(self, plan: Plan, context: RunContext, fence: Fence | None) -> None:
        self.plan = plan
        self.context = context
        self.fence = fence or _no_fence
        self._broken: set[_Key] = set()
        # The key is `id(step)`, because two steps of a plan may be equal.
        self._outcomes: dict[int, Outcome] = {}
        self._halted: TierctlError | None = None
        self._refused = 0

    @property
    def is_halted(self) -> bool:
        """Return whether the run must begin nothing more."""
        return self._halted is not None

    def outcome(self, step: Step) -> Outcome | None:
        """Return the outcome of `step`; None if it has none yet."""
        return self._outcomes.get(id(step))

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of all steps in the plan's order."""
        return [self._outcomes[id(step)] for step in self.plan.steps]

    def attempt(
        self,
        steps: Sequence[Step],
        do: Callable[[Sequence[Step]], Iterable[Outcome]],
        *,
        rechecked: bool = False,
    ) -> None:
        """Call `do` with the steps of one wave, or only those that `recheck` keeps, unless the run ended.

        `do` returns one outcome per step; an error that it raises was met while publishing, and ends the run.
        """
        if self.may_begin():
            with self.halting(steps):
                self.fence({step.topic_id_partition for step in steps})
                left = self.recheck(steps)[0] if rechecked else steps
                if left or not rechecked:
                    self.record(do(left))
        self.end(steps)

    def may_begin(self) -> bool:
        """Return whether another wave may begin."""
        return not self.is_halted and not self.context.stop.asked()

    def record(self, outcomes: Iterable[Outcome]) -> None:
        """Record the outcomes of steps that have none yet, those of one wave at a time.

        If no step of a wave ended well, and each further one would meet the errors of those that failed, too,
        the run begins nothing more. A store may refuse one key only: that takes two steps, since one ended
        well.
        """
        wave = list(outcomes)
        for outcome in wave:
            self._outcomes.setdefault(id(outcome.step), outcome)
        errors = [outcome.error for outcome in wave if outcome.status is Status.FAILED]
        if any(outcome.status is Status.DONE for outcome in wave):
            self._refused = 0
        elif errors and all(error is not None and error.meets_all for error in errors):
            self._refused += len(errors)
            if self._refused > 1 or not isinstance(errors[0], StoreRefused):
                self._halted = self._halted or errors[0]

    def end(self, steps: Sequence[Step]) -> None:
        """Record an outcome for each of `steps` that has none, because the run ended before it."""
        self.record(self._not_begun(step) for step in steps if id(step) not in self._outcomes)

    def _not_begun(self, step: Step) -> Outcome:
        if self._halted is None:
            return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
        reason = f"not begun, since the run could not go on: {self._halted.message}"
        return Outcome(step=step, status=Status.DROPPED, reason=reason)

    @contextmanager
    def halting(self, begun: Sequence[Step]) -> Iterator[None]:
        """End the run after an error in the block; steps in `begun` without an outcome have then failed."""
        try:
            yield
        except TierctlError as e:
            self._halted = e
        except OSError as e:
            self._halted = MetadataError(disk_message("carrying out the plan", e), hint=hint_of(e))
        if self._halted is not None:
            error = self._halted
            self.record(Outcome(step=step, status=Status.FAILED, error=error) for step in begun)

    def require_all_done(self) -> None:
        """End the run if a step was not done."""
        undone = next((each for each in self._outcomes.values() if each.status is not Status.DONE), None)
        if undone is not None and self._halted is None:
            self._halted = undone.error or MetadataError(undone.reason or "an earlier step was not done")

    def break_undone(self) -> None:
        """Let the later steps of a partition fail the recheck if one of its steps was not done."""
        undone = (each.step for each in self._outcomes.values() if each.status is not Status.DONE)
        self._broken |= {step.topic_id_partition.key for step in undone}

    def recheck(
        self, steps: Sequence[Step], staying: Collection[Uuid] = frozenset()
    ) -> tuple[list[Step], list[Step]]:
        """Read the metadata to their end; return the steps that still hold, and those that were dropped.

        `staying` are segments that can't be deleted: what depends on their deletion is dropped. The outcomes
        of steps that are dropped, or that another program did, are recorded.
        """
        plan = replace(self.plan, steps=tuple(steps))
        checked = recheck(plan, self.context.metadata.refresh(), self._broken, staying)
        self.record(_dropped(each) for each in checked.dropped)
        return list(checked.plan.steps), [each.step for each in checked.dropped if not each.is_done]


def _no_fence(partitions: Collection[TopicIdPartition]) -> None:
    """Accept `partitions`: used when no other program can change them."""


def _dropped(dropped: Dropped) -> Outcome:
    status = Status.DONE if dropped.is_done else Status.DROPPED
    return Outcome(step=dropped.step, status=status, reason=dropped.reason)


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
        doing = f"deleting {work.segments[0].segment_id} and others"
        error = RemoteStorageError(disk_message(doing, e), hint=hint_of(e))
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
    An error of `waves` is raised once the wave before it is finished and yielded. MetadataError and errors of
    publishing are raised at once: the content of the metadata log is then unknown, so no further request is
    sent to the store. After any error the caller must begin nothing more. Of the waves that were not yielded,
    each segment is then DELETE_SEGMENT_STARTED or unchanged.
    """
    publisher = _Publisher(context, labels, custom_metadata_max_bytes)
    current: _StartedWave | None = None
    met: list[TierctlError] = []
    try:
        for wave in _until_error(waves, met):
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
    if met:
        raise met[0]


def _until_error(waves: Iterable[Wave], met: list[TierctlError]) -> Iterator[Wave]:
    """Yield `waves`, up to an error that says nothing about the metadata log; add that to `met`."""
    try:
        yield from waves
    except MetadataError:
        raise
    except TierctlError as e:
        met.append(e)


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
            segments = _segments_of(kept, _introduced(kept, run.context))
            refused = why_not_deletable(segments, run.context)
            if refused:
                # A reader of the segment that stays must find those behind it, too.
                kept, _ = run.recheck(kept, refused)
                segments = _segments_of(kept, run.context.metadata.state)
            starts = new_log_starts([step for step in kept if step.segment_id not in refused])
            raise_log_starts(starts, self.raise_log_starts, run.context)
            waiting.append(kept)
            yield Wave(segments=segments, refused=refused)


def _segments_of(steps: Sequence[Step], state: TierState) -> list[RemoteLogSegmentMetadata]:
    return [segment for step in steps if (segment := find_segment(step, state)) is not None]


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


def raise_log_starts(
    starts: Mapping[TopicIdPartition, int], write: RaiseLogStarts | None, context: RunContext
) -> None:
    """Raise log start offsets through `write`, if there is one.

    Call this before anything is deleted: a log start above an existing segment only wastes space until the
    segment is deleted, but a log start below a deleted segment sends readers to missing objects.
    """
    if write is not None and starts:
        with effect("sweep.log_start.write"):
            write(starts)
        context.changed.set()


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


def publish_behind_logs(run: Run, steps: Sequence[Step]) -> None:
    """Do as `publish_in_waves` where a log is written first: only while all steps before were done."""
    for wave in run.context.delete_waves(steps):
        run.require_all_done()
        run.attempt(
            wave,
            lambda kept: publish_segments(kept, run.context, "restore.segments.publish"),
            rechecked=True,
        )
