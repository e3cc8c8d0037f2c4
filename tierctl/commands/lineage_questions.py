"""Answers the questions of `segments` that depend on lineages: offsets, problems, segments by time."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tierctl.checks.findings import Finding
from tierctl.checks.metadata import DeletedPrefixes
from tierctl.checks.segments import check_partition, sound_partitions
from tierctl.commands.histories import read_selected
from tierctl.commands.local_logs import with_raised_log_starts
from tierctl.commands.resources import Resources
from tierctl.metadata.daily_changes import deleted_of, deleted_segments
from tierctl.model import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition
from tierctl.model.local import ClusterLog
from tierctl.plan.preconditions import newest_replicas
from tierctl.read.partition_reader import ReadablePartition, illegal_name_error, tiered_partitions
from tierctl.read.readable_log import (
    Replica,
    chosen_lineage,
    leader_logs,
    reliable_leader_logs,
    tier_range,
)
from tierctl.read.segment import IndexFetcher
from tierctl.state.lineage import Lineage, find_highest_remote_offset, segments_in_lineage
from tierctl.state.tier_state import TierState

_FourOffsets = tuple[int | None, int | None, int | None, int | None]
"""Earliest, earliest-local, latest-tiered and latest."""


def segments_by_time(resources: Resources, time_ms: int) -> Iterator[RemoteLogSegmentMetadata | None]:
    """Yield for each partition the first segment of its lineage with a record of `time_ms` or later."""
    for readable in _partitions(resources):
        _, lineage = _chosen(resources, readable)
        spans = segments_in_lineage(readable.cache, lineage)
        yield next((span.segment for span in spans if span.segment.max_timestamp_ms >= time_ms), None)


def segments_by_offset(resources: Resources, offset: int) -> Iterator[RemoteLogSegmentMetadata | None]:
    """Yield for each partition the segment from which a broker with its lineage reads `offset`."""
    for readable in _partitions(resources):
        _, lineage = _chosen(resources, readable)
        spans = segments_in_lineage(readable.cache, lineage, offset, offset)
        yield next((span.segment for span in spans), None)


class Offsets(NamedTuple):
    """The offsets of one partition, as `segments.PartitionOffsets` has them."""

    earliest: int | None
    earliest_local: int | None
    latest_tiered: int | None
    earliest_pending_upload: int | None
    latest: int | None


def partition_offsets(resources: Resources) -> Iterator[tuple[TopicIdPartition, Offsets]]:
    """Yield each selected partition and its offsets, from its leader if there is a cluster.

    With a cluster, untiered partitions of the same topics and of the named topics are included.
    """
    known = {readable.topic_id_partition: readable for readable in _partitions(resources)}
    leader_logs = _leader_logs(resources, known)
    pending = _pending_uploads(resources, leader_logs)
    partitions = known.keys() | leader_logs.keys()
    for partition in sorted(partitions, key=lambda p: (p.topic, p.topic_id, p.partition)):
        log = leader_logs.get(partition)
        if log is None:
            readable = known[partition]
            found = _offsets_of_logs(readable, *_chosen(resources, readable))
            earliest, earliest_local, latest_tiered, latest = found
            upload = _pending_upload(earliest, earliest_local, latest_tiered)
        else:
            earliest, earliest_local, latest_tiered, latest = _offsets_of_leader(known.get(partition), log)
            upload = pending.get(partition.topic_partition)
        yield partition, Offsets(earliest, earliest_local, latest_tiered, upload, latest)


def find_problems(resources: Resources) -> list[Finding]:
    """Return the findings of each selected partition, compared with its leader's log if there is one.

    Without a cluster, a gap that deleted segments explain is a log start that is behind, as for `verify`.
    """
    state = read_selected(resources)
    readables, sound = _readable(resources, state), sound_partitions(state, resources.now_ms)
    partitions = [readable.topic_id_partition for readable in readables]
    cluster = resources.cluster
    logs = {} if cluster is None else reliable_leader_logs(cluster, partitions).logs
    findings: list[Finding] = []
    for readable in readables:
        findings += check_partition(
            readable,
            _indexes(resources, readable),
            resources.problems.report,
            now_ms=resources.now_ms,
            copy_limit_ms=resources.request.copy_limit_ms,
            leader=logs.get(readable.topic_id_partition),
            is_sound=readable.topic_id_partition in sound,
        )
    if cluster is not None:
        return findings
    replicas = newest_replicas([log for readable in readables for log in readable.logs])
    deleted = deleted_of(lambda: deleted_segments(resources.metadata_topic()))
    return list(DeletedPrefixes(replicas, deleted).applied(findings))


def _partitions(resources: Resources) -> list[ReadablePartition]:
    """Return the selected partitions that the metadata know, with their logs of the log directories."""
    return _readable(resources, read_selected(resources))


def _readable(resources: Resources, state: TierState) -> list[ReadablePartition]:
    logs = with_raised_log_starts(resources.logs_if_given(), resources.request.state_dir)
    return tiered_partitions(state, logs, resources.selection)


def _indexes(resources: Resources, readable: ReadablePartition) -> IndexFetcher | None:
    """Return the source of the partition's indexes; None without a tier, or if its name is illegal."""
    has_tier = (
        resources.request.remote is not None and illegal_name_error(readable.topic_id_partition) is None
    )
    return resources.indexes if has_tier else None


