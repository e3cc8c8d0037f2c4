"""`segments`: list remote segments, find one of them, sum up their sizes, or check their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierctl.commands.histories import read_selected
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.errors import ExitCode, NotFoundError, UsageError
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.severity import Severity
from tierctl.model.times import iso_utc

if TYPE_CHECKING:
    from tierctl.commands.lineage_questions import PartitionOffsets
    from tierctl.commands.segment_sizes import TopicSize
    from tierctl.verify.findings import Finding


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
            from tierctl.commands.lineage_questions import find_problems

            findings = find_problems(resources)
            return SegmentsResult(rows=findings, exit_code=_exit_code_of_check(resources, findings))
        return SegmentsResult(rows=_rows(resources, request), exit_code=resources.problems.exit_code)


def _rows(
    resources: Resources, request: SegmentsRequest
) -> Sequence[RemoteLogSegmentMetadata | TopicSize | PartitionOffsets]:
    if request.offsets:
        from tierctl.commands.lineage_questions import partition_offsets

        return list(partition_offsets(resources))
    if request.sizes:
        from tierctl.commands.segment_sizes import topic_sizes

        return topic_sizes(resources, include_deleted=request.include_deleted)
    return sorted(_chosen_segments(resources, request), key=_order)


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


def _chosen_segments(resources: Resources, request: SegmentsRequest) -> Iterable[RemoteLogSegmentMetadata]:
    """Return the segments that are listed, summed up or found, in no order."""
    if request.time_ms is not None:
        from tierctl.commands.lineage_questions import segments_by_time

        message = f"no segment has a timestamp of {iso_utc(request.time_ms)} or later"
        return _require_found(segments_by_time(resources, request.time_ms), message)
    state, selection = read_selected(resources), resources.selection
    caches = [part.cache for part in state if part.topic_id_partition in selection]
    if request.epoch is not None and request.offset is not None:
        epoch, offset = request.epoch, request.offset
        answers = (cache.remote_log_segment_metadata(epoch, offset) for cache in caches)
        return _require_found(answers, f"no segment holds offset {offset} of leader epoch {epoch}")
    found = [segment for cache in caches for segment in cache.list_remote_log_segments()]
    if request.include_deleted:
        from tierctl.commands.segment_sizes import selected_deleted_segments

        found += selected_deleted_segments(resources)
    return found


def _require_found(
    answers: Iterable[RemoteLogSegmentMetadata | None], message: str
) -> list[RemoteLogSegmentMetadata]:
    """Return the answers that are not None; raise NotFoundError with `message` if all are None."""
    found = [answer for answer in answers if answer is not None]
    if not found:
        raise NotFoundError(message, hint="'tierctl segments' lists the segments of the tier")
    return found


def _exit_code_of_check(resources: Resources, findings: Iterable[Finding]) -> ExitCode:
    if resources.problems.exit_code is not ExitCode.OK:
        return resources.problems.exit_code
    is_serious = any(finding.severity is not Severity.INFO for finding in findings)
    return ExitCode.PARTIAL if is_serious else ExitCode.OK
