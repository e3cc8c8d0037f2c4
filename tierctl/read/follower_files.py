"""Fetch a follower's state from the tier (KIP-405's buildRemoteLogAuxState), and write its files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tierctl.errors import CorruptInputError
from tierctl.files import PLAIN, replace_durably
from tierctl.model import IndexType
from tierctl.read.index_lookup import IndexFetcher
from tierctl.read.readable_log import ReadableLog
from tierctl.state.follower_state import AuxiliaryState, build, find_source
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    read_leader_epoch_checkpoint,
    write_leader_epoch_checkpoint,
)
from tierctl.wire.files.producer_snapshot import ProducerEntry, decode_producer_snapshot


@dataclass(frozen=True, slots=True)
class FetchedFollowerState:
    """A follower's state with its producer snapshot, decoded and as stored."""

    state: AuxiliaryState
    producers: tuple[ProducerEntry, ...]
    producer_snapshot: bytes

    def to_json(self) -> dict[str, Any]:
        """Return the state as a JSON-ready object."""
        segment = self.state.source.segment
        return {
            "topic": segment.topic,
            "topic_id": segment.topic_id,
            "partition": segment.partition,
            "segment_id": segment.segment_id,
            "epoch": self.state.source.epoch,
            "next_offset": self.state.next_offset,
            "leader_epochs": [list(entry) for entry in self.state.leader_epochs.entries],
            "producers": [entry._asdict() for entry in self.producers],
        }


def fetch_follower_state(
    log: ReadableLog, fetcher: IndexFetcher, leader_local_log_start_offset: int
) -> FetchedFollowerState:
    """Fetch the state that a follower builds if the leader's local log starts at that offset.

    Raise RemoteResourceNotFound if no segment contains the offset before it or an index is missing, and
    CorruptInputError for a damaged index: a replica must not be built from uncertain data.
    """
    log_end = log.end_offset if log.replica is None else log.replica.log.log_end_offset
    source = find_source(log.cache, log.lineage, leader_local_log_start_offset, log_end)
    index = fetcher.get(source.segment, IndexType.LEADER_EPOCH)
    snapshot = fetcher.get(source.segment, IndexType.PRODUCER_SNAPSHOT)
    try:
        epochs = read_leader_epoch_checkpoint(index)
        producers = decode_producer_snapshot(snapshot)
    except CorruptInputError as e:
        raise e.within(f"the indexes of remote segment {source.segment.segment_id}") from None
    log_start = 0 if log.replica is None else log.log_start_offset
    return FetchedFollowerState(build(source, epochs, log_start), producers, snapshot)


def write_follower_files(found: FetchedFollowerState, folder: Path) -> list[Path]:
    """Write `leader-epoch-checkpoint` and `<next offset>.snapshot` into `folder`; return their paths."""
    PLAIN.make_folder(folder)
    snapshot = folder / f"{found.state.next_offset:020d}.snapshot"
    replace_durably(snapshot, found.producer_snapshot)
    checkpoint = folder / LEADER_EPOCHS_FILE
    replace_durably(checkpoint, write_leader_epoch_checkpoint(found.state.leader_epochs.entries))
    return [snapshot, checkpoint]
