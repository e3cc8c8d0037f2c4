"""Units of work of `verify` for threads and executors: a partition's checks, or some segments' bytes."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, assert_never

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    RemoteResourceNotFound,
    RemoteStorageError,
    SafetyRefusal,
    TierctlError,
)
from tierctl.files import FileBytes
from tierctl.model import (
    IndexType,
    LocalLog,
    LocalSegment,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicConfig,
    Uuid,
)
from tierctl.model.engine import Severity
from tierctl.read.partition_reader import ReadablePartition
from tierctl.read.segment import Report, UncachedIndexes
from tierctl.state.lineage import Lineage
from tierctl.storage.base import RemoteStorageManager, require_store
from tierctl.storage.index_cache import SegmentFiles, spooled
from tierctl.verify.findings import Finding, FindingKind, finding_of
from tierctl.verify.partition import PartitionFacts, check_partition
from tierctl.verify.retention import Retention
from tierctl.verify.segment_bytes import check_segment_bytes

_K = FindingKind
_COMPARE_BYTES = 1 << 20
_OF_ONE_OBJECT = (RemoteStorageError, AuthenticationError, SafetyRefusal)
"""Errors of reading one object that do not concern other objects, as long as the store responds."""
_FOUND_BY_LISTING = frozenset({_K.SIZE_DIFFERS, _K.MISSING_OBJECT})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """Check a partition's offsets and segments against its lineage, and its retention by `config`.

    `reads_store` allows the lineage to be read from a leader-epoch index in the store. Errors of that index
    are findings if `reports_indexes`; otherwise a SegmentsTask checks all bytes of the indexes.
    """

    readable: ReadablePartition
    now_ms: int
    config: TopicConfig | None = None
    facts: PartitionFacts | None = None
    reads_store: bool = False
    reports_indexes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsTask:
    """Check the bytes of some segments of a partition, and compare them with its local logs.

    `suspects` are the segments with objects that the listing of the store has already reported.
    """

    segments: tuple[RemoteLogSegmentMetadata, ...]
    logs: tuple[LocalLog, ...]
    suspects: frozenset[Uuid]

    @property
    def size_bytes(self) -> int:
        """Number of bytes that have to be fetched."""
        return sum(segment.segment_size_in_bytes for segment in self.segments)


Task = PartitionTask | SegmentsTask


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRunner:
    """Carries out tasks on the tier `remote`; segments are fetched to folders below `spool`."""

    remote: RemoteStorageManager | None
    spool: Path | None = None

    def findings(self, task: Task) -> list[Finding]:
        """Return the findings of one task; RemoteStorageError if the store fails."""
        match task:
            case PartitionTask():
                return list(_partition_findings(task, self.remote if task.reads_store else None))
            case SegmentsTask():
                assert self.remote is not None
                assert self.spool is not None
                return [
                    finding
                    for segment in task.segments
                    for finding in _segment_findings(segment, task, self.remote, self.spool)
                ]
            case _:
                assert_never(task)


def tasks_of(
    readable: ReadablePartition,
    *,
    now_ms: int,
    config: TopicConfig | None,
    facts: PartitionFacts | None,
    reads_store: bool,
    segments_per_task: int,
    suspects: Sequence[Uuid] | set[Uuid],
    chosen: Collection[Uuid] | None = None,
) -> Iterator[Task]:
    """Yield a partition's tasks in the order of their findings; no bytes if `segments_per_task` is 0.

    The finished segments in `chosen` are read, or all of them if it is None.
    """
    is_deep = reads_store and segments_per_task > 0
    yield PartitionTask(
        readable=readable,
        now_ms=now_ms,
        config=config,
        facts=facts,
        reads_store=reads_store,
        reports_indexes=not is_deep,
    )
    segments: list[RemoteLogSegmentMetadata] = []
    for segment in readable.cache.list_remote_log_segments() if is_deep else ():
        is_chosen = chosen is None or segment.segment_id in chosen
        if is_chosen and segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            segments.append(segment)
        if len(segments) == segments_per_task:
            yield _segments_task(segments, readable, suspects)
            segments = []
    if segments:
        yield _segments_task(segments, readable, suspects)


def _segments_task(
    segments: Sequence[RemoteLogSegmentMetadata],
    readable: ReadablePartition,
    suspects: Sequence[Uuid] | set[Uuid],
) -> SegmentsTask:
    ids = frozenset(s.segment_id for s in segments if s.segment_id in suspects)
    return SegmentsTask(segments=tuple(segments), logs=readable.logs, suspects=ids)


def _partition_findings(task: PartitionTask, remote: RemoteStorageManager | None) -> Iterator[Finding]:
    errors: list[TierctlError] = []
    fetcher = None if remote is None else UncachedIndexes(_Reader(remote, errors.append))
    yield from check_partition(
        task.readable,
        fetcher,
        errors.append,
        now_ms=task.now_ms,
        facts=task.facts,
        retention=Retention(task.now_ms, task.config),
    )
    for error in errors if task.reports_indexes else ():
        partition = task.readable.topic_id_partition
        kind = _K.UNREADABLE_OBJECT if isinstance(error, _OF_ONE_OBJECT) else _K.CORRUPT_INDEX
        yield finding_of(partition, kind, Severity.ERROR, error.message)


@dataclass(frozen=True, slots=True)
class _Reader:
    """SegmentReader that reports an index that can't be read, and then treats it as missing."""

    remote: RemoteStorageManager
    report: Report

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        return self.remote.fetch_log_segment(metadata, start_position, end_position)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        try:
            return self.remote.fetch_index(metadata, index_type)
        except RemoteResourceNotFound:
            raise
        except _OF_ONE_OBJECT as e:
            require_store(self.remote, e)
            self.report(e)
            raise RemoteResourceNotFound(e.message) from e


