"""The state of producers at one offset of a log, which a producer snapshot stores.

Source: ProducerStateManager, ProducerAppendInfo, ProducerStateEntry.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from tierctl.wire.batches.batch_heads import BatchHead, Buffer
from tierctl.wire.batches.record_batch import ControlType, batch_at, control_record
from tierctl.wire.files.producer_snapshot import ProducerEntry

_SEQUENCE_MAX = (1 << 31) - 1
"""The sequence after the highest one is 0 (DefaultRecordBatch.incrementSequence)."""
_MARKERS = frozenset({ControlType.ABORT, ControlType.COMMIT})
_BUCKETS_MIN = 16


def entry_of(head: BatchHead, first_offset: int, coordinator_epoch: int = -1) -> ProducerEntry:
    """Return the state of a producer whose last batch of records has this head.

    `first_offset` is that of its open transaction, -1 without one.
    """
    sequence = (
        (head.base_sequence + head.last_offset_delta) & _SEQUENCE_MAX if head.base_sequence >= 0 else -1
    )
    return ProducerEntry(
        producer_id=head.producer_id,
        epoch=head.producer_epoch,
        last_sequence=sequence,
        last_offset=head.last_offset,
        offset_delta=head.last_offset_delta,
        timestamp_ms=head.max_timestamp_ms,
        coordinator_epoch=coordinator_epoch,
        current_txn_first_offset=first_offset,
    )


@dataclass(slots=True)
class ProducerTable:
    """The state of every producer of a log; producers that expired are not removed: no batch says when."""

    entries: dict[int, ProducerEntry] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, entries: Iterable[ProducerEntry]) -> Self:
        """Return the table at the offset of a producer snapshot with these entries."""
        return cls({entry.producer_id: entry for entry in entries})

    def append(self, buf: Buffer, head: BatchHead) -> None:
        """Apply the next batch; `head` is its header in `buf`.

        CorruptInputError if a control record can't be decoded.
        """
        if head.producer_id < 0:
            return
        before = self.entries.get(head.producer_id)
        if head.is_control:
            self._append_marker(buf, head, before)
            return
        first_offset = -1
        if head.is_transactional:
            is_open = before is not None and before.current_txn_first_offset >= 0
            first_offset = before.current_txn_first_offset if before and is_open else head.base_offset
        epoch = -1 if before is None else before.coordinator_epoch
        self.entries[head.producer_id] = entry_of(head, first_offset, epoch)

    def _append_marker(self, buf: Buffer, head: BatchHead, before: ProducerEntry | None) -> None:
        # Compaction may remove the marker from its batch; an empty batch ends no transaction.
        markers = [control_record(record) for record in batch_at(buf, head).records()]
        if not markers or markers[0].type not in _MARKERS:
            return
        if before is None or before.epoch != head.producer_epoch:
            # A new producer epoch forgets the batches of the old one.
            before = ProducerEntry(head.producer_id, head.producer_epoch, -1, -1, 0, -1, -1, -1)
        self.entries[head.producer_id] = before._replace(
            timestamp_ms=head.max_timestamp_ms,
            coordinator_epoch=markers[0].coordinator_epoch or 0,
            current_txn_first_offset=-1,
        )

    def in_file_order(self) -> list[ProducerEntry]:
        """Return the entries in the order of a broker's file: that of java.util.HashMap by producer id."""
        buckets = _BUCKETS_MIN
        while len(self.entries) * 4 > buckets * 3:
            buckets *= 2
        return sorted(self.entries.values(), key=lambda entry: _bucket(entry.producer_id, buckets))


def _bucket(producer_id: int, buckets: int) -> int:
    code = (producer_id ^ producer_id >> 32) & 0xFFFFFFFF
    return (code ^ code >> 16) & buckets - 1
