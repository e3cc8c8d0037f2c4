"""A partition as retention sees it: its remote segments, the lineage of its log, and the log's offsets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from tierctl.model import (
    EpochEntry,
    LocalLog,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tierctl.model.local import LARGEST_OFFSET
from tierctl.plan.steps import LINEAGE_EPOCH
from tierctl.state.lineage import Lineage, RemoteLogMetadataCache, find_highest_remote_offset
from tierctl.state.log_start import (
    CutEpochs,
    KnownTier,
    cut_epochs,
    extended_below,
    log_start_in_force,
    with_tier_start,
)
from tierctl.state.queries import LiveSegments, PartitionSegments
from tierctl.wire.arrays import Bools, Int64s

COPY_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


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

    def _live_rows(self) -> Iterator[Int64s]:
        """Yield the rows of `live`, one leader epoch after the other."""
        seen = np.empty(0, np.int64)
        for epoch in self.current.epochs_with_records:
            rows = self.segments.finished_in_epoch(epoch)
            is_live = self._is_within[self.segments.places_of(rows)] & ~np.isin(rows, seen)
            is_live &= self.segments.of_rows(rows).column("end") >= self.log_start_offset
            seen = np.concatenate([seen, rows[is_live]])
            yield rows[is_live]

    @cached_property
    def _is_within(self) -> Bools:
        """Which segments belong to the current lineage, in order of arrival."""
        return self.segments.within(self.current, self.log_end_offset)

    @cached_property
    def live(self) -> LiveSegments:
        """The finished segments of the current lineage that end at or above the log start.

        Their order is that of RLMExpirationTask: by epoch, then by start offset. Raise RemoteResourceNotFound
        if an epoch lists a segment that is gone, as a broker does.
        """
        return self.segments.of_rows(np.concatenate([np.empty(0, np.int64), *self._live_rows()]))

    def iter_live(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments of `live`; an epoch is read when its first segment is needed."""
        for rows in self._live_rows():
            live = self.segments.of_rows(rows)
            yield from map(live.metadata, range(len(rows)))

    @cached_property
    def live_bytes(self) -> int:
        """The `distinct_bytes` of `live`; raises as that. Brokers count an offset once for each segment."""
        columns = (self.live.column(name).tolist() for name in ("start", "end", "size"))
        return distinct_bytes(zip(*columns, strict=True))

    @cached_property
    def ended_copies(self) -> list[RemoteLogSegmentMetadata]:
        """The unfinished copies of the current lineage that no broker makes any longer.

        Later offsets were copied since they began.
        """
        return [
            segment
            for segment in self.segments.in_state(COPY_STARTED)
            if segment.end_offset >= self.log_start_offset
            and self.current.contains(segment, self.log_end_offset)
            and self.segments.has_copied_since(
                segment.segment_id, segment.end_offset, [epoch for epoch, _ in segment.segment_leader_epochs]
            )
        ]

    @property
    def decided_in(self) -> dict[str, int]:
        """The detail of a step that names the lineage from which it was decided."""
        return {} if self.lineage.latest is None else {LINEAGE_EPOCH: self.lineage.latest.epoch}


def distinct_bytes(spans: Iterable[tuple[int, int, int]]) -> int:
    """Return the bytes of segments of one lineage, with each offset counted once.

    `spans` are their start offsets, end offsets (inclusive) and sizes in bytes. A segment that overlaps
    earlier ones counts by its share of offsets that they do not hold.
    """
    total = 0
    covered = -1
    for start, end, size_bytes in sorted(spans, key=lambda span: (span[0], -span[1])):
        new_offsets = end - max(start - 1, covered)
        if new_offsets > 0:
            total += size_bytes * new_offsets // (end - start + 1)
            covered = end
    return total


def local_only_bytes(cache: RemoteLogMetadataCache, log: LocalLog) -> int | None:
    """Return the size of the segments of `log` above the highest copied offset; None if that is not known."""
    highest = find_highest_remote_offset(cache, Lineage(log.leader_epochs), log.log_end_offset).offset
    # Without a copied offset in the lineage it is unknown which local bytes are also in the tier.
    return None if highest < 0 else sum(s.size_bytes for s in log.segments if s.base_offset > highest)


def view_of_log(partition: TopicIdPartition, segments: PartitionSegments, log: LocalLog) -> PartitionView:
    """Return the view of a partition with a known local log."""
    log = with_tier_start(log, segments)
    return PartitionView(
        partition=partition,
        segments=segments,
        lineage=Lineage(log.leader_epochs),
        known_log_start_offset=log.log_start_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        local_only_bytes=local_only_bytes(segments.cache, log),
        local_start_offset=log.local_log_start_offset,
    )


def view_of_tier(
    partition: TopicIdPartition, segments: PartitionSegments, entries: Sequence[EpochEntry]
) -> PartitionView:
    """Return the view of a partition without a log, from `entries` of the newest leader-epoch index.

    The index proves no log start: it may be a copy of a checkpoint that had lost its first entries. The log
    therefore begins at the first finished segment, and what is below the start of `entries` only retention
    deletes, or a log start that the operator states.
    """
    lineage = Lineage(extended_below(entries, segments))
    finished = segments.finished_range()
    start = log_start_in_force((), KnownTier(segments, lineage.entries)).offset
    return PartitionView(
        partition=partition,
        segments=segments,
        lineage=lineage,
        known_log_start_offset=start,
        log_start_offset=start,
        # An offset after the largest one is none: a segment that ends there belongs to no log.
        log_end_offset=0 if finished is None else min(finished[1] + 1, LARGEST_OFFSET),
        local_only_bytes=None,
    )