def _segment_findings(
    segment: RemoteLogSegmentMetadata, task: SegmentsTask, remote: RemoteStorageManager, spool: Path
) -> Iterator[Finding]:
    """Yield the findings about one segment's bytes, except findings that the listing already reported."""
    partition = segment.topic_id_partition
    is_suspect = segment.segment_id in task.suspects
    errors: list[TierctlError] = []
    try:
        with spooled(_Reader(remote, errors.append), segment, spool) as files, FileBytes(files.log) as log:
            indexes = files.index_bytes()
            for problem in check_segment_bytes(segment, log, indexes):
                if problem.kind not in _FOUND_BY_LISTING or not is_suspect:
                    yield finding_of(partition, problem.kind, problem.severity, problem.message, segment)
            yield from _log_differences(segment, files, task.logs)
    except RemoteResourceNotFound as e:
        if not is_suspect:
            yield finding_of(partition, _K.MISSING_OBJECT, Severity.ERROR, e.message, segment)
    except CorruptInputError as e:
        yield finding_of(partition, _K.CORRUPT_LOG, Severity.ERROR, e.message, segment)
    except _OF_ONE_OBJECT as e:
        require_store(remote, e)
        errors.append(e)
    for error in () if is_suspect else errors:
        yield finding_of(partition, _K.UNREADABLE_OBJECT, Severity.ERROR, error.message, segment)


def _log_differences(
    segment: RemoteLogSegmentMetadata, files: SegmentFiles, logs: Sequence[LocalLog]
) -> Iterator[Finding]:
    """Yield a finding for each log of the segment's lineage that has other bytes for the same segment."""
    for log in logs:
        if not Lineage(log.leader_epochs).contains(segment, log.log_end_offset):
            continue
        local = next((s for s in log.segments if s.base_offset == segment.start_offset), None)
        if local is None or local.next_base_offset != segment.end_offset + 1:
            continue
        at = _first_difference(files, local)
        if at is not None:
            message = f"it differs from {local.log} at or after byte {at}"
            yield finding_of(
                segment.topic_id_partition, _K.DIFFERS_FROM_LOG, Severity.ERROR, message, segment
            )


def _first_difference(files: SegmentFiles, local: LocalSegment) -> int | None:
    """Return the start of the first block of _COMPARE_BYTES that differs.

    None if no block differs, or if a broker has deleted the local segment meanwhile.
    """
    if not local.log.exists():
        return None
    with files.log.open("rb") as remote, local.log.open("rb") as own:
        position = 0
        while True:
            ours, theirs = own.read(_COMPARE_BYTES), remote.read(_COMPARE_BYTES)
            if ours != theirs:
                return position
            if not ours:
                return None
            position += len(ours)
