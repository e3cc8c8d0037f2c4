"""Tell a leader-epoch checkpoint that lost entries from a log that diverged: one rule for every command.

A checkpoint is cut if it begins above the log start, or lacks epochs of segments that its log must have had.
Where neither is proven, a segment off the lineage is given up only if other segments of the lineage, or the
local log, have all of its offsets; otherwise it can't be told whether the checkpoint was cut.
DeleteRecords and retention cut a checkpoint, too, but only up to the log start: what ends below the log start
proves nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tierctl.model import EpochEntry, LocalLog, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.state.lineage import Lineage, build_filtered_leader_epoch_map
from tierctl.state.queries import PartitionSegments

REPAIR_OF_CUT = "rebuild --log-start tier repairs the leader-epoch checkpoint of a stopped broker"
"""What an operator does about a cut checkpoint."""

_S = RemoteLogSegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class CutEpochs:
    """A leader-epoch checkpoint that was cut.

    `first` is its first entry, and `lost` are the finished segments at or above the log start whose epochs it
    lacks, by start offset; there is at least one. `is_proven` is false if the log may have diverged, too.
    """

    first: EpochEntry
    log_start_offset: int
    lost: tuple[RemoteLogSegmentMetadata, ...]
    is_proven: bool = True

    @property
    def end_offset(self) -> int:
        """Return the highest offset of the segments, inclusive."""
        return max(segment.end_offset for segment in self.lost)

    def is_deleted_by_brokers(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Return whether a broker that leads with the checkpoint deletes a segment whose epochs it lacks.

        RLMExpirationTask deletes the segments whose epochs are all older than the checkpoint's first one.
        """
        return segment.newest_leader_epoch < self.first.epoch

    def __str__(self) -> str:
        """Return what was found, without the place of the checkpoint."""
        many = "1 segment" if len(self.lost) == 1 else f"{len(self.lost)} segments"
        told = "and the log did not diverge" if self.is_proven else "or the log diverged: it can't be told"
        return (
            f"the leader epochs were cut, {told}: they begin with epoch "
            f"{self.first.epoch} at offset {self.first.start_offset}, the log starts at "
            f"{self.log_start_offset}, and {many} (offsets {self.lost[0].start_offset} to {self.end_offset}) "
            "have epochs that they lack at these offsets"
        )


def begins_above(entries: Iterable[EpochEntry], log_start_offset: int) -> bool:
    """Return whether a leader-epoch checkpoint begins above the log start."""
    return any(entry.start_offset > log_start_offset for entry in tuple(entries)[:1])


def cut_epochs(
    lineage: Lineage,
    segments: PartitionSegments,
    *,
    log_start_offset: int,
    log_end_offset: int,
    local_start_offset: int | None,
) -> CutEpochs | None:
    """Return how the leader-epoch checkpoint with the entries of `lineage` was cut; None if it was not.

    A segment with epochs that the checkpoint does not have at its offsets proves a cut if it ends at or above
    the log start and either begins below the checkpoint's first entry, or was written by a leader of the log.
    One with offsets that no segment of the lineage and no local segment has may
    prove it. Every other such segment diverged: the log has other records at its offsets. `log_end_offset` is
    exclusive; `local_start_offset` is the base offset of the first local segment, None if unknown.
    """
    return cut_among(
        lineage,
        segments.finished_beside(lineage.entries, log_start_offset),
        _covered(lineage, segments, log_end_offset, local_start_offset),
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
    )


