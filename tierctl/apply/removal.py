"""The RemotePartitionRemover of KIP-405: what remote storage holds of deleted partitions goes away.

MARKED (published by --mark, as the KIP's controller would) → STARTED → every segment STARTED → deleted →
FINISHED → look again for segments that appeared meanwhile → FINISHED → processed offsets committed.
Partitions are known by (topic id, partition), so a topic recreated under the same name is untouched.
"""

from dataclasses import dataclass

from tierctl.apply.deletion import DeletionLabels, delete_segments
from tierctl.apply.effects import Label, effect
from tierctl.apply.outcome import Outcome, Status
from tierctl.apply.tools import Tools
from tierctl.apply.waves import chunks
from tierctl.errors import PartialFailure, TierctlError
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from tierctl.plan.model import Step
from tierctl.state.tier import PartitionState

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
    if tools.stop:
        return Outcome(step=step, status=Status.PENDING)
    _publish(step.topic_id_partition, _P.DELETE_PARTITION_MARKED, tools, "delete.marked.publish")
    return Outcome(step=step, status=Status.DONE)


def remove_partition(step: Step, tools: Tools) -> Outcome:
    """Delete every segment of a marked partition; DONE only when nothing is left and FINISHED is published.

    Safe to kill anywhere: a second call goes on from what the metadata say.
    """
    partition = step.topic_id_partition
    known = tools.metadata.refresh().partition(partition)
    reason = _why_not(known)
    if known is None or reason:
        return Outcome(step=step, status=Status.DROPPED, reason=reason)
    if known.delete_state is _P.DELETE_PARTITION_FINISHED:
        return Outcome(step=step, status=Status.DONE, reason="already deleted")
    if tools.stop:
        return Outcome(step=step, status=Status.PENDING)
    if known.delete_state is _P.DELETE_PARTITION_MARKED:
        _publish(partition, _P.DELETE_PARTITION_STARTED, tools, "delete.partition_started.publish")
    drained = _drain(partition, tools)
    if drained.stopped or tools.stop:
        return Outcome(step=step, status=Status.PENDING)
    if drained.error is not None:
        return Outcome(step=step, status=Status.FAILED, error=drained.error)
    # Only now: after FINISHED nobody looks for the partition's segments again.
    _publish(partition, _P.DELETE_PARTITION_FINISHED, tools, "delete.partition_finished.publish")
    return Outcome(step=step, status=Status.DONE)


def _why_not(known: PartitionState | None) -> str | None:
    if known is None:
        return "the metadata know no such partition"
    if known.delete_state is None:
        return "the partition is not marked for deletion"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drained:
    error: TierctlError | None = None
    stopped: bool = False


def _drain(partition: TopicIdPartition, tools: Tools) -> _Drained:
    """Delete until a fresh look at the metadata shows no segment; a broker may still have been copying."""
    for _ in range(ROUNDS_MAX):
        segments = _left(partition, tools)
        if not segments:
            return _Drained()
        for wave in chunks(segments, tools.wave_size):
            deletions = delete_segments(wave, tools, _LABELS)
            error = next((d.error for d in deletions if d.error), None)
            if error is not None:
                return _Drained(error=error)
            if any(d.stopped for d in deletions):
                return _Drained(stopped=True)
    return _Drained(
        error=PartialFailure(
            f"segments of {partition} kept appearing while it was being deleted ({ROUNDS_MAX} rounds)",
            hint="something still copies this partition; stop it and run delete again",
        )
    )


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
