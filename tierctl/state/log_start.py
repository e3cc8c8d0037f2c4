"""Where a log begins whose log start is not recorded: in the tier."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tierctl.model import EpochEntry, LocalLog, RemoteLogSegmentMetadata
from tierctl.state.partition_segments import PartitionSegments


def extended_below(entries: Sequence[EpochEntry], segments: PartitionSegments) -> tuple[EpochEntry, ...]:
    """Return `entries` of a leader-epoch index, extended below its first offset by `segments`.

    The index begins at the log start that was known when its segment was copied. Copied from a broker that
    does not tier, that is the local log start, and older segments of the tier lie below it. Return `entries`
    if the segments' epochs do not ascend: then they are of several lineages.
    """
    if not entries:
        return ()
    first = entries[0]
    starts: dict[int, int] = {}
    for segment in segments.finished_before(first.start_offset):
        for epoch, offset in segment.segment_leader_epochs:
            if epoch <= first.epoch:
                starts[epoch] = min(offset, starts.get(epoch, offset))
    older = [EpochEntry(epoch, offset) for epoch, offset in sorted(starts.items())]
    joined = (*older, *(entries[1:] if first.epoch in starts else entries))
    is_ascending = all(a.start_offset <= b.start_offset for a, b in pairwise(joined))
    return joined if is_ascending else tuple(entries)


def start_within(first: RemoteLogSegmentMetadata, index_start: int) -> int:
    """Return the log start within the `first` segment of a log whose newest leader-epoch index is known.

    That is the start of the segment, unless DeleteRecords raised the first entry of the index, which begins
    at `index_start`, within it. An index that begins at the start of an epoch may be a copy of a checkpoint
    that lost entries, as one that begins above the segment: no segment is left out for what an index lacks.
    """
    is_within = first.start_offset < index_start <= first.end_offset
    is_epoch_start = any(start == index_start for _, start in first.segment_leader_epochs)
    return index_start if is_within and not is_epoch_start else first.start_offset


def with_tier_start(log: LocalLog, segments: PartitionSegments) -> LocalLog:
    """Return `log` with the log start of the finished ones of `segments` if its own is not recorded.

    Brokers record the log start of every tiered partition in log-start-offset-checkpoint. Without a record a
    broker takes it for 0 (LogLoader), not for the start of the local log.
    """
    if log.is_log_start_known:
        return log
    finished = segments.finished_range()
    return replace(
        log,
        log_start_offset=log.log_start_offset if finished is None else min(log.log_start_offset, finished[0]),
        leader_epochs=extended_below(log.leader_epochs, segments),
    )
