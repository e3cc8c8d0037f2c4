"""What a follower builds before it can fetch from a leader whose log begins in the tier.

TierStateMachine's decisions, without its input and output: which segment supplies the leader epochs and
the producer snapshot, up to which offset, and what the epochs are then.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tierctl.errors import RemoteResourceNotFound
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.lineage import Lineage


@dataclass(frozen=True, slots=True)
class AuxiliarySource:
    """The segment whose leader-epoch index and producer snapshot a follower takes.

    `epoch` is the one it was found by; fetching from the leader goes on at `next_offset`.
    """

    segment: RemoteLogSegmentMetadata
    epoch: int

    @property
    def next_offset(self) -> int:
        """Where the follower's local log starts: the offset after the segment."""
        return self.segment.end_offset + 1


@dataclass(frozen=True, slots=True)
class AuxiliaryState:
    """A follower's state as of `next_offset`: epochs of all records below it, and where they came from.

    The producer snapshot is the segment's, to be kept as `<next_offset>.snapshot`.
    """

    source: AuxiliarySource
    leader_epochs: Lineage

    @property
    def next_offset(self) -> int:
        """Where the follower's local log starts and fetching goes on."""
        return self.source.next_offset


def target_epoch(leader: Lineage, leader_local_log_start_offset: int, log_end_offset: int) -> int | None:
    """The epoch of the last offset below the leader's local log, as a follower asks the leader for it.

    `leader` is the leader's whole lineage. None when it doesn't know the offset.
    """
    epoch = leader.epoch_for_offset(leader_local_log_start_offset)
    if epoch is None or epoch == 0:
        return epoch
    earlier = leader.end_offset_for(epoch - 1, log_end_offset)
    return earlier.epoch if earlier.end_offset > leader_local_log_start_offset - 1 else epoch


def find_source(
    cache: RemoteLogMetadataCache, leader: Lineage, leader_local_log_start_offset: int, log_end_offset: int
) -> AuxiliarySource:
    """The segment that holds the last offset below the leader's local log.

    Raises RemoteResourceNotFound when the tier has none: a broker then can't build the replica.
    """
    offset = leader_local_log_start_offset - 1
    epoch = target_epoch(leader, leader_local_log_start_offset, log_end_offset)
    segment = None if epoch is None else cache.remote_log_segment_metadata(epoch, offset)
    if epoch is None or segment is None:
        raise RemoteResourceNotFound(
            f"no remote segment holds offset {offset} of leader epoch {epoch}",
            hint="give an offset at or below the end of what was copied",
        )
    return AuxiliarySource(segment, epoch)


def build(
    source: AuxiliarySource, leader_epoch_index: Iterable[tuple[int, int]], log_start_offset: int = 0
) -> AuxiliaryState:
    """The follower's state from the segment's leader-epoch index (its entries, as the checkpoint has them).

    Whatever the index says from `next_offset` on is cut, as is what lies below `log_start_offset`.
    """
    epochs = Lineage(leader_epoch_index).truncate_from_end(source.next_offset)
    return AuxiliaryState(source, epochs.truncate_from_start(log_start_offset))