def _chosen(resources: Resources, readable: ReadablePartition) -> tuple[Replica | None, Lineage]:
    indexes, report = _indexes(resources, readable), resources.problems.report
    return chosen_lineage(readable.cache, readable.logs, indexes, report)


def _leader_logs(
    resources: Resources, known: Iterable[TopicIdPartition]
) -> dict[TopicIdPartition, ClusterLog]:
    cluster = resources.cluster
    if cluster is None:
        return {}
    topics = cluster.topics({partition.topic for partition in known} | resources.selection.topics)
    partitions = [
        partition
        for topic in topics.values()
        for partition in topic.topic_id_partitions
        if partition in resources.selection
    ]
    return leader_logs(cluster, partitions)[0]


def _pending_uploads(
    resources: Resources, leader_logs: Mapping[TopicIdPartition, ClusterLog]
) -> Mapping[TopicPartition, int | None]:
    """Return the leaders' earliest pending uploads; empty, with a message, if the brokers are too old."""
    if resources.cluster is None or not leader_logs:
        return {}
    version = resources.kafka_version
    if not version.has_earliest_pending_upload:
        resources.progress.say(
            f"earliest_pending_upload is not known: the brokers are of Kafka {version}, and the offset -6 "
            "needs 4.2 or later"
        )
        return {}
    return resources.cluster.earliest_pending_uploads([p.topic_partition for p in leader_logs])


def _pending_upload(
    earliest: int | None, earliest_local: int | None, latest_tiered: int | None
) -> int | None:
    """Return the first offset that is still to be copied, as UnifiedLog.fetchEarliestPendingUploadOffset."""
    if earliest is None or (latest_tiered is None and earliest_local != earliest):
        return None
    return earliest if latest_tiered is None else max(latest_tiered + 1, earliest)


def _offsets_of_leader(readable: ReadablePartition | None, log: ClusterLog) -> _FourOffsets:
    lineage = Lineage(log.leader_epochs)
    return (
        log.log_start_offset,
        log.local_log_start_offset,
        None if readable is None else _latest_tiered(readable, lineage, log.log_end_offset),
        log.high_watermark,
    )


def _offsets_of_logs(readable: ReadablePartition, replica: Replica | None, lineage: Lineage) -> _FourOffsets:
    """Return the offsets of the partition's logs or, without a log, the offsets that the tier implies."""
    if replica is not None:
        log = replica.log
        return (
            log.log_start_offset,
            max(log.local_log_start_offset, log.log_start_offset),
            _latest_tiered(readable, lineage, log.log_end_offset),
            replica.high_watermark,
        )
    found = tier_range(readable.cache, lineage)
    if found is None:
        return None, None, None, None
    earliest, end = found
    return earliest, None, _latest_tiered(readable, lineage, end), None


def _latest_tiered(readable: ReadablePartition, lineage: Lineage, log_end_offset: int) -> int | None:
    highest = find_highest_remote_offset(readable.cache, lineage, log_end_offset)
    return highest if highest >= 0 else None
