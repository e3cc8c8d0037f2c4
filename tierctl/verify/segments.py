"""Checks of a partition's segments: place in the log, gaps, overlaps, unfinished copies and deletions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.model.engine import Severity
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.cut_epochs import CutEpochs, cut_epochs
from tierctl.state.lineage import Lineage, segments_in_lineage
from tierctl.state.partition_segments import PartitionSegments
from tierctl.verify.findings import Finding, FindingKind, finding_of

_S = RemoteLogSegmentState

DANGLING_AFTER_MS = 24 * 60 * 60 * 1000
"""Age from which a copy or a deletion that was started counts as abandoned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The offsets and the lineage of a partition's log, with which its remote segments are compared.

    `local_log_start_offset` is the base offset of the first local segment, None if no local log was read;
    `log_end_offset` is exclusive.
    """

    lineage: Lineage
    log_start_offset: int
    log_end_offset: int
    local_log_start_offset: int | None = None
    local_only_bytes: int | None = None
    """Size of the local segments above the tier, None if it is unknown."""
    source: str | None = None
    """Whose log it is: the leader, or a replica's log directory; None for a log that the tier implies."""


def check_segments(
    partition: TopicIdPartition,
    cache: RemoteLogMetadataCache,
    log: LogFacts | None,
    now_ms: int | None = None,
) -> Iterator[Finding]:
    """Yield the findings about a partition's segments, by start offset.

    Without `log` only the segments' own states are checked. `now_ms` is the time as of which the age of a
    started copy or deletion is computed; without it each of them is a warning.
    """
    segments = sorted(cache.list_remote_log_segments(), key=lambda s: (s.start_offset, s.end_offset))
    cut = None if log is None else _cut(log, cache)
    check = _Check(partition, cache, log, now_ms, forgotten_segment_ids(cache), cut)
    for segment in segments:
        yield from check.segment(segment)
    if log is not None:
        if cut is not None:
            yield cut_finding(partition, cut, log.source)
        yield from check.gaps(log)
        yield from check.overlaps(log, segments)


def cut_finding(partition: TopicIdPartition, cut: CutEpochs, source: str | None) -> Finding:
    """Return the finding about a cut leader-epoch checkpoint; `source` is as in LogFacts."""
    message = str(cut) if source is None else f"{source}: {cut}"
    found = finding_of(partition, FindingKind.CUT_EPOCHS, Severity.ERROR, message)
    return replace(found, start_offset=cut.lost[0].start_offset, end_offset=cut.end_offset)


def _cut(log: LogFacts, cache: RemoteLogMetadataCache) -> CutEpochs | None:
    return cut_epochs(
        log.lineage,
        PartitionSegments.of_cache(cache),
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        local_start_offset=log.local_log_start_offset,
    )


def forgotten_segment_ids(cache: RemoteLogMetadataCache) -> frozenset[Uuid]:
    """Return the ids of finished segments that no leader epoch lists any more.

    A later copy from the same offset has replaced such a segment in the offset map of its epoch, and Kafka's
    cache keeps no other reference to it: brokers never read, count or delete it.
    """
    return frozenset(Uuid.from_bytes(raw) for raw in cache.unlisted_ids(_S.COPY_SEGMENT_FINISHED))


def unfinished_finding(
    partition: TopicIdPartition, segment: RemoteLogSegmentMetadata, now_ms: int | None
) -> Finding:
    """Return the finding about a segment in COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED.

    It is information while the event is less than DANGLING_AFTER_MS old, later a warning.
    """
    recent = now_ms is not None and now_ms - segment.event_timestamp_ms <= DANGLING_AFTER_MS
    severity = Severity.INFO if recent else Severity.WARNING
    if segment.state is _S.COPY_SEGMENT_STARTED:
        message = "the copy was started " + ("less than a day ago" if recent else "and never finished")
        return finding_of(partition, FindingKind.DANGLING_COPY, severity, message, segment)
    when = "less than a day ago" if recent else "and not finished"
    message = f"the deletion was started {when}"
    return finding_of(partition, FindingKind.STUCK_DELETE, severity, message, segment)


