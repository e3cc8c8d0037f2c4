"""The state of a log up to one of its segments: open transactions, their producers, the largest timestamp.

Segments are written independently of each other; each returns its changes of transactions, which are applied
here in the order of the log.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tierctl.apply.written_segment import Change
from tierctl.locallog.loading import OpenTransactions, entry_of
from tierctl.wire.batches.batch_head import NO_TIMESTAMP, BatchHead
from tierctl.wire.files.checkpoints import ProducerEntry
from tierctl.wire.files.indexes import AbortedTxn


@dataclass(slots=True)
class LogState:
    """The state of a log up to `next_offset`."""

    next_offset: int
    largest_timestamp_ms: int = NO_TIMESTAMP
    transactions: OpenTransactions = field(default_factory=OpenTransactions)
    last_batches: dict[int, BatchHead] = field(default_factory=dict)
    """The last batch with records of each producer that began a transaction."""

    def open_producers(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction, as a producer snapshot has them.

        Those without one are left out: their ids are of another cluster, and a new producer with the same id
        would be fenced.
        """
        open_now = sorted(self.transactions.first_offsets.items())
        return [entry_of(self.last_batches[producer_id], first) for producer_id, first in open_now]

    def follow(self, changes: Iterable[Change]) -> list[AbortedTxn]:
        """Apply the changes that the next segment makes; return the transactions that they abort."""
        aborted: list[AbortedTxn] = []
        for head, marker in changes:
            if not head.is_control:
                self.last_batches[head.producer_id] = head
            ended = self.transactions.append(marker, head)
            if ended is not None:
                aborted.append(ended)
        return aborted


@dataclass(slots=True)
class SegmentChanges:
    """Collects the changes that one segment makes to the transactions of its log.

    Of the batches of a transaction only the first and the last matter, and the last only while it is open.
    """

    _changes: list[Change] = field(default_factory=list)
    _last: dict[int, BatchHead] = field(default_factory=dict)

    def append(self, buf: bytes, head: BatchHead) -> None:
        """Add the segment's next transactional batch; `head` is its header in `buf`."""
        moved = head._replace(position=0)
        if head.is_control:
            self._changes.append((moved, buf[head.position : head.end]))
            # Compaction may remove the marker from its batch; an empty batch ends no transaction.
            if head.record_count:
                self._last.pop(head.producer_id, None)
            return
        if head.producer_id not in self._last:
            self._changes.append((moved, b""))
        self._last[head.producer_id] = moved

    def all(self) -> tuple[Change, ...]:
        """Return the changes in the order of the log, and then the last batch of each open transaction."""
        return (*self._changes, *((head, b"") for head in self._last.values()))
