"""Find faults in a partition's segments: offsets, place in the log, retention, gaps, leaders' logs."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from tierctl.checks.findings import Finding, FindingKind, finding_of
from tierctl.checks.metadata import KnownTopics
from tierctl.errors import AuthenticationError, NotFoundError, RemoteResourceNotFound
from tierctl.kafka.cluster import Cluster
from tierctl.model import (
    LocalLog,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicConfig,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.choices import COPY_LIMIT_MS, Severity
from tierctl.model.events import writer_text
from tierctl.model.local import ClusterLog
from tierctl.model.selection import counted
from tierctl.model.settings import topic
from tierctl.model.times import duration_text
from tierctl.plan.breaches import expire, sweep_option, swept_text
from tierctl.plan.dangling import DANGLING_AGE_MS_MIN, is_held, served_ranges
from tierctl.plan.decisions import LocalRetention
from tierctl.plan.preconditions import why_never_tiered
from tierctl.plan.views import LeaderView, PartitionView, view_of_leader, view_of_log, view_of_tier
from tierctl.read.partition_reader import ReadablePartition
from tierctl.read.readable_log import (
    LeaderLogs,
    choose_replica,
    reliable_leader_logs,
    tier_lineage,
)
from tierctl.read.segment import IndexFetcher, Report
from tierctl.report.table import bytes_text
from tierctl.state.lineage import (
    Lineage,
    RemoteLogMetadataCache,
    find_highest_remote_offset,
    segments_in_lineage,
)
from tierctl.state.log_start import Covered, CutEpochs, is_start_unknown, unreadable_below, unreadable_of
from tierctl.state.queries import PartitionSegments
from tierctl.state.tier_state import FailedCopies, TierState
from tierctl.wire.arrays import Bools, Int64s

_S = RemoteLogSegmentState

DANGLING_AFTER_MS = DANGLING_AGE_MS_MIN
"""Age from which a deletion that was started, or a copy that a later one replaced, counts as abandoned."""


@dataclass(frozen=True, kw_only=True)
class LogFacts(PartitionView):
    """The view that `sweep` has of a partition, with which its remote segments are compared.

    `latest_tiered_offset` is the last offset that a leader considers copied.
    """

    source: str | None = None
    """Whose log it is: the leader, or a replica's log directory; None for a log that the tier implies."""
    last_stable_offset: int | None = None
    latest_tiered_offset: int | None = None
    is_start_known: bool = True
    """Whether the log states where it starts; else `log_start_offset` is the first offset that is left."""

    @classmethod
    def of(cls, view: PartitionView, **own: Any) -> Self:
        """Return `view` with the fields that only facts have."""
        return cls(**{each.name: getattr(view, each.name) for each in fields(PartitionView)}, **own)


def check_segments(
    partition: TopicIdPartition,
    known: PartitionSegments,
    log: LogFacts | None,
    now_ms: int | None = None,
    copy_limit_ms: int = COPY_LIMIT_MS,
) -> Iterator[Finding]:
    """Yield the findings about a partition's segments (`known`), by start offset.

    Without `log` only the segments' own states are checked. `now_ms` is the time as of which the age of a
    started copy or deletion is computed; without it each of them is a warning.
    """
    cut = unreadable = None if log is None else log.cut
    if log is not None and log.local_start_offset is not None:
        unreadable = cut or unreadable_below(log.lineage, known, log.log_start_offset)
    check = _Check(partition, known, log, now_ms, copy_limit_ms, cut, unreadable)
    for segment in known.at(check.suspects()):
        yield from check.segment(segment)
    if log is not None:
        if unreadable is not None:
            yield cut_finding(partition, unreadable, log.source)
        yield from check.gaps(log)
        yield from check.overlaps()


def cut_finding(partition: TopicIdPartition, cut: CutEpochs, source: str | None) -> Finding:
    """Return the finding about a cut leader-epoch checkpoint; `source` is as in LogFacts."""
    message = str(cut) if source is None else f"{source}: {cut}"
    found = finding_of(partition, FindingKind.CUT_EPOCHS, Severity.ERROR, message)
    return replace(found, start_offset=cut.lost[0].start_offset, end_offset=cut.end_offset)


