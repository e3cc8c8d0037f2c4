"""Compare a segment's producer snapshot with the batches in its log."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tierctl.wire.batches.batch_head import CONTROL
from tierctl.wire.batches.scan import HeadColumns
from tierctl.wire.files.checkpoints import ProducerEntry


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
