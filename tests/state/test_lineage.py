"""Leader epochs: Kafka's cache of them, and the segments that belong to a lineage."""

from bisect import bisect_right
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError
from tierctl.model import EpochEntry, RemoteLogSegmentMetadata
from tierctl.state.lineage import (
    Lineage,
    RemoteLogMetadataCache,
    build_filtered_leader_epoch_map,
    find_highest_remote_offset,
    is_remote_segment_within_leader_epochs,
    segments_in_lineage,
)
from tierctl.state.log_start import Covered, cut_epochs
from tierctl.state.queries import PartitionSegments

from tests.state.folding import cache_of
from tests.state.histories import S, finished, segment_id, started, updated
from tests.support.amounts import examples

LEDGER = Lineage([(0, 0), (2, 10), (5, 30), (6, 50)])


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        ([(0, 0), (1, 10), (1, 20)], [(0, 0), (1, 10)]),
        ([(0, 0), (1, 10), (1, 5)], [(0, 0), (1, 5)]),
        ([(0, 0), (1, 10), (2, 10)], [(0, 0), (2, 10)]),
        ([(0, 0), (3, 30), (2, 40)], [(0, 0), (2, 40)]),
        ([(0, 0), (1, 10), (2, 20), (3, 5)], [(0, 0), (3, 5)]),
        ([(4, 7), (2, 0)], [(2, 0)]),
        ([], []),
    ],
    ids=["later again", "earlier again", "empty epoch", "epoch back", "offset back", "all over", "none"],
)
def test_entries_are_assigned_in_turn(entries: list[tuple[int, int]], kept: list[tuple[int, int]]) -> None:
    assert [tuple(entry) for entry in Lineage(entries).entries] == kept


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_negative_entries_are_refused(entry: tuple[int, int]) -> None:
    with pytest.raises(CorruptInputError, match="at least 0"):
        Lineage([entry])


@pytest.mark.parametrize(
    ("offset", "epoch"), [(-1, None), (0, 0), (9, 0), (10, 2), (29, 2), (30, 5), (49, 5), (50, 6), (900, 6)]
)
def test_epoch_for_offset(offset: int, epoch: int | None) -> None:
    assert LEDGER.epoch_for_offset(offset) == epoch


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ((-1, 7), (-1, -1)),
        ((0, 1), (0, 10)),
        ((2, 4), (2, 30)),
        ((5,), (5, 50)),
        ((6,), (6, 77)),
    ],
)
def test_end_offset_for(asked: tuple[int, ...], found: tuple[int, int]) -> None:
    assert [tuple(LEDGER.end_offset_for(epoch, 77)) for epoch in asked] == [found] * len(asked)


def test_end_offset_before_all_known_epochs_is_where_they_start() -> None:
    assert tuple(Lineage([(4, 100), (5, 200)]).end_offset_for(2, 300)) == (2, 100)
    assert tuple(Lineage().end_offset_for(0, 300)) == (-1, -1)


@pytest.mark.parametrize(
    ("offset", "from_start", "from_end"),
    [
        (-1, [*LEDGER.entries], [*LEDGER.entries]),
        (0, [*LEDGER.entries], []),
        (9, [(0, 9), (2, 10), (5, 30), (6, 50)], [(0, 0)]),
        (10, [(2, 10), (5, 30), (6, 50)], [(0, 0)]),
        (11, [(2, 11), (5, 30), (6, 50)], [(0, 0), (2, 10)]),
        (60, [(6, 60)], [*LEDGER.entries]),
    ],
)
def test_truncation(offset: int, from_start: list[tuple[int, int]], from_end: list[tuple[int, int]]) -> None:
    assert [tuple(e) for e in LEDGER.truncate_from_start(offset).entries] == from_start
    assert LEDGER.first_epoch_from(offset) == from_start[0][0]
    assert [tuple(e) for e in LEDGER.truncate_from_end(offset).entries] == from_end


def test_neighbours_and_ranges() -> None:
    assert Lineage().first_epoch_from(0) is None
    assert LEDGER.next_epoch(2) == 5
    assert (LEDGER.next_epoch(6), LEDGER.entry(5), LEDGER.entry(4)) == (None, EpochEntry(5, 30), None)
    assert (LEDGER.earliest, LEDGER.latest) == (EpochEntry(0, 0), EpochEntry(6, 50))
    assert (Lineage().earliest, Lineage().latest, bool(Lineage())) == (None, None, False)
    assert LEDGER.entries_in_range(12, 50) == ((2, 12), (5, 30))
    assert Lineage(LEDGER.entries) == LEDGER
    assert len({LEDGER, Lineage(LEDGER.entries), Lineage()}) == 2


def test_epochs_without_records_are_left_out() -> None:
    epochs = {0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 60, 6: 60, 7: 70, 10: 100, 9: 100}
    kept = {epoch: start for epoch, start in epochs.items() if epoch not in {5, 9}}
    assert build_filtered_leader_epoch_map(epochs) == kept
    assert build_filtered_leader_epoch_map({}) == {}


