"""Copy segments to the tier (KIP-405 RLMCopyTask, KIP-917), in an order that is safe at every crash.

Order: COPY_SEGMENT_STARTED acknowledged → store the objects → verify every object, and that the source is
unchanged → COPY_SEGMENT_FINISHED, in offset order within a partition. Brokers delete local data because they
trust FINISHED: it is the point of durability. The objects of a failed copy are deleted again
(DELETE_SEGMENT_STARTED → delete → check → DELETE_SEGMENT_FINISHED), and the copying of its partition stops,
because brokers would never fill the gap.

While the segments of one wave are stored, the next wave is prepared, and its COPY_SEGMENT_STARTED events are
published, so that the store never waits:

    publisher   STARTED 1 | STARTED 2 | FINISHED 1, STARTED 3 | FINISHED 2, …
    store                 | store 1   | store 2               | store 3, …
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tierctl.apply.run import Deletion, DeletionLabels, Run, delete_segments, segment_update
from tierctl.apply.run_context import (
    STOPPED,
    Outcome,
    RunContext,
    SideEffectContext,
    SideEffectInput,
    SideEffectResult,
    Status,
    Stop,
    StoppedCopies,
    effect,
)
from tierctl.apply.tier_check import require_known_tier
from tierctl.commands.copy.source import OpenedSource, Source, SourceChanged, Sources, source_changed
from tierctl.errors import (
    NOT_ALLOWED,
    CustomMetadataTooLarge,
    FileNotAllowed,
    RemoteStorageError,
    StoreWriteUnknown,
    TierctlError,
    TransferStopped,
    disk_message,
    hint_of,
)
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.model.settings import broker
from tierctl.plan.reasons import cleaned_text
from tierctl.plan.steps import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyInput(SideEffectInput):
    """A segment whose COPY_SEGMENT_STARTED is acknowledged, and the source of its bytes."""

    source: Source
    custom_metadata_max_bytes: int = broker.CUSTOM_METADATA_MAX_BYTES.value({})


def copy_segment(context: SideEffectContext, work: CopyInput) -> SideEffectResult:
    """Store one segment, verify every object, and check that the source did not change meanwhile."""
    if context.stop.asked():
        return SideEffectResult(stopped=True)
    metadata = work.metadata
    key, doing = metadata.topic_id_partition.key, f"copying segment {metadata.start_offset}"
    if context.stopped_copies.stopped_before(key, metadata.start_offset) is not None:
        return SideEffectResult()
    try:
        with work.source.opened(context) as opened:
            result = _store_and_verify(context, work, opened)
    except TransferStopped:
        return SideEffectResult(begun=True, stopped=True)
    except TierctlError as e:
        result = SideEffectResult(error=e, begun=True)
    except PermissionError as e:
        denied = FileNotAllowed(disk_message(doing, e), hint=NOT_ALLOWED)
        result = SideEffectResult(error=denied, begun=True)
    except OSError as e:
        error = RemoteStorageError(disk_message(doing, e), hint=hint_of(e))
        result = SideEffectResult(error=error, begun=True)
    if result.error is not None:
        context.stopped_copies.stop(key, metadata.start_offset)
    return result


def _store_and_verify(context: SideEffectContext, work: CopyInput, opened: OpenedSource) -> SideEffectResult:
    metadata = work.metadata
    with effect("copy.segment.store"):
        custom = context.remote.copy_log_segment_data(metadata, opened.data)
    stored = replace(metadata, custom_metadata=custom)
    error = _why_not_finished(context, work, stored, opened)
    if error is None:
        context.advance(metadata.segment_size_in_bytes)
    return SideEffectResult(begun=True, custom_metadata=custom, error=error, note=opened.note)


def _why_not_finished(
    context: SideEffectContext, work: CopyInput, stored: RemoteLogSegmentMetadata, opened: OpenedSource
) -> TierctlError | None:
    size_bytes = len(stored.custom_metadata or b"")
    if size_bytes > work.custom_metadata_max_bytes:
        return CustomMetadataTooLarge(
            f"segment {stored.start_offset} of {stored.topic_id_partition} has "
            f"{size_bytes} bytes of custom metadata, more than {work.custom_metadata_max_bytes}",
            size_bytes=size_bytes,
            limit_bytes=work.custom_metadata_max_bytes,
            hint="raise --custom-metadata-max-bytes (remote.log.metadata.custom.metadata.max.bytes)",
        )
    try:
        context.remote.verify_log_segment_data(stored, opened.data)
    except RemoteStorageError as e:
        return e
    return None if opened.is_unchanged() else source_changed(opened.data.log_segment.path)


BEGUN = f"begun and not finished, because {STOPPED}"
"""The reason of a segment that a run leaves COPY_SEGMENT_STARTED, because it was told to stop."""
_S = RemoteLogSegmentState

CLEANUP_LABELS = DeletionLabels(
    started="copy.cleanup_started.publish",
    delete="copy.cleanup.delete",
    finished="copy.cleanup_finished.publish",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One attempt to copy one segment, under a new segment id, and its result."""

    step: Step
    metadata: RemoteLogSegmentMetadata
    source: Source
    result: SideEffectResult = field(default_factory=SideEffectResult)

    @property
    def error(self) -> TierctlError | None:
        return self.result.error

    @property
    def is_stored(self) -> bool:
        """Return whether all objects were stored and verified."""
        return self.result.begun and not self.result.stopped and self.error is None

    def with_result(self, result: SideEffectResult) -> "_Attempt":
        """Return the attempt with `result` and the custom metadata in it."""
        metadata = replace(self.metadata, custom_metadata=result.custom_metadata)
        return replace(self, metadata=metadata, result=result)

    def outcome(self, status: Status, reason: str | None = None) -> Outcome:
        return Outcome(
            step=self.step,
            status=status,
            segment_id=self.metadata.segment_id,
            error=self.error,
            reason=reason,
        )


