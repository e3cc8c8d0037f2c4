"""`segments`: list remote segments, find one of them, sum up their sizes, or check their offsets."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tierctl.commands.histories import read_selected
from tierctl.commands.local_logs import with_raised_log_starts
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.errors import ExitCode, NotFoundError, UsageError
from tierctl.metadata.deleted_segments import deleted_segments
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.cluster import ClusterLog
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.severity import Severity
from tierctl.read.index_lookup import IndexFetcher
from tierctl.read.leader_logs import reliable_leader_logs
from tierctl.read.partitions import ReadablePartition, illegal_name_error, tiered_partitions
from tierctl.read.replicas import choose_replica, lineage_from_segments, newest_segment
from tierctl.state.lineage import Lineage, find_highest_remote_offset, segments_in_lineage
from tierctl.verify.findings import Finding
from tierctl.verify.partition import check_partition, current_lineage, facts_of_leader

_FourOffsets = tuple[int | None, int | None, int | None, int | None]
"""Earliest, earliest-local, latest-tiered and latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsRequest(Request):
    """A request about remote segments: at most one of the five questions below; default: list them."""

    include_deleted: bool = False
    """List the segments whose deletion has finished, too."""
    epoch: int | None = None
    """With `offset`: find the segment that a broker reads for this offset of this leader epoch."""
    offset: int | None = None
    """See `epoch`."""
    time_ms: int | None = None
    """Find each partition's first segment of the current lineage with a timestamp of at least this."""
    sizes: bool = False
    """Return one `TopicSize` per topic id instead of segments."""
    offsets: bool = False
    """Return one `PartitionOffsets` per partition instead of segments."""
    check: bool = False
    """Return a `Finding` for each problem of offsets and segments instead of segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSize:
    """The remote segments of one topic id, summed up by state."""

    topic: str
    topic_id: Uuid
    partitions: int
    segments: int
    """Segments in state COPY_SEGMENT_FINISHED: brokers count no others as size (KAFKA-17062)."""
    log_bytes: int
    copying_segments: int
    """Segments in state COPY_SEGMENT_STARTED."""
    copying_bytes: int
    deleting_segments: int
    """Segments in state DELETE_SEGMENT_STARTED."""
    deleting_bytes: int
    objects: int | None
    """Objects of the segments in all of these states; None if the store was not asked."""
    object_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The offsets of one partition, named as GetOffsetShell names them; None for an unknown offset.

    `latest_tiered` is the highest offset of the current lineage that the metadata record as copied.
    `earliest_pending_upload` is the first offset that is still to be copied (KIP-1023): the leader's answer,
    None from brokers before Kafka 4.2. Without a cluster it follows from the other offsets.
    """

    topic: str
    topic_id: Uuid
    partition: int
    earliest: int | None
    earliest_local: int | None
    latest_tiered: int | None
    earliest_pending_upload: int | None
    latest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsResult:
    """The answer to a `SegmentsRequest`; all rows are of the class that the request asks for."""

    rows: Sequence[RemoteLogSegmentMetadata | TopicSize | PartitionOffsets | Finding]
    exit_code: ExitCode


def segments(request: SegmentsRequest, progress: Progress | None = None) -> SegmentsResult:
    """Answer the request from the metadata, and where it is named from the tier, the logs and the cluster.

    Segments are sorted by topic, partition, start offset and time of the last event. Unreadable metadata
    records are reported as problems and make the exit code 7. Raises UsageError for contradicting flags,
    NotFoundError if the selection or the segment does not exist, and the errors of metadata and tier.
    """
    _require_one_question(request)
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        if request.check:
            findings = _check(resources)
            return SegmentsResult(rows=findings, exit_code=_exit_code_of_check(resources, findings))
        return SegmentsResult(rows=_rows(resources, request), exit_code=resources.problems.exit_code)


def _rows(
    resources: Resources, request: SegmentsRequest
) -> Sequence[RemoteLogSegmentMetadata | TopicSize | PartitionOffsets]:
    if request.offsets:
        return list(_partition_offsets(resources))
    found = _chosen_segments(resources, request)
    if request.sizes:
        return _sizes(found, resources)
    return sorted(found, key=_order)


