"""Divide the readable offsets of a partition into tasks, which other processes may carry out; find records
by keys.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, islice, pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import CorruptInputError, TierctlError
from tierctl.model import (
    EpochEntry,
    IndexType,
    LocalSegment,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from tierctl.read.partition_reader import AbortedSet, AbortedTransactions
from tierctl.read.readable_log import RangeReader, ReadableLog, ReportLost, SegmentRange
from tierctl.read.segment import (
    CHUNK_BYTES,
    Indexes,
    IndexFetcher,
    LocalSegmentFile,
    RemoteSegment,
    Report,
    UncachedIndexes,
)
from tierctl.state.lineage import Lineage
from tierctl.storage.remote_storage_manager import RemoteStorageManager, require_store
from tierctl.wire.batches.record_batch import RecordBatch
from tierctl.wire.batches.records import record_columns
from tierctl.wire.files.indexes import AbortedTxn

BULK_CHUNK_BYTES = 8 << 20


class Part(NamedTuple):
    """The offsets [first_offset, last_offset] of one segment, which take about `size_bytes`."""

    segment: RemoteLogSegmentMetadata | LocalSegment
    first_offset: int
    last_offset: int
    size_bytes: int

    def segment_range(self, remote: RemoteStorageManager) -> SegmentRange:
        """Return the part as a segment range that reads from `remote`."""
        segment = self.segment
        source = (
            LocalSegmentFile(segment) if isinstance(segment, LocalSegment) else RemoteSegment(segment, remote)
        )
        return SegmentRange(source, self.first_offset, self.last_offset)


class LostOffsets(NamedTuple):
    """Unreadable offsets [first_offset, last_offset], and the reason."""

    error: TierctlError
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampRange:
    """The requested timestamps [first_ms, last_ms], where None sets no limit.

    No record's timestamp is more than `late_ms` lower than that of an earlier record, or of a transaction's
    marker in an earlier segment; None means unknown, so that all records up to the end must be read. Readers
    may yield records outside; callers must filter them.
    """

    first_ms: int | None = None
    last_ms: int | None = None
    late_ms: int | None = None

    def is_over(self, seen_ms: int) -> bool:
        """Return whether no requested record can follow a record with timestamp `seen_ms`."""
        return self.last_ms is not None and self.late_ms is not None and seen_ms - self.late_ms > self.last_ms


ALL_TIMESTAMPS = TimestampRange()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """Ascending parts of one partition's log, without the records of the transactions in `aborted`.

    The offsets in `lost` are before the parts. A task is picklable and contains no credentials.
    """

    topic_id_partition: TopicIdPartition
    parts: tuple[Part, ...]
    lineage: tuple[EpochEntry, ...] = ()
    aborted: tuple[AbortedTxn, ...] = ()
    times: TimestampRange = ALL_TIMESTAMPS
    lost: tuple[LostOffsets, ...] = ()

    @property
    def first_offset(self) -> int:
        """First offset of the first part; the task must have parts."""
        return self.parts[0].first_offset

    @property
    def last_offset(self) -> int:
        """Last offset of the last part, inclusive."""
        return self.parts[-1].last_offset

    @property
    def size_bytes(self) -> int:
        """Approximate number of bytes to read."""
        return sum(part.size_bytes for part in self.parts)


def read_task(
    task: ReadTask,
    remote: RemoteStorageManager,
    *,
    report: Report,
    report_lost: ReportLost,
    from_offset: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `task` from `from_offset` on in offset order, in the columns of `record_columns`.

    Control records and aborted records are left out. Errors that make offsets unreadable go to `report_lost`,
    other errors of the data to `report`, and reading goes on. Memory is bounded by the bounds of
    `record_columns`. Raise RemoteStorageError if the store fails.
    """
    for lost in task.lost:
        if lost.last_offset >= from_offset:
            report_lost(*lost)
    indexes = Indexes(UncachedIndexes(remote), report)
    aborted = AbortedSet(task.aborted)
    time_filter = _TimestampFilter(
        task.times, lambda batch: batch.head.is_control or aborted.is_aborted(batch.head)
    )
    for part in task.parts:
        if part.last_offset < from_offset or time_filter.is_over:
            continue
        part = part._replace(first_offset=max(part.first_offset, from_offset))  # noqa: PLW2901
        reader = RangeReader(
            Lineage(task.lineage),
            indexes,
            report,
            report_lost=report_lost,
            chunk_bytes=_chunk_bytes(part, task.times),
        )
        segment_range = part.segment_range(remote)
        batches = reader.batches(
            segment_range, part.first_offset, part.last_offset, timestamp_ms=task.times.first_ms
        )
        for columns in record_columns(time_filter.filtered(batches), partial(reader.decoded, segment_range)):
            yield _within(columns, part)


