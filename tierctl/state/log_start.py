"""Where a log begins, and whether its leader epochs were cut: one rule for every command.

`log_start_in_force` has the rule. It has two cases, because brokers can't be trusted with a log start where
the metadata were lost. A broker that becomes leader and knows no remote segment takes the start of its local
log for the log start offset, and cuts its leader-epoch checkpoint there; one that knows only the newer
segments takes the start of the first of them (RLMCopyTask, UnifiedLog.maybeIncrementLogStartOffset). If the
older segments are published after that, the broker deletes them.

`cut_epochs` tells a leader-epoch checkpoint that lost entries from a log that diverged. A checkpoint is cut
if it begins above the log start, or lacks epochs of segments that its log must have had. Where neither is
proven, a segment off the lineage is given up only if other segments of the lineage, or the local log, have
all of its offsets; otherwise it can't be told whether the checkpoint was cut. DeleteRecords and retention cut
a checkpoint, too, but only up to the log start: what ends below the log start proves nothing.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from tierctl.model import (
    EpochEntry,
    LocalLog,
    ObjectSet,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.model.local import ClusterLog
from tierctl.model.selection import counted
from tierctl.state.lineage import Lineage, build_filtered_leader_epoch_map, lineage_of_segment
from tierctl.state.queries import PartitionSegments

Log = LocalLog | ClusterLog
"""A replica's log; of a ClusterLog, `log_end_offset` is the high watermark."""


@dataclass(frozen=True, slots=True)
class LogStart:
    """The log start with which segments are published; `raised_from` is a lower one with sets in the tier.

    `raised_from` is None unless a broker without metadata may have raised the log start. `checkpoint` is the
    log start in log-start-offset-checkpoint if it is lower than `offset`, the start of the first leader
    epoch.
    """

    offset: int
    raised_from: int | None = None
    checkpoint: int | None = None


@dataclass(frozen=True, slots=True)
class KnownTier:
    """The segments of a log in the metadata, and its leader epochs by the tier's newest index.

    `leader_epochs` are given only if there is no log, or if no log knows where it starts.
    """

    segments: PartitionSegments
    leader_epochs: Sequence[EpochEntry] | None = None


@dataclass(frozen=True, slots=True)
class DerivedSets:
    """The sets of objects in the lineage of a log whose metadata are lost, and their gapless chains."""

    chains: Sequence[Sequence[RemoteLogSegmentMetadata]]
    sets: Sequence[ObjectSet]


def log_start_in_force(logs: Sequence[Log], tier: KnownTier | DerivedSets) -> LogStart:
    """Return the log start by which the segments of a partition are judged; `logs` are its replicas.

    If the metadata are known (KnownTier), brokers keep the log start right: it is the one that
    log-start-offset-checkpoint states. Brokers record it for every tiered partition. Without a record a
    broker takes it for 0 (LogLoader), not for the start of the local log: the log then begins with what is
    first of the local log, the first finished segment and the tier's leader epochs. So it does with a record
    that the leader epochs contradict (`LocalLog.is_log_start_doubtful`): nothing is deleted by it.

    If the metadata are lost (DerivedSets), a broker may have raised the log start, and cut its leader epochs.
    It is the highest start of a replica (`replica_start`); without replicas, the one that the newest
    leader-epoch index states. It may have been raised wrongly (`LogStart.raised_from`) if complete segments
    adjoin it below and it lies at the start or after the end of a segment, or at the start of the local log:
    this looks like retention whose objects are not deleted yet. The same is true of leader epochs that begin
    above the log start, of replicas whose logs start at different offsets, because a follower that is cut
    below its local log starts there, and of any log start without a record, or with a doubtful one.
    """
    if isinstance(tier, KnownTier):
        return LogStart(_start_by_metadata(logs, tier))
    return _start_by_objects(logs, tier)


def _start_by_metadata(logs: Sequence[Log], tier: KnownTier) -> int:
    if tier.leader_epochs is None:
        recorded = [log.log_start_offset for log in logs if not is_start_unknown(log)]
        if recorded:
            return max(recorded)
    starts = [log.log_start_offset for log in logs]
    starts += (tier.segments.finished_range() or ())[:1]
    starts += [entry.start_offset for entry in (tier.leader_epochs or ())[:1]]
    return min(starts, default=0)


def _start_by_objects(logs: Sequence[Log], tier: DerivedSets) -> LogStart:
    if not logs:
        return LogStart(_told_by_tier(tier.chains[0][0], tier.sets) if tier.chains else 0)
    offset = max(map(replica_start, logs))
    stated = max(replica_start(log) if is_start_unknown(log) else log.log_start_offset for log in logs)
    checkpoint = stated if stated < offset else None
    # Leader epochs that begin within the local log, above the log start, were cut: the local log joins.
    joins = min(offset, *(log.local_log_start_offset for log in logs)) if checkpoint is not None else offset
    below = next((c for c in tier.chains if c[0].end_offset < offset and joins <= c[-1].end_offset + 1), None)
    if below is None:
        return LogStart(offset)
    # Replicas roll at different offsets, so a segment outside of the chain may begin where the log start is.
    borders = {segment.end_offset + 1 for segment in below} | {log.local_log_start_offset for log in logs}
    borders |= {each.listed.start_offset for each in tier.sets}
    is_agreed = all(replica_start(log) == offset for log in logs if log.log_end_offset > offset)
    is_known = not any(map(is_start_unknown, logs))
    if offset not in borders and checkpoint is None and is_agreed and is_known:
        return LogStart(offset)
    raised_from = _told_by_tier(below[0], tier.sets, below=offset)
    return LogStart(offset, raised_from=raised_from, checkpoint=checkpoint)