def within_by_the_letter(
    segment: RemoteLogSegmentMetadata, log_end_offset: int, leader_epochs: dict[int, int]
) -> bool:
    """Apply the rules of isRemoteSegmentWithinLeaderEpochs in order, as its comments state them."""
    own = build_filtered_leader_epoch_map(dict(segment.segment_leader_epochs))
    lineage, last = sorted(leader_epochs), max(own)
    if not lineage or last < lineage[0] or last > lineage[-1]:
        return False
    first = min(epoch for epoch in own if epoch >= lineage[0])

    def higher(epochs: dict[int, int], epoch: int) -> tuple[int, int] | None:
        return min(((e, s) for e, s in epochs.items() if e > epoch), default=None)

    for epoch, offset in own.items():
        if epoch < first:
            continue
        if epoch not in leader_epochs:
            return False
        if epoch == first and any(e < epoch for e in lineage) and offset < leader_epochs[epoch]:
            return False
        following = higher(leader_epochs, epoch)
        if epoch == last and following is not None and segment.end_offset > following[1] - 1:
            return False
        if epoch != last and following != higher(own, epoch):
            return False
    return segment.end_offset < log_end_offset


ascending = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 12)), min_size=1, max_size=5, unique_by=lambda e: e[0]
)


@given(ascending, ascending, st.integers(0, 16), st.integers(0, 20))
@examples(400)
def test_within_leader_epochs_is_kafkas_rule(
    own: list[tuple[int, int]], entries: list[tuple[int, int]], end: int, log_end: int
) -> None:
    segment = started(1, 0, end, tuple(own))
    leader_epochs = build_filtered_leader_epoch_map(dict(entries))
    expected = within_by_the_letter(segment, log_end, leader_epochs)
    assert is_remote_segment_within_leader_epochs(segment, log_end, leader_epochs) == expected


def test_epochs_below_a_truncated_lineage_are_forgiven() -> None:
    # The example of Kafka's own comment: an overlapping segment was deleted, and the lineage starts at 51.
    truncated = Lineage([(7, 51), (9, 100)])
    assert truncated.contains(started(2, 14, 150, ((5, 14), (7, 15), (9, 100))), 200)
    assert not truncated.contains(started(2, 14, 50, ((5, 14),)), 200)
    assert not Lineage().contains(started(2, 14, 50, ((5, 14),)), 200)


def tier(*segments: tuple[Any, ...]) -> RemoteLogMetadataCache:
    return cache_of(event for segment in segments for event in finished(*segment))


@pytest.mark.parametrize(
    ("segments", "highest"),
    [
        ([], -1),
        ([(1, 0, 9)], 9),
        ([(1, 0, 25, ((0, 0), (2, 10)))], 25),
        ([(1, 0, 40, ((0, 0),))], 9),
        ([(1, 0, 10, ((0, 0),))], 9),
        ([(1, 0, 9), (2, 30, 55, ((5, 30),))], 49),
        ([(1, 0, 9), (2, 30, 55, ((3, 30),))], 9),
    ],
    ids=["nothing", "one", "two epochs", "diverged", "diverged by one", "diverged later", "foreign epoch"],
)
def test_highest_remote_offset(segments: list[tuple[Any, ...]], highest: int) -> None:
    assert find_highest_remote_offset(tier(*segments), LEDGER, 60) == highest


def spans(cache: RemoteLogMetadataCache, *bounds: int) -> list[tuple[str, int, int]]:
    return [
        (s.segment.segment_id, s.from_offset, s.to_offset)
        for s in segments_in_lineage(cache, LEDGER, *bounds)
    ]


def test_each_offset_is_answered_once_by_its_lineage() -> None:
    cache = tier(
        (1, 0, 9),
        (2, 10, 34, ((0, 10),)),  # Copied by a former leader: the lineage has epoch 2 there.
        (3, 10, 34, ((2, 10), (5, 30))),
        (4, 35, 54, ((5, 35),)),  # Diverges where the lineage continues with epoch 6.
        (5, 52, 58, ((6, 52),)),
    )
    one, three, four, five = (segment_id(n) for n in (1, 3, 4, 5))
    assert spans(cache) == [(one, 0, 9), (three, 10, 34), (four, 35, 49), (five, 52, 58)]
    assert spans(cache, 32, 40) == [(three, 32, 34), (four, 35, 40)]
    assert spans(cache, 50, 51) == []
    assert spans(cache, 59) == []
    assert list(segments_in_lineage(cache, Lineage())) == []


@pytest.mark.parametrize(
    ("epochs", "read"), [(((-1, 0), (2, 10)), [(10, 19)]), (((0, -5), (2, 10)), [(0, 19)]), (((-7, 0),), [])]
)
def test_epochs_and_offsets_that_no_log_has_end_no_question(
    epochs: tuple[tuple[int, int], ...], read: list[tuple[int, int]]
) -> None:
    """Brokers take such an event; it must not end a run that asks about all segments."""
    known = PartitionSegments.of_cache(tier((1, 0, 19, epochs)))
    assert list(known.readable_ranges(LEDGER, 0)) == read
    cut = cut_epochs(
        Lineage([(1, 0), (2, 5)]), known, log_start_offset=0, log_end_offset=90, local_start_offset=20
    )
    assert cut is None or [segment.segment_id for segment in cut.lost] == [segment_id(1)]
    possible = [(epoch, max(start, 0)) for epoch, start in epochs if epoch >= 0]
    assert [tuple(each) for each in known.epoch_starts()] == possible


