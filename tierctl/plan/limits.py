"""Bounds on how much one run may delete, checked before its first side effect.

A plan beyond a bound is refused as a whole (LimitExceeded, exit code 8). It is never shortened, because what
would be deleted first is as likely to be a mistake as the rest.
"""

from collections import Counter

from tierctl.errors import LimitExceeded
from tierctl.model import RemoteLogSegmentState, Uuid
from tierctl.plan.steps import STATES, Action, Plan, Step
from tierctl.state.tier_state import TierState

MAX_DELETES = 10_000
"""Default of --max-deletes: segments that one run may delete."""

MAX_FRACTION = 0.5
"""Default of --max-fraction: share of a partition's segments that one sweep may delete."""

FRACTION_EXEMPT_BELOW = 20
"""Partitions with fewer segments are exempt from --max-fraction, since half of them are only a few."""

_Key = tuple[Uuid, int]


def check_limits(
    plan: Plan, state: TierState, *, max_deletes: int = MAX_DELETES, max_fraction: float = MAX_FRACTION
) -> None:
    """Raise LimitExceeded if `plan` deletes more than the limits allow.

    `max_deletes` limits all segments of the plan. `max_fraction` limits the share of each partition's
    finished segments, which consumers can read; it does not apply to deletions of whole partitions.
    """
    deletes = [step for step in plan.steps if step.action is Action.DELETE_SEGMENT]
    if len(deletes) > max_deletes:
        raise LimitExceeded(
            f"the plan deletes {len(deletes)} segments, more than --max-deletes {max_deletes}",
            hint="check the plan, then narrow the selection or raise --max-deletes",
        )
    whole = {step.topic_id_partition.key for step in plan.steps if step.action is Action.DELETE_PARTITION}
    chosen = Counter(step.topic_id_partition.key for step in deletes if _is_finished(step))
    for key, count in chosen.items():
        if key not in whole:
            _check_fraction(key, count, state, max_fraction)


def _is_finished(step: Step) -> bool:
    """Return whether the step deletes a segment that the metadata have as finished."""
    is_finished = step.details.get("state") == RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    return is_finished and STATES not in step.details


def _check_fraction(key: _Key, count: int, state: TierState, max_fraction: float) -> None:
    part = state.partitions[key]
    total = part.finished_count
    if total >= FRACTION_EXEMPT_BELOW and count > total * max_fraction:
        raise LimitExceeded(
            f"the plan deletes {count} of the {total} finished segments of {part.topic_id_partition}, "
            f"more than --max-fraction {max_fraction:g}",
            hint="check the plan, then narrow the selection or raise --max-fraction",
        )
