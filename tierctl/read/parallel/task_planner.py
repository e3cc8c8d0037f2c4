"""Divide the readable offsets of a partition into tasks; only indexes are read from the tier."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice, pairwise

from tierctl.errors import TierctlError
from tierctl.model import EpochEntry, IndexType, LocalSegment, RemoteLogSegmentMetadata, Uuid
from tierctl.read.aborted_transactions import AbortedTransactions
from tierctl.read.index_lookup import Indexes, IndexFetcher, Report
from tierctl.read.parallel.task import ALL_TIMESTAMPS, LostOffsets, Part, ReadTask, TimestampRange
from tierctl.read.readable_log import ReadableLog, SegmentRange
from tierctl.read.segment_bytes import RemoteSegment
from tierctl.wire.files.indexes import AbortedTxn

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
) -> Iterator[ReadTask]:
    """Yield tasks that together read [start_offset, end_offset) of the current lineage, each offset once.

    A task reads about `split_bytes`: several small segments, or some offsets of a large one. Segments without
    records in `times` are left out. With `committed_only`, the transaction indexes of the segments, and of
    later segments until the end of every transaction is known, are fetched once for all tasks, as the tasks
    are requested; damage in them is reported.
    """
    tasks = _tasks(log, start_offset, end_offset, times, split_bytes)
    if committed_only is None:
        return tasks
    return _without_aborted(log, tasks, *committed_only)


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
    log: ReadableLog, tasks: Iterator[ReadTask], fetcher: IndexFetcher, report: Report
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
            transactions = AbortedTransactions(log.segment_ranges(first), Indexes(prefetcher, report), report)
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
