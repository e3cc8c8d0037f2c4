"""Deleting single segments: what a sweep decided, and dangling copies.

Order: log start offset first → DELETE_SEGMENT_STARTED → exact keys → seen to be gone →
DELETE_SEGMENT_FINISHED (RLMExpirationTask.cleanupExpiredRemoteLogSegments).
"""

from collections.abc import Callable, Mapping, Sequence

from tierctl.apply.outcome import Outcome
from tierctl.apply.run_context import Tools
from tierctl.apply.segment_deletes import DeletionLabels, delete_others, outcome_of
from tierctl.apply.side_effects import effect
from tierctl.errors import TierctlError
from tierctl.model import RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.plan.plan import Step
from tierctl.state.tier import TierState

SWEEP_LABELS = DeletionLabels(
    started="sweep.started.publish", delete="sweep.segment.delete", finished="sweep.finished.publish"
)

RaiseLogStarts = Callable[[Mapping[TopicIdPartition, int]], None]
"""Raises the kept log start offsets of partitions, never lowers one; durable when it returns."""


def new_log_starts(steps: Sequence[Step]) -> dict[TopicIdPartition, int]:
    """Where each partition's log starts once `steps` are done; only those that move it."""
    starts: dict[TopicIdPartition, int] = {}
    for step in steps:
        offset = step.details.get("new_log_start_offset")
        if isinstance(offset, int):
            partition = step.topic_id_partition
            starts[partition] = max(offset, starts.get(partition, 0))
    return starts


def raise_log_starts(starts: Mapping[TopicIdPartition, int], write: RaiseLogStarts | None) -> None:
    """Move log starts, where somebody keeps them.

    Before anything is deleted: a log start above a deleted segment is a promise kept late, one below it
    would send readers to objects that are gone.
    """
    if write is not None and starts:
        with effect("sweep.log_start.write"):
            write(starts)


def find_segment(step: Step, state: TierState) -> RemoteLogSegmentMetadata | None:
    """The segment the step is about, as the metadata have it now; None when it is deleted."""
    part = state.partition(step.topic_id_partition)
    return None if part is None or step.segment_id is None else part.cache.get(step.segment_id)


def delete_wave(
    steps: Sequence[Step],
    segments: Sequence[RemoteLogSegmentMetadata],
    tools: Tools,
    labels: DeletionLabels,
    *,
    refused: Mapping[Uuid, TierctlError],
) -> list[Outcome]:
    """Delete the `segments` of `steps`, pairwise, as one wave. A publishing error is raised."""
    deletions = delete_others(refused, segments, tools, labels)
    return [outcome_of(step, deletion) for step, deletion in zip(steps, deletions, strict=True)]