def unfinished_finding(
    partition: TopicIdPartition,
    cache: RemoteLogMetadataCache,
    segment: RemoteLogSegmentMetadata,
    now_ms: int | None,
    copy_limit_ms: int = COPY_LIMIT_MS,
) -> Finding:
    """Return the finding about a segment in COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED.

    It is a warning if the event is older than `copy_limit_ms`, and for a deletion, or a copy that a later one
    in `cache` replaced, than DANGLING_AFTER_MS; before that it is information.
    """
    is_copy = segment.state is _S.COPY_SEGMENT_STARTED
    is_replaced = is_copy and cache.is_superseded(segment.segment_id)
    limit_ms = copy_limit_ms if is_copy and not is_replaced else DANGLING_AFTER_MS
    is_recent = now_ms is not None and now_ms - segment.event_timestamp_ms <= limit_ms
    severity = Severity.INFO if is_recent else Severity.WARNING
    when = f"less than {duration_text(limit_ms)} ago" if is_recent else "and never finished"
    if not is_copy:
        return finding_of(
            partition, FindingKind.STUCK_DELETE, severity, f"the deletion was started {when}", segment
        )
    message = f"the copy was started by {writer_text(segment.broker_id)} {when}"
    if is_replaced:
        is_served = cache.remote_log_segment_metadata(*min(segment.segment_leader_epochs)) is not None
        later = "a later copy was made instead"
        message += f"; {later if is_served else 'copying went on, but no finished copy has its offsets'}"
    return finding_of(partition, FindingKind.DANGLING_COPY, severity, message, segment)


def check_failed_copies(
    partition: TopicIdPartition, failed: FailedCopies | None, log_start_offset: int | None
) -> Iterator[Finding]:
    """Yield a finding if the copies of a partition fail, until a copy from there or the log start is beyond.

    `log_start_offset` is None if it is unknown.
    """
    if failed is None or (log_start_offset is not None and failed.start_offset < log_start_offset):
        return
    found = finding_of(partition, FindingKind.FAILING_COPIES, Severity.WARNING, str(failed))
    fix = FindingKind.FAILING_COPIES.row.fix
    if failed.broker_id is not None:
        fix = fix.replace("the broker that made the last attempt", writer_text(failed.broker_id))
    yield replace(found, start_offset=failed.start_offset, own_fix=fix)


_WITHOUT_EPOCHS = "brokers and sweep delete it once the leader-epoch checkpoint of the log has entries"


