"""The facts from which retention decides about a partition: remote segments, lineage, log offsets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from tierctl.model import (
    EpochEntry,
    LocalLog,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.steps import LINEAGE_EPOCH
from tierctl.state.cut_epochs import CutEpochs, cut_epochs
from tierctl.state.lineage import HighestOffsets, Lineage, find_highest_remote_offset
from tierctl.state.log_start import KnownTier, extended_below, log_start_in_force, with_tier_start
from tierctl.state.partition_segments import PartitionSegments
from tierctl.state.tier import PartitionState

DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@dataclass(frozen=True, kw_only=True)
class PartitionView:
    """A partition's remote segments, the lineage of its log, and the log's offsets.

    `known_log_start_offset` is that of the log,
    `log_start_offset` may have been raised above it; `log_end_offset` is exclusive. `local_only_bytes` is the
    size of the local segments above the tier, and `local_start_offset` the base offset of the first local
    segment, None if unknown.
    """

    partition: TopicIdPartition
    segments: PartitionSegments
    lineage: Lineage
    known_log_start_offset: int
    log_start_offset: int
    log_end_offset: int
    local_only_bytes: int | None
    local_start_offset: int | None = None

    def raised_to(self, log_start_offset: int) -> Self:
        """Return the view with the log start raised to `log_start_offset`, if that is higher."""
        if log_start_offset <= self.log_start_offset:
            return self
        return replace(self, log_start_offset=log_start_offset)

    @cached_property
    def current(self) -> Lineage:
        """The lineage from `log_start_offset` on, as a broker's leader-epoch checkpoint would have it."""
        return self.lineage.truncate_from_start(self.log_start_offset)

    @cached_property
    def cut(self) -> CutEpochs | None:
        """How the log's leader-epoch checkpoint was cut; None if it was not."""
        return cut_epochs(
            self.lineage,
            self.segments,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            local_start_offset=self.local_start_offset,
        )

    def iter_live(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments of the current lineage that end at or above the log start.

        Their order is that of RLMExpirationTask: by epoch, then by start offset.
        """
        seen: set[Uuid] = set()
        for epoch in self.current.epochs_with_records:
            for segment in self.segments.finished_in_epoch(epoch):
                if segment.end_offset < self.log_start_offset:
                    continue
                if segment.segment_id not in seen and self.current.contains(segment, self.log_end_offset):
                    seen.add(segment.segment_id)
                    yield segment

    @property
    def decided_in(self) -> dict[str, int]:
        """The detail of a step that names the lineage from which it was decided."""
        return {} if self.lineage.latest is None else {LINEAGE_EPOCH: self.lineage.latest.epoch}


def distinct_bytes(segments: Sequence[RemoteLogSegmentMetadata]) -> int:
    """Return the bytes of segments of one lineage, with each offset counted once.

    A segment that overlaps earlier ones counts by its share of offsets that they do not hold.
    """
    total = 0
    covered = -1
    for segment in sorted(segments, key=lambda s: (s.start_offset, -s.end_offset)):
        offsets = segment.end_offset - segment.start_offset + 1
        new_offsets = segment.end_offset - max(segment.start_offset - 1, covered)
        if new_offsets > 0:
            total += segment.segment_size_in_bytes * new_offsets // offsets
            covered = segment.end_offset
    return total


def local_only_bytes(copied: HighestOffsets, log: LocalLog) -> int | None:
    """Return the size of the segments of `log` above the highest copied offset; None if that is not known."""
    highest = find_highest_remote_offset(copied, Lineage(log.leader_epochs), log.log_end_offset).offset
    # Without a copied offset in the lineage it is unknown which local bytes are also in the tier.
    return None if highest < 0 else sum(s.size_bytes for s in log.segments if s.base_offset > highest)


def view_of_log(part: PartitionState, log: LocalLog) -> PartitionView:
    """Return the view of a partition with a known local log."""
    segments = part.segments
    log = with_tier_start(log, segments)
    return PartitionView(
        partition=part.topic_id_partition,
        segments=segments,
        lineage=Lineage(log.leader_epochs),
        known_log_start_offset=log.log_start_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        local_only_bytes=local_only_bytes(segments, log),
        local_start_offset=log.local_log_start_offset,
    )


def view_of_tier(part: PartitionState, entries: Sequence[EpochEntry]) -> PartitionView:
    """Return the view of a partition without a log, from `entries` of the newest leader-epoch index.

    The index proves no log start: it may be a copy of a checkpoint that had lost its first entries. The log
    therefore begins at the first finished segment, and what is below the start of `entries` only retention
    deletes, or a log start that the operator states.
    """
    segments = part.segments
    lineage = Lineage(extended_below(entries, segments))
    finished = segments.finished_range()
    start = log_start_in_force((), KnownTier(segments, lineage.entries)).offset
    return PartitionView(
        partition=part.topic_id_partition,
        segments=segments,
        lineage=lineage,
        known_log_start_offset=start,
        log_start_offset=start,
        log_end_offset=0 if finished is None else finished[1] + 1,
        local_only_bytes=None,
    )
