"""The step that stores indexes of a segment which are missing or damaged, derived from its log."""

from collections.abc import Collection

from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.plan.steps import Action, Step, segment_step

INDEXES = "indexes"
"""Detail: the names of the indexes that are stored."""


def index_step(segment: RemoteLogSegmentMetadata, kinds: Collection[IndexType]) -> Step:
    """Return the step that stores the indexes `kinds` of `segment`."""
    names = [kind.value for kind in IndexType if kind in kinds]
    reason = f"missing or damaged, derived from the log: {', '.join(names)}"
    return segment_step(Action.STORE_INDEXES, segment, reason, {INDEXES: names})


def index_types(step: Step) -> frozenset[IndexType]:
    """Return the indexes that the step stores."""
    return frozenset(IndexType(name) for name in step.details[INDEXES])
