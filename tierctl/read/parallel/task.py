"""A partition's readable log in tasks: ranges of offsets, each with all that reading it elsewhere takes."""

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
    """Offsets [first_offset, last_offset] of one segment, about `size_bytes` of it."""

    segment: RemoteLogSegmentMetadata | LocalSegment
    first_offset: int
    last_offset: int
    size_bytes: int

    def piece(self, remote: RemoteStorageManager) -> SegmentRange:
        """The same for who reads."""
        segment = self.segment
        source = (
            LocalSegmentFile(segment) if isinstance(segment, LocalSegment) else RemoteSegment(segment, remote)
        )
        return SegmentRange(source, self.first_offset, self.last_offset)


class LostOffsets(NamedTuple):
    """Offsets [first_offset, last_offset] that can't be read, and why."""

    error: TierctlError
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampRange:
    """Records with a timestamp in [first_ms, last_ms] are asked for; None does not narrow.

    No record is more than `late_ms` earlier than one before it in the log; None: nothing is known of that, so
    that `last_ms` spares nothing. Records outside may come all the same: who asks leaves them out.
    """

    first_ms: int | None = None
    last_ms: int | None = None
    late_ms: int | None = None

    def is_over(self, seen_ms: int) -> bool:
        """Whether nothing that is asked for can follow a record with this timestamp."""
        return self.last_ms is not None and self.late_ms is not None and seen_ms - self.late_ms > self.last_ms


ALL_TIMESTAMPS = TimestampRange()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """Parts of one partition's log, ascending; `aborted` are the transactions among them to leave out.

    `lost` lies before the parts. Picklable, and nothing secret is in it.
    """

    topic_id_partition: TopicIdPartition
    parts: tuple[Part, ...]
    lineage: tuple[EpochEntry, ...] = ()
    aborted: tuple[AbortedTxn, ...] = ()
    times: TimestampRange = ALL_TIMESTAMPS
    lost: tuple[LostOffsets, ...] = ()

    @property
    def first_offset(self) -> int:
        """Where the parts begin; there must be any."""
        return self.parts[0].first_offset

    @property
    def last_offset(self) -> int:
        """Where the parts end, inclusive."""
        return self.parts[-1].last_offset

    @property
    def size_bytes(self) -> int:
        """About how much there is to read."""
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
    wanted = _Wanted(task.times, lambda batch: batch.head.is_control or aborted.is_aborted(batch.head))
    for part in task.parts:
        if part.last_offset < from_offset or wanted.is_over:
            continue
        part = part._replace(first_offset=max(part.first_offset, from_offset))  # noqa: PLW2901
        reader = RangeReader(
            Lineage(task.lineage),
            indexes,
            report,
            report_lost=report_lost,
            chunk_bytes=_chunk_bytes(part, task.times),
        )
        piece = part.piece(remote)
        batches = reader.batches(piece, part.first_offset, part.last_offset, timestamp_ms=task.times.first_ms)
        for columns in record_columns(wanted.of(batches), partial(reader.decoded, piece)):
            yield _within(columns, part)


def _chunk_bytes(part: Part, times: TimestampRange) -> int:
    """Much at a time where all of it is read, a little where not."""
    if times != ALL_TIMESTAMPS:
        return CHUNK_BYTES
    return min(max(part.size_bytes, CHUNK_BYTES), BULK_CHUNK_BYTES)


class _Wanted:
    """Batches that may hold what is asked for."""

    def __init__(self, times: TimestampRange, is_hidden: Callable[[RecordBatch], bool]) -> None:
        self._times = times
        self._is_hidden = is_hidden
        self.is_over = False

    def of(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        """Those of a piece; no more are read when nothing can follow."""
        first_ms = self._times.first_ms
        for batch in batches:
            is_early = first_ms is not None and batch.head.max_timestamp_ms < first_ms
            if not is_early and not self._is_hidden(batch):
                yield batch
            if self._times.is_over(batch.head.max_timestamp_ms):
                self.is_over = True
                return


def _within(columns: pa.RecordBatch, part: Part) -> pa.RecordBatch:
    """Without the records of a batch that reaches out of the part."""
    offsets = columns.column("offset")
    if not len(offsets):
        return columns
    if offsets[0].as_py() >= part.first_offset and offsets[-1].as_py() <= part.last_offset:
        return columns
    inside = pc.and_(pc.greater_equal(offsets, part.first_offset), pc.less_equal(offsets, part.last_offset))
    return columns.filter(inside)
