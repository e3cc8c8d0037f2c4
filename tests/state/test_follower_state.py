"""KIP-405's scenarios: the state that a follower builds from the tier."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tierctl.errors import RemoteResourceNotFound
from tierctl.model import EpochEntry, RemoteLogSegmentState
from tierctl.state.lineage import (
    Lineage,
    RemoteLogMetadataCache,
    built_epochs,
    find_source,
    target_epoch,
)
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

from tests.read.tier import Tier
from tests.state.folding import cache_of
from tests.state.histories import finished, segment_id

Entries = list[tuple[int, int]]


class Segment(NamedTuple):
    """A remote segment of a scenario: number, offsets, epochs in the metadata, its leader-epoch index."""

    number: int
    start: int
    end: int
    epochs: Entries
    index: Entries


def tier(*segments: Segment) -> RemoteLogMetadataCache:
    return cache_of(e for s in segments for e in finished(s.number, s.start, s.end, tuple(s.epochs)))


SEG_0_2 = Segment(1, 0, 2, [(0, 0)], [(0, 0)])
SEG_3_5 = Segment(2, 3, 5, [(1, 3), (2, 5)], [(0, 0), (1, 3), (2, 5)])
SEG_6_8 = Segment(3, 6, 8, [(2, 6), (3, 7)], [(0, 0), (1, 3), (2, 5), (3, 7)])
DIVERGED_0_3 = Segment(4, 0, 3, [(0, 0)], [(0, 0)])
REWRITTEN_0_3 = Segment(5, 0, 3, [(0, 0), (1, 2)], [(0, 0), (1, 2)])
SEG_4_5 = Segment(6, 4, 5, [(0, 4), (2, 5)], [(0, 0), (2, 5)])
LEADER = [(0, 0), (1, 3), (2, 5), (3, 7)]
BACK = [(0, 0), (2, 5)]
GAP = [(0, 20), (1, 85), (3, 90), (4, 98)]


class Follower(NamedTuple):
    """A follower that must build its state: its leader, the tier, and the expected state."""

    leader: Entries
    local_start: int
    log_end: int
    segments: list[Segment]
    source: int
    next_offset: int
    built: Entries
    after_first_batch: Entries


FOLLOWERS = {
    # Scenario 1: an empty follower. The last offset below ELO 3 has epoch 0; the epoch that starts at ELO
    # comes with the first batch from the leader.
    "new follower": Follower(LEADER, 3, 8, [SEG_0_2, SEG_3_5], 1, 3, [(0, 0)], [(0, 0), (1, 3)]),
    # Scenario 3: the follower was down while segments up to 8 were tiered and deleted on the leader.
    "out of sync, moved to the tier": Follower(
        LEADER, 9, 12, [SEG_0_2, SEG_3_5, SEG_6_8], 3, 9, LEADER, LEADER
    ),
    # Scenario 5, last step: B's own lineage was discarded; neither of the two segments at 0-3 is used.
    "after an unclean election": Follower(
        BACK, 6, 7, [DIVERGED_0_3, REWRITTEN_0_3, SEG_4_5], 6, 6, BACK, BACK
    ),
    # The local log begins in the middle of a segment: the follower fetches from the segment's end on.
    "inside a segment": Follower(LEADER, 5, 12, [SEG_0_2, SEG_3_5], 2, 6, LEADER[:3], LEADER[:3]),
    # For an epoch without records (here 2), the earlier one is used, as Kafka's own comment states.
    "a gap in epochs": Follower(
        *(GAP, 90, 99, [Segment(7, 80, 89, [(0, 80), (1, 85)], GAP[:2])]),
        *(7, 90, GAP[:2], GAP[:3]),
    ),
}


@pytest.mark.parametrize("case", FOLLOWERS.values(), ids=FOLLOWERS)
def test_follower_builds_its_state_from_the_tier(case: Follower) -> None:
    leader = Lineage(case.leader)
    source = find_source(tier(*case.segments), leader, case.local_start, case.log_end)
    assert source.segment.segment_id == segment_id(case.source)
    index = next(segment.index for segment in case.segments if segment.number == case.source)
    built = built_epochs(source, index)
    assert source.next_offset == case.next_offset
    assert [tuple(entry) for entry in built.entries] == case.built
    first_batch_epoch = leader.epoch_for_offset(case.next_offset)
    assert first_batch_epoch is not None
    start = leader.entry(first_batch_epoch)
    assert start is not None
    first_batch = EpochEntry(first_batch_epoch, max(start.start_offset, 0))
    after = Lineage((*built.entries, first_batch))
    assert [tuple(entry) for entry in after.entries] == case.after_first_batch


def test_epochs_are_cut_to_the_log() -> None:
    leader, cache = Lineage(LEADER), tier(SEG_0_2, SEG_3_5, SEG_6_8)
    source = find_source(cache, leader, 9, 12)
    built = built_epochs(source, [*LEADER, (4, 9)], log_start_offset=4)
    assert [tuple(entry) for entry in built.entries] == [(1, 4), (2, 5), (3, 7)]


@pytest.mark.parametrize("local_start", [0, 9, 100])
def test_state_cannot_be_built_from_what_was_not_copied(local_start: int) -> None:
    with pytest.raises(RemoteResourceNotFound, match=f"offset {local_start - 1} "):
        find_source(tier(SEG_0_2, SEG_3_5), Lineage(LEADER), local_start, 200)


def test_target_epoch_of_an_unknown_offset() -> None:
    assert target_epoch(Lineage(), 5, 10) is None
    assert target_epoch(Lineage([(4, 100)]), 120, 130) == 4


def test_state_built_from_a_captured_tier_is_the_brokers_lineage(capture: Callable[[str], Path]) -> None:
    """payouts keeps one local segment: broker 1 built its epochs from the tier when it came back."""
    root = capture("unclean-leader")
    broker = root / "before" / "broker-1"
    checkpoint = broker / "payouts-0" / "leader-epoch-checkpoint"
    lineage = Lineage(read_leader_epoch_checkpoint(checkpoint.read_bytes()))
    cache = Tier.of(broker, root / "before" / "remote").partition("payouts").cache
    for local_start in (520, 600, 864, 1010, 1444):
        source = find_source(cache, lineage, local_start, 1550)
        assert source.segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        (index,) = root.glob(f"before/remote/**/*-{source.segment.segment_id}.leader_epoch_checkpoint")
        built = built_epochs(source, read_leader_epoch_checkpoint(index.read_bytes()))
        assert built == lineage.truncate_from_end(source.next_offset)
