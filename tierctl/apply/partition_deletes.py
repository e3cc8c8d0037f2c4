"""The RemotePartitionRemover of KIP-405: what remote storage holds of deleted partitions goes away.

MARKED (published by --mark, as the KIP's controller would) → STARTED → every segment STARTED → deleted →
FINISHED → look again for segments that appeared meanwhile → FINISHED → processed offsets committed.
Partitions are known by (topic id, partition), so a topic recreated under the same name is untouched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.run_context import Tools
from tierctl.apply.segment_deletes import Deletion, DeletionLabels, delete_others, outcome_of
from tierctl.apply.side_effects import Label, effect
from tierctl.apply.tier_check import require_known_tier, why_not_deletable
from tierctl.apply.waves import chunks
from tierctl.errors import PartialFailure, TierctlError
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.plan import Step
from tierctl.state.tier import TierState

_P = RemotePartitionDeleteState

ROUNDS_MAX = 10
"""How often segments may appear while their partition is being deleted before the run gives up."""

_LABELS = DeletionLabels(
    started="delete.segment_started.publish",
    delete="delete.segment.delete",
    finished="delete.segment_finished.publish",
)


def mark_partition(step: Step, tools: Tools) -> Outcome:
    """Publish DELETE_PARTITION_MARKED, unless the partition is marked already."""
    known = tools.metadata.refresh().partition(step.topic_id_partition)
    if known is not None and known.delete_state is not None:
        return Outcome(step=step, status=Status.DONE, reason=f"already {known.delete_state}")
    if tools.stop.asked():
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    _publish(step.topic_id_partition, _P.DELETE_PARTITION_MARKED, tools, "delete.marked.publish")
    return Outcome(step=step, status=Status.DONE)


def remove_partition(step: Step, segments: Sequence[Step], tools: Tools) -> list[Outcome]:
    """Delete every segment of a marked partition; DONE only when nothing is left and FINISHED is published.

    `segments` are the plan's steps for the segments known when it was made; those that appeared since are
    deleted too. The partition's outcome comes first, then theirs. Safe to kill anywhere: a second call
    goes on from what the metadata say.
    """
    partition = step.topic_id_partition
    refused = _settled(step, tools)
    if refused is not None:
        return [refused, *(replace(refused, step=segment) for segment in segments)]
    known = tools.metadata.state.partition(partition)
    if known is not None and known.delete_state is _P.DELETE_PARTITION_MARKED:
        require_known_tier({partition}, tools)
        _publish(partition, _P.DELETE_PARTITION_STARTED, tools, "delete.partition_started.publish")
    drained = _drain(partition, tools)
    outcome = _of_partition(step, drained, tools)
    if outcome.status is Status.DONE:
        # Only now: after FINISHED nobody looks for the partition's segments again.
        _publish(partition, _P.DELETE_PARTITION_FINISHED, tools, "delete.partition_finished.publish")
    return [outcome, *(_of_segment(segment, drained, outcome) for segment in segments)]


def _settled(step: Step, tools: Tools) -> Outcome | None:
    """The outcome when there is nothing to begin: not known, not marked, finished already, or stopped."""
    state = tools.metadata.refresh()
    known = state.partition(step.topic_id_partition)
    if known is None or known.delete_state is None:
        reason = "the partition is not marked for deletion"
        return Outcome(step=step, status=Status.DROPPED, reason=reason)
    if known.delete_state is _P.DELETE_PARTITION_FINISHED:
        return Outcome(step=step, status=Status.DONE, reason="already deleted")
    if not state.is_complete(known.metadata_partition):
        reason = f"metadata partition {known.metadata_partition} is not fully understood any more"
        return Outcome(step=step, status=Status.DROPPED, reason=reason)
    return Outcome(step=step, status=Status.PENDING, reason=STOPPED) if tools.stop.asked() else None


def processed_offsets(state: TierState) -> dict[int, int]:
    """How far each metadata partition is done with: the next offset a remover has to look at.

    It stays at the first DELETE_PARTITION_MARKED whose partition is not FINISHED, whatever comes after it.
    """
    offsets = dict(state.read)
    for part in state:
        marked = part.delete_marked_offset
        if marked is not None and part.delete_state is not _P.DELETE_PARTITION_FINISHED:
            offsets[part.metadata_partition] = min(marked, offsets.get(part.metadata_partition, marked))
    return offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drained:
    """What a drain did, by segment id; `error` says why segments are left besides those that failed."""

    deletions: Mapping[Uuid, Deletion]
    error: TierctlError | None = None

    @property
    def first_error(self) -> TierctlError | None:
        return self.error or next((d.error for d in self.deletions.values() if d.error), None)


def _drain(partition: TopicIdPartition, tools: Tools) -> _Drained:
    """Delete until a fresh look at the metadata shows no segment; a broker may still have been copying.

    A segment that can't be deleted does not keep the others.
    """
    deletions: dict[Uuid, Deletion] = {}
    for _ in range(ROUNDS_MAX):
        segments = _left(partition, tools)
        if not segments:
            return _Drained(deletions=deletions)
        for wave in chunks(segments, tools.wave_size):
            refused = why_not_deletable(wave, tools)
            deletions |= {d.segment.segment_id: d for d in delete_others(refused, wave, tools, _LABELS)}
        if not all(deletion.done for deletion in deletions.values()):
            return _Drained(deletions=deletions)
    error = PartialFailure(
        f"segments of {partition} kept appearing while it was being deleted ({ROUNDS_MAX} rounds)",
        hint="something still copies this partition; stop it and run delete again",
    )
    return _Drained(deletions=deletions, error=error)


def _of_partition(step: Step, drained: _Drained, tools: Tools) -> Outcome:
    if drained.first_error is not None:
        return Outcome(step=step, status=Status.FAILED, error=drained.first_error)
    if tools.stop.asked():
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    return Outcome(step=step, status=Status.DONE)


def _of_segment(step: Step, drained: _Drained, partition: Outcome) -> Outcome:
    deletion = None if step.segment_id is None else drained.deletions.get(step.segment_id)
    if deletion is not None:
        return outcome_of(step, deletion)
    if partition.status is Status.DONE:
        return Outcome(step=step, status=Status.DONE, reason="already deleted")
    return Outcome(step=step, status=Status.PENDING, reason=partition.reason or "not reached")


def _left(partition: TopicIdPartition, tools: Tools) -> list[RemoteLogSegmentMetadata]:
    tools.metadata.refresh()
    return sorted(
        tools.metadata.list_remote_log_segments(partition), key=lambda s: (s.start_offset, s.segment_id)
    )


def _publish(
    partition: TopicIdPartition, state: RemotePartitionDeleteState, tools: Tools, label: Label
) -> None:
    event = RemotePartitionDeleteMetadata(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        broker_id=tools.broker_id,
        event_timestamp_ms=tools.clock_ms(),
        state=state,
    )
    with effect(label):
        tools.metadata.put_remote_partition_delete_metadata(event)