@dataclass(frozen=True)
class _Check:
    """The checks of one partition; `cut` tells how the log's leader-epoch checkpoint was cut, if it was.

    `unreadable` is the same, or that it lost the beginning of its first epoch, for which nothing is deleted.
    """

    partition: TopicIdPartition
    known: PartitionSegments
    log: LogFacts | None
    now_ms: int | None
    copy_limit_ms: int
    cut: CutEpochs | None
    unreadable: CutEpochs | None

    def suspects(self) -> Int64s:
        """Return the places of the segments with which `segment` may find fault, by start and end offset."""
        chosen = self._by_offset
        return chosen[~self._is_current[chosen]]

    @cached_property
    def _by_offset(self) -> Int64s:
        """The places of all segments in `known`, by start and end offset."""
        return np.lexsort((self.known.column("end"), self.known.column("start")))

    @cached_property
    def _is_current(self) -> Bools:
        """Which segments are finished, listed by a leader epoch and, given a log, a part of it."""
        is_listed = self.known.is_finished & ~self.known.is_doubled
        if self.log is None:
            return is_listed
        is_above = self.known.column("end") >= self.log.log_start_offset
        return is_listed & is_above & self.known.within(self.log.lineage, self.log.log_end_offset)

    def segment(self, segment: RemoteLogSegmentMetadata) -> Iterator[Finding]:
        if segment.state is not _S.COPY_SEGMENT_FINISHED:
            cache = self.known.cache
            found = unfinished_finding(self.partition, cache, segment, self.now_ms, self.copy_limit_ms)
            is_copy = segment.state is _S.COPY_SEGMENT_STARTED
            if is_copy and self.log is not None and not is_held(segment, self._held):
                found = replace(found, own_command="verify --plan-out plan.json")
            yield found
        elif segment.segment_id in self.known.doubled_ids:
            yield self._doubled(segment)
        elif self.log is not None and segment.segment_id not in self._lost_ids:
            yield from self._misplaced(segment, self.log)

    @cached_property
    def _held(self) -> Covered:
        """The offsets that are in finished segments, in the log if one is known, or below its known start.

        `copy` deletes by the same rule.
        """
        log = self.log
        if log is None:
            return Covered(())
        local_start = log.log_end_offset if log.local_start_offset is None else log.local_start_offset
        below = [(0, log.log_start_offset - 1)] if log.is_start_known else []
        served = served_ranges(self.known.cache, log.lineage)
        return Covered([*below, *served, (local_start, log.log_end_offset - 1)])

    def _doubled(self, segment: RemoteLogSegmentMetadata) -> Finding:
        winner = self.known.doubled_by(segment)
        again_as = "" if winner is None else f" as {winner}"
        message = (
            f"the segment was copied again from the same offset{again_as}: brokers never delete this copy"
        )
        found = finding_of(self.partition, FindingKind.DOUBLED_SEGMENT, Severity.WARNING, message, segment)
        if self.log is None:
            return found
        option = sweep_option(self.log.lineage, segment, self.log.log_start_offset, self.log.log_end_offset)
        return self._with_sweep(found, option, self._swept(option))

    def _with_sweep(self, found: Finding, option: str | None, fix: str) -> Finding:
        """Return the finding with `fix`, and with `sweep` and its option as the command; None: no command.

        Nor is there a command where the checkpoint was cut and `sweep` refuses its options.
        """
        is_made = option is not None and (not option or self.cut is None)
        return replace(found, own_fix=fix, own_command=f"sweep {option}".rstrip() if is_made else "")

    def _swept(self, option: str | None) -> str:
        return swept_text(option, is_cut=self.cut is not None)

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
        found = finding_of(self.partition, kind, severity, message, segment)
        if kind is not FindingKind.BEYOND_LOG_END:
            option = sweep_option(log.lineage, segment, log.log_start_offset, log.log_end_offset)
            fix = f"brokers delete it later; {self._swept(option)}"
            if option is None:
                fix = FindingKind.DIVERGENT_SEGMENT.row.fix if log.lineage else _WITHOUT_EPOCHS
            found = self._with_sweep(found, option, fix)
        yield found

    def gaps(self, log: LogFacts) -> Iterator[Finding]:
        """Yield a finding for each range of offsets between segments, or below the local log, without one."""
        local_start = log.local_start_offset
        expected = log.log_start_offset if local_start is not None else None
        for first, last in self.known.readable_ranges(log.lineage, log.log_start_offset):
            if expected is not None:
                yield from self._gap(expected, first, local_start)
            expected = last + 1
        if expected is not None and local_start is not None:
            yield from self._gap(expected, local_start, local_start)

    @cached_property
    def _lost_ids(self) -> frozenset[Uuid]:
        """The ids of the segments whose epochs only the cut checkpoint lacks."""
        return frozenset() if self.cut is None else self.cut.lost_ids

    @cached_property
    def _below_cut(self) -> Covered:
        """The offsets of the segments that have those of the entries that the checkpoint lost."""
        if self.unreadable is None:
            return Covered(())
        first = self.unreadable.first.start_offset
        finished = self.known.in_state(_S.COPY_SEGMENT_FINISHED)
        below = [s for s in finished if s.start_offset < first]
        return Covered((s.start_offset, s.end_offset) for s in [*self.unreadable.lost, *below])

    def _gap(self, start_offset: int, end_offset: int, local_start: int | None) -> Iterator[Finding]:
        """Yield a finding for the part of [start_offset, end_offset) that is not in the local log."""
        last = (end_offset if local_start is None else min(end_offset, local_start)) - 1
        # The offsets of `_below_cut` are in the tier; a reader needs the entries of the checkpoint.
        start_offset = self._below_cut.first_missing(start_offset)
        if last >= start_offset:
            message = f"no readable remote segment holds offsets {start_offset} to {last}"
            found = finding_of(self.partition, FindingKind.GAP, Severity.ERROR, message)
            yield replace(found, start_offset=start_offset, end_offset=last)

    def overlaps(self) -> Iterator[Finding]:
        """Yield a finding for each current segment with an offset of one before it, by start offset.

        The finding names the first of those before it that reach farthest.
        """
        current = self._by_offset[self._is_current[self._by_offset]]
        starts, ends = self.known.column("start")[current], self.known.column("end")[current]
        reached = np.maximum.accumulate(ends)
        reaches_farther = np.append(True, reached[1:] > reached[:-1])[: len(current)]
        farthest = np.maximum.accumulate(np.where(reaches_farther, np.arange(len(current)), 0))
        within = 1 + np.flatnonzero(starts[1:] <= reached[:-1])
        found = self.known.at(current[within]), self.known.at(current[farthest[within - 1]])
        for segment, other in zip(*found, strict=True):
            last = min(segment.end_offset, other.end_offset)
            message = f"offsets {segment.start_offset} to {last} are also held by {other.segment_id}"
            yield finding_of(self.partition, FindingKind.OVERLAP, Severity.INFO, message, segment)


