"""Which transactions were aborted, as far as reading must know (RemoteLogManager.addAbortedTransactions)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tierctl.errors import CorruptInputError
from tierctl.model import IndexType
from tierctl.read.batch_stream import BatchStream
from tierctl.read.index_lookup import Indexes, Report
from tierctl.read.readable_log import SegmentRange, SegmentRanges
from tierctl.read.segment_bytes import RemoteSegment
from tierctl.wire.batches.batch_heads import BatchHead
from tierctl.wire.batches.record_batch import ControlType, RecordBatch, control_record
from tierctl.wire.files.indexes import AbortedTxn, TransactionIndex
from tierctl.wire.files.producer_snapshot import decode_producer_snapshot

OpenTransactions = dict[int, int]
"""First offset of each open transaction, by producer id."""


class AbortedTransactions:
    """Answers whether a batch belongs to an aborted transaction, reading no further than it must.

    A transaction's marker, and with it the entry of the transaction index, may lie segments after its
    records: indexes are collected from the first piece on until everything up to the batch's end is
    decided, by an entry's last stable offset or by the producer snapshot after a piece. Batches are asked
    for in offset order, and none above the last stable offset.
    """

    def __init__(self, pieces: SegmentRanges, indexes: Indexes, report: Report) -> None:
        self._pieces = pieces
        self._indexes = indexes
        self._report = report
        self._next = 0
        self._decided = -1
        self._aborted: dict[int, list[AbortedTxn]] = defaultdict(list)
        self._open_after: dict[int, OpenTransactions | None] = {-1: {}}

    def is_aborted(self, head: BatchHead) -> bool:
        """Whether the batch's records belong to a transaction that was aborted."""
        if not head.is_transactional or head.is_control:
            return False
        self._decide(head)
        return _is_of(head, self._aborted.get(head.producer_id, ()))

    def first_open_offset(self) -> int | None:
        """Where the first transaction begins that is open after the last piece; None when none is."""
        last = sum(1 for _ in self._pieces) - 1
        piece = self._pieces.get(last) if last >= 0 else None
        if piece is None:
            return None
        if self._open_after_piece(last, piece) is None:
            self._scan(last)
        return min((self._open_after[last] or {}).values(), default=None)

    def between(self, first_offset: int, last_offset: int) -> list[AbortedTxn]:
        """Every aborted transaction with an offset in [first_offset, last_offset], as their markers follow.

        For who asks for no batch; ranges are asked for in ascending order. Each index is read once, and no
        further than it takes to know.
        """
        self._forget_below(first_offset)
        while last_offset >= self._decided and (piece := self._pieces.get(self._next)) is not None:
            self._collect(self._next, piece, last_offset + 1)
            self._next += 1
        found = [txn for each in self._aborted.values() for txn in each if txn.first_offset <= last_offset]
        return sorted(found, key=lambda txn: txn.last_offset)

    def _decide(self, head: BatchHead) -> None:
        while head.next_offset > self._decided:
            piece = self._pieces.get(self._next)
            if piece is None:
                return
            self._forget_below(head.base_offset)
            self._collect(self._next, piece, head.next_offset)
            self._next += 1

    def _forget_below(self, offset: int) -> None:
        """Reading goes up only: what ended before can't matter any more."""
        for producer_id, entries in list(self._aborted.items()):
            self._aborted[producer_id] = [txn for txn in entries if txn.last_offset >= offset]
            if not self._aborted[producer_id]:
                del self._aborted[producer_id]

    def _collect(self, number: int, piece: SegmentRange, end_offset: int) -> None:
        entries = self._entries(number, piece)
        for txn in entries:
            self._aborted[txn.producer_id].append(txn)
        if piece.to_offset + 1 < end_offset:
            # More pieces have to be asked anyway: what is open after this one is not.
            return
        still_open = self._open_after_piece(number, piece)
        if still_open is not None:
            self._decided = max(self._decided, min([piece.to_offset + 1, *still_open.values()]))
        elif entries:
            self._decided = max(self._decided, min(piece.to_offset + 1, entries[-1].last_stable_offset))

    def _entries(self, number: int, piece: SegmentRange) -> list[AbortedTxn]:
        """The aborted transactions whose markers lie in the piece."""
        found = self._stored_entries(piece)
        if found is None:
            return self._scan(number)
        # Of a segment that diverged above the piece, what it says of the rest is of another lineage.
        return [txn for txn in found if piece.from_offset <= txn.last_offset <= piece.to_offset]

    def _stored_entries(self, piece: SegmentRange) -> Sequence[AbortedTxn] | None:
        """None when the segment must be looked through itself: its index is missing or damaged."""
        segment = piece.segment
        if isinstance(segment, RemoteSegment) and segment.metadata.txn_index_empty:
            return ()
        try:
            data = self._indexes.raw(segment, IndexType.TRANSACTION)
            if data:
                return TransactionIndex.decode(data).entries
        except CorruptInputError as e:
            self._report(e.within(f"the transaction index of {segment.name}"))
            return None
        # A broker makes the file at the first abort; but metadata did not say that the tier has none.
        return None if isinstance(segment, RemoteSegment) else ()

    def _open_after_piece(self, number: int, piece: SegmentRange) -> OpenTransactions | None:
        """Transactions open after the piece, by the producer snapshot there; None when not known."""
        if number not in self._open_after:
            self._open_after[number] = self._open_by_snapshot(piece)
        return self._open_after[number]

    def _open_by_snapshot(self, piece: SegmentRange) -> OpenTransactions | None:
        if piece.to_offset != piece.segment.end_offset:
            return None
        try:
            data = self._indexes.raw(piece.segment, IndexType.PRODUCER_SNAPSHOT)
            entries = None if data is None else decode_producer_snapshot(data)
        except CorruptInputError as e:
            self._report(e.within(f"the producer snapshot of {piece.segment.name}"))
            return None
        if entries is None:
            return None
        return {e.producer_id: e.current_txn_first_offset for e in entries if e.current_txn_first_offset >= 0}

    def _scan(self, number: int) -> list[AbortedTxn]:
        """The entries that the piece's transaction index should have, from its batches."""
        known = number - 1
        while known >= 0 and not self._is_known_after(known):
            known -= 1
        found: list[AbortedTxn] = []
        for at in range(known + 1, number + 1):
            piece = self._pieces.get(at)
            if piece is not None:
                before = self._open_after[at - 1] or {}
                found, self._open_after[at] = scan_transactions(piece, before, self._indexes)
        return found

    def _is_known_after(self, number: int) -> bool:
        piece = self._pieces.get(number)
        return piece is not None and self._open_after_piece(number, piece) is not None