def _told_by_tier(
    first: RemoteLogSegmentMetadata, sets: Sequence[ObjectSet], below: int | None = None
) -> int:
    """Return the log start within the `first` segment of a log, by the newest leader-epoch index.

    `start_within` says what it states. Indexes that begin at `below` or higher are left out: they were copied
    after the log start was raised.
    """
    newest = (-1, -1, 0)
    for each in sets:
        if each.segment is None or not each.lineage:
            continue
        start = each.lineage[0].start_offset
        if below is None or start < below:
            newest = max(newest, (each.segment.segment_leader_epochs[-1][0], each.segment.end_offset, start))
    return start_within(first, newest[2])


def replica_start(log: Log) -> int:
    """Return the log start offset of a replica, or the start of its first leader epoch if that is higher.

    Brokers write a cut leader-epoch checkpoint at once, and log-start-offset-checkpoint every minute
    (log.flush.start.offset.checkpoint.interval.ms). A leader deletes remote segments that end below either.
    Without a record, as in the first minute of a tiered topic, the leader epochs alone tell the log start.
    """
    if is_start_unknown(log) and log.leader_epochs:
        return log.leader_epochs[0].start_offset
    return max([log.log_start_offset, *(entry.start_offset for entry in log.leader_epochs[:1])])


def is_start_unknown(log: Log) -> bool:
    """Return whether log-start-offset-checkpoint has no record of a replica, or a doubtful one."""
    return isinstance(log, LocalLog) and (not log.is_log_start_known or log.is_log_start_doubtful)


def start_within(first: RemoteLogSegmentMetadata, index_start: int) -> int:
    """Return the log start within the `first` segment of a log whose newest leader-epoch index is known.

    That is the start of the segment, or of its first leader epoch: if the log start was raised within the
    segment before it was copied, its epochs begin there. DeleteRecords may have raised the first entry of the
    index further, to `index_start` within the segment. An index that begins at the start of a later epoch may
    be a copy of a checkpoint that lost entries, as one that begins above the segment: no segment is left out
    for what an index lacks.
    """
    starts = [start for _, start in first.segment_leader_epochs]
    own_start = max([first.start_offset, *starts[:1]])
    is_within = own_start < index_start <= first.end_offset
    return index_start if is_within and index_start not in starts else own_start


def with_tier_start(log: LocalLog, segments: PartitionSegments, *, adjoining: bool = False) -> LocalLog:
    """Return `log` with the log start in force, and its leader epochs from there on, if it has no record.

    `segments` are those of the metadata. With `adjoining`, a log that does not adjoin the tier begins with
    its local segments, as brokers that do not tier have it (UnifiedLog): the records between exist nowhere,
    so no later copy can fill the gap.
    """
    if not is_start_unknown(log):
        return log
    finished = segments.finished_range()
    local_start = log.local_log_start_offset
    if adjoining and finished is not None and finished[1] + 1 < local_start:
        entries = Lineage(log.leader_epochs).truncate_from_start(local_start).entries
        return replace(log, leader_epochs=entries)
    return replace(
        log,
        log_start_offset=log_start_in_force([log], KnownTier(segments)).offset,
        leader_epochs=extended_below(log.leader_epochs, segments),
    )


def extended_below(entries: Sequence[EpochEntry], segments: PartitionSegments) -> tuple[EpochEntry, ...]:
    """Return `entries` of a leader-epoch index, extended below its first offset by `segments`.

    The index begins at the log start that was known when its segment was copied. Copied from a broker that
    does not tier, that is the local log start, and older segments of the tier lie below it. Return `entries`
    if the segments' epochs do not ascend: then they are of several lineages.
    """
    if not entries:
        return ()
    first = entries[0]
    older = [entry for entry in segments.epoch_starts(first.start_offset) if entry.epoch <= first.epoch]
    is_extended = bool(older) and older[-1].epoch == first.epoch
    joined = (*older, *(entries[1:] if is_extended else entries))
    is_ascending = all(a.start_offset <= b.start_offset for a, b in pairwise(joined))
    return joined if is_ascending else tuple(entries)


REPAIR_OF_CUT = "rebuild --log-start tier repairs the leader-epoch checkpoint of a stopped broker"
"""What an operator does about a cut checkpoint."""

_S = RemoteLogSegmentState


