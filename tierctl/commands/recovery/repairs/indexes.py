"""Decide how to repair missing or damaged indexes of segments that `verify` found."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from tierctl.apply.repairs import finished_segments, repaired_indexes
from tierctl.commands.mutation import Mutation
from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    RemoteStorageError,
    SafetyRefusal,
    UsageError,
)
from tierctl.model import RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.plan.preconditions import why_unknown
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.repair import index_step
from tierctl.plan.steps import Skip, Step
from tierctl.state.tier_state import TierState
from tierctl.storage.index_cache import spool_folder


@dataclass(frozen=True, slots=True)
class SegmentName:
    """The name of a segment as an item of a request: `TOPIC_ID:PARTITION:SEGMENT_ID`."""

    topic_id: Uuid
    partition: int
    segment_id: Uuid

    @classmethod
    def of(cls, partition: TopicIdPartition, segment_id: Uuid) -> Self:
        """Return the name of a segment of `partition`."""
        return cls(partition.topic_id, partition.partition, segment_id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a name that `str` made; raise UsageError if `text` is malformed."""
        parts = text.split(":")
        if len(parts) != 3 or not parts[1].isdigit():
            raise UsageError(
                f"{text!r} is no TOPIC_ID:PARTITION:SEGMENT_ID", hint="make the plan again with --plan-out"
            )
        return cls(Uuid.parse(parts[0]), int(parts[1]), Uuid.parse(parts[2]))

    def __str__(self) -> str:
        """Return the name as text, for `RepairRequest.indexes_of`."""
        return f"{self.topic_id}:{self.partition}:{self.segment_id}"


def decide_indexes(run: Mutation, state: TierState, names: Sequence[str]) -> Iterator[Step | Skip]:
    """Yield a step per named segment that stores its indexes, or a skip with the reason for no step.

    The log object of each segment is fetched, to derive the indexes from it. A segment is left out if it is
    no longer finished, or if its indexes are sound now.
    """
    if not names:
        return
    bars = run.progress.bar("deriving indexes", unit="segments", total=len(names))
    with spool_folder() as spool, bars as advance:
        for name in map(SegmentName.parse, names):
            advance(1)
            part = state.partitions.get((name.topic_id, name.partition))
            segment = None if part is None else part.get(name.segment_id)
            if part is None or segment is None or part.topic_id_partition not in run.resources.selection:
                continue
            if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                continue
            partition = part.topic_id_partition
            reason = why_unknown(state, part)
            if reason is not None:
                yield Skip.of(partition, reason, name.segment_id)
                continue
            try:
                found = repaired_indexes(segment, finished_segments(part), run.remote, spool)
                if found.indexes:
                    run.remote.check_indexes(segment, found.indexes)
            except (RemoteStorageError, SafetyRefusal) as e:
                yield Skip.of(partition, f"no index is derived: {e.message}", name.segment_id)
                continue
            except (CorruptInputError, AuthenticationError) as e:
                reason = Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"no index is derived: {e.message}")
                yield Skip.of(partition, reason, name.segment_id)
                continue
            if found.why_not is not None:
                yield Skip.of(partition, found.why_not, name.segment_id)
            elif found.indexes:
                yield index_step(segment, found.indexes)