def _require_one_question(request: SegmentsRequest) -> None:
    """Raise UsageError for flags that contradict each other."""
    if (request.epoch is None) != (request.offset is None):
        raise UsageError("--epoch and --offset go together", hint="give both, or --time")
    if request.epoch is not None and request.time_ms is not None:
        raise UsageError("--epoch with --offset, and --time, find a segment each", hint="give one of them")
    finds_one = request.epoch is not None or request.time_ms is not None
    if sum((finds_one, request.include_deleted, request.check, request.offsets)) > 1:
        raise UsageError("--all, --check, --offsets and finding one segment exclude each other")
    if request.sizes and (finds_one or request.check or request.offsets):
        raise UsageError("--sizes sums up a listing", hint="narrow it with --topic or --partition")


def _order(segment: RemoteLogSegmentMetadata) -> tuple[str, int, int, int, str, str]:
    return (
        segment.topic,
        segment.partition,
        segment.start_offset,
        segment.event_timestamp_ms,
        segment.topic_id,
        segment.segment_id,
    )


def _partitions(resources: Resources) -> list[ReadablePartition]:
    """Return the selected partitions that the metadata know, with their logs of the log directories."""
    state = read_selected(resources)
    logs = with_raised_log_starts(resources.logs_if_given(), resources.request.state_dir)
    return tiered_partitions(state, logs, resources.selection)


def _chosen_segments(resources: Resources, request: SegmentsRequest) -> Iterable[RemoteLogSegmentMetadata]:
    """Return the segments that are listed, summed up or found, in no order."""
    if request.time_ms is not None:
        message = f"no segment has a timestamp of {request.time_ms} or later"
        return _require_found(_segments_by_time(resources, request.time_ms), message)
    state, selection = read_selected(resources), resources.selection
    caches = [part.cache for part in state if part.topic_id_partition in selection]
    if request.epoch is not None and request.offset is not None:
        epoch, offset = request.epoch, request.offset
        answers = (cache.remote_log_segment_metadata(epoch, offset) for cache in caches)
        return _require_found(answers, f"no segment holds offset {offset} of leader epoch {epoch}")
    found = [segment for cache in caches for segment in cache.list_remote_log_segments()]
    if request.include_deleted:
        topic = resources.metadata_topic()
        deleted = deleted_segments(topic, topic.end_offsets())
        found += (segment for segment in deleted if segment.topic_id_partition in selection)
    return found


def _require_found(
    answers: Iterable[RemoteLogSegmentMetadata | None], message: str
) -> list[RemoteLogSegmentMetadata]:
    """Return the answers that are not None; raise NotFoundError with `message` if all are None."""
    found = [answer for answer in answers if answer is not None]
    if not found:
        raise NotFoundError(message, hint="'tierctl segments' lists the segments of the tier")
    return found


def _segments_by_time(resources: Resources, time_ms: int) -> Iterator[RemoteLogSegmentMetadata | None]:
    """Yield for each partition the first segment of its lineage with a record of `time_ms` or later."""
    for readable in _partitions(resources):
        lineage = current_lineage(readable, _indexes(resources, readable), resources.problems.report)
        spans = segments_in_lineage(readable.cache, lineage)
        yield next((span.segment for span in spans if span.segment.max_timestamp_ms >= time_ms), None)


def _indexes(resources: Resources, readable: ReadablePartition) -> IndexFetcher | None:
    """Return the source of the partition's indexes; None without a tier, or if its name is illegal."""
    has_tier = (
        resources.request.remote is not None and illegal_name_error(readable.topic_id_partition) is None
    )
    return resources.indexes if has_tier else None


