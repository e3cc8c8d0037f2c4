"""Copying segments to the tier (KIP-405 RLMCopyTask, KIP-917), in an order that a crash can't hurt.

STARTED acknowledged → objects stored → every object verified and the source seen unchanged → FINISHED, in
offset order within a partition. Brokers delete local data trusting FINISHED: it is the point of durability.
What fails is deleted again (DELETE_STARTED → delete → gone → DELETE_FINISHED) and ends its partition's
copying, since a hole would never be filled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.run_context import Tools
from tierctl.apply.segment_deletes import Deletion, DeletionLabels, delete_segments, segment_update
from tierctl.apply.side_effect_context import Answer, Bench, Ends
from tierctl.apply.side_effects import effect
from tierctl.apply.source import Source, SourceChanged, Sources
from tierctl.apply.upload import CUSTOM_METADATA_MAX_BYTES, Storing, store
from tierctl.errors import RemoteStorageError, StoreWriteUnknown, TierctlError
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.plan.plan import Step

_S = RemoteLogSegmentState
_Key = tuple[Uuid, int]

CLEANUP_LABELS = DeletionLabels(
    started="copy.cleanup_started.publish",
    delete="copy.cleanup.delete",
    finished="copy.cleanup_finished.publish",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One try at one segment, under an id of its own, and how far it came."""

    step: Step
    metadata: RemoteLogSegmentMetadata
    source: Source
    answer: Answer = field(default_factory=Answer)

    @property
    def key(self) -> _Key:
        return self.step.topic_id_partition.key

    @property
    def error(self) -> TierctlError | None:
        return self.answer.error

    def answered(self, answer: Answer) -> "_Attempt":
        """The attempt as it went."""
        metadata = replace(self.metadata, custom_metadata=answer.custom_metadata)
        return replace(self, metadata=metadata, answer=answer)

    def outcome(self, status: Status, reason: str | None = None) -> Outcome:
        return Outcome(
            step=self.step,
            status=status,
            segment_id=self.metadata.segment_id,
            error=self.error,
            reason=reason,
        )


