"""KIP-405's scenarios: the state that a follower builds, the new leader, and consumers' reads."""

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
    find_highest_remote_offset,
    find_source,
    segments_in_lineage,
    target_epoch,
)
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

from tests.state.captures import lineage_of, partition, read_state
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


def test_follower_in_range_truncates_nothing() -> None:
    """Scenario 2: the leader still has the offset; LE-1 ends at 5, above the follower's log of [0, 4)."""
    assert tuple(Lineage(LEADER).end_offset_for(1, 10)) == (1, 5)


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


class Election(NamedTuple):
    """Fetches of consumers (epoch, offset) with a lineage, and the segment that each of them reads."""

    lineage: Entries
    segments: list[Segment]
    answers: dict[tuple[int, int], int | None]
    timeline: list[tuple[int, int, int]]


SEG_0_1 = Segment(1, 0, 1, [(0, 0)], [(0, 0)])
SEG_1_1 = Segment(2, 1, 1, [(1, 1)], [(0, 0), (1, 1)])
ELECTIONS = {
    # Scenario 4: both brokers crash, and B comes back as leader without messages 1 and 2.
    "crash of both": Election(
        [(0, 0), (1, 1), (2, 2)],
        [SEG_0_1, SEG_1_1],
        {(0, 0): 1, (1, 1): 2, (2, 2): None},
        [(1, 0, 0), (2, 1, 1)],
    ),
    # Scenario 5, steps 1 and 2: A copied 0-3, B became leader uncleanly and copied its own 0-3.
    "unclean, B leads": Election(
        [(0, 0), (1, 2)],
        [DIVERGED_0_3, REWRITTEN_0_3],
        {(0, 0): 5, (0, 1): 5, (0, 2): None, (1, 2): 5, (1, 3): 5},
        [(5, 0, 3)],
    ),
    # Step 3: A is leader again with its old records and copies 4-5. Kafka's offset map has replaced A's 0-3
    # by B's, of which only 0-1 are A's records: offsets 2 and 3 are in the tier, but no broker finds them.
    "unclean, A leads again": Election(
        [(0, 0), (2, 5)],
        [DIVERGED_0_3, REWRITTEN_0_3, SEG_4_5],
        {(0, 0): 5, (0, 1): 5, (0, 2): None, (0, 3): None, (0, 4): 6, (2, 5): 6, (2, 6): None},
        [(5, 0, 1), (6, 4, 5)],
    ),
}


@pytest.mark.parametrize("case", ELECTIONS.values(), ids=ELECTIONS)
def test_consumers_read_the_current_lineage(case: Election) -> None:
    cache = tier(*case.segments)
    for (epoch, offset), number in case.answers.items():
        found = cache.remote_log_segment_metadata(epoch, offset)
        assert (found and found.segment_id) == (number and segment_id(number))
    read = [
        (s.segment.segment_id, s.from_offset, s.to_offset)
        for s in segments_in_lineage(cache, Lineage(case.lineage))
    ]
    assert read == [(segment_id(number), begin, end) for number, begin, end in case.timeline]


@pytest.mark.parametrize(
    ("lineage", "segments", "copied_up_to"),
    [
        # A new leader searches from the latest epoch backwards, and continues to copy at 5.
        ([*LEADER[:2], (2, 6)], [SEG_0_2, Segment(2, 3, 4, [(1, 3)], LEADER[:2])], 4),
        # B leads after A copied 0-3 of epoch 0, which ends at 2 for B.
        ([(0, 0), (1, 2)], [DIVERGED_0_3], 1),
        # A leads again: its own copy counts, and it does not know B's epoch 1.
        ([(0, 0), (2, 5)], [DIVERGED_0_3, REWRITTEN_0_3], 3),
        ([(0, 0)], [], -1),
    ],
    ids=["promotion", "unclean", "unclean and back", "nothing copied"],
)
def test_new_leader_finds_where_to_copy_on(
    lineage: Entries, segments: list[Segment], copied_up_to: int
) -> None:
    assert find_highest_remote_offset(tier(*segments), Lineage(lineage), 10) == copied_up_to


def test_state_built_from_a_captured_tier_is_the_brokers_lineage(capture: Callable[[str], Path]) -> None:
    """payouts keeps one local segment: broker 1 built its epochs from the tier when it came back."""
    root = capture("unclean-leader")
    broker = root / "before" / "broker-1"
    lineage = lineage_of(broker, "payouts-0")
    cache = partition(read_state(broker), "payouts").cache
    for local_start in (520, 600, 864, 1010, 1444):
        source = find_source(cache, lineage, local_start, 1550)
        assert source.segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        (index,) = root.glob(f"before/remote/**/*-{source.segment.segment_id}.leader_epoch_checkpoint")
        built = built_epochs(source, read_leader_epoch_checkpoint(index.read_bytes()))
        assert built == lineage.truncate_from_end(source.next_offset)
