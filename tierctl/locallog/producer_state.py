"""Which transactions are open at an offset, and so where the last stable offset is.

Source: ProducerStateManager, ProducerAppendInfo, UnifiedLog.lastStableOffset.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.locallog.batches import pieces_between
from tierctl.locallog.files import SegmentFiles, list_producer_snapshots
from tierctl.wire.batches.batch_heads import BadRange, BatchHead, Buffer
from tierctl.wire.batches.record_batch import ControlType, batch_at, control_record
from tierctl.wire.files.indexes import AbortedTxn
from tierctl.wire.files.producer_snapshot import ProducerEntry, decode_producer_snapshot

_MARKERS = frozenset({ControlType.ABORT, ControlType.COMMIT})


@dataclass(slots=True)
class OpenTransactions:
    """The open transactions at some offset: first offset by producer id."""

    first_offsets: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, entries: Iterable[ProducerEntry]) -> "OpenTransactions":
        """The state at the snapshot's offset."""
        began = {e.producer_id: e.current_txn_first_offset for e in entries}
        return cls({producer: offset for producer, offset in began.items() if offset >= 0})

    @property
    def first_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        return min(self.first_offsets.values(), default=None)

    def append(self, buf: Buffer, head: BatchHead) -> AbortedTxn | None:
        """Takes the next batch into account; gives the transaction it aborted, if any.

        Raises CorruptInputError when a marker can't be read.
        """
        if head.producer_id < 0 or not head.is_transactional:
            return None
        if not head.is_control:
            self.first_offsets.setdefault(head.producer_id, head.base_offset)
            return None
        # Compaction leaves empty marker batches, whose transaction is wholly gone.
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
    """The first offset of the oldest transaction open at the high watermark, else the high watermark.

    Starts from the newest usable producer snapshot at or below the high watermark. Where batches can't be
    read nothing is known to be decided, so that offset is a bound as well.
    """
    start, transactions = _load(directory, segments, log_start_offset, high_watermark)
    unstable = []
    for buf, piece in pieces_between(segments, start, high_watermark):
        if isinstance(piece, BadRange):
            unstable.append(start if piece.first_offset is None else piece.first_offset)
            continue
        try:
            transactions.append(buf, piece)
        except CorruptInputError:
            unstable.append(piece.base_offset)
    if transactions.first_offset is not None:
        unstable.append(transactions.first_offset)
    return max(min([*unstable, high_watermark]), log_start_offset)


def _load(
    directory: Path, segments: Sequence[SegmentFiles], log_start_offset: int, high_watermark: int
) -> tuple[int, OpenTransactions]:
    """Where to replay from, and the state there. Snapshots at or below the log start are out of date."""
    first = segments[0].base_offset if segments else log_start_offset
    for offset in reversed(list_producer_snapshots(directory)):
        if not (log_start_offset < offset <= high_watermark and first <= offset):
            continue
        try:
            entries = decode_producer_snapshot((directory / f"{offset:020d}.snapshot").read_bytes())
        except CorruptInputError:
            continue
        return offset, OpenTransactions.from_snapshot(entries)
    return max(first, log_start_offset), OpenTransactions()
