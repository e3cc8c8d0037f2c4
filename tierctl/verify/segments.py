"""What must hold of offsets and segments: the checks of `segments --check`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.lineage import Lineage, segments_in_lineage

_S = RemoteLogSegmentState

DANGLING_AFTER_MS = 24 * 60 * 60 * 1000


class Severity(StrEnum):
    """How bad a finding is: data can't be read, bytes leak, or just worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class FindingKind(StrEnum):
    """What a check can find."""

    OFFSETS = "offsets"
    GAP = "gap"
    BEYOND_LOG_END = "beyond_log_end"
    DOUBLED_SEGMENT = "doubled_segment"
    DIVERGENT_SEGMENT = "divergent_segment"
    OVERLAP = "overlap"
    DANGLING_COPY = "dangling_copy"
    STUCK_DELETE = "stuck_delete"
    BELOW_LOG_START = "below_log_start"
    MISSING_OBJECT = "missing_object"
    SIZE_DIFFERS = "size_differs"
    ORPHAN = "orphan"
    TEMP_LEFTOVER = "temp_leftover"
    CORRUPT_LOG = "corrupt_log"
    CORRUPT_INDEX = "corrupt_index"
    SEGMENT_OFFSETS = "segment_offsets"
    EPOCHS_DIFFER = "epochs_differ"
    METADATA_DIFFERS = "metadata_differs"
    DIFFERS_FROM_LOG = "differs_from_log"
    CORRUPT_METADATA = "corrupt_metadata"
    DROPPED_EVENT = "dropped_event"
    UNFINISHED_PARTITION_DELETE = "unfinished_partition_delete"
    RECREATED_TOPIC = "recreated_topic"
    UNKNOWN_TOPIC = "unknown_topic"
    UNREADABLE_LOG = "unreadable_log"
    UNSEEN_LEADER = "unseen_leader"


CORRUPT_KINDS = frozenset(
    {
        FindingKind.CORRUPT_LOG,
        FindingKind.CORRUPT_INDEX,
        FindingKind.CORRUPT_METADATA,
        FindingKind.UNREADABLE_LOG,
    }
)
"""Bytes that are not what their format says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be; what it is not about is None, offsets are inclusive.

    `key` is the object's in the store. A finding about a record of the metadata topic has that topic's name,
    partition and offset.
    """

    kind: FindingKind
    severity: Severity
    topic: str | None
    topic_id: Uuid | None
    partition: int | None
    segment_id: Uuid | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    key: str | None = None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """A partition's offsets as KIP-405 names them; ends are exclusive, None is not known or no segment."""

    local_log_start_offset: int
    """Lx"""
    last_stable_offset: int
    """Ly"""
    local_log_end_offset: int
    """Lz"""
    remote_log_start_offset: int | None = None
    """Rx"""
    remote_log_end_offset: int | None = None
    """Ry: the offset after the last one copied"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What the partition's log says about where the tier should stand.

    `local_log_start_offset` is where local segments begin, None when no local log was read;
    `log_end_offset` is exclusive.
    """

    lineage: Lineage
    log_start_offset: int
    log_end_offset: int
    local_log_start_offset: int | None = None


def check_offsets(partition: TopicIdPartition, offsets: Offsets) -> Iterator[Finding]:
    """KIP-405's invariants: Lz >= Ly >= Lx and Ly >= Ry >= Rx."""
    named = {
        "Lz (local log end)": offsets.local_log_end_offset,
        "Ly (last stable offset)": offsets.last_stable_offset,
        "Lx (local log start)": offsets.local_log_start_offset,
        "Ry (remote log end)": offsets.remote_log_end_offset,
        "Rx (remote log start)": offsets.remote_log_start_offset,
    }
    lz, ly, lx, ry, rx = named
    for upper, lower in ((lz, ly), (ly, lx), (ly, ry), (ry, rx)):
        high, low = named[upper], named[lower]
        if high is not None and low is not None and high < low:
            message = f"{upper} {high} is below {lower} {low}"
            yield finding_of(partition, FindingKind.OFFSETS, Severity.ERROR, message)


def check_latest_tiered(
    partition: TopicIdPartition, latest_tiered: int, *, copied: int, log_start_offset: int
) -> Iterator[Finding]:
    """The last offset that the leader takes for copied, against `copied`, the metadata's; -1 is none.

    Below where the log starts nothing is left to compare: what was there has expired.
    """
    if latest_tiered > copied and latest_tiered >= log_start_offset:
        severity, what = Severity.ERROR, "it may delete what nobody copied"
    elif latest_tiered < copied:
        severity, what = Severity.WARNING, "it copies the rest once more"
    else:
        return
    message = (
        f"its leader takes offsets up to {latest_tiered} for copied, the metadata up to {copied}: {what}"
    )
    yield finding_of(partition, FindingKind.OFFSETS, severity, message)


def check_segments(
    partition: TopicIdPartition,
    cache: RemoteLogMetadataCache,
    log: LogFacts | None,
    now_ms: int | None = None,
) -> Iterator[Finding]:
    """What is wrong with a partition's segments, by start offset.

    Without `log` only what segments say themselves is checked. `now_ms` tells copies under way from
    dangling ones; without it every COPY_SEGMENT_STARTED is a warning.
    """
    segments = sorted(cache.list_remote_log_segments(), key=lambda s: (s.start_offset, s.end_offset))
    check = _Check(partition, cache, log, now_ms, forgotten_segment_ids(cache))
    for segment in segments:
        yield from check.segment(segment)
    if log is not None:
        yield from check.gaps(log)
        yield from check.overlaps(log, segments)