class AbortedSet:
    """What `AbortedTransactions` found, for who reads elsewhere; batches may be asked for in any order."""

    def __init__(self, found: Iterable[AbortedTxn]) -> None:
        self._aborted: dict[int, list[AbortedTxn]] = defaultdict(list)
        for txn in found:
            self._aborted[txn.producer_id].append(txn)

    def is_aborted(self, head: BatchHead) -> bool:
        """Whether the batch's records belong to a transaction that was aborted."""
        if not head.is_transactional or head.is_control:
            return False
        return _is_of(head, self._aborted.get(head.producer_id, ()))


def _is_of(head: BatchHead, transactions: Iterable[AbortedTxn]) -> bool:
    return any(txn.first_offset <= head.base_offset <= txn.last_offset for txn in transactions)


def scan_transactions(
    piece: SegmentRange, open_before: OpenTransactions, indexes: Indexes
) -> tuple[list[AbortedTxn], OpenTransactions]:
    """The aborted transactions whose markers lie in the piece, and what is open after it.

    `open_before` are those open where the piece begins. The entries are what a broker writes to the
    transaction index (ProducerStateManager, TransactionIndex).
    """
    still_open = dict(open_before)
    aborted: list[AbortedTxn] = []
    position = indexes.position_for(piece.segment, piece.from_offset)
    for batch in BatchStream(piece.segment, position=position):
        if not isinstance(batch, RecordBatch) or batch.head.last_offset < piece.from_offset:
            continue
        head = batch.head
        if head.base_offset > piece.to_offset:
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
    """Whether a control batch is the marker of an aborted transaction."""
    marker = next(batch.records(), None)
    return marker is not None and control_record(marker).type is ControlType.ABORT
