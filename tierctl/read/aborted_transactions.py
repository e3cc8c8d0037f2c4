"""Find the aborted transactions among the records that are read (RemoteLogManager.addAbortedTransactions)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tierctl.errors import AuthenticationError, CorruptInputError, ObjectArchived
from tierctl.model import IndexType
from tierctl.read.readable_log import SegmentRange, SegmentRanges
from tierctl.read.segment import BatchStream, Indexes, RemoteSegment, Report
from tierctl.wire.batches.batch_head import BatchHead
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
    offset order, and none above the last stable offset.
    """

    def __init__(self, ranges: SegmentRanges, indexes: Indexes, report: Report) -> None:
        self._ranges = ranges
        self._indexes = indexes
        self._report = report
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
                return TransactionIndex.decode(data).entries
        except CorruptInputError as e:
            self._report(e.within(f"the transaction index of {segment.name}"))
            return None
        except (AuthenticationError, ObjectArchived) as e:
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
        except (AuthenticationError, ObjectArchived) as e:
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
                found, self._open_after[at] = scan_transactions(segment_range, before, self._indexes)
        return found

    def _is_known_after(self, number: int) -> bool:
        segment_range = self._ranges.get(number)
        return segment_range is not None and self._open_after_range(number, segment_range) is not None


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
    segment_range: SegmentRange, open_before: OpenTransactions, indexes: Indexes
) -> tuple[list[AbortedTxn], OpenTransactions]:
    """Return the aborted transactions whose markers are in the range, and those open after the range.

    `open_before` are the transactions that are open at its start. The entries are those that a broker writes
    to the transaction index (ProducerStateManager, TransactionIndex).
    """
    still_open = dict(open_before)
    aborted: list[AbortedTxn] = []
    position = indexes.position_for(segment_range.segment, segment_range.from_offset)
    for batch in BatchStream(segment_range.segment, position=position):
        if not isinstance(batch, RecordBatch) or batch.head.last_offset < segment_range.from_offset:
            continue
        head = batch.head
        if head.base_offset > segment_range.to_offset:
            break
        if not head.is_transactional:
            continue
        if not head.is_control:
            still_open.setdefault(head.producer_id, head.base_offset)
            continue
        first = still_open.pop(head.producer_id, None)
        if first is not None and is_abort(batch):
            stable = min([head.next_offset, *still_open.values()])
            aborted.append(AbortedTxn(head.producer_id, first, head.last_offset, stable))
    return aborted, still_open


def is_abort(batch: RecordBatch) -> bool:
    """Return whether a control batch is the marker of an aborted transaction."""
    marker = next(batch.records(), None)
    return marker is not None and control_record(marker).type is ControlType.ABORT
