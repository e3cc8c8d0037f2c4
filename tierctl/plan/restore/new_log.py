"""Build the local log of a restored partition: it has no records, and begins where the tier ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tierctl.model import EpochEntry, TopicIdPartition
from tierctl.wire.batches.record_batch import encode_abort_marker
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    PARTITION_METADATA_FILE,
    write_leader_epoch_checkpoint,
    write_partition_metadata,
)
from tierctl.wire.files.producer_snapshot import ProducerEntry, decode_producer_snapshot


@dataclass(frozen=True, kw_only=True)
class NewLog:
    """A partition's log in `log_dir` from `start_offset` on; the tier has the offsets below `tier_end`.

    `leader_epochs` are the epochs from `start_offset` on; `latest_epoch` is the highest epoch of any leader
    of the partition. `snapshot` is the producer snapshot at `tier_end`; None if the tier has no readable one.
    The snapshot is written only if `has_producers` is set: an existing cluster may have assigned the producer
    ids in it to other producers. `timestamp_ms` is the timestamp of the newest record.
    """

    partition: TopicIdPartition
    log_dir: Path
    start_offset: int
    tier_end: int
    leader_epochs: Sequence[EpochEntry]
    latest_epoch: int
    snapshot: bytes | None
    timestamp_ms: int
    has_producers: bool = True

    @cached_property
    def producers(self) -> Sequence[ProducerEntry]:
        """Return the producers in the snapshot; raise CorruptInputError if the snapshot is damaged."""
        return () if self.snapshot is None else decode_producer_snapshot(self.snapshot)

    @property
    def open_transactions(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction at the tier's end, sorted by its first offset."""
        found = [each for each in self.producers if each.current_txn_first_offset >= 0]
        return sorted(found, key=lambda each: each.current_txn_first_offset)

    @property
    def files(self) -> Mapping[str, bytes]:
        """Return the content of each file in the partition's folder, by file name.

        The log file is named by the end of the tier. It has an abort marker for each open transaction:
        without a marker, read_committed consumers would wait forever, since no transaction coordinator knows
        the transaction.
        """
        found = {
            f"{self.tier_end:020d}.log": b"".join(self._markers()),
            LEADER_EPOCHS_FILE: write_leader_epoch_checkpoint(self.leader_epochs),
            PARTITION_METADATA_FILE: write_partition_metadata(self.partition.topic_id),
        }
        if self.snapshot is not None and self.has_producers:
            found[f"{self.tier_end:020d}.snapshot"] = self.snapshot
        return found

    def _markers(self) -> list[bytes]:
        return [
            encode_abort_marker(
                self.tier_end + number,
                self.timestamp_ms,
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                coordinator_epoch=max(each.coordinator_epoch, 0),
                partition_leader_epoch=self.leader_epochs[-1].epoch,
            )
            for number, each in enumerate(self.open_transactions)
        ]
