"""The local log of a partition whose records are in the tier: empty, and it begins where the tier ends."""

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
    """A partition's log in `log_dir`, from `start_offset` on; the tier has the offsets below `tier_end`.

    `leader_epochs` are those from `start_offset` on; `latest_epoch` is the highest that any of its leaders
    had. `snapshot` is the producer snapshot at `tier_end`, None without a readable one; the log has it only
    with `has_producers`, since a cluster that goes on may give the ids in it to other producers.
    `timestamp_ms` is that of the newest record.
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
        """The producers in the snapshot; CorruptInputError for a damaged one."""
        return () if self.snapshot is None else decode_producer_snapshot(self.snapshot)

    @property
    def open_transactions(self) -> list[ProducerEntry]:
        """The producers whose transaction has no end in the tier, in the order of its first offsets."""
        found = [each for each in self.producers if each.current_txn_first_offset >= 0]
        return sorted(found, key=lambda each: each.current_txn_first_offset)

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files of the partition's folder by name.

        The name of the log is the end of the tier. It has a marker for each transaction that the tier has no
        end of: readers would wait for it for ever, since no coordinator knows the transaction.
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