@dataclass(slots=True, kw_only=True)
class _Wave:
    """A wave whose COPY_SEGMENT_STARTED events are acknowledged; its segments are being stored.

    `attempts` and `outcomes` are keyed by the index in `steps`; steps without an attempt have an outcome.
    `wait` returns the results of the attempts, in their order; None if the run was told to stop before.
    """

    steps: Sequence[Step]
    attempts: dict[int, _Attempt]
    outcomes: dict[int, Outcome]
    side_effects: SideEffectContext
    wait: Callable[[], list[SideEffectResult]] | None = None

    def abandon(self) -> None:
        """Begin to store no further segment, and wait for the requests that are under way."""
        if self.wait is not None:
            self.side_effects.stop.ask()
            self.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySegments:
    """The act of COPY_SEGMENT: it copies wave by wave, and checks each wave when it is begun.

    Steps are in offset order within each partition. The next wave is prepared while the segments of the one
    before it are stored. If publishing fails, each segment of the waves that are not finished is
    COPY_SEGMENT_STARTED, or not in the metadata.
    """

    sources: Sources
    custom_metadata_max_bytes: int = broker.CUSTOM_METADATA_MAX_BYTES.value({})

    def __call__(self, run: Run, steps: Sequence[Step]) -> None:
        """Implement `Act`."""
        copier = _Copier(run.context, self.sources, self.custom_metadata_max_bytes)
        begun: list[Step] = []
        current: _Wave | None = None
        with run.halting(begun):
            try:
                for wave in run.context.waves(steps):
                    kept = self._checked(run, wave, copier)
                    if kept is None:
                        break
                    begun += wave
                    previous, current = current, copier.begun(kept)
                    if previous is not None:
                        run.record(copier.finished(previous, run.record))
                if current is not None:
                    last, current = current, None
                    run.record(copier.finished(last, run.record))
            finally:
                if current is not None:
                    current.abandon()
        run.end(steps)

    def _checked(self, run: Run, wave: Sequence[Step], copier: "_Copier") -> Sequence[Step] | None:
        """Return the steps of a wave that are still valid; None if it must not begin.

        A wave that fails a check ends the run, but not the wave before it, whose segments are being stored.
        """
        if not run.may_begin():
            return None
        kept: Sequence[Step] = ()
        with run.halting(wave):
            run.fence({step.topic_id_partition for step in wave})
            kept, dropped = run.recheck(wave)
            for step in dropped:
                copier.stop_partition(step)
            if kept and not copier.is_known_tier:
                require_known_tier({step.topic_id_partition for step in kept}, run.context)
                copier.is_known_tier = True
            self.sources.refresh(kept)
        return None if run.is_halted else kept