@pytest.mark.parametrize(
    ("log_start", "is_proven"), [(0, True), (4, True), (5, None), (6, None), (7, None), (16, None)]
)
def test_a_log_start_within_a_segment_that_diverged_cut_no_epochs(
    log_start: int, is_proven: bool | None
) -> None:
    """DeleteRecords removed epoch 0, which ends at 4, and later epoch 1, of which 5 and 6 are in the log."""
    known = PartitionSegments.of_cache(
        tier((1, 0, 21, ((0, 0), (1, 5))), (2, 0, 16, ((0, 0), (1, 5), (3, 7))))
    )
    raised = Lineage([(0, 0), (1, 5), (3, 7)]).truncate_from_start(max(log_start, 5))
    cut = cut_epochs(
        raised, known, log_start_offset=log_start, log_end_offset=17, local_start_offset=max(log_start, 10)
    )
    assert (None if cut is None else cut.is_proven) is is_proven


@pytest.mark.parametrize(("log_start", "is_cut"), [(0, True), (4, True), (5, False), (9, False)])
def test_readers_find_what_a_diverged_segment_has_above_the_log_start(log_start: int, is_cut: bool) -> None:
    """The first leader copied [0, 19], the second [10, 29]: the log needs 5 to 9 of the first segment."""
    known = PartitionSegments.of_cache(tier((1, 0, 19), (2, 10, 29, ((1, 10),))))
    raised = Lineage([(0, 5), (1, 10)]).truncate_from_start(log_start)
    cut = cut_epochs(raised, known, log_start_offset=log_start, log_end_offset=30, local_start_offset=30)
    assert (cut is not None) is is_cut


def test_an_epoch_far_above_the_end_of_its_segment_is_no_endless_range() -> None:
    cache = tier((1, 0, 9, ((0, 0), (7, 1 << 62))))
    found = segments_in_lineage(cache, Lineage([(0, 0)]))
    assert [(span.from_offset, span.to_offset) for span in islice(found, 9)] == [(0, 9), (10, (1 << 62) - 1)]


def test_segment_that_spans_into_a_later_epoch_is_found_after_a_hole() -> None:
    deleted = [*finished(1, 20, 40, ((2, 20), (5, 30))), updated(1, S.DELETE_SEGMENT_STARTED)]
    assert spans(cache_of(deleted)) == []
    cache = cache_of([*deleted, *finished(2, 25, 40, ((4, 25), (5, 30)))])
    assert spans(cache) == [(segment_id(2), 30, 40)]


@st.composite
def _tiers(draw: st.DrawFn) -> tuple[RemoteLogMetadataCache, Lineage]:
    lineage = Lineage(sorted(draw(ascending)))
    segments = []
    for number in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, 15))
        epochs = draw(ascending)
        shifted = tuple((epoch, start + offset) for epoch, offset in sorted(epochs))
        segments.append((number, start, start + draw(st.integers(0, 12)), shifted))
    return tier(*segments), lineage


@given(_tiers(), st.integers(0, 20))
@examples(300)
def test_spans_are_what_a_broker_answers_offset_by_offset(
    tier: tuple[RemoteLogMetadataCache, Lineage], start: int
) -> None:
    cache, lineage = tier
    found = list(segments_in_lineage(cache, lineage, start, 40))
    assert all(a.to_offset < b.from_offset for a, b in pairwise(found))
    covered = {o: s.segment for s in found for o in range(s.from_offset, s.to_offset + 1)}
    starts = [entry.start_offset for entry in lineage.entries]
    for offset in range(start, 41):
        if bisect_right(starts, offset) == 0:
            assert offset not in covered
            continue
        epoch = lineage.epoch_for_offset(offset)
        answered = cache.remote_log_segment_metadata(epoch, offset)
        # A broker that reads from an earlier offset continues with that segment, and a seek finds one, too.
        assert offset in covered or answered is None
        own = Lineage(sorted(covered[offset].segment_leader_epochs)) if offset in covered else None
        assert own is None or own.epoch_for_offset(offset) == epoch or answered == covered[offset]


RANGES = st.lists(st.tuples(st.integers(-2, 12), st.integers(-2, 12)), max_size=6)


@example([(0, 3), (4, 6)], 0, 7)
@examples(2000)
@given(RANGES, st.integers(-2, 12), st.integers(-2, 12))
def test_covered_offsets(ranges: list[tuple[int, int]], start: int, end: int) -> None:
    covered = {offset for first, last in ranges for offset in range(first, last + 1)}
    assert Covered(ranges).has_all(start, end) == covered.issuperset(range(start, end))
