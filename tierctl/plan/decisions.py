"""The table of decisions: what brokers do next with each segment, of the tier or of a log, why and when.

The rules of copying (`plan.copy`), of retention (`plan.retention`) and of partition deletes decide. `copy`,
`sweep` and `delete` carry out the steps of their plans; `explain`, `status`, `report` and `report --what-if`
read the rows of the same plans, which also state why a segment stays, and from when on brokers delete it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tierctl.model import RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.state.queries import PartitionSegments
from tierctl.state.tier_state import PartitionState

_K = ReasonKind
WAITING = frozenset(
    {_K.OPEN_TRANSACTION, _K.NOT_REPLICATED, _K.COPY_LAG, _K.NOT_COPYABLE, _K.CUSTOM_METADATA}
)
"""Why rolled segments of an enabled topic are not in the tier yet."""
ON_DISK = frozenset({_K.LOCAL_RETENTION_MS, _K.LOCAL_RETENTION_BYTES, _K.LOCAL_LOG_START, _K.LOCAL_HELD})
"""Why copied segments are deleted from the disk, or should be gone from it."""
STOPPED = frozenset({_K.STALLED, _K.BEHIND_HOLE})
"""Why segments of the tier do not expire although they are old enough: a timestamp, or a hole of the tier."""
EXPIRED = frozenset(
    {_K.RETENTION_MS, _K.RETENTION_BYTES, _K.LOG_START_OFFSET, _K.UNREFERENCED_EPOCHS, _K.DELETE_STARTED}
)
"""Why retention deletes segments now."""
KEPT = frozenset({_K.WILL_EXPIRE, _K.BEHIND_OLDER, _K.NO_LIMIT_REACHED})
"""Why retention keeps segments of the lineage for now."""
NEVER = np.iinfo(np.int64).max
"""The due time of a segment that is not deleted at a known time."""
_KINDS = {kind: number for number, kind in enumerate(ReasonKind)}
_NO_KIND = -1


def needs_operator(reason: Reason, limit_ms: int) -> bool:
    """Return whether copies that wait for `reason` continue only after an operator acted.

    KIP-917's limit stops them, or a transaction that is open since before `limit_ms`, while a segment that
    was complete at that time waits for its end.
    """
    if reason.kind is _K.OPEN_TRANSACTION:
        return bool(max(reason.facts["oldest_ms"], reason.facts["since_ms"] or 0) < limit_ms)
    return reason.kind is _K.CUSTOM_METADATA


class NextAction(StrEnum):
    """The next action of brokers for a segment."""

    COPY = "copy"
    DELETE = "delete"
    DELETE_LOCAL = "delete_local"
    """A broker deletes the segment from its disk; the tier keeps it."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next action for one segment, and the reason.

    `segment_id` is None for a segment of the local log, which alone has `size_bytes`, and `end_offset` for
    the active one. `due_ms` is the time from which brokers may take the action, None if that is unknown.
    """

    partition: TopicIdPartition
    segment_id: Uuid | None
    start_offset: int
    end_offset: int | None
    reason: Reason
    action: NextAction = NextAction.NONE
    due_ms: int | None = None
    size_bytes: int | None = None

    @property
    def is_copy_lag(self) -> bool:
        """Whether the segment is copied next, or a rolled segment that waits to be copied."""
        return self.action is NextAction.COPY or self.reason.kind in WAITING

    @classmethod
    def kept(cls, segment: RemoteLogSegmentMetadata, reason: Reason) -> Self:
        """Return the decision that a plan does not act on the remote `segment` now."""
        return cls(
            partition=segment.topic_id_partition,
            segment_id=segment.segment_id,
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            reason=reason,
            action=NextAction.DELETE if reason.facts.get("is_deleted") else NextAction.NONE,
            due_ms=reason.facts.get("expires_at_ms"),
        )

    @classmethod
    def deleted(cls, segment: RemoteLogSegmentMetadata, reason: Reason, now_ms: int) -> Self:
        """Return the decision that brokers delete the remote `segment` now, although a plan keeps it."""
        return replace(cls.kept(segment, reason), action=NextAction.DELETE, due_ms=now_ms)


def stopped_copies(decisions: Iterable[Decision], limit_ms: int) -> dict[TopicIdPartition, Reason]:
    """Return the partitions whose copies continue only after an operator acted, with the last reason."""
    return {each.partition: each.reason for each in decisions if needs_operator(each.reason, limit_ms)}


def stops_by_kind(
    stopped: Mapping[TopicIdPartition, Reason],
) -> dict[ReasonKind, dict[TopicIdPartition, Reason]]:
    """Return the partitions of `stopped_copies` in order, for each kind of reason."""
    by_kind: dict[ReasonKind, dict[TopicIdPartition, Reason]] = defaultdict(dict)
    for partition, reason in sorted(stopped.items()):
        by_kind[reason.kind][partition] = reason
    return by_kind


def stop_lines(stopped: Mapping[TopicIdPartition, Reason]) -> list[str]:
    """Return one line for each kind of reason in `stopped`: its first partition, and how many more it has."""
    lines = []
    for found in stops_by_kind(stopped).values():
        partition, reason = next(iter(found.items()))
        more = f"; {len(found) - 1:,} more, see tierctl explain" if len(found) > 1 else ""
        lines.append(f"{partition.topic_partition}: {reason}{more}")
    return lines


@dataclass(frozen=True, slots=True)
class DecisionColumns:
    """The decisions about the segments of one partition, in the order of its columns.

    `kinds` are numbers of reasons, and `due_ms` are the times from which brokers may delete a segment, or
    NEVER.
    """

    kinds: npt.NDArray[np.int64]
    due_ms: npt.NDArray[np.int64]

    @classmethod
    def none(cls, count: int) -> Self:
        """Return columns without a decision about any of `count` segments."""
        return cls(np.full(count, _NO_KIND, np.int64), np.full(count, NEVER, np.int64))

    @classmethod
    def of(cls, part: PartitionState, decisions: Iterable[Decision]) -> Self:
        """Return the decisions about the segments of `part`; of two about a segment, the later one counts."""
        return cls.none(part.segment_count).with_decisions(part.segments, decisions)

    def with_decisions(self, segments: PartitionSegments, decisions: Iterable[Decision]) -> Self:
        """Return these decisions about `segments`, replaced by the given ones."""
        found = replace(self, kinds=self.kinds.copy(), due_ms=self.due_ms.copy())
        for each in decisions:
            place = None if each.segment_id is None else segments.place(each.segment_id)
            if place is not None:
                found.put(place, each.reason, each.due_ms)
        return found

    def fill(self, places: Any, kind: ReasonKind, due_ms: Any = NEVER) -> None:
        """Set the decisions about segments, at indexes, a slice or a mask of the order of arrival."""
        self.kinds[places] = _KINDS[kind]
        self.due_ms[places] = due_ms

    def copy(self, places: npt.NDArray[np.int64], others: Self) -> None:
        """Set the decisions about the segments at `places` to those of `others`."""
        self.kinds[places], self.due_ms[places] = others.kinds, others.due_ms

    def put(self, place: int, reason: Reason, due_ms: int | None) -> None:
        """Set the decision about the segment at a place in the order of arrival."""
        self.kinds[place] = _KINDS[reason.kind]
        self.due_ms[place] = NEVER if due_ms is None else due_ms

    @classmethod
    def alike(cls, count: int, kind: ReasonKind, due_ms: int) -> Self:
        """Return the same decision about each of `count` segments."""
        found = cls.none(count)
        found.fill(slice(None), kind, due_ms)
        return found

    def has(self, kinds: Iterable[ReasonKind]) -> npt.NDArray[np.bool_]:
        """Return for each segment whether the reason of its decision is one of `kinds`."""
        found: npt.NDArray[np.bool_] = np.isin(self.kinds, [_KINDS[kind] for kind in kinds])
        return found

    @property
    def is_decided(self) -> npt.NDArray[np.bool_]:
        """Return for each segment whether there is a decision."""
        found: npt.NDArray[np.bool_] = self.kinds != _NO_KIND
        return found


@dataclass(frozen=True, slots=True)
class KeptSegments:
    """The decisions about the segments of a partition that a plan does not act on, in order of arrival.

    `columns` have them for every segment; `decide` makes the one at a place, which takes a hundred times as
    long.
    """

    columns: DecisionColumns
    decide: Callable[[int], Decision]

    def __iter__(self) -> Iterator[Decision]:
        """Yield all decisions."""
        return map(self.decide, np.flatnonzero(self.columns.is_decided).tolist())

    def of_kinds(self, kinds: Iterable[ReasonKind]) -> Iterator[Decision]:
        """Yield the decisions whose reasons are of one of `kinds`."""
        return map(self.decide, np.flatnonzero(self.columns.has(kinds)).tolist())
