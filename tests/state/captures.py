"""States folded from captured brokers' metadata logs, and lineages from their log directories."""

from pathlib import Path

import pyarrow as pa
from tierctl.model import EpochEntry
from tierctl.state.fold import fold
from tierctl.state.lineage import Lineage
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.wire.batches.record_batch import batches
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint
from tierctl.wire.metadata.decode import decode_values


def read_state(broker: Path) -> TierState:
    """Return the state of a broker's `__remote_log_metadata-*` folders."""
    state = TierState()
    for log in sorted(broker.glob("__remote_log_metadata-*/*.log")):
        records = [record for batch in batches(log.read_bytes()) for record in batch.records()]
        fold(
            decode_values(pa.array([record.value for record in records], pa.binary())),
            state,
            metadata_partition=int(log.parent.name.rpartition("-")[2]),
            metadata_offsets=[record.offset for record in records],
        )
    return state


def partition(state: TierState, topic: str, number: int = 0) -> PartitionState:
    """Return the state of a partition by name."""
    (found,) = (
        p for p in state if (p.topic_id_partition.topic, p.topic_id_partition.partition) == (topic, number)
    )
    return found


def lineage_of(broker: Path, topic_partition: str) -> Lineage:
    """Return a replica's leader epochs."""
    entries: tuple[EpochEntry, ...] = read_leader_epoch_checkpoint(
        (broker / topic_partition / "leader-epoch-checkpoint").read_bytes()
    )
    return Lineage(entries)
