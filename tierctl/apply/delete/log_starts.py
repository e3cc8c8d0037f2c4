"""Raise log start offsets, before a sweep deletes the segments below them."""

from collections.abc import Callable, Mapping, Sequence

from tierctl.apply.labels import effect
from tierctl.model import TopicIdPartition
from tierctl.plan.steps import Step

RaiseLogStarts = Callable[[Mapping[TopicIdPartition, int]], None]
"""Stores each log start offset that is above the stored one; durable on return."""


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