@dataclass(frozen=True)
class _Check:
    """The checks of one partition; `forgotten` are the ids of `forgotten_segment_ids`.

    `cut` tells how the log's leader-epoch checkpoint was cut, None if it was not.
    """

    partition: TopicIdPartition
    cache: RemoteLogMetadataCache
    log: LogFacts | None
    now_ms: int | None
    forgotten: frozenset[Uuid]
    cut: CutEpochs | None

    def segment(self, segment: RemoteLogSegmentMetadata) -> Iterator[Finding]:
        if segment.state is not _S.COPY_SEGMENT_FINISHED:
            yield unfinished_finding(self.partition, segment, self.now_ms)
        elif segment.segment_id in self.forgotten:
            yield self._doubled(segment)
        elif self.log is not None and segment not in self._lost:
            yield from self._misplaced(segment, self.log)

    def _doubled(self, segment: RemoteLogSegmentMetadata) -> Finding:
        winner = self.cache.remote_log_segment_metadata(*min(segment.segment_leader_epochs))
        again_as = f" as {winner.segment_id}" if winner is not None else ""
        message = (
            f"the segment was copied again from the same offset{again_as}: brokers never delete this copy"
        )
        return finding_of(self.partition, FindingKind.DOUBLED_SEGMENT, Severity.WARNING, message, segment)

    def _misplaced(self, segment: RemoteLogSegmentMetadata, log: LogFacts) -> Iterator[Finding]:
        kind, severity = FindingKind.DIVERGENT_SEGMENT, Severity.WARNING
        if segment.end_offset < log.log_start_offset:
            kind, severity = FindingKind.BELOW_LOG_START, Severity.INFO
            message = f"the segment lies wholly below the log start offset {log.log_start_offset}"
        elif not log.lineage or log.lineage.contains(segment, log.log_end_offset):
            return
        elif log.lineage.contains(segment, segment.end_offset + 1):
            kind, severity = FindingKind.BEYOND_LOG_END, Severity.ERROR
            message = f"the segment ends at or above the log end offset {log.log_end_offset}"
        else:
            message = f"the leader epochs ({_shown(segment.segment_leader_epochs)}) are not those of the log"
        yield finding_of(self.partition, kind, severity, message, segment)

    def gaps(self, log: LogFacts) -> Iterator[Finding]:
        """Yield a finding for each range of offsets between segments, or below the local log, without one."""
        local_start = log.local_log_start_offset
        expected = log.log_start_offset if local_start is not None else None
        for span in segments_in_lineage(self.cache, log.lineage, log.log_start_offset):
            if expected is not None:
                yield from self._gap(expected, span.from_offset, local_start)
            expected = span.to_offset + 1
        if expected is not None and local_start is not None:
            yield from self._gap(expected, local_start, local_start)

    @property
    def _lost(self) -> Sequence[RemoteLogSegmentMetadata]:
        """The segments whose epochs only the cut checkpoint lacks."""
        return () if self.cut is None else self.cut.lost

    @cached_property
    def _below_cut(self) -> Sequence[RemoteLogSegmentMetadata]:
        """The segments that have the offsets of the entries that the cut checkpoint lost, by start offset."""
        if self.cut is None:
            return ()
        first = self.cut.first.start_offset
        finished = PartitionSegments.of_cache(self.cache).in_state(_S.COPY_SEGMENT_FINISHED)
        crossing = [s for s in finished if s.start_offset < first <= s.end_offset]
        return sorted([*self.cut.lost, *crossing], key=lambda s: s.start_offset)

    def _gap(self, start_offset: int, end_offset: int, local_start: int | None) -> Iterator[Finding]:
        """Yield a finding for the part of [start_offset, end_offset) that is not in the local log."""
        last = (end_offset if local_start is None else min(end_offset, local_start)) - 1
        for lost in self._below_cut:
            # These offsets are in the tier; a reader needs the entries of the checkpoint.
            if lost.start_offset <= start_offset:
                start_offset = max(start_offset, lost.end_offset + 1)
        if last >= start_offset:
            message = f"no readable remote segment holds offsets {start_offset} to {last}"
            found = finding_of(self.partition, FindingKind.GAP, Severity.ERROR, message)
            yield replace(found, start_offset=start_offset, end_offset=last)

    def overlaps(self, log: LogFacts, segments: list[RemoteLogSegmentMetadata]) -> Iterator[Finding]:
        farthest: RemoteLogSegmentMetadata | None = None
        for segment in segments:
            if not self._is_current(segment, log):
                continue
            if farthest is not None and segment.start_offset <= farthest.end_offset:
                last = min(segment.end_offset, farthest.end_offset)
                message = f"offsets {segment.start_offset} to {last} are also held by {farthest.segment_id}"
                yield finding_of(self.partition, FindingKind.OVERLAP, Severity.INFO, message, segment)
            if farthest is None or segment.end_offset > farthest.end_offset:
                farthest = segment

    def _is_current(self, segment: RemoteLogSegmentMetadata, log: LogFacts) -> bool:
        return (
            segment.state is _S.COPY_SEGMENT_FINISHED
            and segment.segment_id not in self.forgotten
            and segment.end_offset >= log.log_start_offset
            and log.lineage.contains(segment, log.log_end_offset)
        )


def _shown(epochs: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs)
