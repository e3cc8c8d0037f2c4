"""Read the records of one user partition by offset or time, without those of aborted transactions."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from tierctl.errors import (
    CorruptInputError,
    LimitExceeded,
    NotFoundError,
    RemoteResourceNotFound,
    SafetyRefusal,
    TierctlError,
    UsageError,
)
from tierctl.model import (
    IndexType,
    IsolationLevel,
    LocalLog,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.selection import names_text
from tierctl.read.readable_log import RangeReader, ReadableLog, ReportLost, SegmentRange, SegmentRanges
from tierctl.read.segment import (
    UNREADABLE,
    Indexes,
    IndexFetcher,
    RemoteSegment,
    Report,
    Segment,
    read_batches,
)
from tierctl.state.lineage import RemoteLogMetadataCache
from tierctl.state.log_start import with_tier_start
from tierctl.state.tier_state import FailedCopies, TierState
from tierctl.wire.batches.batch_head import BatchHead, Header
from tierctl.wire.batches.record_batch import ControlType, RecordBatch, control_record
from tierctl.wire.files.checkpoints import decode_producer_snapshot
from tierctl.wire.files.indexes import AbortedTxn, TransactionIndex

OpenTransactions = dict[int, int]
"""First offset of each open transaction by producer id."""


class AbortedTransactions:
    """Decides whether a batch belongs to an aborted transaction, and reads no more indexes than necessary.

    A transaction's marker, and its entry in a transaction index, may be several segments after its records.
    Therefore indexes are read from the first range on until all offsets of the batch are decided, by the last
    stable offset of an entry or by the producer snapshot at the end of a range. Callers must pass batches in
    offset order, and none above the last stable offset. Damage of indexes goes to `report`; errors because of
    which records are left out go to `report_lost`, by default to `report` as well.
    """

    def __init__(
        self,
        ranges: SegmentRanges,
        indexes: Indexes,
        report: Report,
        report_lost: ReportLost | None = None,
    ) -> None:
        self._ranges = ranges
        self._indexes = indexes
        self._report = report
        self._report_lost = report_lost or (
            lambda error, first, last: report(_without_end(error, first, last))
        )
        self._next = 0
        self._decided = -1
        self._aborted = AbortedSet(())
        self._open_after: dict[int, OpenTransactions | None] = {-1: {}}

    def is_aborted(self, head: BatchHead) -> bool:
        """Return whether the batch's records belong to an aborted transaction."""
        if not head.is_transactional or head.is_control:
            return False
        self._decide(head.base_offset, head.last_offset)
        return self._aborted.is_aborted(head)

    def first_open_offset(self) -> int | None:
        """Return the first offset of the transactions that are open after the last range, or None."""
        last = sum(1 for _ in self._ranges) - 1
        segment_range = self._ranges.get(last) if last >= 0 else None
        if segment_range is None:
            return None
        if self._open_after_range(last, segment_range) is None:
            self._scan(last)
        return min((self._open_after[last] or {}).values(), default=None)

    def between(self, first_offset: int, last_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with an offset in [first_offset, last_offset], by their markers.

        Callers must pass ascending ranges of offsets. Each index is read once, and only if it is necessary.
        """
        self._decide(first_offset, last_offset)
        return self._aborted.between(first_offset, last_offset)

    def _decide(self, first_offset: int, last_offset: int) -> None:
        """Read indexes until it is decided which offsets up to `last_offset` belong to aborted transactions.

        Forget transactions that end before `first_offset`: later batches have higher offsets.
        """
        while last_offset >= self._decided and (segment_range := self._ranges.get(self._next)) is not None:
            self._aborted = AbortedSet(self._aborted.between(first_offset))
            self._collect(self._next, segment_range, last_offset + 1)
            self._next += 1

    def _collect(self, number: int, segment_range: SegmentRange, end_offset: int) -> None:
        entries = self._entries(number, segment_range)
        self._aborted.add(entries)
        self._aborted.add(self._ended_in_gap(number, segment_range, entries))
        if segment_range.to_offset + 1 < end_offset:
            # The following range is read too, and its entries include the transactions that are open at its
            # start.
            return
        still_open = self._open_after_range(number, segment_range)
        if still_open is not None:
            self._decided = max(self._decided, min([segment_range.to_offset + 1, *still_open.values()]))
        elif entries:
            self._decided = max(
                self._decided, min(segment_range.to_offset + 1, entries[-1].last_stable_offset)
            )

    def _ended_in_gap(
        self, number: int, segment_range: SegmentRange, entries: Sequence[AbortedTxn]
    ) -> list[AbortedTxn]:
        """Return, as aborted, the transactions that ended in the gap before the range, where no segment is.

        They are open before the gap; after it, neither `entries` nor the producer snapshot has them.
        """
        before = self._ranges.get(number - 1) if number else None
        if before is None or before.to_offset + 1 == segment_range.from_offset:
            return []
        if self._open_after_range(number - 1, before) is None:
            self._scan(number - 1)
        still_open = self._open_after_range(number, segment_range) or {}
        known = {(txn.producer_id, txn.first_offset) for txn in entries} | still_open.items()
        last = segment_range.from_offset - 1
        undecided = (self._open_after[number - 1] or {}).items() - known
        if undecided:
            gap = f"offsets {before.to_offset + 1} to {last}, in which transactions end, are in no segment"
            self._report_lost(NotFoundError(gap), min(first for _, first in undecided), last)
        return [AbortedTxn(producer, first, last, first) for producer, first in sorted(undecided)]

    def _entries(self, number: int, segment_range: SegmentRange) -> list[AbortedTxn]:
        """Return the aborted transactions whose markers are in the range."""
        found = self._stored_entries(segment_range)
        if found is None:
            return self._scan(number)
        # Entries above the range belong to records that are not part of this lineage.
        return [
            txn for txn in found if segment_range.from_offset <= txn.last_offset <= segment_range.to_offset
        ]

    def _stored_entries(self, segment_range: SegmentRange) -> Sequence[AbortedTxn] | None:
        """Return the entries of the stored transaction index; None if it is missing or damaged."""
        segment = segment_range.segment
        if isinstance(segment, RemoteSegment) and segment.metadata.txn_index_empty:
            return ()
        try:
            data = self._indexes.raw(segment, IndexType.TRANSACTION)
            if data:
                return _entries_of(segment, data)
        except CorruptInputError as e:
            self._report(e.within(f"the transaction index of {segment.name}"))
            return None
        except UNREADABLE as e:
            self._report(e)
            return None
        # A local segment without index has no aborts; by its metadata, a remote one has an index.
        return None if isinstance(segment, RemoteSegment) else ()

    def _open_after_range(self, number: int, segment_range: SegmentRange) -> OpenTransactions | None:
        """Return the transactions open after the range, by the producer snapshot; None if it is missing."""
        if number not in self._open_after:
            self._open_after[number] = self._open_by_snapshot(segment_range)
        return self._open_after[number]

    def _open_by_snapshot(self, segment_range: SegmentRange) -> OpenTransactions | None:
        if segment_range.to_offset != segment_range.segment.end_offset:
            return None
        try:
            data = self._indexes.raw(segment_range.segment, IndexType.PRODUCER_SNAPSHOT)
            entries = None if data is None else decode_producer_snapshot(data)
        except CorruptInputError as e:
            self._report(e.within(f"the producer snapshot of {segment_range.segment.name}"))
            return None
        except UNREADABLE as e:
            self._report(e)
            return None
        if entries is None:
            return None
        return {e.producer_id: e.current_txn_first_offset for e in entries if e.current_txn_first_offset >= 0}

    def _scan(self, number: int) -> list[AbortedTxn]:
        """Return the entries that the range's transaction index should have, by its batches."""
        known = number - 1
        while known >= 0 and not self._is_known_after(known):
            known -= 1
        found: list[AbortedTxn] = []
        for at in range(known + 1, number + 1):
            segment_range = self._ranges.get(at)
            if segment_range is not None:
                before = self._open_after[at - 1] or {}
                stored = self._open_after_range(at, segment_range)
                found, scanned = scan_transactions(segment_range, before, self._indexes, self._report_lost)
                self._open_after[at] = scanned if stored is None else stored
        return found

    def _is_known_after(self, number: int) -> bool:
        segment_range = self._ranges.get(number)
        return segment_range is not None and self._open_after_range(number, segment_range) is not None


def _entries_of(segment: Segment, data: bytes) -> Sequence[AbortedTxn]:
    """Return the entries of a transaction index; raise CorruptInputError if it is not that of the segment."""
    entries = TransactionIndex.decode(data, segment.start_offset).entries
    end = segment.end_offset
    if end is not None and entries and entries[-1].last_offset > end:
        expected = f"last offset up to {end}"
        raise CorruptInputError("transaction index", expected=expected, found=str(entries[-1].last_offset))
    return entries


class AbortedSet:
    """Known aborted transactions; batches may come in any order."""

    def __init__(self, found: Iterable[AbortedTxn]) -> None:
        self._aborted: dict[int, list[AbortedTxn]] = defaultdict(list)
        self.add(found)

    def add(self, found: Iterable[AbortedTxn]) -> None:
        """Add transactions."""
        for txn in found:
            self._aborted[txn.producer_id].append(txn)

    def between(self, first_offset: int, last_offset: int | None = None) -> list[AbortedTxn]:
        """Return the transactions with an offset in [first_offset, last_offset], by their markers."""
        known = (txn for each in self._aborted.values() for txn in each if txn.last_offset >= first_offset)
        found = (txn for txn in known if last_offset is None or txn.first_offset <= last_offset)
        return sorted(found, key=lambda txn: txn.last_offset)

    def is_aborted(self, head: BatchHead) -> bool:
        """Return whether the batch's records belong to an aborted transaction."""
        if not head.is_transactional or head.is_control:
            return False
        known = self._aborted.get(head.producer_id, ())
        return any(txn.first_offset <= head.base_offset <= txn.last_offset for txn in known)


def scan_transactions(
    segment_range: SegmentRange, open_before: OpenTransactions, indexes: Indexes, report_lost: ReportLost
) -> tuple[list[AbortedTxn], OpenTransactions]:
    """Return the aborted transactions whose markers are in the range, and those open after the range.

    `open_before` are the transactions that are open at its start. The entries are those that a broker writes
    to the transaction index (ProducerStateManager, TransactionIndex). A transaction whose marker can't be
    read counts as aborted, which is reported; if no byte can be read any more, it also stays open.
    """
    still_open = dict(open_before)
    aborted: list[AbortedTxn] = []
    try:
        for batch in _transactional(segment_range, indexes):
            head = batch.head
            if not head.is_control:
                still_open.setdefault(head.producer_id, head.base_offset)
                continue
            # Compaction may remove the marker from its batch; an empty batch ends no transaction.
            if not head.record_count:
                continue
            first = still_open.pop(head.producer_id, None)
            if first is not None and _may_be_abort(batch, segment_range, first, report_lost):
                stable = min([head.next_offset, *still_open.values()])
                aborted.append(AbortedTxn(head.producer_id, first, head.last_offset, stable))
    except (*UNREADABLE, NotFoundError, RemoteResourceNotFound) as e:
        if still_open:
            report_lost(e, min(still_open.values()), segment_range.to_offset)
        last = segment_range.to_offset
        aborted += [AbortedTxn(producer, first, last, first) for producer, first in still_open.items()]
    return aborted, still_open


def _transactional(segment_range: SegmentRange, indexes: Indexes) -> Iterator[RecordBatch]:
    """Yield the readable batches of transactions in the range, with their markers."""
    segment = segment_range.segment
    for batch in read_batches(segment, indexes.position_for(segment, segment_range.from_offset)):
        if not isinstance(batch, RecordBatch) or batch.head.last_offset < segment_range.from_offset:
            continue
        if batch.head.base_offset > segment_range.to_offset:
            return
        if batch.head.is_transactional:
            yield batch


def _may_be_abort(
    batch: RecordBatch, segment_range: SegmentRange, first: int, report_lost: ReportLost
) -> bool:
    """Return whether the marker of the transaction from `first` on states an abort, or can't be read."""
    try:
        return is_abort(batch)
    except (CorruptInputError, LimitExceeded) as e:
        named = e.within(segment_range.segment.name) if isinstance(e, CorruptInputError) else e
        report_lost(named, first, batch.head.last_offset)
        return True


def _without_end(error: TierctlError, first: int, last: int) -> TierctlError:
    """Return `error` with the offsets whose records are left out because of it in its hint."""
    return error.advised(
        "whether transactions that may end there were aborted is not known, so their records from offset "
        f"{first} to {last} are left out; --isolation read_uncommitted has them"
    )


def is_abort(batch: RecordBatch) -> bool:
    """Return whether a control batch is the marker of an aborted transaction."""
    marker = next(batch.records(), None)
    return marker is not None and control_record(marker).type is ControlType.ABORT


class FetchedRecord(NamedTuple):
    """A record as a consumer receives it; null keys, values and header values are None."""

    offset: int
    timestamp_ms: int
    timestamp_type: str
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class TimestampAndOffset(NamedTuple):
    """Timestamp and offset of the record that a look-up by time found."""

    timestamp_ms: int
    offset: int


class PartitionReader:
    """Reads one partition in bounded memory: segments are read in ranges, in offset order.

    Each offset is read once, from the segment of the current lineage. Damaged batches, missing objects and
    offsets that no segment contains are errors for `report`, after which reading goes on. `report_lost`,
    if it is given, receives those because of which seeks pass over records, or transactions are left out.
    Other errors of the store are raised.
    """

    def __init__(
        self,
        log: ReadableLog,
        fetcher: IndexFetcher,
        report: Report,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        report_lost: ReportLost | None = None,
    ) -> None:
        self._log = log
        self._report = report
        self._report_lost = report_lost
        self._indexes = Indexes(fetcher, report)
        self._range_reader = RangeReader(log.lineage, self._indexes, report, report_lost=report_lost)
        self._committed_only = isolation is IsolationLevel.READ_COMMITTED
        self._told_unread = False

    @cached_property
    def undecided_offset(self) -> int | None:
        """First offset of a transaction whose end the tier does not contain; None if there is none.

        It limits only read_committed, and only if no local log has the last stable offset.
        """
        if not self._committed_only or self._log.stable_is_known:
            return None
        ranges = self._log.segment_ranges(self._log.log_start_offset)
        return self._aborted_in(ranges).first_open_offset()

    @property
    def end_offset(self) -> int:
        """End of the readable records, exclusive: the high watermark, or the last stable offset."""
        if not self._committed_only:
            return self._log.end_offset
        undecided = self.undecided_offset
        stable = self._log.stable_end_offset
        return stable if undecided is None else min(stable, undecided)

    def read(
        self, start_offset: int | None = None, until_offset: int | None = None
    ) -> Iterator[FetchedRecord]:
        """Yield the records from `start_offset` (None: the log's start) to `until_offset`, exclusive.

        Raise NotFoundError if `start_offset` is out of range, as a broker raises OffsetOutOfRange.
        """
        return self._records(*self.span(start_offset, until_offset), until_offset)

    def span(self, start_offset: int | None = None, until_offset: int | None = None) -> tuple[int, int]:
        """Return first offset and end (exclusive) of the records that `read` yields; raise as `read`."""
        start = self._log.log_start_offset if start_offset is None else start_offset
        self._check_range(start)
        return start, self.end_offset if until_offset is None else min(until_offset, self.end_offset)

    def report_unread(self, until_offset: int | None = None) -> None:
        """Report, once, offsets below `until_offset` (None: any) that the tier has above the log's end."""
        log = self._log
        end = log.tier_end_offset if until_offset is None else min(until_offset, log.tier_end_offset)
        if end <= log.end_offset or self._told_unread:
            return
        self._told_unread = True
        if self._report_lost is None:
            self._report(log.unread_offsets())
        else:
            self._report_lost(log.unread_offsets(), log.end_offset, end - 1)

    def offset_for_time(
        self,
        timestamp_ms: int,
        from_offset: int | None = None,
        *,
        read_in: tuple[int, int] = (0, 0),
        with_control: bool = True,
    ) -> TimestampAndOffset | None:
        """Return the first record from `from_offset` on that is not earlier than `timestamp_ms`, or None.

        This is Kafka's ListOffsets by timestamp: in offset order, control records included. Without
        `with_control` they do not count: they have the time of the broker, and producers' records with
        earlier times follow them. Offsets from the first of `read_in` to its end (exclusive) are reported if
        they are in no segment and may have an earlier such record: they lie after the last segment whose
        records are all earlier.
        """
        start = self._log.log_start_offset if from_offset is None else from_offset
        holes: list[tuple[int, int]] = []
        found = self._sought(timestamp_ms, start, holes, with_control=with_control)
        for first, end in holes:
            missing = range(max(first, read_in[0]), min(end, read_in[1]))
            if missing:
                self._report_missing(missing.start, missing.stop)
        if found is None:
            self.report_unread()
        return found

    def end_for_time(self, last_ms: int, from_offset: int) -> int | None:
        """Return the offset of the first record from `from_offset` on that is later than `last_ms`, or None.

        Control records do not count.
        """
        found = self.offset_for_time(last_ms + 1, from_offset, with_control=False)
        return None if found is None else found.offset

    def _sought(
        self, timestamp_ms: int, start: int, holes: list[tuple[int, int]], *, with_control: bool
    ) -> TimestampAndOffset | None:
        """Return what `offset_for_time` does; `holes` receives the offsets that may have an earlier one."""
        expected = start
        for segment_range in self._log.segment_ranges(start):
            if segment_range.from_offset >= self.end_offset:
                break
            if segment_range.from_offset > expected:
                holes.append((expected, segment_range.from_offset))
            expected = segment_range.to_offset + 1
            if segment_range.max_timestamp_ms is not None and segment_range.max_timestamp_ms < timestamp_ms:
                holes.clear()
                continue
            last = min(segment_range.to_offset, self.end_offset - 1)
            for batch in self._range_reader.batches(
                segment_range, segment_range.from_offset, last, timestamp_ms=timestamp_ms
            ):
                if batch.head.max_timestamp_ms < timestamp_ms or (batch.head.is_control and not with_control):
                    continue
                for record in self._range_reader.decoded(segment_range, batch):
                    if (
                        record.timestamp_ms >= timestamp_ms
                        and segment_range.from_offset <= record.offset <= last
                    ):
                        return TimestampAndOffset(record.timestamp_ms, record.offset)
        holes.append((expected, self.end_offset))
        return None

    def _report_missing(self, first: int, end: int) -> None:
        """Report offsets over which a seek passes: no segment has them."""
        error = self._log.missing_offsets(first, end)
        if self._report_lost is None:
            self._report(error)
        else:
            self._report_lost(error, first, end - 1)

    def _aborted_in(self, ranges: SegmentRanges) -> AbortedTransactions:
        return AbortedTransactions(ranges, self._indexes, self._report, self._report_lost)

    def _check_range(self, start: int) -> None:
        if self._log.log_start_offset <= start <= self._log.end_offset:
            return
        raise NotFoundError(
            f"offset {start} of {self._log.topic_id_partition.topic_partition} is out of range",
            hint=f"there are offsets from {self._log.log_start_offset} up to {self._log.end_offset - 1}",
        )

    def _records(self, start: int, end: int, until_offset: int | None) -> Iterator[FetchedRecord]:
        ranges = self._log.segment_ranges(start)
        aborted = self._aborted_in(ranges)
        expected = start
        for segment_range in ranges:
            if expected >= end:
                break
            if segment_range.from_offset > expected:
                self._report(self._log.missing_offsets(expected, min(segment_range.from_offset, end)))
            yield from self._records_of(segment_range, max(segment_range.from_offset, start), end, aborted)
            expected = segment_range.to_offset + 1
        if expected < end:
            self._report(self._log.missing_offsets(expected, end))
        self.report_unread(until_offset)

    def _records_of(
        self, segment_range: SegmentRange, first: int, end: int, aborted: AbortedTransactions
    ) -> Iterator[FetchedRecord]:
        last = min(segment_range.to_offset, end - 1)
        for batch in self._range_reader.batches(segment_range, first, last):
            head = batch.head
            if head.is_control:
                continue
            if self._committed_only and aborted.is_aborted(head):
                continue
            for record in self._range_reader.decoded(segment_range, batch):
                if first <= record.offset <= last:
                    yield FetchedRecord(
                        record.offset,
                        record.timestamp_ms,
                        head.timestamp_type,
                        head.partition_leader_epoch,
                        record.key,
                        record.value,
                        record.headers,
                    )


_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class PartitionSet(Protocol):
    """A set of user partitions, such as a resolved Selection."""

    def __contains__(self, partition: TopicIdPartition, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class ReadablePartition:
    """A user partition, its metadata, and the logs of its replicas, if any."""

    topic_id_partition: TopicIdPartition
    cache: RemoteLogMetadataCache
    logs: tuple[LocalLog, ...]
    failed_copies: FailedCopies | None = None

    @property
    def offset_count(self) -> int:
        """Number of offsets from the first to the last of its readable segments and its logs."""
        finished = [s for s in self.cache.list_remote_log_segments() if s.state is _FINISHED]
        starts = [s.start_offset for s in finished] + [log.log_start_offset for log in self.logs]
        ends = [s.end_offset + 1 for s in finished] + [log.log_end_offset for log in self.logs]
        return max(max(ends) - min(starts), 0) if starts else 0


def readable_partitions(
    state: TierState, logs: Sequence[LocalLog], chosen: PartitionSet, *, by_name: bool
) -> list[ReadablePartition]:
    """Return the chosen partitions that have records to read, by topic and number.

    `by_name` says that the operator named topics and no topic ids. Then partitions that were never tiered
    are included, and of several topics with the same name only the topic in the logs is returned. Raise
    UsageError if several remain, and NotFoundError if no partition does.
    """
    found = present_partitions(state, logs, chosen, by_name=by_name)
    if by_name and not found:
        require_found(found, state.topics, chosen_topics(state, chosen))
    return found


def present_partitions(
    state: TierState, logs: Sequence[LocalLog], chosen: PartitionSet, *, by_name: bool
) -> list[ReadablePartition]:
    """Return the result of `readable_partitions`, which may be empty: `state` may be a part of the tier's."""
    found = [one for one in tiered_partitions(state, logs, chosen) if one.logs or _has_readable(one.cache)]
    if by_name:
        found = current_partitions(found, logs, chosen)
    return sorted(found, key=lambda r: (r.topic_id_partition.topic, r.topic_id_partition.partition))


def chosen_topics(state: TierState, chosen: PartitionSet) -> set[str]:
    """Return the topics of the chosen partitions that the metadata know, also of deleted ones."""
    return {part.topic_id_partition.topic for part in state if part.topic_id_partition in chosen}


def require_found(
    found: Sequence[ReadablePartition], topics: Collection[str], known: Collection[str]
) -> None:
    """Raise NotFoundError if no partition was found by name.

    `topics` are those of the tier's metadata, and `known` those of them that are chosen.
    """
    if not found and known:
        raise NotFoundError(
            f"the tier has no finished segment of {names_text(known)}, and no log was found",
            hint="the topic was deleted, or its segments expired or were not copied; a log in --log-dir may "
            "have records",
        )
    if not found:
        raise NotFoundError("no such partition in the tier or the logs", hint=_known(topics))


def illegal_name_error(partition: TopicIdPartition) -> SafetyRefusal | None:
    """Return the error for a partition whose name is illegal, so that no key may contain it; else None."""
    if is_legal_topic_name(partition.topic) and partition.partition >= 0:
        return None
    return SafetyRefusal(
        f"{str(partition)!r} is not a legal partition, so it is not read",
        hint="the metadata record that names it is wrong or malicious; show it with tierctl format",
    )


def tiered_partitions(
    state: TierState, logs: Sequence[LocalLog], chosen: PartitionSet
) -> list[ReadablePartition]:
    """Return the chosen partitions of the tier's metadata, also without readable segments, in order."""
    replicas = _by_key(logs)
    return [
        ReadablePartition(
            part.topic_id_partition,
            part.cache,
            # A broker serves records from the log start of its checkpoint on, whatever its leader epochs say.
            tuple(
                log if log.is_log_start_known else with_tier_start(log, part.segments)
                for log in replicas.get(part.topic_id_partition.key, ())
            ),
            part.failed_copies,
        )
        for part in state
        if part.topic_id_partition in chosen
    ]


def _by_key(logs: Sequence[LocalLog]) -> dict[tuple[Uuid, int], list[LocalLog]]:
    found: dict[tuple[Uuid, int], list[LocalLog]] = {}
    for log in logs:
        found.setdefault(log.topic_id_partition.key, []).append(log)
    return found


def _has_readable(cache: RemoteLogMetadataCache) -> bool:
    return any(segment.state is _FINISHED for segment in cache.list_remote_log_segments())


def current_partitions(
    found: Sequence[ReadablePartition], logs: Sequence[LocalLog], chosen: PartitionSet
) -> list[ReadablePartition]:
    """Return the partitions `found` by name in the tier, and the chosen ones that only logs have.

    Of several topics with the same name, return only the topic in the logs; raise UsageError if several
    remain.
    """
    replicas = _by_key(logs)
    tiered = {one.topic_id_partition.key for one in found}
    named: dict[tuple[str, int], list[ReadablePartition]] = {}
    for one in (*found, *_of_logs(replicas, tiered, chosen)):
        named.setdefault((one.topic_id_partition.topic, one.topic_id_partition.partition), []).append(one)
    current = []
    for (topic, partition), several in named.items():
        held = [one for one in several if one.topic_id_partition.key in replicas] or several
        if len(held) > 1:
            ids = ", ".join(sorted(one.topic_id_partition.topic_id for one in held))
            raise UsageError(
                f"{topic}-{partition} is the name of several topics: {ids}", hint="select one with --topic-id"
            )
        current += held
    return current


def _of_logs(
    replicas: Mapping[tuple[Uuid, int], list[LocalLog]],
    tiered: Collection[tuple[Uuid, int]],
    chosen: PartitionSet,
) -> list[ReadablePartition]:
    """Return the chosen partitions of the logs that are not `tiered`."""
    return [
        ReadablePartition(logs[0].topic_id_partition, RemoteLogMetadataCache.empty(), tuple(logs))
        for key, logs in replicas.items()
        if key not in tiered and logs[0].topic_id_partition in chosen
    ]


def _known(topics: Collection[str]) -> str:
    shown = ", ".join(sorted(topics)[:20]) + (", …" if len(topics) > 20 else "")
    return f"topics in the tier's metadata: {shown or 'none'}"