def cut_among(
    lineage: Lineage,
    beside: Iterable[RemoteLogSegmentMetadata],
    covered: Iterable[tuple[int, int]],
    *,
    log_start_offset: int,
    log_end_offset: int,
) -> CutEpochs | None:
    """Return how the leader epochs of `lineage` were cut, as `cut_epochs` does; None if they were not.

    `beside` are segments that end at or above the log start and have another epoch than `lineage` at an
    offset. `covered` are the offsets, both inclusive, that the segments of the lineage and the local log
    have.
    """
    first, latest = lineage.earliest, lineage.latest
    if first is None or latest is None:
        return None
    lacking = [
        segment
        for segment in beside
        # Later epochs are those of a later leader: the log is behind.
        if segment.newest_leader_epoch <= latest.epoch
        and not lineage.contains(segment, segment.end_offset + 1)
    ]
    if not lacking:
        return None
    is_above = begins_above(lineage.entries, log_start_offset)
    spans = sorted(covered)
    proven = [
        segment
        for segment in lacking
        if (is_above and segment.start_offset < first.start_offset) or _is_joined(segment, lineage)
    ]
    lost = proven + [
        segment
        for segment in lacking
        if segment not in proven
        and is_uncovered(
            max(segment.start_offset, log_start_offset), min(segment.end_offset + 1, log_end_offset), spans
        )
    ]
    if not lost:
        return None
    lost.sort(key=lambda s: (s.start_offset, s.end_offset, s.segment_id))
    return CutEpochs(first=first, log_start_offset=log_start_offset, lost=tuple(lost), is_proven=bool(proven))


def cut_epochs_of(log: LocalLog, segments: PartitionSegments) -> CutEpochs | None:
    """Return how the leader-epoch checkpoint of a replica was cut; None if it was not."""
    return cut_epochs(
        Lineage(log.leader_epochs),
        segments,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        local_start_offset=log.local_log_start_offset,
    )


def _covered(
    lineage: Lineage, segments: PartitionSegments, log_end_offset: int, local_start_offset: int | None
) -> Iterator[tuple[int, int]]:
    """Yield the offsets, both inclusive, that readers find in the segments, and those of the local log.

    Of a segment that leaves the lineage, readers find the offsets before that.
    """
    for state in (_S.COPY_SEGMENT_FINISHED, _S.DELETE_SEGMENT_STARTED):
        for segment in segments.in_state(state):
            if lineage.contains(segment, segment.end_offset + 1):
                yield segment.start_offset, segment.end_offset
            else:
                yield segment.start_offset, _leaves_at(segment, lineage) - 1
    if local_start_offset is not None:
        yield local_start_offset, log_end_offset - 1


def _leaves_at(segment: RemoteLogSegmentMetadata, lineage: Lineage) -> int:
    """Return the first offset of the segment at which the lineage has another leader epoch."""
    own = Lineage(segment.segment_leader_epochs)
    starts = {entry.start_offset for entry in (*own.entries, *lineage.entries)}
    for offset in sorted({segment.start_offset, *starts}):
        is_within = segment.start_offset <= offset <= segment.end_offset
        if is_within and own.epoch_for_offset(offset) != lineage.epoch_for_offset(offset):
            return offset
    return segment.end_offset + 1


def _is_joined(segment: RemoteLogSegmentMetadata, lineage: Lineage) -> bool:
    """Return whether one leader wrote records of the segment and of the log.

    The segment then has an epoch that the lineage lacks before one that both begin alike, or it has an epoch
    below the offset at which the lineage has it, while every epoch begins at one offset.
    """
    own = build_filtered_leader_epoch_map(dict(segment.segment_leader_epochs))
    is_lacking = False
    for epoch, start in own.items():
        entry = lineage.entry(epoch)
        if entry is None:
            is_lacking = True
        # The log start raises the first entry of a checkpoint.
        elif (is_lacking and entry.start_offset == start) or (
            entry.start_offset > start and entry != lineage.earliest
        ):
            return True
    return False


def is_uncovered(start: int, end: int, covered: Iterable[tuple[int, int]]) -> bool:
    """Return whether an offset of [`start`, `end`) is in none of `covered`, whose offsets are inclusive."""
    at = start
    for first, last in sorted(covered):
        if first > at:
            break
        at = max(at, last + 1)
    return at < end
