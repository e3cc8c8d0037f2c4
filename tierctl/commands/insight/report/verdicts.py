"""What plans decide about each segment, as columns: its kind in the lanes, and when brokers may delete it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tierctl.model import RemoteLogSegmentState, Uuid
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import Action, Kept, Step
from tierctl.report.html.kinds import SegmentKind
from tierctl.report.html.lanes import Int64s
from tierctl.state.segments.columns import STATES
from tierctl.state.tier import PartitionState, TierState

NEVER = -1
"""A due time that is unknown, or does not exist."""
_K, _R = SegmentKind, ReasonKind
_OF_REASONS = {
    _R.WILL_EXPIRE: _K.CURRENT,
    _R.BEHIND_OLDER: _K.CURRENT,
    _R.NO_LIMIT_REACHED: _K.CURRENT,
    _R.STALLED: _K.HELD,
    _R.BEHIND_HOLE: _K.HELD,
    _R.OFF_LINEAGE: _K.OFF_LINEAGE,
    _R.TOPIC_DELETED: _K.GONE,
    _R.LEAKED: _K.GONE,
    _R.COPY_STARTED: _K.COPYING,
    _R.DELETE_STARTED: _K.DELETING,
    _R.RETENTION_MS: _K.DUE,
    _R.RETENTION_BYTES: _K.DUE,
    _R.LOG_START_OFFSET: _K.DUE,
    _R.UNREFERENCED_EPOCHS: _K.DUE,
}
"""The kind of a segment in the tier by the reason of its step, or the reason why it stays."""
_S = RemoteLogSegmentState
_OF_STATES = {
    STATES.index(_S.COPY_SEGMENT_STARTED): _K.COPYING,
    STATES.index(_S.DELETE_SEGMENT_STARTED): _K.DELETING,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decisions about the segments of one partition, in the order of its columns.

    `kinds` are codes of SegmentKind; `due_ms` is the time from which brokers may delete a segment, or NEVER.
    """

    kinds: Int64s
    due_ms: Int64s


class Verdicts:
    """The verdicts of the partitions of the state that `state` returns, which must not change meanwhile."""

    def __init__(self, state: Callable[[], TierState], now_ms: int) -> None:
        self._state = state
        self._now_ms = now_ms
        self._by_partition: dict[tuple[Uuid, int], Verdict] = {}

    def receive(self, kept: Sequence[Kept]) -> None:
        """Add the segments of one partition on which a sweep does not act."""
        if kept:
            verdict, rows = self._indexed(kept[0].partition.key)
            for each in kept:
                if each.segment_id is not None and (row := rows.get(each.segment_id.bytes)) is not None:
                    kind = _OF_REASONS.get(each.reason.kind, _K.UNDECIDED)
                    verdict.kinds[row] = kind.code
                    verdict.due_ms[row] = each.reason.facts.get("expires_at_ms", NEVER)

    def add_steps(self, steps: Iterable[Step]) -> None:
        """Add the segments that the steps of a plan delete: brokers may do so now."""
        by_partition: dict[tuple[Uuid, int], list[Step]] = {}
        for step in steps:
            if step.action is Action.DELETE_SEGMENT:
                by_partition.setdefault(step.topic_id_partition.key, []).append(step)
        for key, deletes in by_partition.items():
            verdict, rows = self._indexed(key)
            for step in deletes:
                if step.segment_id is not None and (row := rows.get(step.segment_id.bytes)) is not None:
                    kind = _OF_REASONS.get(Reason.of(step.reason).kind, _K.UNDECIDED)
                    verdict.kinds[row] = kind.code
                    verdict.due_ms[row] = self._now_ms

    def of(self, part: PartitionState) -> Verdict:
        """Return the verdict on the segments of `part`; states count where no plan knows a segment."""
        found = self._by_partition.get(part.topic_id_partition.key)
        return self._initial(part) if found is None else found

    def _indexed(self, key: tuple[Uuid, int]) -> tuple[Verdict, dict[bytes, int]]:
        """Return the verdict of a partition, and its rows by segment id."""
        part = self._state().partitions[key]
        verdict = self._by_partition.setdefault(key, self._initial(part))
        return verdict, {raw: row for row, raw in enumerate(part.segments.columns.ids)}

    def _initial(self, part: PartitionState) -> Verdict:
        states = part.segments.columns.states
        kinds = np.full(len(states), _K.UNDECIDED.code, np.int64)
        for state, kind in _OF_STATES.items():
            kinds[states == state] = kind.code
        return Verdict(kinds, np.full(len(states), NEVER, np.int64))
