"""Copying segments to the tier (KIP-405 RLMCopyTask, KIP-917), in an order that a crash can't hurt.

STARTED acknowledged → objects stored → every object verified and the source seen unchanged → FINISHED, in
offset order within a partition. Brokers delete local data trusting FINISHED: it is the point of durability.
What fails is deleted again (DELETE_STARTED → delete → gone → DELETE_FINISHED) and ends its partition's
copying, since a hole would never be filled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tierctl.apply.deletion import Deletion, DeletionLabels, delete_segments, segment_update
from tierctl.apply.effects import effect
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.source import Source, SourceChanged, Sources
from tierctl.apply.tools import Tools
from tierctl.errors import LimitExceeded, RemoteStorageError, StoreWriteUnknown, TierctlError
from tierctl.model import LogSegmentData, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.plan.model import Step

_S = RemoteLogSegmentState
_Key = tuple[Uuid, int]

CUSTOM_METADATA_MAX_BYTES = 128
"""Default of remote.log.metadata.custom.metadata.max.bytes (KIP-917)."""

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
    error: TierctlError | None = None
    begun: bool = False
    stopped: bool = False

    @property
    def key(self) -> _Key:
        return self.step.topic_id_partition.key

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
    _ended_at: dict[_Key, int] = field(default_factory=dict)
    """Where a partition's copying ended; nothing behind it may be copied, nothing before it is in doubt."""

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
        key, offset = step.topic_id_partition.key, step.start_offset or 0
        self._ended_at[key] = min(offset, self._ended_at.get(key, offset))

    def _is_behind_end(self, step: Step) -> bool:
        ended_at = self._ended_at.get(step.topic_id_partition.key)
        return ended_at is not None and (step.start_offset or 0) > ended_at

    def _why_behind_end(self, step: Step) -> str:
        return f"segment {self._ended_at[step.topic_id_partition.key]} before it was not copied"

    def _prepare(self, step: Step) -> _Attempt:
        if self._is_behind_end(step):
            raise SourceChanged(self._why_behind_end(step))
        source = self.sources.find(step)
        tools = self.tools
        metadata = source.started(tools.new_segment_id(), tools.broker_id, tools.clock_ms())
        return _Attempt(step=step, metadata=metadata, source=source)

    def _copy(self, attempts: Sequence[_Attempt]) -> list[Outcome]:
        if not attempts or self.tools.stop.asked():
            return [attempt.outcome(Status.PENDING, STOPPED) for attempt in attempts]
        # Acknowledged before the first byte is stored: whatever a crash leaves in the store is known.
        with effect("copy.started.publish"):
            self.tools.metadata.publish([attempt.metadata for attempt in attempts])
        stored = self.tools.engine.map(self._store, attempts)
        if self.tools.stop.asked():
            return [a.outcome(Status.FAILED if a.error else Status.PENDING, STOPPED) for a in stored]
        good = self._unbroken(stored)
        self._finish(good)
        cleaned = self._clean_up([a for a in stored if a not in good])
        return [a.outcome(Status.DONE) if a in good else cleaned[a.metadata.segment_id] for a in stored]

    def _store(self, attempt: _Attempt) -> _Attempt:
        """Store and verify one segment; runs beside others, so what happened is in the result."""
        if self.tools.stop.asked():
            return replace(attempt, stopped=True)
        if self._is_behind_end(attempt.step):
            return attempt
        try:
            with attempt.source.opened() as data:
                return self._store_and_verify(attempt, data)
        except TierctlError as e:
            error = e
        except OSError as e:
            error = RemoteStorageError(f"copying segment {attempt.step.start_offset}: {e}")
        self.end(attempt.step)
        return replace(attempt, error=error, begun=True)

    def _store_and_verify(self, attempt: _Attempt, data: LogSegmentData) -> _Attempt:
        metadata = attempt.metadata
        with effect("copy.segment.store"):
            custom = self.tools.remote.copy_log_segment_data(metadata, data)
        stored = replace(attempt, metadata=replace(metadata, custom_metadata=custom), begun=True)
        error = self._why_not_finished(stored, data)
        if error is not None:
            self.end(attempt.step)
            return replace(stored, error=error)
        self.tools.advance(metadata.segment_size_in_bytes)
        return stored

    def _why_not_finished(self, stored: _Attempt, data: LogSegmentData) -> TierctlError | None:
        size_bytes = len(stored.metadata.custom_metadata or b"")
        if size_bytes > self.custom_metadata_max_bytes:
            return LimitExceeded(
                f"segment {stored.metadata.start_offset} of {stored.step.topic_id_partition} has "
                f"{size_bytes} bytes of custom metadata, more than {self.custom_metadata_max_bytes}",
                hint="raise --custom-metadata-max-bytes (remote.log.metadata.custom.metadata.max.bytes)",
            )
        try:
            self.tools.remote.verify_log_segment_data(stored.metadata, data)
        except RemoteStorageError as e:
            return e
        if stored.source.is_unchanged(data):
            return None
        return RemoteStorageError(
            f"{data.log_segment} or one of its indexes changed while it was being copied",
            hint="something writes to the log directory; run the command again when it is quiet",
        )

    def _unbroken(self, stored: Sequence[_Attempt]) -> list[_Attempt]:
        """Of each partition the copies before its first failure: a hole is never finished over."""
        broken: set[_Key] = set()
        good = []
        for attempt in stored:
            if attempt.error is not None or not attempt.begun:
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
        why = self._why_behind_end(attempt.step)
        return attempt.outcome(Status.DROPPED, f"{why}; {left}" if left else why)


def _what_is_left(deletion: Deletion | None) -> str | None:
    if deletion is None:
        return "whether it was stored is not known, so it stays COPY_SEGMENT_STARTED"
    if deletion.done:
        return None
    cause = deletion.error.message if deletion.error else STOPPED
    return f"it was not cleaned up, which a sweep will do: {cause}"
