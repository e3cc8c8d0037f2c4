"""Divide what `verify` reads into tasks; choose the segments that --deep, --sample and --budget read."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import ceil
from pathlib import Path
from typing import BinaryIO, Self, assert_never

import numpy as np

from tierctl.checks.bytes import check_segment_bytes
from tierctl.checks.findings import Finding, FindingKind, finding_of, kind_of
from tierctl.checks.segments import Retention, check_partition
from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    RemoteResourceNotFound,
    RemoteStorageError,
    SafetyRefusal,
    TierctlError,
)
from tierctl.files import FileBytes, exists
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
from tierctl.model.local import ClusterLog, SegmentFiles
from tierctl.read.partition_reader import PartitionSet, ReadablePartition, illegal_name_error
from tierctl.read.segment import Report, UncachedIndexes
from tierctl.state.lineage import Lineage
from tierctl.state.queries import LiveSegments
from tierctl.state.table_arrays import FINISHED
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.storage.index_cache import spooled
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
    suspects: Collection[Uuid],
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
    suspects: Collection[Uuid],
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
        leader=task.leader,
        retention=Retention(task.now_ms, task.config),
        copy_limit_ms=task.copy_limit_ms,
        is_sound=task.is_sound,
    )
    for error in errors if task.reports_indexes else ():
        partition = task.readable.topic_id_partition
        kind = _K.UNREADABLE_OBJECT
        if isinstance(error, CorruptInputError):
            kind = kind_of(error, _K.CORRUPT_INDEX)
        yield finding_of(partition, kind, Severity.ERROR, error.message)


@dataclass(frozen=True, slots=True)
class _Reader:
    """SegmentReader that reports an index that can't be read, and then treats it as missing.

    `unread` has the types of these indexes.
    """

    remote: RemoteStorageManager
    report: Report
    unread: set[IndexType] = field(default_factory=set)

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
            self.unread.add(index_type)
            raise RemoteResourceNotFound(e.message) from e


def _segment_findings(
    segment: RemoteLogSegmentMetadata, task: SegmentsTask, remote: RemoteStorageManager, spool: Path
) -> Iterator[Finding]:
    """Yield the findings about one segment's bytes, except findings that the listing already reported."""
    partition = segment.topic_id_partition
    is_suspect = segment.segment_id in task.suspects
    errors: list[TierctlError] = []
    reader = _Reader(remote, errors.append)
    try:
        with spooled(reader, segment, spool) as files, FileBytes(files.log) as log:
            indexes = {kind: data for kind, data in files.index_bytes().items() if kind not in reader.unread}
            for problem in check_segment_bytes(segment, log, indexes):
                if problem.kind not in _FOUND_BY_LISTING or not is_suspect:
                    yield finding_of(partition, problem.kind, problem.severity, problem.message, segment)
            yield from _log_differences(segment, files, task.logs)
    except RemoteResourceNotFound as e:
        if not is_suspect:
            yield finding_of(partition, _K.MISSING_OBJECT, Severity.ERROR, e.message, segment)
    except CorruptInputError as e:
        found = e.message if e.hint is None else f"{e.message}: {e.hint}"
        yield finding_of(partition, kind_of(e, _K.CORRUPT_LOG), Severity.ERROR, found, segment)
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
    if not exists(local.log):
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
_NOT_READ_KINDS = frozenset({_K.UNREADABLE_OBJECT, _K.MISSING_OBJECT, _K.CORRUPT_LOG, _K.NOT_UNDERSTOOD})
"""A damaged log counts as not read: its next bytes may not have been found."""


Candidate = tuple[bytes, int, int]
"""The place of a finished segment, the size of all its objects in the store, and that of its log."""
_BUCKET_BYTES, _BUCKET_SHIFT = 3, 4
"""A place begins with 17 random bits; by the first 13 segments are counted, some thousands of 10 million."""