def _chunk_bytes(part: Part, times: TimestampRange) -> int:
    """Return the size of reads: large if the whole part is read, small if a part of it may be skipped."""
    if times != ALL_TIMESTAMPS:
        return CHUNK_BYTES
    return min(max(part.size_bytes, CHUNK_BYTES), BULK_CHUNK_BYTES)


class _TimestampFilter:
    """Filters batches that may contain requested records."""

    def __init__(self, times: TimestampRange, is_hidden: Callable[[RecordBatch], bool]) -> None:
        self._times = times
        self._is_hidden = is_hidden
        self.is_over = False

    def filtered(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the batches to decode; stop, and set `is_over`, when no requested record can follow."""
        first_ms = self._times.first_ms
        for batch in batches:
            # The time of a transaction's marker is that of a broker, and may be far above those of records.
            if self._is_hidden(batch):
                continue
            if first_ms is None or batch.head.max_timestamp_ms >= first_ms:
                yield batch
            if self._times.is_over(batch.head.max_timestamp_ms):
                self.is_over = True
                return


def _within(columns: pa.RecordBatch, part: Part) -> pa.RecordBatch:
    """Return `columns` without the records outside the part, whose batches overlap its limits."""
    offsets = columns.column("offset")
    if not len(offsets):
        return columns
    if offsets[0].as_py() >= part.first_offset and offsets[-1].as_py() <= part.last_offset:
        return columns
    inside = pc.and_(pc.greater_equal(offsets, part.first_offset), pc.less_equal(offsets, part.last_offset))
    return columns.filter(inside)


SPLIT_BYTES = 128 << 20
"""Bytes per task: Spark's default for files."""

_TASKS_AT_ONCE_MAX = 256
_FETCHES_AT_ONCE = 16


def plan_read_tasks(
    log: ReadableLog,
    start_offset: int,
    end_offset: int,
    *,
    committed_only: tuple[IndexFetcher, Report] | None = None,
    times: TimestampRange = ALL_TIMESTAMPS,
    split_bytes: int = SPLIT_BYTES,
    report_lost: ReportLost | None = None,
) -> Iterator[ReadTask]:
    """Yield tasks that together read [start_offset, end_offset) of the current lineage, each offset once.

    A task reads about `split_bytes`: several small segments, or some offsets of a large one. Segments without
    records in `times` are left out. With `committed_only`, the transaction indexes of the segments, and of
    later segments until the end of every transaction is known, are fetched once for all tasks, as the tasks
    are requested; damage in them is reported, errors because of which records are left out to `report_lost`,
    if it is given.
    """
    tasks = _tasks(log, start_offset, end_offset, times, split_bytes)
    if committed_only is None:
        return tasks
    return _without_aborted(log, tasks, *committed_only, report_lost)


def _tasks(
    log: ReadableLog, start: int, end: int, times: TimestampRange, split_bytes: int
) -> Iterator[ReadTask]:
    builder = _TaskBuilder(log, times)
    expected, seen_ms = start, -1
    for segment_range in log.segment_ranges(start):
        if expected >= end or times.is_over(seen_ms):
            break
        if segment_range.from_offset > expected:
            yield from builder.flushed()
            builder.add_lost(expected, min(segment_range.from_offset, end))
        expected = segment_range.to_offset + 1
        largest = segment_range.max_timestamp_ms
        if times.first_ms is not None and largest is not None and largest < times.first_ms:
            continue
        for part in _parts(
            segment_range,
            max(segment_range.from_offset, start),
            min(segment_range.to_offset, end - 1),
            split_bytes,
        ):
            if builder.size_bytes + part.size_bytes > split_bytes:
                yield from builder.flushed()
            builder.add(part)
        if largest is not None and _is_whole(segment_range):
            seen_ms = max(seen_ms, largest)
    if expected < end and not times.is_over(seen_ms):
        yield from builder.flushed()
        builder.add_lost(expected, end)
    yield from builder.flushed()


@dataclass(slots=True)
class _TaskBuilder:
    """Collects the parts of the next task."""

    log: ReadableLog
    times: TimestampRange
    parts: list[Part] = field(default_factory=list)
    lost: list[LostOffsets] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, part: Part) -> None:
        self.parts.append(part)
        self.size_bytes += part.size_bytes

    def add_lost(self, first: int, end: int) -> None:
        self.lost.append(LostOffsets(self.log.missing_offsets(first, end), first, end - 1))

    def flushed(self) -> Iterator[ReadTask]:
        """Yield the task if it has parts or lost offsets, and start the next task."""
        if self.parts or self.lost:
            yield ReadTask(
                topic_id_partition=self.log.topic_id_partition,
                parts=tuple(self.parts),
                lineage=self._lineage(),
                times=self.times,
                lost=tuple(self.lost),
            )
        self.parts, self.lost, self.size_bytes = [], [], 0

    def _lineage(self) -> tuple[EpochEntry, ...]:
        if not self.parts:
            return ()
        return self.log.lineage.entries_in_range(self.parts[0].first_offset, self.parts[-1].last_offset + 1)


