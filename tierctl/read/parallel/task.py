"""A task that reads some offsets of a partition, with all the facts that another process needs for it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import TierctlError
from tierctl.model import EpochEntry, LocalSegment, RemoteLogSegmentMetadata, TopicIdPartition
from tierctl.read.aborted_transactions import AbortedSet
from tierctl.read.batch_stream import CHUNK_BYTES
from tierctl.read.index_lookup import Indexes, Report, UncachedIndexes
from tierctl.read.range_reader import RangeReader, ReportLost
from tierctl.read.readable_log import SegmentRange
from tierctl.read.segment_bytes import LocalSegmentFile, RemoteSegment
from tierctl.state.lineage import Lineage
from tierctl.storage.base import RemoteStorageManager
from tierctl.wire.batches.record_batch import RecordBatch
from tierctl.wire.batches.record_columns import record_columns
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

    No record's timestamp is more than `late_ms` lower than that of an earlier record; None means unknown, so
    that all records up to the end must be read. Readers may yield records outside; callers must filter them.
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
            is_early = first_ms is not None and batch.head.max_timestamp_ms < first_ms
            if not is_early and not self._is_hidden(batch):
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
