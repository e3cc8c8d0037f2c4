"""The state that a follower builds before it can fetch from a leader whose log begins in the tier.

TierStateMachine's decisions, without input and output: the segment that supplies leader epochs and producer
snapshot, the offset at which fetching continues, and the resulting epochs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tierctl.errors import RemoteResourceNotFound
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.lineage import Lineage


@dataclass(frozen=True, slots=True)
class AuxiliarySource:
    """The segment that supplies a follower's leader epochs and producer snapshot.

    `epoch` is the leader epoch by which the segment was found.
    """

    segment: RemoteLogSegmentMetadata
    epoch: int

    @property
    def next_offset(self) -> int:
        """Return the start offset of the follower's local log: the offset after the segment."""
        return self.segment.end_offset + 1


@dataclass(frozen=True, slots=True)
class AuxiliaryState:
    """A follower's state as of `next_offset`: the epochs of all records before it, and the source segment.

    The follower stores the segment's producer snapshot as `<next_offset>.snapshot`.
    """

    source: AuxiliarySource
    leader_epochs: Lineage

    @property
    def next_offset(self) -> int:
        """Return the start offset of the follower's local log, at which fetching continues."""
        return self.source.next_offset


def target_epoch(leader: Lineage, leader_local_log_start_offset: int, log_end_offset: int) -> int | None:
    """Return the epoch of the last offset below the leader's local log, as a follower asks the leader for it.

    `leader` is the leader's whole lineage. Return None if it does not contain the offset.
    """
    epoch = leader.epoch_for_offset(leader_local_log_start_offset)
    if epoch is None or epoch == 0:
        return epoch
    earlier = leader.end_offset_for(epoch - 1, log_end_offset)
    return earlier.epoch if earlier.end_offset > leader_local_log_start_offset - 1 else epoch


def find_source(
    cache: RemoteLogMetadataCache, leader: Lineage, leader_local_log_start_offset: int, log_end_offset: int
) -> AuxiliarySource:
    """Return the segment that holds the last offset below the leader's local log.

    Raise RemoteResourceNotFound if the tier has no such segment; a broker cannot build the replica then.
    """
    offset = leader_local_log_start_offset - 1
    epoch = target_epoch(leader, leader_local_log_start_offset, log_end_offset)
    segment = None if epoch is None else cache.remote_log_segment_metadata(epoch, offset)
    if epoch is None or segment is None:
        raise RemoteResourceNotFound(
            f"no remote segment holds offset {offset} of leader epoch {epoch}",
            hint="give an offset at or below the last copied offset",
        )
    return AuxiliarySource(segment, epoch)


def build(
    source: AuxiliarySource, leader_epoch_index: Iterable[tuple[int, int]], log_start_offset: int = 0
) -> AuxiliaryState:
    """Return the follower's state, given the entries of the segment's leader-epoch index.

    Epochs that begin at `next_offset` or later are dropped, and so are offsets below `log_start_offset`.
    """
    epochs = Lineage(leader_epoch_index).truncate_from_end(source.next_offset)
    return AuxiliaryState(source, epochs.truncate_from_start(log_start_offset))
