"""Records of one user partition, from the tier and the local log above it, as a consumer would see them."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from tierctl.errors import NotFoundError
from tierctl.model import IsolationLevel
from tierctl.read.aborted_transactions import AbortedTransactions
from tierctl.read.index_lookup import Indexes, IndexFetcher, Report
from tierctl.read.range_reader import RangeReader
from tierctl.read.readable_log import ReadableLog, SegmentRange
from tierctl.wire.batches.record_batch import Header


class FetchedRecord(NamedTuple):
    """A record as a consumer sees it; null keys, values and header values are None."""

    offset: int
    timestamp_ms: int
    timestamp_type: str
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class TimestampAndOffset(NamedTuple):
    """What a look-up by time found."""

    timestamp_ms: int
    offset: int


class PartitionReader:
    """Reads one partition. Memory is bounded: segments are read in ranges, in offset order.

    Each offset is answered once, by the segment of the current lineage. What can't be read is given to
    `report` as an error (a damaged batch with segment and byte, a missing object, offsets that no segment
    holds), and reading goes on after it. Other errors of the store are raised.
    """

    def __init__(
        self,
        view: ReadableLog,
        fetcher: IndexFetcher,
        report: Report,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        self._view = view
        self._report = report
        self._indexes = Indexes(fetcher, report)
        self._pieces = RangeReader(view.lineage, self._indexes, report)
        self._committed_only = isolation is IsolationLevel.READ_COMMITTED

    @cached_property
    def undecided_offset(self) -> int | None:
        """Where a transaction begins that the tier does not hold the end of; None when there is none.

        Only committed records end there, and only when no log says what the last stable offset is.
        """
        if not self._committed_only or self._view.stable_is_known:
            return None
        pieces = self._view.segment_ranges(self._view.log_start_offset)
        return AbortedTransactions(pieces, self._indexes, self._report).first_open_offset()

    @property
    def end_offset(self) -> int:
        """Where reading ends, exclusive: the high watermark, or the last stable offset."""
        if not self._committed_only:
            return self._view.end_offset
        undecided = self.undecided_offset
        stable = self._view.stable_end_offset
        return stable if undecided is None else min(stable, undecided)

    def read(
        self, start_offset: int | None = None, until_offset: int | None = None
    ) -> Iterator[FetchedRecord]:
        """Records from `start_offset` (None: the log's start) up to, not including, `until_offset`.

        Raises NotFoundError when the start lies outside the log: the broker's OffsetOutOfRange.
        """
        return self._records(*self.span(start_offset, until_offset))

    def span(self, start_offset: int | None = None, until_offset: int | None = None) -> tuple[int, int]:
        """What `read` reads of that: from an offset up to, not including, another; raises as it does."""
        start = self._view.log_start_offset if start_offset is None else start_offset
        self._check_range(start)
        return start, self.end_offset if until_offset is None else min(until_offset, self.end_offset)

    def offset_for_time(self, timestamp_ms: int, from_offset: int | None = None) -> TimestampAndOffset | None:
        """The first record from `from_offset` on that is as late as `timestamp_ms`, None when there is none.

        That is Kafka's ListOffsets by timestamp: in offset order, control records included.
        """
        start = self._view.log_start_offset if from_offset is None else from_offset
        for piece in self._view.segment_ranges(start):
            if piece.from_offset >= self.end_offset:
                return None
            if piece.max_timestamp_ms is not None and piece.max_timestamp_ms < timestamp_ms:
                continue
            last = min(piece.to_offset, self.end_offset - 1)
            for batch in self._pieces.batches(piece, piece.from_offset, last, timestamp_ms=timestamp_ms):
                if batch.head.max_timestamp_ms < timestamp_ms:
                    continue
                for record in self._pieces.decoded(piece, batch):
                    if record.timestamp_ms >= timestamp_ms and piece.from_offset <= record.offset <= last:
                        return TimestampAndOffset(record.timestamp_ms, record.offset)
        return None

    def _check_range(self, start: int) -> None:
        if self._view.log_start_offset <= start <= self._view.end_offset:
            return
        raise NotFoundError(
            f"offset {start} of {self._view.topic_id_partition.topic_partition} is out of range",
            hint=f"there are offsets from {self._view.log_start_offset} up to {self._view.end_offset - 1}",
        )

    def _records(self, start: int, end: int) -> Iterator[FetchedRecord]:
        pieces = self._view.segment_ranges(start)
        aborted = AbortedTransactions(pieces, self._indexes, self._report)
        expected = start
        for piece in pieces:
            if expected >= end:
                return
            if piece.from_offset > expected:
                self._report(self._view.missing_offsets(expected, min(piece.from_offset, end)))
            yield from self._records_of(piece, max(piece.from_offset, start), end, aborted)
            expected = piece.to_offset + 1
        if expected < end:
            self._report(self._view.missing_offsets(expected, end))

    def _records_of(
        self, piece: SegmentRange, first: int, end: int, aborted: AbortedTransactions
    ) -> Iterator[FetchedRecord]:
        last = min(piece.to_offset, end - 1)
        for batch in self._pieces.batches(piece, first, last):
            head = batch.head
            if head.is_control:
                continue
            if self._committed_only and aborted.is_aborted(head):
                continue
            timestamp_type = "LogAppendTime" if head.is_log_append_time else "CreateTime"
            for record in self._pieces.decoded(piece, batch):
                if first <= record.offset <= last:
                    yield FetchedRecord(
                        record.offset,
                        record.timestamp_ms,
                        timestamp_type,
                        head.partition_leader_epoch,
                        record.key,
                        record.value,
                        record.headers,
                    )