def _sizes(found: Iterable[RemoteLogSegmentMetadata], resources: Resources) -> list[TopicSize]:
    """Return the sums by topic id; objects are counted if a tier is named and the topic's name is legal."""
    remote = None if resources.request.remote is None else resources.remote
    by_topic: dict[tuple[str, Uuid], list[RemoteLogSegmentMetadata]] = defaultdict(list)
    for segment in found:
        by_topic[segment.topic, segment.topic_id].append(segment)
    rows = []
    for (topic, topic_id), its_segments in sorted(by_topic.items()):
        sizes_bytes = {state: list[int]() for state in RemoteLogSegmentState}
        for segment in its_segments:
            sizes_bytes[segment.state].append(segment.segment_size_in_bytes)
        finished = sizes_bytes[RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
        copying = sizes_bytes[RemoteLogSegmentState.COPY_SEGMENT_STARTED]
        deleting = sizes_bytes[RemoteLogSegmentState.DELETE_SEGMENT_STARTED]
        is_legal = all(illegal_name_error(segment.topic_id_partition) is None for segment in its_segments)
        objects = None
        if remote is not None and is_legal:
            objects = [each for segment in its_segments for each in remote.objects_of(segment)]
        rows.append(
            TopicSize(
                topic=topic,
                topic_id=topic_id,
                partitions=len({segment.partition for segment in its_segments}),
                segments=len(finished),
                log_bytes=sum(finished),
                copying_segments=len(copying),
                copying_bytes=sum(copying),
                deleting_segments=len(deleting),
                deleting_bytes=sum(deleting),
                objects=None if objects is None else len(objects),
                object_bytes=None if objects is None else sum(each.size_bytes for each in objects),
            )
        )
    return rows


def _partition_offsets(resources: Resources) -> Iterator[PartitionOffsets]:
    """Yield the offsets of each selected partition, from its leader if there is a cluster.

    With a cluster, untiered partitions of the same topics and of the named topics are included.
    """
    known = {readable.topic_id_partition: readable for readable in _partitions(resources)}
    leader_logs = _leader_logs(resources, known)
    pending = _pending_uploads(resources, leader_logs)
    partitions = known.keys() | leader_logs.keys()
    for partition in sorted(partitions, key=lambda p: (p.topic, p.topic_id, p.partition)):
        log = leader_logs.get(partition)
        offsets = (
            _offsets_of_logs(known[partition])
            if log is None
            else _offsets_of_leader(known.get(partition), log)
        )
        earliest, earliest_local, latest_tiered, latest = offsets
        yield PartitionOffsets(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            earliest=earliest,
            earliest_local=earliest_local,
            latest_tiered=latest_tiered,
            earliest_pending_upload=(
                _pending_upload(earliest, earliest_local, latest_tiered)
                if log is None
                else pending.get(partition.topic_partition)
            ),
            latest=latest,
        )


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
    return {log.topic_id_partition: log for log in cluster.logs(partitions)}


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


def _offsets_of_logs(readable: ReadablePartition) -> _FourOffsets:
    """Return the offsets by the partition's logs; without a log, those that the metadata imply."""
    replica = choose_replica(readable.logs)
    if replica is not None:
        log = replica.log
        return (
            log.log_start_offset,
            max(log.local_log_start_offset, log.log_start_offset),
            _latest_tiered(readable, replica.lineage, log.log_end_offset),
            replica.high_watermark,
        )
    known = list(readable.cache.list_remote_log_segments())
    lineage, newest = lineage_from_segments(known), newest_segment(known)
    first = next(segments_in_lineage(readable.cache, lineage), None)
    tiered = None if newest is None else _latest_tiered(readable, lineage, newest.end_offset + 1)
    return None if first is None else first.from_offset, None, tiered, None


def _latest_tiered(readable: ReadablePartition, lineage: Lineage, log_end_offset: int) -> int | None:
    highest = find_highest_remote_offset(readable.cache, lineage, log_end_offset).offset
    return highest if highest >= 0 else None


def _check(resources: Resources) -> list[Finding]:
    """Return the findings of each selected partition, compared with its leader's log if there is one."""
    readables = _partitions(resources)
    partitions = [readable.topic_id_partition for readable in readables]
    cluster = resources.cluster
    logs = {} if cluster is None else reliable_leader_logs(cluster, partitions).logs
    findings: list[Finding] = []
    for readable in readables:
        log = logs.get(readable.topic_id_partition)
        findings += check_partition(
            readable,
            _indexes(resources, readable),
            resources.problems.report,
            now_ms=resources.now_ms,
            facts=None if log is None else facts_of_leader(readable.cache, log),
        )
    return findings


def _exit_code_of_check(resources: Resources, findings: Iterable[Finding]) -> ExitCode:
    if resources.problems.exit_code is not ExitCode.OK:
        return resources.problems.exit_code
    is_serious = any(finding.severity is not Severity.INFO for finding in findings)
    return ExitCode.PARTIAL if is_serious else ExitCode.OK
