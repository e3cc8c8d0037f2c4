"""The step that stores indexes of a segment which are missing or damaged, derived from its log."""

from collections.abc import Collection

from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.plan.steps import Action, Step

INDEXES = "indexes"
"""Detail: the names of the indexes that are stored."""


def index_step(segment: RemoteLogSegmentMetadata, kinds: Collection[IndexType]) -> Step:
    """Return the step that stores the indexes `kinds` of `segment`."""
    names = [kind.value for kind in IndexType if kind in kinds]
    return Step(
        action=Action.STORE_INDEXES,
        reason=f"missing or damaged, derived from the log: {', '.join(names)}",
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        details={INDEXES: names},
    )


def index_types(step: Step) -> frozenset[IndexType]:
    """Return the indexes that the step stores."""
    return frozenset(IndexType(name) for name in step.details[INDEXES])
