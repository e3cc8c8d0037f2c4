"""Divide what `verify` reads into tasks; choose the segments that --deep, --sample and --budget read."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import ceil
from pathlib import Path
from typing import BinaryIO, NamedTuple, assert_never

import numpy as np

from tierctl.checks.bytes import check_segment_bytes
from tierctl.checks.findings import Finding, FindingKind, finding_of
from tierctl.checks.metadata import PartitionKey
from tierctl.checks.segments import Retention, check_partition, facts_of_leader
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
    TopicIdPartition,
    Uuid,
)
from tierctl.model.choices import COPY_LIMIT_MS, Severity
from tierctl.model.local import ClusterLog
from tierctl.read.partition_reader import ReadablePartition
from tierctl.read.segment import Report, UncachedIndexes
from tierctl.state.lineage import Lineage
from tierctl.state.table_arrays import FINISHED
from tierctl.state.tier_state import TierState
from tierctl.storage.index_cache import SegmentFiles, spooled
from tierctl.storage.remote_storage_manager import RemoteStorageManager, require_store
from tierctl.wire.arrays import Int64s

_K = FindingKind
_COMPARE_BYTES = 1 << 20
_OF_ONE_OBJECT = (RemoteStorageError, AuthenticationError, SafetyRefusal)
"""Errors of reading one object that do not concern other objects, as long as the store responds."""
_FOUND_BY_LISTING = frozenset({_K.SIZE_DIFFERS, _K.MISSING_OBJECT})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """Check a partition's offsets and segments against its lineage, and its retention by `config`.

    The lineage is that of the `leader`, if it is known. `reads_store` allows it to be read from a
    leader-epoch index in the store. Errors of that index are findings if `reports_indexes`; otherwise a
    SegmentsTask checks all bytes of the indexes. `is_sound` is as in `check_partition`.
    """

    readable: ReadablePartition
    now_ms: int
    copy_limit_ms: int = COPY_LIMIT_MS
    config: TopicConfig | None = None
    leader: ClusterLog | None = None
    reads_store: bool = False
    reports_indexes: bool = True
    is_sound: bool = False


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
    task: PartitionTask,
    *,
    segments_per_task: int,
    suspects: Sequence[Uuid] | set[Uuid],
    chosen: Collection[Uuid] | None = None,
) -> Iterator[Task]:
    """Yield a partition's tasks in the order of their findings; no bytes if `segments_per_task` is 0.

    The finished segments in `chosen` are read, or all of them if it is None.
    """
    readable, is_deep = task.readable, task.reads_store and segments_per_task > 0
    yield replace(task, reports_indexes=not is_deep)
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
    leader = task.leader
    yield from check_partition(
        task.readable,
        fetcher,
        errors.append,
        now_ms=task.now_ms,
        facts=None if leader is None else facts_of_leader(task.readable.cache, leader),
        retention=Retention(task.now_ms, task.config),
        copy_limit_ms=task.copy_limit_ms,
        is_sound=task.is_sound,
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


_Key = tuple[Uuid, int]
_NOT_READ_KINDS = frozenset(
    {FindingKind.UNREADABLE_OBJECT, FindingKind.MISSING_OBJECT, FindingKind.CORRUPT_LOG}
)
"""A damaged log counts as not read: its next bytes may not have been found."""


class StoredSegment(NamedTuple):
    """A finished segment: the size of its log by the metadata, and of all its objects in the store."""

    partition: TopicIdPartition
    segment_id: Uuid
    log_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The segments of a sample that may be read; `sampled` counts also those that the budget excluded."""

    segment_ids: Collection[Uuid]
    sampled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A random sample of segments: `percent` of them, as far as their objects fit into `budget_bytes`.

    The order depends only on `seed`, the segment ids and `was_read`: segments that other runs read in the
    last 30 days come last.
    """

    percent: float
    seed: int
    budget_bytes: int | None = None
    was_read: Callable[[_Key, Uuid], bool] = lambda _key, _segment_id: False

    def choose(self, segments: Iterable[StoredSegment]) -> Chosen:
        """Return the segments to read; the first one that exceeds the budget ends the choice."""
        ordered = sorted(segments, key=self._place)
        # Rounded before `ceil`, because 7 % of 100 segments is 7.000000000000001 in floating point.
        wanted = ordered[: ceil(round(len(ordered) * self.percent / 100, 6))]
        taken: set[Uuid] = set()
        left_bytes = self.budget_bytes
        for each in wanted:
            size_bytes = max(each.stored_bytes, each.log_bytes)
            if left_bytes is not None:
                if size_bytes > left_bytes:
                    break
                left_bytes -= size_bytes
            taken.add(each.segment_id)
        return Chosen(segment_ids=taken, sampled=len(wanted))

    def _place(self, segment: StoredSegment) -> tuple[bool, bytes]:
        content = self.seed.to_bytes(8, "big") + segment.segment_id.bytes
        recent = self.was_read(segment.partition.key, segment.segment_id)
        return recent, blake2b(content, digest_size=16).digest()


@dataclass(slots=True, kw_only=True)
class DeepReads:
    """The segments that one run of --deep reads; numbers are final once all findings are consumed.

    Bytes are those of logs, as stated in the metadata. `was_read` returns whether an earlier run read a
    segment in the last 30 days; None without a state directory, which stores that.
    """

    sample: Sample | None = None
    was_read: Callable[[_Key, Uuid], bool] | None = None
    chosen: Chosen | None = None
    """The segments to read; None for all."""
    segments: int = 0
    """Finished segments of the selection."""
    size_bytes: int = 0
    planned_bytes: int = 0
    """Bytes of the segments that this run reads if nothing fails."""
    segments_read: int = 0
    bytes_read: int = 0
    recent_bytes: int = 0
    """Bytes of segments that were read in the last 30 days, by this run or an earlier one."""
    read: dict[_Key, set[Uuid]] = field(default_factory=dict)
    """Segments whose log and indexes were read to their ends in this run, by partition."""

    def begin(self, segments: Iterable[StoredSegment]) -> None:
        """Choose among the finished `segments` of the selection."""
        found = list(segments)
        self.segments, self.size_bytes = len(found), sum(each.log_bytes for each in found)
        if self.was_read is not None:
            self.recent_bytes = sum(
                each.log_bytes for each in found if self.was_read(each.partition.key, each.segment_id)
            )
        self.planned_bytes = self.size_bytes
        if self.sample is not None:
            self.chosen = self.sample.choose(found)
            taken = self.chosen.segment_ids
            self.planned_bytes = sum(each.log_bytes for each in found if each.segment_id in taken)

    def add(self, task: SegmentsTask, findings: Iterable[Finding]) -> None:
        """Count the segments of `task`, but for those with objects that could not be read."""
        failed = {finding.segment_id for finding in findings if finding.check in _NOT_READ_KINDS}
        for segment in task.segments:
            segment_id = segment.segment_id
            if segment_id in failed or segment_id in task.suspects:
                continue
            key, size_bytes = segment.topic_id_partition.key, segment.segment_size_in_bytes
            self.read.setdefault(key, set()).add(segment_id)
            self.segments_read += 1
            self.bytes_read += size_bytes
            if self.was_read is not None and not self.was_read(key, segment_id):
                self.recent_bytes += size_bytes

    @property
    def over_budget(self) -> int:
        """Number of sampled segments that were left out because the budget was used up."""
        return 0 if self.chosen is None else self.chosen.sampled - len(self.chosen.segment_ids)

    def share(self, size_bytes: int) -> str:
        """Return which part of all bytes `size_bytes` are; rounded down, so that 100% means all."""
        if not self.size_bytes:
            return "0%"
        return f"{size_bytes * 1000 // self.size_bytes / 10:g}%"

    @property
    def recent_text(self) -> str:
        """Return a text with the share of bytes that was read in the last 30 days, or that it is unknown."""
        if self.was_read is None:
            return "the share of the last 30 days is not known without --state-dir"
        return f"{self.share(self.recent_bytes)} in the last 30 days"

    @property
    def text(self) -> str:
        """Return the amount that was read: `read 4 of 43 segments, 9.1% of the bytes (seed 7)`."""
        share = self.share(self.bytes_read)
        text = f"read {self.segments_read} of {self.segments} segments, {share} of the bytes"
        if self.sample is None and self.was_read is None:
            return text
        text += f" (seed {self.sample.seed})" if self.sample is not None else ""
        text += f", {self.recent_text}"
        return f"{text}; --budget ended the run early" if self.over_budget else text

    def not_read(self) -> Finding | None:
        """Return the finding about segments that a sample did not read; None if all were read."""
        if self.sample is None or self.segments_read >= self.segments:
            return None
        message = (
            f"{self.segments - self.segments_read} of {self.segments} segments were not read in this run: it "
            f"read {self.bytes_read} of {self.size_bytes} bytes ({self.share(self.bytes_read)}, seed "
            f"{self.sample.seed}); {self.recent_text}"
        )
        if self.over_budget:
            message += (
                f"; --budget {self.sample.budget_bytes} bytes ended the run early, with {self.over_budget} "
                f"of {self.chosen.sampled if self.chosen else 0} sampled segments left"
            )
        return Finding(
            check=FindingKind.NOT_READ,
            severity=Severity.INFO if self.segments_read else Severity.WARNING,
            topic=None,
            topic_id=None,
            partition=None,
            found=message,
        )


def stored_segments(
    state: TierState,
    totals_by_row: Callable[[PartitionKey], Int64s],
    is_read: Callable[[TopicIdPartition], bool],
) -> Iterator[StoredSegment]:
    """Yield the finished segments, and their sizes, of the partitions for which `is_read` is true.

    `totals_by_row` is that of an `Audit` of `state`, which no event may have changed since.
    """
    for part in state:
        partition = part.topic_id_partition
        if not is_read(partition):
            continue
        live = part.segments.columns
        rows = np.flatnonzero(live.states == FINISHED)
        logs, totals = live.column("size")[rows], totals_by_row(partition.key)[rows]
        ids = live.ids
        for row, log_bytes, total_bytes in zip(rows.tolist(), logs.tolist(), totals.tolist(), strict=True):
            yield StoredSegment(partition, Uuid.from_bytes(ids[row]), log_bytes, total_bytes)
