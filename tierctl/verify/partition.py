"""All checks of one partition: gathers its offsets and lineage, then checks offsets and segments."""

from collections.abc import Iterator
from dataclasses import dataclass

from tierctl.model import LocalLog, TopicIdPartition
from tierctl.model.engine import Severity
from tierctl.model.local import ClusterLog
from tierctl.plan.retention.breaches import local_only_bytes
from tierctl.read.partition_reader import ReadablePartition
from tierctl.read.readable_log import (
    Replica,
    choose_replica,
    lineage_from_segments,
    tier_lineage,
)
from tierctl.read.segment import IndexFetcher, Report
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.cut_epochs import cut_epochs_of
from tierctl.state.lineage import Lineage, find_highest_remote_offset, segments_in_lineage
from tierctl.state.partition_segments import PartitionSegments
from tierctl.verify.findings import Finding, FindingKind, finding_of
from tierctl.verify.retention import Retention, check_retention
from tierctl.verify.segments import LogFacts, check_segments, cut_finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """A partition's offsets by KIP-405's names; ends are exclusive, None is unknown or no segment."""

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


def check_offsets(partition: TopicIdPartition, offsets: Offsets) -> Iterator[Finding]:
    """Check KIP-405's invariants Lz >= Ly >= Lx and Ly >= Ry >= Rx."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """The offsets and the lineage with which a partition's tier is compared; None if unknown.

    `latest_tiered_offset` is the last offset that the leader considers copied.
    """

    offsets: Offsets | None
    log: LogFacts | None
    latest_tiered_offset: int | None = None


def check_partition(
    readable: ReadablePartition,
    fetcher: IndexFetcher | None,
    report: Report,
    *,
    now_ms: int,
    facts: PartitionFacts | None = None,
    retention: Retention | None = None,
) -> Iterator[Finding]:
    """Yield the findings about one partition, offsets first.

    Without `facts` the lineage comes from the logs; without logs from the newest segment's leader-epoch
    index, which `fetcher` fetches; without `fetcher` from the segments' own epochs. Without logs the log is
    assumed to hold the offsets of the tier. `report` receives the errors of indexes that can't be read.
    Retention is checked only with `retention`.
    """
    facts = facts or _facts(readable, fetcher, report)
    if facts.offsets is not None:
        yield from check_offsets(readable.topic_id_partition, facts.offsets)
        if facts.latest_tiered_offset is not None and facts.log is not None:
            yield from check_latest_tiered(
                readable.topic_id_partition,
                facts.latest_tiered_offset,
                copied=(facts.offsets.remote_log_end_offset or 0) - 1,
                log_start_offset=facts.log.log_start_offset,
            )
    yield from check_segments(readable.topic_id_partition, readable.cache, facts.log, now_ms)
    yield from _cut_replicas(readable, None if facts.log is None else facts.log.source)
    if retention is not None and facts.log is not None:
        yield from check_retention(readable, facts.log, retention)


def _cut_replicas(readable: ReadablePartition, checked: str | None) -> Iterator[Finding]:
    """Yield a finding for each replica but `checked` whose leader-epoch checkpoint was cut.

    Each of them may lead after the next election, and deletes then what its checkpoint lacks.
    """
    segments = PartitionSegments.of_cache(readable.cache)
    for log in readable.logs:
        source = _source(log)
        cut = None if source == checked else cut_epochs_of(log, segments)
        if cut is not None:
            yield cut_finding(readable.topic_id_partition, cut, source)


def _source(log: LocalLog) -> str:
    return f"the replica in {log.directory.parent}"


def _facts(readable: ReadablePartition, fetcher: IndexFetcher | None, report: Report) -> PartitionFacts:
    replica = choose_replica(readable.logs)
    if replica is None:
        lineage = current_lineage(readable, fetcher, report)
        return PartitionFacts(offsets=None, log=_facts_of_tier(readable, lineage))
    return PartitionFacts(offsets=offsets_of(readable, replica), log=_facts_of_log(readable, replica))


def current_lineage(readable: ReadablePartition, fetcher: IndexFetcher | None, report: Report) -> Lineage:
    """Return the lineage of the logs; without logs that of the tier, see `check_partition`."""
    replica = choose_replica(readable.logs)
    if replica is not None:
        return replica.lineage
    if fetcher is not None:
        return tier_lineage(readable.cache, fetcher, report)
    return lineage_from_segments(readable.cache.list_remote_log_segments())


def offsets_of(readable: ReadablePartition, replica: Replica) -> Offsets:
    """Return KIP-405's five offsets of a partition, from the replica whose log is used."""
    log = replica.log
    lineage = replica.lineage
    first = next(segments_in_lineage(readable.cache, lineage, log.log_start_offset), None)
    highest = find_highest_remote_offset(readable.cache, lineage, log.log_end_offset).offset
    return Offsets(
        local_log_start_offset=log.local_log_start_offset,
        last_stable_offset=replica.last_stable_offset,
        local_log_end_offset=log.log_end_offset,
        remote_log_start_offset=first.from_offset if first else None,
        remote_log_end_offset=highest + 1 if highest >= 0 else None,
    )


def facts_of_leader(cache: RemoteLogMetadataCache, log: ClusterLog) -> PartitionFacts:
    """Return the offsets of a running leader's log, together with those of the tier in the metadata."""
    lineage = Lineage(log.leader_epochs)
    first = next(segments_in_lineage(cache, lineage, log.log_start_offset), None)
    highest = find_highest_remote_offset(cache, lineage, log.log_end_offset).offset
    return PartitionFacts(
        offsets=Offsets(
            local_log_start_offset=log.local_log_start_offset,
            last_stable_offset=log.last_stable_offset,
            local_log_end_offset=log.log_end_offset,
            remote_log_start_offset=first.from_offset if first else None,
            remote_log_end_offset=highest + 1 if highest >= 0 else None,
        ),
        log=LogFacts(
            lineage=lineage,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            local_log_start_offset=log.local_log_start_offset,
            source="the leader",
        ),
        latest_tiered_offset=log.latest_tiered_offset,
    )


def _facts_of_log(readable: ReadablePartition, replica: Replica) -> LogFacts:
    return LogFacts(
        lineage=replica.lineage,
        log_start_offset=replica.log.log_start_offset,
        log_end_offset=replica.log.log_end_offset,
        local_log_start_offset=replica.log.local_log_start_offset,
        local_only_bytes=local_only_bytes(readable.cache, replica.log),
        source=_source(replica.log),
    )


def _facts_of_tier(readable: ReadablePartition, lineage: Lineage) -> LogFacts | None:
    first = next(segments_in_lineage(readable.cache, lineage), None)
    newest = PartitionSegments.of_cache(readable.cache).newest()
    if first is None or newest is None:
        return None
    return LogFacts(lineage=lineage, log_start_offset=first.from_offset, log_end_offset=newest.end_offset + 1)
