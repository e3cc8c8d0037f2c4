"""How facts become steps: one place for the names of `details`."""

from typing import Any

from tierctl.model import RemoteLogSegmentMetadata
from tierctl.plan.plan import Action, Step
from tierctl.state.tier import PartitionState

LINEAGE_EPOCH = "lineage_epoch"
"""Detail: the latest leader epoch of the lineage a step was decided in."""

FOLLOWS = "follows"
"""Detail: the segment that has to be deleted before this one, so that no hole comes about."""

SOURCE_SEGMENT_ID = "source_segment_id"
"""Detail: the id that a segment, to be copied from another tier, has there."""


def delete_step(segment: RemoteLogSegmentMetadata, reason: str, **details: Any) -> Step:
    """Delete one segment. `state` in details is what it was when this was decided."""
    return Step(
        action=Action.DELETE_SEGMENT,
        reason=reason,
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        details={
            "state": segment.state,
            "segment_size_in_bytes": segment.segment_size_in_bytes,
            "max_timestamp_ms": segment.max_timestamp_ms,
            "segment_leader_epochs": [list(pair) for pair in segment.segment_leader_epochs],
            **details,
        },
    )


def partition_step(action: Action, part: PartitionState, reason: str, **details: Any) -> Step:
    """A step about a whole partition."""
    partition = part.topic_id_partition
    return Step(
        action=action,
        reason=reason,
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        details={"metadata_partition": part.metadata_partition, **details},
    )