@dataclass(slots=True)
class Copier:
    """Copies wave after wave, and remembers which partitions' copying has ended."""

    tools: Tools
    sources: Sources
    custom_metadata_max_bytes: int = CUSTOM_METADATA_MAX_BYTES
    _ends: Ends = field(default_factory=Ends)

    def wave(self, steps: Sequence[Step]) -> list[Outcome]:
        """Copy `steps`, which are in offset order within each partition, as one wave.

        Outcomes in the order of `steps`. A publishing error is raised.
        """
        attempts: dict[int, _Attempt] = {}
        outcomes: dict[int, Outcome] = {}
        for at, step in enumerate(steps):
            try:
                attempts[at] = self._prepare(step)
            except SourceChanged as e:
                outcomes[at] = self._drop(step, str(e))
        outcomes |= dict(zip(attempts, self._copy(list(attempts.values())), strict=True))
        return [outcomes[at] for at in range(len(steps))]

    def _drop(self, step: Step, reason: str) -> Outcome:
        self.end(step)
        return Outcome(step=step, status=Status.DROPPED, reason=reason)

    def end(self, step: Step) -> None:
        """From `step` on nothing of its partition may be copied by this run."""
        self._ends.end(step.topic_id_partition.key, step.start_offset or 0)

    def _why_behind_end(self, step: Step) -> str | None:
        ended_at = self._ends.before(step.topic_id_partition.key, step.start_offset or 0)
        return None if ended_at is None else f"segment {ended_at} before it was not copied"

    def _prepare(self, step: Step) -> _Attempt:
        why = self._why_behind_end(step)
        if why is not None:
            raise SourceChanged(why)
        source = self.sources.find(step)
        tools = self.tools
        metadata = source.started(tools.new_segment_id(), tools.broker_id, tools.clock_ms())
        return _Attempt(step=step, metadata=metadata, source=source)

    def _copy(self, attempts: Sequence[_Attempt]) -> list[Outcome]:
        if attempts:
            self.tools.engine.ready()
        if not attempts or self.tools.stop.asked():
            return [attempt.outcome(Status.PENDING, STOPPED) for attempt in attempts]
        # Acknowledged before the first byte is stored: whatever a crash leaves in the store is known.
        with effect("copy.started.publish"):
            self.tools.metadata.publish([attempt.metadata for attempt in attempts])
        stored = self._store(attempts)
        if self.tools.stop.asked():
            return [a.outcome(Status.FAILED if a.error else Status.PENDING, STOPPED) for a in stored]
        good = self._unbroken(stored)
        self._finish(good)
        cleaned = self._clean_up([a for a in stored if a not in good])
        return [a.outcome(Status.DONE) if a in good else cleaned[a.metadata.segment_id] for a in stored]

    def _store(self, attempts: Sequence[_Attempt]) -> list[_Attempt]:
        bench = self.sources.equip(self.tools.bench(self._ends))
        work = [
            Storing(
                metadata=attempt.metadata,
                source=attempt.source,
                custom_metadata_max_bytes=self.custom_metadata_max_bytes,
            )
            for attempt in attempts
        ]
        answers = self.tools.engine.map(store, work, bench)
        stored = [a.answered(answer) for a, answer in zip(attempts, answers, strict=True)]
        if self.tools.engine.is_elsewhere:
            stored = [_seen(attempt, bench) for attempt in stored]
        for attempt in stored:
            if attempt.error is not None:
                self.end(attempt.step)
        return stored

    def _unbroken(self, stored: Sequence[_Attempt]) -> list[_Attempt]:
        """Of each partition the copies before its first failure: a hole is never finished over."""
        broken: set[_Key] = set()
        good = []
        for attempt in stored:
            if attempt.error is not None or not attempt.answer.begun:
                broken.add(attempt.key)
            if attempt.key not in broken:
                good.append(attempt)
        return good

    def _finish(self, good: Sequence[_Attempt]) -> None:
        events = [segment_update(a.metadata, _S.COPY_SEGMENT_FINISHED, self.tools) for a in good]
        if events:
            with effect("copy.finished.publish"):
                self.tools.metadata.publish(events)

    def _clean_up(self, failed: Sequence[_Attempt]) -> dict[Uuid, Outcome]:
        """Take back what was stored in vain; the store's answers decide what is left to a later run."""
        # Unknown is not failed: a late write may still land, and nobody would look for it after FINISHED.
        known = [a for a in failed if not isinstance(a.error, StoreWriteUnknown)]
        deletions = delete_segments(
            [attempt.metadata for attempt in known],
            self.tools,
            CLEANUP_LABELS,
            custom_metadata_max_bytes=self.custom_metadata_max_bytes,
        )
        by_id = {deletion.segment.segment_id: deletion for deletion in deletions}
        return {
            a.metadata.segment_id: self._failed_outcome(a, by_id.get(a.metadata.segment_id)) for a in failed
        }

    def _failed_outcome(self, attempt: _Attempt, deletion: Deletion | None) -> Outcome:
        left = _what_is_left(deletion)
        if attempt.error is not None:
            return attempt.outcome(Status.FAILED, left)
        why = self._why_behind_end(attempt.step) or STOPPED
        return attempt.outcome(Status.DROPPED, f"{why}; {left}" if left else why)


def _seen(attempt: _Attempt, bench: Bench) -> _Attempt:
    """The attempt, whose objects must be where this process sees them: brokers delete trusting FINISHED."""
    if attempt.error is not None or not attempt.answer.begun:
        return attempt
    try:
        if bench.remote.objects_of(attempt.metadata):
            return attempt
        error = StoreWriteUnknown(
            f"segment {attempt.metadata.segment_id} was stored, yet nothing of it is seen from here",
            hint="--remote has to be the same folder, of a shared file system, on every executor",
        )
    except RemoteStorageError as e:
        error = StoreWriteUnknown(e.message, hint=e.hint)
    return replace(attempt, answer=replace(attempt.answer, error=error))


def _what_is_left(deletion: Deletion | None) -> str | None:
    if deletion is None:
        return "whether it was stored is not known, so it stays COPY_SEGMENT_STARTED"
    if deletion.done:
        return None
    cause = deletion.error.message if deletion.error else STOPPED
    return f"it was not cleaned up, which a sweep will do: {cause}"
