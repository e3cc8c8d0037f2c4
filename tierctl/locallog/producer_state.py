"""Finds the last stable offset: the first offset of the oldest transaction that is still open.

Source: ProducerStateManager, ProducerAppendInfo, UnifiedLog.lastStableOffset.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tierctl.errors import CorruptInputError
from tierctl.files import read_regular
from tierctl.locallog.batches import items_between
from tierctl.locallog.files import SegmentFiles, list_producer_snapshots
from tierctl.model import OpenTransaction
from tierctl.wire.batches.batch_heads import BadRange, BatchHead, Buffer
from tierctl.wire.batches.record_batch import ControlType, batch_at, control_record
from tierctl.wire.files.indexes import AbortedTxn
from tierctl.wire.files.producer_snapshot import ProducerEntry, decode_producer_snapshot

_MARKERS = frozenset({ControlType.ABORT, ControlType.COMMIT})


@dataclass(slots=True)
class OpenTransactions:
    """The transactions that are open at one offset: their first offsets by producer id."""

    first_offsets: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, entries: Iterable[ProducerEntry]) -> Self:
        """Return the transactions that are open at the offset of a producer snapshot with these entries."""
        first_offsets = {e.producer_id: e.current_txn_first_offset for e in entries}
        return cls({producer: offset for producer, offset in first_offsets.items() if offset >= 0})

    @property
    def first_offset(self) -> int | None:
        """First offset of the oldest open transaction; None if none is open."""
        return min(self.first_offsets.values(), default=None)

    def append(self, buf: Buffer, head: BatchHead) -> AbortedTxn | None:
        """Apply the next batch of the log; return the transaction that the batch aborts, None if none.

        `head` is the batch's header in `buf`. CorruptInputError if a control record can't be decoded.
        """
        if head.producer_id < 0 or not head.is_transactional:
            return None
        if not head.is_control:
            self.first_offsets.setdefault(head.producer_id, head.base_offset)
            return None
        # Compaction leaves empty marker batches; no record of their transactions is left.
        kinds = [control_record(record).type for record in batch_at(buf, head).records()]
        if not kinds or kinds[0] not in _MARKERS:
            return None
        first = self.first_offsets.pop(head.producer_id, None)
        if first is None or kinds[0] is ControlType.COMMIT:
            return None
        oldest = self.first_offset
        stable = head.last_offset + 1 if oldest is None else oldest
        return AbortedTxn(head.producer_id, first, head.last_offset, stable)


def last_stable_offset(
    directory: Path, segments: Sequence[SegmentFiles], *, log_start_offset: int, high_watermark: int
) -> int:
    """Return the first offset of the oldest transaction that is open at the high watermark.

    Without an open transaction the result is the high watermark. The batches after the newest valid producer
    snapshot are read. A batch that can't be decoded may hold the marker of any transaction, so its offset
    limits the result, too.
    """
    start, transactions = _load(directory, segments, log_start_offset, high_watermark)
    unstable = []
    for buf, item in items_between(segments, start, high_watermark):
        if isinstance(item, BadRange):
            unstable.append(start if item.first_offset is None else item.first_offset)
            continue
        try:
            transactions.append(buf, item)
        except CorruptInputError:
            unstable.append(item.base_offset)
    if transactions.first_offset is not None:
        unstable.append(transactions.first_offset)
    return max(min([*unstable, high_watermark]), log_start_offset)


def open_transaction_at(
    segments: Sequence[SegmentFiles], stable_offset: int, high_watermark: int
) -> OpenTransaction | None:
    """Return the transaction whose first batch begins at `stable_offset`, the last stable offset.

    None if the last stable offset is the high watermark, or if no transactional batch begins there.
    """
    if stable_offset >= high_watermark:
        return None
    for _, item in items_between(segments, stable_offset, stable_offset + 1):
        if isinstance(item, BatchHead) and item.is_transactional and item.base_offset == stable_offset:
            since_ms = item.base_timestamp_ms
            return OpenTransaction(producer_id=item.producer_id, since_ms=since_ms if since_ms >= 0 else None)
    return None


def _load(
    directory: Path, segments: Sequence[SegmentFiles], log_start_offset: int, high_watermark: int
) -> tuple[int, OpenTransactions]:
    """Return the offset from which to read batches, and the transactions that are open there.

    Snapshots at or below the log start are not used: they are out of date.
    """
    first = segments[0].base_offset if segments else log_start_offset
    for offset in reversed(list_producer_snapshots(directory)):
        if not (log_start_offset < offset <= high_watermark and first <= offset):
            continue
        try:
            entries = decode_producer_snapshot(read_regular(directory / f"{offset:020d}.snapshot"))
        except CorruptInputError:
            continue
        return offset, OpenTransactions.from_snapshot(entries)
    return max(first, log_start_offset), OpenTransactions()