def _bucket(place: bytes) -> int:
    return int.from_bytes(place[:_BUCKET_BYTES], "big") >> _BUCKET_SHIFT


@dataclass(frozen=True, slots=True)
class Readable:
    """The partitions of `selection` whose objects may be read: no illegal name may be part of a key."""

    selection: PartitionSet

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return partition in self.selection and illegal_name_error(partition) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A random sample of segments: `percent` of them, as far as their objects fit into `budget_bytes`.

    The order depends only on `seed`, the segment ids and `was_read`: segments that other runs read in the
    last 30 days come last.
    """

    percent: float
    seed: int
    budget_bytes: int | None = None
    was_read: Mapping[_Key, Collection[Uuid]] = field(default_factory=dict)

    def place(self, key: _Key, segment_id: Uuid) -> bytes:
        """Return the place of a segment in the order."""
        content = self.seed.to_bytes(8, "big") + segment_id.bytes
        recent = segment_id in self.was_read.get(key, ())
        return bytes([recent]) + blake2b(content, digest_size=16).digest()


@dataclass(slots=True)
class FinishedSums:
    """The number of finished segments and the size of their logs; `recent_bytes` were read in 30 days.

    `buckets` has the same numbers by the first bits of the places in a sample.
    """

    segments: int = 0
    size_bytes: int = 0
    recent_bytes: int = 0
    buckets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, segments: int, size_bytes: int, recent_bytes: int = 0) -> None:
        """Add segments of any places."""
        self.segments += segments
        self.size_bytes += size_bytes
        self.recent_bytes += recent_bytes

    def add_to_bucket(self, bucket: int, segments: int, size_bytes: int) -> None:
        """Count segments in a bucket, which `add` counts, too."""
        before = self.buckets.get(bucket, (0, 0))
        self.buckets[bucket] = before[0] + segments, before[1] + size_bytes

    def merge(self, other: Self) -> None:
        """Add the segments of `other`."""
        self.add(other.segments, other.size_bytes, other.recent_bytes)
        for bucket, sums in other.buckets.items():
            self.add_to_bucket(bucket, *sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumFinished:
    """The question for `TierState.map_parts` how many segments a run may read, and of which size."""

    partitions: PartitionSet
    sample: Sample | None
    was_read: Mapping[_Key, Collection[Uuid]]

    def __call__(self, state: TierState) -> Iterator[FinishedSums]:
        """Yield the sums of the finished segments of `state`."""
        found = FinishedSums()
        for part in state.by_metadata_partition():
            if part.topic_id_partition in self.partitions:
                self._add(part, found)
        yield found

    def _add(self, part: PartitionState, found: FinishedSums) -> None:
        key, finished = part.topic_id_partition.key, finished_segments(part)
        sizes = finished.column("size").astype(np.int64)
        found.add(len(finished), int(sizes.sum()))
        read = self.was_read.get(key, ())
        if self.sample is None and not read:
            return
        for raw, log_bytes in zip(finished.ids, sizes.tolist(), strict=True):
            segment_id = Uuid.from_bytes(raw)
            found.recent_bytes += log_bytes if segment_id in read else 0
            if self.sample is not None:
                found.add_to_bucket(_bucket(self.sample.place(key, segment_id)), 1, log_bytes)


def finished_segments(part: PartitionState) -> LiveSegments:
    """Return the finished segments of a partition, in the order of its columns."""
    live = part.segments.columns
    return LiveSegments(live.table, live.rows[live.states == FINISHED])


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The segments among which the last one of a sample is: those of the buckets `first` to `last`."""

    partitions: PartitionSet
    sample: Sample
    first: int
    last: int

    def of(self, part: PartitionState, totals: Int64s) -> list[Candidate]:
        """Return the candidates of a partition; `totals` are the bytes that the store has, by row."""
        if part.topic_id_partition not in self.partitions:
            return []
        finished, key = finished_segments(part), part.topic_id_partition.key
        stored = totals[part.segments.columns.states == FINISHED].tolist()
        logs = finished.column("size").tolist()
        places = (self.sample.place(key, Uuid.from_bytes(raw)) for raw in finished.ids)
        return [
            (place, stored_bytes, log_bytes)
            for place, stored_bytes, log_bytes in zip(places, stored, logs, strict=True)
            if self.first <= _bucket(place) <= self.last
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The segments of a sample that a run may read: those up to the place `last`.

    They were finished before the metadata offsets in `read`: later ones are not in the sample.
    """

    sample: Sample
    last: bytes
    read: Mapping[int, int]

    def of(self, part: PartitionState) -> frozenset[Uuid]:
        """Return the chosen segments of a partition."""
        finished, key = finished_segments(part), part.topic_id_partition.key
        is_known = finished.column("offset") < self.read.get(part.metadata_partition, 0)
        ids = (Uuid.from_bytes(raw) for raw in LiveSegments(finished.table, finished.rows[is_known]).ids)
        return frozenset(each for each in ids if self.sample.place(key, each) <= self.last)


@dataclass(slots=True)
class ReadCounts:
    """The segments whose bytes were read to their ends, and the size of their logs.

    `recent_bytes` does not count segments that an earlier run read. With `keeps`, `ids` has the segments by
    partition.
    """

    was_read: Mapping[_Key, Collection[Uuid]]
    keeps: bool
    segments: int = 0
    size_bytes: int = 0
    recent_bytes: int = 0
    ids: dict[_Key, set[Uuid]] = field(default_factory=dict)

    def add(self, task: SegmentsTask, findings: Iterable[Finding]) -> None:
        """Count the segments of `task`, but for those with objects that could not be read."""
        failed = {finding.segment_id for finding in findings if finding.check in _NOT_READ_KINDS}
        for segment in task.segments:
            segment_id = segment.segment_id
            if segment_id in failed or segment_id in task.suspects:
                continue
            key, size_bytes = segment.topic_id_partition.key, segment.segment_size_in_bytes
            if self.keeps:
                self.ids.setdefault(key, set()).add(segment_id)
            self.segments += 1
            self.size_bytes += size_bytes
            if segment_id not in self.was_read.get(key, ()):
                self.recent_bytes += size_bytes

    def answer(self) -> Self:
        """Return the counts without what only `add` needs: executors return them."""
        return replace(self, was_read={})

    def merge(self, other: Self) -> None:
        """Add what another process read."""
        self.segments += other.segments
        self.size_bytes += other.size_bytes
        self.recent_bytes += other.recent_bytes
        for key, ids in other.ids.items():
            self.ids.setdefault(key, set()).update(ids)


@dataclass(slots=True, kw_only=True)
class DeepReads:
    """The segments that one run of --deep reads; numbers are final once all findings are consumed.

    Bytes are those of logs, as stated in the metadata. `was_read` has the segments that earlier runs read in
    the last 30 days; None without a state directory, which stores that.
    """

    sample: Sample | None = None
    was_read: Mapping[_Key, Collection[Uuid]] | None = None
    chosen: Chosen | None = None
    """The segments to read; None for all."""
    sampled: int = 0
    """Segments of the sample, also those that the budget excluded."""
    over_budget: int = 0
    """Sampled segments that were left out because the budget was used up."""
    planned_bytes: int = 0
    """Bytes of the segments that this run reads if nothing fails."""
    known: FinishedSums = field(default_factory=FinishedSums)
    """The finished segments of the selection."""
    done: ReadCounts = field(init=False)

    def __post_init__(self) -> None:
        self.done = ReadCounts(self.was_read or {}, keeps=self.was_read is not None)

    def begin(self, state: TierState, selection: PartitionSet) -> Candidates | None:
        """Count the finished segments of the selection; return the candidates for the end of the sample."""
        partitions = Readable(selection)
        question = SumFinished(partitions=partitions, sample=self.sample, was_read=self.was_read or {})
        for each in state.map_parts(question):
            self.known.merge(each)
        self.planned_bytes = self.known.size_bytes
        if self.sample is None:
            return None
        # Rounded before `ceil`, because 7 % of 100 segments is 7.000000000000001 in floating point.
        self.sampled = ceil(round(self.known.segments * self.sample.percent / 100, 6))
        budget_bytes = self.sample.budget_bytes
        last = segments = size_bytes = 0
        for bucket, sums in sorted(self.known.buckets.items()):
            last, segments, size_bytes = bucket, segments + sums[0], size_bytes + sums[1]
            if segments >= self.sampled or (budget_bytes is not None and size_bytes > budget_bytes):
                break
        # With its indexes a segment has more bytes than in the metadata, so that the budget may end before.
        first = last if budget_bytes is None else 0
        return Candidates(partitions=partitions, sample=self.sample, first=first, last=last)

    def choose(self, among: Candidates, found: Iterable[Candidate], read: Mapping[int, int]) -> None:
        """Choose the segments to read; the first one that exceeds the budget ends the choice.

        `found` are the segments of `among`, whose metadata have the events before `read`.
        """
        before = [sums for bucket, sums in self.known.buckets.items() if bucket < among.first]
        count, self.planned_bytes = (sum(each[at] for each in before) for at in (0, 1))
        last, left_bytes = b"", among.sample.budget_bytes
        for place, stored_bytes, log_bytes in sorted(found)[: self.sampled - count]:
            size_bytes = max(stored_bytes, log_bytes)
            if left_bytes is not None:
                if size_bytes > left_bytes:
                    break
                left_bytes -= size_bytes
            last, count, self.planned_bytes = place, count + 1, self.planned_bytes + log_bytes
        self.over_budget = self.sampled - count
        self.chosen = Chosen(sample=among.sample, last=last, read=read)

    @property
    def recent_bytes(self) -> int:
        """Bytes of segments that were read in the last 30 days, by this run or an earlier one."""
        return self.known.recent_bytes + self.done.recent_bytes

    def share(self, size_bytes: int) -> str:
        """Return which part of all bytes `size_bytes` are; rounded down, so that 100% means all."""
        if not self.known.size_bytes:
            return "0%"
        return f"{size_bytes * 1000 // self.known.size_bytes / 10:g}%"

    @property
    def recent_text(self) -> str:
        """Return a text with the share of bytes that was read in the last 30 days, or that it is unknown."""
        if self.was_read is None:
            return "the share of the last 30 days is not known without --state-dir"
        return f"{self.share(self.recent_bytes)} in the last 30 days"

    @property
    def text(self) -> str:
        """Return the amount that was read: `read 4 of 43 segments, 9.1% of the bytes (seed 7)`."""
        share = self.share(self.done.size_bytes)
        text = f"read {self.done.segments} of {self.known.segments} segments, {share} of the bytes"
        if self.sample is None and self.was_read is None:
            return text
        text += f" (seed {self.sample.seed})" if self.sample is not None else ""
        text += f", {self.recent_text}"
        return f"{text}; --budget ended the run early" if self.over_budget else text

    def not_read(self) -> Finding | None:
        """Return the finding about segments that a sample did not read; None if all were read."""
        known, done = self.known, self.done
        if self.sample is None or done.segments >= known.segments:
            return None
        message = (
            f"{known.segments - done.segments} of {known.segments} segments were not read in this run: it "
            f"read {done.size_bytes} of {known.size_bytes} bytes ({self.share(done.size_bytes)}, seed "
            f"{self.sample.seed}); {self.recent_text}"
        )
        if self.over_budget:
            message += (
                f"; --budget {self.sample.budget_bytes} bytes ended the run early, with {self.over_budget} "
                f"of {self.sampled} sampled segments left"
            )
        return Finding(
            check=FindingKind.NOT_READ,
            severity=Severity.INFO if done.segments else Severity.WARNING,
            found=message,
        )
