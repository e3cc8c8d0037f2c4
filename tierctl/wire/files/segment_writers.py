"""Compare a segment's transaction index and producer snapshot with the batches in its log."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tierctl.errors import CorruptInputError
from tierctl.wire.batches.batch_head import CONTROL, TRANSACTIONAL, BatchHead, Buffer
from tierctl.wire.batches.record_batch import ControlType, batch_at, control_record
from tierctl.wire.batches.scan import HeadColumns
from tierctl.wire.batches.segment_file import Window
from tierctl.wire.files.checkpoints import ProducerEntry
from tierctl.wire.files.indexes import TransactionIndex


@dataclass(slots=True)
class SegmentTransactions:
    """The transactions of one segment, as its batches show them; `follow` receives the windows of the log."""

    _begun: dict[int, int] = field(default_factory=dict)
    """First offset in this segment of each open transaction, by producer id."""
    _aborts: dict[int, int] = field(default_factory=dict)
    """Producer id of each abort marker, by the marker's offset."""
    _undone: dict[int, int] = field(default_factory=dict)
    """First offset in this segment of each aborted transaction, by the offset of its abort marker."""

    def follow(self, window: Window) -> None:
        """Apply the transactional batches of the next window."""
        heads = window.heads
        for row in np.flatnonzero(heads.fields["attributes"] & TRANSACTIONAL).tolist():
            self._append(window.data, heads.head(row))

    def _append(self, data: Buffer, head: BatchHead) -> None:
        if not head.is_control:
            self._begun.setdefault(head.producer_id, head.base_offset)
            return
        first = self._begun.pop(head.producer_id, None)
        try:
            kinds = [control_record(record).type for record in batch_at(data, head).records()]
        except CorruptInputError:
            return
        if ControlType.ABORT in kinds:
            self._aborts[head.base_offset] = head.producer_id
            if first is not None:
                self._undone[head.base_offset] = first

    def why_missing(self) -> str | None:
        """Return why the segment must have a transaction index; None if it may have none.

        A marker alone is no proof: brokers write no entry for a transaction without records.
        """
        if not self._undone:
            return None
        return f"there is no transaction index, though {len(self._undone)} transactions were aborted"

    def differences(self, index: TransactionIndex) -> Iterator[str]:
        """Yield each difference between the index and the log."""
        known = {entry.last_offset: entry for entry in index.entries}
        for entry in index.entries:
            # The last stable offset may be any lower value, because older transactions may have been open
            # then.
            stable = 0 <= entry.last_stable_offset <= entry.last_offset + 1
            if self._aborts.get(entry.last_offset) != entry.producer_id or not stable:
                yield f"the log has no aborted transaction for the entry {tuple(entry)}"
        for marker, first in self._undone.items():
            if marker not in known:
                yield f"the transaction from {first} that was aborted at {marker} is missing"
            elif known[marker].first_offset > first:
                yield f"the entry of the transaction aborted at {marker} begins after {first}"


@dataclass(slots=True)
class SegmentProducers:
    """The producers of one segment, as its batches show them; `follow` receives the heads of the log."""

    _last_offsets: dict[int, int] = field(default_factory=dict)
    """Last offset of each producer's last batch of data."""

    def follow(self, heads: HeadColumns) -> None:
        """Apply the next batches."""
        fields = heads.fields
        is_data = (fields["producer_id"] >= 0) & (fields["attributes"] & CONTROL == 0)
        ids, lasts = fields["producer_id"][is_data], heads.next_offsets[is_data] - 1
        self._last_offsets.update(zip(ids.tolist(), lasts.tolist(), strict=True))

    def older_entries(self, snapshot: Iterable[ProducerEntry]) -> Iterator[str]:
        """Yield each entry of the snapshot at the segment's end that is older than the log's batches.

        A producer may be missing, because brokers remove those that expired, and may have no last offset,
        because a transaction marker with a new producer epoch removes it.
        """
        for entry in snapshot:
            last = self._last_offsets.get(entry.producer_id, -1)
            if 0 <= entry.last_offset < last:
                yield (
                    f"producer {entry.producer_id} wrote last at {entry.last_offset}, the log has a batch of "
                    f"it up to {last}"
                )


@dataclass(slots=True)
class SegmentWriters:
    """The transactions and the producers of one segment; `follow` receives the windows of the log."""

    transactions: SegmentTransactions = field(default_factory=SegmentTransactions)
    producers: SegmentProducers = field(default_factory=SegmentProducers)

    def follow(self, window: Window) -> None:
        """Apply the batches of the next window."""
        self.transactions.follow(window)
        self.producers.follow(window.heads)