def _is_whole(segment_range: SegmentRange) -> bool:
    """Return whether the range contains all offsets of its segment, so that its metadata apply."""
    segment = segment_range.segment
    return segment_range.from_offset <= segment.start_offset and segment_range.to_offset == segment.end_offset


def _parts(segment_range: SegmentRange, first: int, last: int, split_bytes: int) -> Iterator[Part]:
    """Yield the offsets from `first` to `last` in parts of `split_bytes`, assuming records of equal size."""
    segment = segment_range.segment
    facts = segment.metadata if isinstance(segment, RemoteSegment) else segment.segment
    end_offset = last if segment.end_offset is None else segment.end_offset
    per_offset = segment.size_bytes / max(end_offset - segment.start_offset + 1, 1)
    offsets = last - first + 1
    count = min(max(round(per_offset * offsets / split_bytes), 1), max(offsets, 1))
    borders = [first + offsets * number // count for number in range(count + 1)]
    for begin, end in pairwise(borders):
        if begin < end:
            yield Part(facts, begin, end - 1, round(per_offset * (end - begin)))


def _without_aborted(
    log: ReadableLog,
    tasks: Iterator[ReadTask],
    fetcher: IndexFetcher,
    report: Report,
    report_lost: ReportLost | None,
) -> Iterator[ReadTask]:
    """Yield the tasks with the aborted transactions among their offsets."""
    transactions: AbortedTransactions | None = None
    prefetcher = _PrefetchingFetcher(fetcher)
    expected = -1
    for run in _runs(tasks):
        if not run[0].parts:
            yield from run
            continue
        prefetcher.fetch(part.segment for task in run for part in task.parts)
        first, last = run[0].first_offset, run[-1].last_offset
        if transactions is None or first != expected:
            ranges, indexes = log.segment_ranges(first), Indexes(prefetcher, report)
            transactions = AbortedTransactions(ranges, indexes, report, report_lost)
        aborted = _TransactionsByOffset(transactions.between(first, last))
        for task in run:
            yield replace(task, aborted=aborted.overlapping(task.first_offset, task.last_offset))
        expected = last + 1


def _runs(tasks: Iterator[ReadTask]) -> Iterator[list[ReadTask]]:
    """Yield groups of tasks with adjacent offsets, in growing numbers."""
    size = 1
    while group := list(islice(tasks, size)):
        size = min(4 * size, _TASKS_AT_ONCE_MAX)
        run = group[:1]
        for task in group[1:]:
            if not (run[-1].parts and task.parts and task.first_offset == run[-1].last_offset + 1):
                yield run
                run = []
            run.append(task)
        yield run


class _TransactionsByOffset:
    """Looks up aborted transactions, which are in the order of their markers, by ranges of offsets."""

    def __init__(self, found: Sequence[AbortedTxn]) -> None:
        self._found = found
        self._lasts = [txn.last_offset for txn in found]
        backwards = accumulate((txn.first_offset for txn in reversed(found)), min)
        # `_lowest[i]` is the lowest first offset from `i` on: above a range's end, no more can overlap.
        self._lowest = list(backwards)[::-1]

    def overlapping(self, first: int, last: int) -> tuple[AbortedTxn, ...]:
        """Return the transactions with an offset in [first, last]."""
        begin = bisect_left(self._lasts, first)
        end = bisect_right(self._lowest, last, begin)
        return tuple(txn for txn in self._found[begin:end] if txn.first_offset <= last)


class _PrefetchingFetcher:
    """IndexFetcher that fetches transaction indexes in advance, several at a time."""

    def __init__(self, fetcher: IndexFetcher) -> None:
        self._fetcher = fetcher
        self._found: dict[Uuid, bytes | TierctlError] = {}
        self._taken: set[Uuid] = set()

    def fetch(self, segments: Iterable[RemoteLogSegmentMetadata | LocalSegment]) -> None:
        """Fetch the transaction indexes that were not fetched before."""
        of_tier = (each for each in segments if isinstance(each, RemoteLogSegmentMetadata))
        wanted = {each.segment_id: each for each in of_tier if not each.txn_index_empty}
        unknown = {key: each for key, each in wanted.items() if not self._has(key)}
        with ThreadPoolExecutor(_FETCHES_AT_ONCE) as pool:
            self._found |= zip(unknown, pool.map(self._tried, unknown.values()), strict=True)

    def _has(self, segment_id: Uuid) -> bool:
        return segment_id in self._taken or segment_id in self._found

    def _tried(self, segment: RemoteLogSegmentMetadata) -> bytes | TierctlError:
        try:
            return self._fetcher.get(segment, IndexType.TRANSACTION)
        except TierctlError as e:
            return e

    def get(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Implement `IndexFetcher.get`."""
        if index_type is not IndexType.TRANSACTION:
            return self._fetcher.get(metadata, index_type)
        self._taken.add(metadata.segment_id)
        found = self._found.pop(metadata.segment_id, None)
        if found is None:
            return self._fetcher.get(metadata, index_type)
        if isinstance(found, TierctlError):
            raise found
        return found


# Find the records of given keys in whole segments, whatever their state and transactions are.
#
# Keys are compared by their SHA-256, so that a search needs no personal data: only their digests.

_LAST_OFFSET = 2**63 - 1


class KeyRecord(NamedTuple):
    """A record with one of the keys: its offset, its timestamp, and the SHA-256 of the key in hex."""

    offset: int
    timestamp_ms: int
    key_sha256: str


@dataclass(frozen=True, slots=True)
class SearchedSegment:
    """The result of the search of a segment; `records` counts all compared records.

    If there is an error, the records that it names were not compared.
    """

    found: tuple[KeyRecord, ...]
    records: int
    errors: tuple[TierctlError, ...]


def search_segment(
    remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata | LocalSegment, digests: frozenset[bytes]
) -> SearchedSegment:
    """Search every record of a segment, also those of aborted transactions and outside of its offsets.

    `digests` are those of the keys. Damage is added to the errors, and the search continues after it. Raise
    RemoteStorageError or AuthenticationError if the store does not respond any more.
    """
    found: list[KeyRecord] = []
    errors: list[TierctlError] = []
    count = 0
    try:
        for columns in _columns(segment, remote, errors):
            count += len(columns)
            found += matching_records(columns, digests)
    except CorruptInputError as e:
        errors.append(e)
    except TierctlError as e:
        require_store(remote, e)
        errors.append(e)
    return SearchedSegment(tuple(found), count, tuple(errors))


def _columns(
    segment: RemoteLogSegmentMetadata | LocalSegment,
    remote: RemoteStorageManager,
    errors: list[TierctlError],
) -> Iterator[pa.RecordBatch]:
    # A segment that leader epochs or transactions hide from consumers is searched like all others.
    reader = RangeReader(
        Lineage(()),
        Indexes(UncachedIndexes(remote), errors.append),
        errors.append,
        chunk_bytes=BULK_CHUNK_BYTES,
    )
    start, end = _offsets(segment)
    whole = Part(segment, start, end, 0).segment_range(remote)
    batches = reader.batches(whole, 0, _LAST_OFFSET)
    records = (batch for batch in batches if not batch.head.is_control)
    yield from record_columns(records, partial(reader.decoded, whole))


def _offsets(segment: RemoteLogSegmentMetadata | LocalSegment) -> tuple[int, int]:
    if isinstance(segment, RemoteLogSegmentMetadata):
        return segment.start_offset, segment.end_offset
    following = segment.next_base_offset
    return segment.base_offset, _LAST_OFFSET if following is None else following - 1


def matching_records(columns: pa.RecordBatch, digests: frozenset[bytes]) -> Iterable[KeyRecord]:
    """Return the records with one of the keys; each distinct key is hashed once.

    `columns` are those of `wire.batches.records`, `digests` the SHA-256 of the keys.
    """
    keys = columns.column("key").dictionary_encode()
    chosen = {
        number: digest.hex()
        for number, key in enumerate(keys.dictionary.to_pylist())
        if key is not None and (digest := hashlib.sha256(key).digest()) in digests
    }
    if not chosen:
        return
    offsets, times = columns.column("offset"), columns.column("timestamp_ms")
    for row, number in enumerate(keys.indices.to_pylist()):
        if number in chosen:
            yield KeyRecord(offsets[row].as_py(), times[row].as_py(), chosen[number])