@dataclass(frozen=True, kw_only=True)
class CutEpochs:
    """A leader-epoch checkpoint that was cut.

    `first` is its first entry, and `lost` are the finished segments at or above the log start whose epochs it
    lacks, by start offset; there is at least one. `is_proven` is false if the log may have diverged, too.
    """

    first: EpochEntry
    log_start_offset: int
    lost: tuple[RemoteLogSegmentMetadata, ...]
    is_proven: bool = True

    @cached_property
    def lost_ids(self) -> frozenset[Uuid]:
        """The ids of the segments `lost`."""
        return frozenset(segment.segment_id for segment in self.lost)

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
        many = counted(len(self.lost), "segment")
        told = "and the log did not diverge" if self.is_proven else "or the log diverged: it can't be told"
        return (
            f"the leader epochs were cut, {told}: they begin with epoch "
            f"{self.first.epoch} at offset {self.first.start_offset}, the log starts at "
            f"{self.log_start_offset}, and {many} (offsets {self.lost[0].start_offset} to {self.end_offset}) "
            f"{'has' if len(self.lost) == 1 else 'have'} epochs that they lack at these offsets"
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
    others = Covered(covered)
    proven = [
        segment
        for segment in lacking
        if (is_above and segment.start_offset < first.start_offset)
        or _is_joined(segment, lineage, log_start_offset)
    ]
    proven_ids = {segment.segment_id for segment in proven}
    lost = proven + [
        segment
        for segment in lacking
        if segment.segment_id not in proven_ids
        and not others.has_all(
            max(segment.start_offset, log_start_offset), min(segment.end_offset + 1, log_end_offset)
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


def unreadable_below(
    lineage: Lineage, segments: PartitionSegments, log_start_offset: int
) -> CutEpochs | None:
    """Return how a leader-epoch checkpoint lost only the beginning of its first epoch; None if it did not.

    Brokers keep the segments that end below that entry, but no consumer can read them. An entry that begins
    within a segment proves nothing: DeleteRecords raises it before the log start is recorded.
    """
    if not begins_above(lineage.entries, log_start_offset):
        return None
    first = lineage.entries[0]
    lost = sorted(
        (
            segment
            for segment in segments.in_state(_S.COPY_SEGMENT_FINISHED)
            if log_start_offset <= segment.end_offset < first.start_offset
            if lineage.contains(segment, segment.end_offset + 1)
        ),
        key=lambda segment: segment.start_offset,
    )
    return CutEpochs(first=first, log_start_offset=log_start_offset, lost=tuple(lost)) if lost else None


def unreadable_of(log: LocalLog, segments: PartitionSegments) -> CutEpochs | None:
    """Return which leader epochs the checkpoint of a replica lacks, by `cut_epochs` or `unreadable_below`."""
    lineage = Lineage(log.leader_epochs)
    return cut_epochs_of(log, segments) or unreadable_below(lineage, segments, log.log_start_offset)


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
    """Return the first offset of the segment at which the lineage has another leader epoch.

    Of the offsets below its first entry, which DeleteRecords and retention cut, it tells nothing.
    """
    own = lineage_of_segment(segment)
    from_offset = max([segment.start_offset, *(entry.start_offset for entry in lineage.entries[:1])])
    starts = {entry.start_offset for entry in (*own.entries, *lineage.entries)}
    for offset in sorted({from_offset, *starts}):
        is_within = from_offset <= offset <= segment.end_offset
        if is_within and own.epoch_for_offset(offset) != lineage.epoch_for_offset(offset):
            return offset
    return segment.end_offset + 1


def _is_joined(segment: RemoteLogSegmentMetadata, lineage: Lineage, log_start_offset: int) -> bool:
    """Return whether one leader wrote records of the segment and of the log.

    The segment then has an epoch that the lineage lacks before one that both begin alike, or it has an epoch
    below the offset at which the lineage has it, while every epoch begins at one offset. An epoch whose
    records all lie below the log start is not lacking.
    """
    own = build_filtered_leader_epoch_map(dict(segment.segment_leader_epochs))
    ends = [*list(own.values())[1:], segment.end_offset + 1]
    is_lacking = False
    for (epoch, start), end in zip(own.items(), ends, strict=True):
        entry = lineage.entry(epoch)
        if entry is None:
            is_lacking |= end > log_start_offset
        # The log start raises the first entry of a checkpoint.
        elif (is_lacking and entry.start_offset == start) or (
            entry.start_offset > start and entry != lineage.earliest
        ):
            return True
    return False


class Covered:
    """The offsets that are in one of `ranges`, each with its first and its last offset.

    A question takes a search, not a pass through them: there may be as many of both as segments.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, last in sorted(ranges):
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], last + 1)
            else:
                self._starts.append(first)
                self._ends.append(last + 1)

    def first_missing(self, start: int) -> int:
        """Return the first offset from `start` on that it does not have."""
        at = bisect_right(self._starts, start) - 1
        return start if at < 0 else max(start, self._ends[at])

    def has_all(self, start: int, end: int) -> bool:
        """Return whether it has all offsets of [`start`, `end`)."""
        return self.first_missing(start) >= end