def forgotten_segment_ids(cache: RemoteLogMetadataCache) -> frozenset[Uuid]:
    """Finished segments that no leader epoch lists any more.

    The offset map of an epoch was overwritten by a later copy from the same offset while higher segments
    were there, and Kafka remembers the loser nowhere: brokers never read it, count it or delete it.
    """
    return frozenset(Uuid.from_bytes(raw) for raw in cache.unlisted_ids(_S.COPY_SEGMENT_FINISHED))


def unfinished_finding(
    partition: TopicIdPartition, segment: RemoteLogSegmentMetadata, now_ms: int | None
) -> Finding:
    """A segment in COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED; information while it is recent."""
    recent = now_ms is not None and now_ms - segment.event_timestamp_ms <= DANGLING_AFTER_MS
    severity = Severity.INFO if recent else Severity.WARNING
    if segment.state is _S.COPY_SEGMENT_STARTED:
        message = "its copy was started " + ("less than a day ago" if recent else "and never finished")
        return finding_of(partition, FindingKind.DANGLING_COPY, severity, message, segment)
    when = "less than a day ago" if recent else "and not finished"
    message = f"its deletion was started {when}; a sweep resumes it"
    return finding_of(partition, FindingKind.STUCK_DELETE, severity, message, segment)


@dataclass(frozen=True, slots=True)
class _Check:
    partition: TopicIdPartition
    cache: RemoteLogMetadataCache
    log: LogFacts | None
    now_ms: int | None
    forgotten: frozenset[Uuid]

    def segment(self, segment: RemoteLogSegmentMetadata) -> Iterator[Finding]:
        if segment.state is not _S.COPY_SEGMENT_FINISHED:
            yield unfinished_finding(self.partition, segment, self.now_ms)
        elif segment.segment_id in self.forgotten:
            yield self._doubled(segment)
        elif self.log is not None:
            yield from self._misplaced(segment, self.log)

    def _doubled(self, segment: RemoteLogSegmentMetadata) -> Finding:
        winner = self.cache.remote_log_segment_metadata(*min(segment.segment_leader_epochs))
        instead = f"; {winner.segment_id} is read instead" if winner is not None else ""
        message = f"copied again from the same offset{instead}: brokers forgot this one and never delete it"
        return finding_of(self.partition, FindingKind.DOUBLED_SEGMENT, Severity.WARNING, message, segment)

    def _misplaced(self, segment: RemoteLogSegmentMetadata, log: LogFacts) -> Iterator[Finding]:
        kind, severity = FindingKind.DIVERGENT_SEGMENT, Severity.WARNING
        if segment.end_offset < log.log_start_offset:
            kind, severity = FindingKind.BELOW_LOG_START, Severity.INFO
            message = f"it lies wholly below the log start offset {log.log_start_offset}"
        elif not log.lineage or log.lineage.contains(segment, log.log_end_offset):
            return
        elif log.lineage.contains(segment, segment.end_offset + 1):
            kind, severity = FindingKind.BEYOND_LOG_END, Severity.ERROR
            message = f"it ends at or above the log end offset {log.log_end_offset}"
        else:
            message = f"its leader epochs {_shown(segment.segment_leader_epochs)} are not those of the log"
        yield finding_of(self.partition, kind, severity, message, segment)

    def gaps(self, log: LogFacts) -> Iterator[Finding]:
        """Holes of the readable tier: between segments, and below where a local log begins."""
        local_start = log.local_log_start_offset
        expected = log.log_start_offset if local_start is not None else None
        for span in segments_in_lineage(self.cache, log.lineage, log.log_start_offset):
            if expected is not None:
                yield from self._gap(expected, span.from_offset, local_start)
            expected = span.to_offset + 1
        if expected is not None and local_start is not None:
            yield from self._gap(expected, local_start, local_start)

    def _gap(self, start_offset: int, end_offset: int, local_start: int | None) -> Iterator[Finding]:
        """The hole [start_offset, end_offset), as far as the local log doesn't fill it."""
        last = (end_offset if local_start is None else min(end_offset, local_start)) - 1
        if last >= start_offset:
            message = f"no readable remote segment holds offsets {start_offset} to {last}"
            found = finding_of(self.partition, FindingKind.GAP, Severity.ERROR, message)
            yield replace(found, start_offset=start_offset, end_offset=last)

    def overlaps(self, log: LogFacts, segments: list[RemoteLogSegmentMetadata]) -> Iterator[Finding]:
        reach: RemoteLogSegmentMetadata | None = None
        for segment in segments:
            if not self._is_current(segment, log):
                continue
            if reach is not None and segment.start_offset <= reach.end_offset:
                last = min(segment.end_offset, reach.end_offset)
                message = f"offsets {segment.start_offset} to {last} are also held by {reach.segment_id}"
                yield finding_of(self.partition, FindingKind.OVERLAP, Severity.INFO, message, segment)
            if reach is None or segment.end_offset > reach.end_offset:
                reach = segment

    def _is_current(self, segment: RemoteLogSegmentMetadata, log: LogFacts) -> bool:
        return (
            segment.state is _S.COPY_SEGMENT_FINISHED
            and segment.segment_id not in self.forgotten
            and segment.end_offset >= log.log_start_offset
            and log.lineage.contains(segment, log.log_end_offset)
        )


def _shown(epochs: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs)


def finding_of(
    partition: TopicIdPartition,
    kind: FindingKind,
    severity: Severity,
    message: str,
    segment: RemoteLogSegmentMetadata | None = None,
    *,
    key: str | None = None,
) -> Finding:
    """A finding about a partition, or one segment of it."""
    return Finding(
        kind=kind,
        severity=severity,
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        segment_id=segment.segment_id if segment else None,
        start_offset=segment.start_offset if segment else None,
        end_offset=segment.end_offset if segment else None,
        key=key,
        message=message,
    )
