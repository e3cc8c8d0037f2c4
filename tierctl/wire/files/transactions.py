"""Compare a segment's transaction index with the abort markers in its log."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tierctl.errors import CorruptInputError
from tierctl.wire.batches.batch_head import TRANSACTIONAL, BatchHead, Buffer
from tierctl.wire.batches.record_batch import ControlType, batch_at, control_record
from tierctl.wire.batches.segment_file import Window
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