def _shown(epochs: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs)


@dataclass(frozen=True, slots=True)
class Retention:
    """The time as of which retention is checked, and the settings of the topic; None if they are unknown."""

    now_ms: int
    config: TopicConfig | None

    @property
    def is_age_known(self) -> bool:
        """Whether the settings state retention.ms, or the brokers' default is known."""
        return self.config is not None and (self.config.is_age_stated or self.config.retention_ms >= 0)


def check_retention(view: PartitionView, retention: Retention) -> Iterator[Finding]:
    """Yield a finding if a segment stalls retention.ms, as `sweep` decides it.

    Topics that `sweep` skips because of their settings have no finding. Where retention.ms is not stated,
    Kafka's default is assumed, and the finding is information.
    """
    if _have_ages(view.segments, retention.now_ms):
        return
    name = view.partition.topic
    if retention.config is not None and why_never_tiered(name, {name: retention.config}):
        return
    config, default_ms = retention.config or TopicConfig(), topic.RETENTION_MS.kafka_default
    if not retention.is_age_known:
        config = replace(config, retention_ms=default_ms)
    try:
        stalled = expire(view, config, retention.now_ms).stalled
    except RemoteResourceNotFound:
        # An epoch lists a segment that is gone, which other findings report.
        return
    if stalled is None:
        return
    severity, message = Severity.WARNING, stalled.message
    if not retention.is_age_known:
        severity = Severity.INFO
        message += f" ({topic.RETENTION_MS.name} is not stated: Kafka's default of {default_ms} is assumed)"
    yield finding_of(view.partition, FindingKind.STALLED_RETENTION, severity, message, stalled.segment)


def _have_ages(segments: PartitionSegments, now_ms: int) -> bool:
    """Return whether the largest timestamps of all finished segments are set, and not in the future.

    Otherwise a segment may stall retention.ms.
    """
    times_ms = segments.finished_times_ms()
    return segments.are_dated and (times_ms is None or times_ms[1] <= now_ms)


def sound_partitions(state: TierState, now_ms: int) -> frozenset[TopicIdPartition]:
    """Return the partitions about which `check_partition` finds nothing if it has only the metadata.

    Their segments are finished, have an age, and are one unbroken sequence; none of their copies fails. This
    is asked of the columns of whole metadata partitions: a tier may have many partitions with few segments.
    """
    return frozenset(
        part.topic_id_partition
        for part in state.by_metadata_partition()
        if part.finished_count == part.segment_count
        and part.failed_copies is None
        and part.segments.is_in_order
        and _have_ages(part.segments, now_ms)
    )


