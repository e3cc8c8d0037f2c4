"""States folded from captured brokers' metadata logs, and lineages from their log directories."""

from pathlib import Path

from tierctl.model import EpochEntry
from tierctl.state.lineage import Lineage
from tierctl.state.tier_state import TierState
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

from tests.read.tier import metadata_values, state_of


def read_state(broker: Path) -> TierState:
    """Return the state of a broker's `__remote_log_metadata-*` folders."""
    return state_of(metadata_values(broker))


def lineage_of(broker: Path, topic_partition: str) -> Lineage:
    """Return a replica's leader epochs."""
    entries: tuple[EpochEntry, ...] = read_leader_epoch_checkpoint(
        (broker / topic_partition / "leader-epoch-checkpoint").read_bytes()
    )
    return Lineage(entries)