@dataclass(slots=True)
class _Copier:
    """Stores the waves of one run, and keeps the partitions whose copying has stopped."""

    context: RunContext
    sources: Sources
    custom_metadata_max_bytes: int
    is_known_tier: bool = False
    _stopped: StoppedCopies = field(default_factory=StoppedCopies)

    def _drop(self, step: Step, reason: str) -> Outcome:
        self.stop_partition(step)
        return Outcome(step=step, status=Status.DROPPED, reason=reason)

    def stop_partition(self, step: Step) -> None:
        """Stop copying the partition of `step` in this run, from the segment of `step` on."""
        self._stopped.stop(step.topic_id_partition.key, step.start_offset or 0)

    def _why_stopped(self, step: Step) -> str | None:
        stopped_at = self._stopped.stopped_before(step.topic_id_partition.key, step.start_offset or 0)
        return None if stopped_at is None else f"segment {stopped_at} before it was not copied"

    def _prepare(self, step: Step) -> _Attempt:
        why = self._why_stopped(step)
        if why is not None:
            raise SourceChanged(why)
        source = self.sources.find(step)
        context = self.context
        metadata = source.started(context.new_segment_id(), context.broker_id, context.clock_ms())
        if not context.kafka_version.has_txn_index_empty:
            metadata = replace(metadata, txn_index_empty=False)
        return _Attempt(step=step, metadata=metadata, source=source)

    def begun(self, steps: Sequence[Step]) -> _Wave:
        """Publish COPY_SEGMENT_STARTED for the segments of `steps`, and begin to store them."""
        # A failure to publish the events of another wave stops this wave, but is no request to stop the run.
        stop = Stop()
        stop.guard(self.context.stop.asked)
        side_effects = replace(
            self.context.side_effect_context(self._stopped), stop=stop, source_tier=self.sources.source_tier
        )
        wave = _Wave(steps=steps, attempts={}, outcomes={}, side_effects=side_effects)
        for at, step in enumerate(steps):
            try:
                wave.attempts[at] = self._prepare(step)
            except SourceChanged as e:
                wave.outcomes[at] = self._drop(step, str(e))
        attempts = list(wave.attempts.values())
        if attempts:
            self.context.engine.ready()
        if attempts and not self.context.stop.asked():
            # STARTED is acknowledged before the first byte is stored: no object is ever unknown to the
            # metadata.
            with effect("copy.started.publish"):
                self.context.publish([attempt.metadata for attempt in attempts])
            inputs = [self._input(attempt) for attempt in attempts]
            wave.wait = self.context.engine.begin(copy_segment, inputs, side_effects)
        return wave

    def _input(self, attempt: _Attempt) -> CopyInput:
        return CopyInput(
            metadata=attempt.metadata,
            source=attempt.source,
            custom_metadata_max_bytes=self.custom_metadata_max_bytes,
        )

    def finished(self, wave: _Wave, record: Callable[[Iterable[Outcome]], None]) -> list[Outcome]:
        """Wait until the segments of `wave` are stored, and publish COPY_SEGMENT_FINISHED for them.

        `record` gets the outcomes of these segments before others are cleaned up, which may fail.
        """
        attempts = list(wave.attempts.values())
        if wave.wait is None:
            ended = [Outcome(step=a.step, status=Status.PENDING, reason=STOPPED) for a in attempts]
        else:
            stored = self._stored(attempts, wave.wait(), wave.side_effects)
            if self.context.stop.asked():
                ended = [a.outcome(Status.FAILED if a.error else Status.PENDING, BEGUN) for a in stored]
            else:
                # Copies after the first failure of a partition, in this wave or an earlier one, would leave a
                # gap.
                good = [a for a in stored if a.is_stored and self._why_stopped(a.step) is None]
                if good:
                    with effect("copy.finished.publish"):
                        self.context.publish(
                            [segment_update(a.metadata, _S.COPY_SEGMENT_FINISHED, self.context) for a in good]
                        )
                    record(a.outcome(Status.DONE, a.result.note) for a in good)
                failed = [a for a in stored if a not in good]
                cleaned = self._clean_up(failed) if failed else {}
                ended = [
                    a.outcome(Status.DONE, a.result.note) if a in good else cleaned[a.metadata.segment_id]
                    for a in stored
                ]
        wave.outcomes |= dict(zip(wave.attempts, ended, strict=True))
        return [wave.outcomes[at] for at in range(len(wave.steps))]

    def _stored(
        self,
        attempts: Sequence[_Attempt],
        results: Sequence[SideEffectResult],
        side_effects: SideEffectContext,
    ) -> list[_Attempt]:
        """Return the attempts with their results; stop the partition of each one that failed."""
        stored = [a.with_result(result) for a, result in zip(attempts, results, strict=True)]
        if self.context.engine.verify_on_driver:
            stored = [_verified(attempt, side_effects) for attempt in stored]
        for attempt in stored:
            if not attempt.is_stored:
                self.stop_partition(attempt.step)
        return stored

    def _clean_up(self, failed: Sequence[_Attempt]) -> dict[Uuid, Outcome]:
        """Delete the objects of failed copies; a later run cleans up the objects that remain."""
        # An unknown outcome is not a failure: a late write, or an earlier attempt, may still succeed, and
        # no run looks for its objects after DELETE_SEGMENT_FINISHED.
        known = [a for a in failed if not (a.result.is_repeated or isinstance(a.error, StoreWriteUnknown))]
        deletions = delete_segments(
            [attempt.metadata for attempt in known],
            self.context,
            CLEANUP_LABELS,
            custom_metadata_max_bytes=self.custom_metadata_max_bytes,
        )
        by_id = {deletion.segment.segment_id: deletion for deletion in deletions}
        return {
            a.metadata.segment_id: self._failed_outcome(a, by_id.get(a.metadata.segment_id)) for a in failed
        }

    def _failed_outcome(self, attempt: _Attempt, deletion: Deletion | None) -> Outcome:
        remains = _remains(deletion, self.context.broker_id)
        if attempt.error is not None:
            return attempt.outcome(Status.FAILED, remains)
        why = self._why_stopped(attempt.step) or STOPPED
        return attempt.outcome(Status.DROPPED, f"{why}; {remains}" if remains else why)


def _verified(attempt: _Attempt, side_effects: SideEffectContext) -> _Attempt:
    """Return `attempt`, with an error if this process sees no objects of it: brokers trust FINISHED."""
    if not attempt.is_stored:
        return attempt
    try:
        if side_effects.remote.objects_of(attempt.metadata):
            return attempt
        error = StoreWriteUnknown(
            f"segment {attempt.metadata.segment_id} was stored by an executor, but this process does not "
            "find its objects",
            hint="--remote must be the same folder of a shared file system on every executor",
        )
    except RemoteStorageError as e:
        error = StoreWriteUnknown(e.message, hint=e.hint)
    return replace(attempt, result=replace(attempt.result, error=error))


def _remains(deletion: Deletion | None, broker_id: int) -> str | None:
    if deletion is None:
        return "whether it was stored is not known, so it stays COPY_SEGMENT_STARTED"
    if deletion.done:
        return None
    cause = deletion.error.message if deletion.error else STOPPED
    if broker_id < 0:
        return f"it was not cleaned up, which the next copy does with the lease of the tier: {cause}"
    return f"it was not cleaned up ({cleaned_text(broker_id)}): {cause}"