def check_offsets(
    partition: TopicIdPartition, log: LogFacts, *, remote_start: int | None, remote_end: int | None
) -> Iterator[Finding]:
    """Check KIP-405's invariants Lz >= Ly >= Lx and Ly >= Ry >= Rx; the ends of ranges are exclusive.

    `remote_start` and `remote_end` are None if the log has no remote segment.
    """
    named = {
        "Lz (local log end)": log.log_end_offset,
        "Ly (last stable offset)": log.last_stable_offset,
        "Lx (local log start)": log.local_start_offset,
        "Ry (remote log end)": remote_end,
        "Rx (remote log start)": remote_start,
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
    """Compare the last copied offset of the leader with `copied`, the metadata's; -1 is none.

    Below the log start there is nothing to compare: segments there have expired.
    """
    if latest_tiered > copied and latest_tiered >= log_start_offset:
        severity, effect = Severity.ERROR, "it may delete segments that nobody copied"
    elif latest_tiered < copied:
        severity, effect = Severity.WARNING, "it copies the others once more"
    else:
        return
    message = (
        f"the leader takes offsets up to {latest_tiered} for copied, the metadata up to {copied}: {effect}"
    )
    yield finding_of(partition, FindingKind.OFFSETS, severity, message)


def check_partition(
    readable: ReadablePartition,
    fetcher: IndexFetcher | None,
    report: Report,
    *,
    now_ms: int,
    leader: ClusterLog | None = None,
    retention: Retention | None = None,
    copy_limit_ms: int = COPY_LIMIT_MS,
    is_sound: bool = False,
) -> Iterator[Finding]:
    """Yield the findings about one partition, offsets first.

    Without the log of the `leader` the lineage comes from the logs; without logs from the newest segment's
    leader-epoch index, which `fetcher` fetches; without `fetcher` from the segments' own epochs. Without logs
    the log is assumed to hold the offsets of the tier. `report` receives the errors of indexes that can't be
    read. Retention is checked only with `retention`. `is_sound`: the partition is one of `sound_partitions`.
    """
    if is_sound and leader is None and fetcher is None and not readable.logs:
        return
    partition, segments = readable.topic_id_partition, PartitionSegments.of_cache(readable.cache)
    if leader is None:
        log = _facts(readable, segments, fetcher, report)
    else:
        log = _of_leader(partition, segments, leader)
    if log is not None and log.last_stable_offset is not None:
        yield from _check_all_offsets(partition, readable.cache, log)
    yield from check_segments(partition, segments, log, now_ms, copy_limit_ms)
    log_start_offset = None if log is None else log.log_start_offset
    yield from check_failed_copies(partition, readable.failed_copies, log_start_offset)
    yield from _cut_replicas(readable, segments, None if log is None else log.source)
    if retention is not None and log is not None:
        yield from check_retention(log, retention)
    if retention is not None and retention.config is not None:
        yield from check_local_retention(
            readable.cache, readable.logs, retention.config, now_ms, copy_limit_ms
        )


def _check_all_offsets(
    partition: TopicIdPartition, cache: RemoteLogMetadataCache, log: LogFacts
) -> Iterator[Finding]:
    """Compare the offsets of a log that was read with each other, and with those of the tier in `cache`."""
    first = next(segments_in_lineage(cache, log.lineage, log.log_start_offset), None)
    highest = find_highest_remote_offset(cache, log.lineage, log.log_end_offset)
    yield from check_offsets(
        partition,
        log,
        remote_start=None if first is None else first.from_offset,
        remote_end=highest + 1 if highest >= 0 else None,
    )
    if log.latest_tiered_offset is not None:
        yield from check_latest_tiered(
            partition, log.latest_tiered_offset, copied=highest, log_start_offset=log.log_start_offset
        )


def check_local_retention(
    cache: RemoteLogMetadataCache,
    logs: Iterable[LocalLog],
    config: TopicConfig,
    now_ms: int,
    copy_limit_ms: int = COPY_LIMIT_MS,
) -> Iterator[Finding]:
    """Yield a finding for each replica of a tiered partition, in `logs`, that local retention does not free.

    Segments that were written less than `copy_limit_ms` ago have none: their copies may take that long.
    """
    for log in logs:
        partition = log.topic_id_partition
        if not config.remote_storage_enable or why_never_tiered(partition.topic, {partition.topic: config}):
            continue
        copied = find_highest_remote_offset(cache, Lineage(log.leader_epochs), log.log_end_offset)
        decided = LocalRetention.of(config).decide(log, copied, now_ms)
        held = [d for d in decided if not d.is_deleted and now_ms - d.segment.modified_ms > copy_limit_ms]
        if held:
            sizes = sum(each.segment.size_bytes for each in held)
            first = held[0]
            which = f"the one from offset {first.segment.base_offset} {first.reason}"
            found = (
                f"{_source(log)} has {counted(len(held), 'segment')} ({bytes_text(sizes)}) too many: {which}"
            )
            finding = finding_of(partition, FindingKind.LOCAL_NOT_FREED, Severity.WARNING, found)
            yield replace(finding, start_offset=first.segment.base_offset)


def _cut_replicas(
    readable: ReadablePartition, segments: PartitionSegments, checked: str | None
) -> Iterator[Finding]:
    """Yield a finding for each replica but `checked` whose leader-epoch checkpoint was cut.

    Each of them may lead after the next election, and deletes then what its checkpoint lacks.
    """
    for log in readable.logs:
        source = _source(log)
        cut = None if source == checked else unreadable_of(log, segments)
        if cut is not None:
            yield cut_finding(readable.topic_id_partition, cut, source)


def _source(log: LocalLog) -> str:
    return f"the replica in {log.directory.parent}"


def _facts(
    readable: ReadablePartition, segments: PartitionSegments, fetcher: IndexFetcher | None, report: Report
) -> LogFacts | None:
    """Return the facts about the newest replica's log; without one about the log that the tier implies."""
    partition, replica = readable.topic_id_partition, choose_replica(readable.logs)
    if replica is None:
        lineage = tier_lineage(readable.cache, fetcher, report)
        view = view_of_tier(partition, segments, lineage.entries)
        return LogFacts.of(view, is_start_known=False) if lineage else None
    log = replica.log
    return LogFacts.of(
        view_of_log(partition, segments, log),
        source=_source(log),
        last_stable_offset=replica.last_stable_offset,
        is_start_known=not is_start_unknown(log),
    )


def _of_leader(partition: TopicIdPartition, segments: PartitionSegments, log: ClusterLog) -> LogFacts:
    return LogFacts.of(
        view_of_leader(partition, segments, LeaderView(log=log)),
        source="the leader",
        last_stable_offset=log.last_stable_offset,
        latest_tiered_offset=log.latest_tiered_offset,
    )


_K = FindingKind
_TRANSIENT = frozenset({_K.OFFSETS, _K.GAP, _K.BEYOND_LOG_END, _K.DIVERGENT_SEGMENT, _K.CUT_EPOCHS})
"""Kinds that a working broker may show for a moment: its log and its metadata are not read at one time."""

_Identity = tuple[str | None, Uuid | None, int | None, FindingKind, Uuid | None, int | None, str]


@dataclass(slots=True)
class Unconfirmed:
    """Findings that may be transient, by partition; `leaders` are those that know their log start."""

    leaders: Mapping[TopicIdPartition, ClusterLog]
    findings: dict[TopicIdPartition, list[Finding]] = field(default_factory=dict)

    def add_if_transient(self, finding: Finding) -> bool:
        """Keep a finding that may be transient and return True; return False for any other."""
        if finding.check not in _TRANSIENT or finding.topic is None or finding.topic_id is None:
            return False
        partition = TopicIdPartition(finding.topic_id, finding.topic, finding.partition or 0)
        if partition not in self.leaders:
            return False
        self.findings.setdefault(partition, []).append(finding)
        return True


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """A running cluster with which the metadata are compared; every call asks it again."""

    cluster: Cluster

    def topics(self, state: TierState) -> KnownTopics:
        """Return the topic ids that the cluster has under the topic names in the metadata."""
        names = {part.topic_id_partition.topic for part in state}
        found = self.cluster.topics(names)
        ids = {name: frozenset({topic.topic_id}) for name, topic in found.items()}
        return KnownTopics(ids, complete=True)

    def configs(self, topics: Collection[str]) -> dict[str, TopicConfig]:
        """Return the settings of those topics that the cluster has and that may be read."""
        found: dict[str, TopicConfig] = {}
        for name in filter(is_legal_topic_name, sorted(topics)):
            with suppress(AuthenticationError, NotFoundError):
                found |= self.cluster.topic_configs([name])
        return found

    def leaders(
        self, partitions: Sequence[TopicIdPartition]
    ) -> tuple[Mapping[TopicIdPartition, ClusterLog], Iterator[Finding]]:
        """Return the logs of leaders that know their log start, and findings about the other partitions.

        Call it after reading the metadata: the leader's log then holds every offset of the tier.
        """
        logs = reliable_leader_logs(self.cluster, partitions)
        return logs.logs, _unseen(logs)

    def confirmed(
        self,
        unconfirmed: Unconfirmed,
        check: Callable[[Mapping[TopicIdPartition, ClusterLog]], Iterable[Finding]],
    ) -> Iterator[Finding]:
        """Yield the unconfirmed findings that a second check finds again.

        The second check asks the leaders first, and `check` reads the metadata to their new end after it: a
        finding of both orders is no effect of the order.
        """
        if not unconfirmed.findings:
            return
        logs = reliable_leader_logs(self.cluster, sorted(unconfirmed.findings)).logs
        before = {_identity(each) for found in unconfirmed.findings.values() for each in found}
        yield from (f for f in check(logs) if f.check in _TRANSIENT and _identity(f) in before)


def _unseen(leaders: LeaderLogs) -> Iterator[Finding]:
    for partition, reason in leaders.leaderless.items():
        yield finding_of(partition, _K.UNSEEN_LEADER, Severity.WARNING, reason)
    for partition, reason in leaders.start_unknown.items():
        yield finding_of(partition, _K.UNSEEN_LEADER, Severity.INFO, reason)


def _identity(finding: Finding) -> _Identity:
    """Return the parts of a finding that do not change while offsets advance."""
    where = (finding.topic, finding.topic_id, finding.partition)
    what = re.sub(r"[0-9]+", "#", finding.found)
    return (*where, finding.check, finding.segment_id, finding.start_offset, what)
