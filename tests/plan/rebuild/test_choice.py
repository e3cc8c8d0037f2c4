"""The published chain has all offsets that sets on the lineage have after the last hole."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.model import LogEnd, ObjectSet
from tierctl.plan.choose_sets import (
    Choice,
    LocalOffsets,
    agrees,
    chain_by_epochs,
    choose,
    lineage_of_sets,
)
from tierctl.plan.partition_choice import why_needed
from tierctl.plan.reasons import ReasonKind
from tierctl.state.lineage import Lineage

from tests.plan.rebuild.sets import Pairs, object_set


def spans(choice: Choice) -> list[tuple[int, int]]:
    return [(segment.start_offset, segment.end_offset) for segment in choice.chain]


def kinds(choice: Choice) -> tuple[list[ReasonKind], list[ReasonKind]]:
    return [reason.kind for _, reason in choice.discarded], [reason.kind for _, reason in choice.left]


LOG = ((0, 0), (2, 150), (4, 300))
K = ReasonKind
ONE = [object_set(n, 100 * n, 100 * n + 99, LOG) for n in range(5)]
FIVE = [(0, 99), (100, 199), (200, 299), (300, 399), (400, 499)]
LONGER = object_set(9, 250, 380, LOG), object_set(10, 381, 450, LOG)
LOSER = object_set(9, 300, 399, ((0, 0), (2, 150)))
LOSER_BELOW = object_set(9, 250, 420, ((0, 0), (2, 150)))
LOSER_AROUND = object_set(9, 250, 520, ((0, 0), (2, 150)))
LOCAL_END = 500
Case = tuple[Sequence[ObjectSet], int, int | None, list[tuple[int, int]], list[K], list[K]]
CASES: dict[str, Case] = {
    "whole": (ONE, 0, None, FIVE, [], []),
    "log start within a segment": (ONE, 250, None, FIVE[2:], [], [K.LOG_START_OFFSET] * 2),
    "whole duplicate": ([*ONE, object_set(9, 200, 299, LOG)], 0, None, FIVE, [K.DUPLICATE_SET], []),
    "longer of one start": (
        *([*ONE[:2], object_set(9, 100, 149, LOG)], 0, None),
        *(FIVE[:2], [K.DUPLICATE_SET], []),
    ),
    "after a change of leader": (
        *([*ONE[:3], *LONGER], 0, None),
        *([*FIVE[:3], (250, 380), (381, 450)], [], []),
    ),
    "one that contains another": (
        *([*ONE[:2], object_set(9, 50, 250, LOG)], 0, None),
        *([(0, 99), (50, 250)], [K.DUPLICATE_SET], []),
    ),
    "a loser of the same offsets": ([*ONE, LOSER], 0, None, FIVE, [K.OFF_LINEAGE], []),
    "half": ([*ONE, object_set(9, 200, 0, LOG, half=True)], 0, None, FIVE, [K.INCOMPLETE_SET], []),
    "the id of a segment of the chain at another offset": (
        *([*ONE, object_set(3, 150, 0, LOG, half=True)], 0, None),
        *(FIVE, [], [K.SAME_SEGMENT_ID]),
    ),
    "two halves of one id": (
        *([*ONE, *(object_set(9, start, 0, LOG, half=True) for start in (200, 201))], 0, None),
        *(FIVE, [K.INCOMPLETE_SET], [K.SAME_SEGMENT_ID]),
    ),
    "half at the last offset of the chain": (
        *([*ONE[:2], object_set(9, 199, 0, LOG, half=True)], 0, None),
        *(FIVE[:2], [K.INCOMPLETE_SET], []),
    ),
    "half at the last offset of a hole that is local": (
        *([*ONE[:2], object_set(9, 299, 0, LOG, half=True), *ONE[3:]], 0, 200),
        *(FIVE[:2], [K.INCOMPLETE_SET], [K.ABOVE_HOLE] * 2),
    ),
    "half at the end": (
        *([*ONE[:2], object_set(9, 200, 0, LOG, half=True)], 0, None),
        *(FIVE[:2], [], [K.NOT_SERVED]),
    ),
    "half at the end, and local": (
        *([*ONE[:2], object_set(9, 200, 0, LOG, half=True)], 0, 200),
        *(FIVE[:2], [K.INCOMPLETE_SET], []),
    ),
    "half above the local log's end": (
        *([*ONE[:2], object_set(9, LOCAL_END, 0, LOG, half=True)], 0, 200),
        *(FIVE[:2], [], [K.NOT_SERVED]),
    ),
    "hole": ([*ONE[:2], *ONE[3:]], 0, None, FIVE[3:], [], [K.BEFORE_HOLE] * 2),
    "hole that is local": ([*ONE[:2], *ONE[3:]], 0, 200, FIVE[:2], [], [K.ABOVE_HOLE] * 2),
    "hole below the local start": ([*ONE[:2], *ONE[3:]], 0, 201, FIVE[3:], [], [K.BEFORE_HOLE] * 2),
    "a loser that begins below the chain": ([LOSER_BELOW, *ONE[4:]], 0, None, FIVE[4:], [], [K.NOT_SERVED]),
    "a loser around the chain": ([LOSER_AROUND, *ONE[4:]], 0, None, FIVE[4:], [], [K.NOT_SERVED]),
    "a loser below the chain without a record of the log": (
        *([object_set(9, 350, 420, ((0, 0), (2, 150))), *ONE[4:]], 0, None),
        *(FIVE[4:], [], [K.OFF_LINEAGE]),
    ),
    "nothing": ([object_set(9, 0, 0, LOG, half=True)], 0, None, [], [], [K.NO_CHAIN]),
}


def test_of_equal_sets_the_one_without_a_damaged_index_is_published() -> None:
    """The other one is published as being deleted: then nothing else has the records."""
    damaged = replace(object_set(9, 100, 199, LOG), damaged_indexes=("offset index",))
    found = choose([*ONE[:2], damaged], Lineage(LOG), log_start_offset=0)
    assert [segment.segment_id for segment in found.chain] == [each.listed.segment_id for each in ONE[:2]]
    ((segment, _reason),) = found.discarded
    assert segment.segment_id == damaged.listed.segment_id
    known = choose([*ONE[:2], damaged], Lineage(LOG), log_start_offset=0, known=[segment.segment_id])
    assert known.chain[1].segment_id == segment.segment_id


@pytest.mark.parametrize("case", CASES)
def test_cases(case: str) -> None:
    sets, start, local, chain, discarded, left = CASES[case]
    offsets = None if local is None else LocalOffsets(local, LOCAL_END)
    choice = choose(sets, lineage_of_sets(sets), log_start_offset=start, local=offsets)
    assert spans(choice) == chain
    assert kinds(choice) == (discarded, left)


@pytest.mark.parametrize(
    ("start", "served_to", "epochs"),
    [
        (120, 149, ((0, 120),)),
        (120, 150, ((0, 120), (2, 150))),
        (120, 199, ((0, 120), (2, 150))),
        (20, 99, ((0, 20),)),
    ],
)
def test_a_half_set_gets_the_offsets_and_epochs_of_the_segment_that_serves_its_start(
    start: int, served_to: int, epochs: Pairs
) -> None:
    served = object_set(7, start // 100 * 100, served_to, LOG), object_set(8, served_to + 1, 499, LOG)
    sets = [*ONE[: start // 100], *served, object_set(9, start, 0, LOG, half=True)]
    ((invented, _),) = choose(sets, Lineage(LOG), log_start_offset=0).discarded
    assert (invented.start_offset, invented.end_offset) == (start, served_to)
    assert invented.segment_leader_epochs == epochs


def test_a_compacted_segment_ends_where_the_next_one_begins() -> None:
    first = object_set(1, 0, 90, LOG)
    compacted = replace(first, has_gaps=True, log_end=LogEnd(offset=90))
    sets = [compacted, ONE[1]]
    choice = choose(sets, lineage_of_sets(sets), log_start_offset=0)
    assert spans(choice) == [(0, 99), (100, 199)]
    assert spans(choose([first, ONE[1]], lineage_of_sets(sets), log_start_offset=0)) == [(100, 199)]


def test_what_follows_a_compacted_segment_ends_it() -> None:
    """An incomplete set may have the records, and leader epochs may have begun after the last batch."""
    first = object_set(1, 0, 90, LOG)
    first = replace(first, has_gaps=True, log_end=LogEnd(offset=90))
    half = object_set(9, 95, 0, LOG, half=True)
    choice = choose([first, half, ONE[1]], Lineage(LOG), log_start_offset=0)
    assert (spans(choice), choice.discarded) == ([(100, 199)], ())
    sets = [first, replace(ONE[2], log_end=LogEnd(offset=299))]
    choice = choose(sets, Lineage(LOG), log_start_offset=0, local=LocalOffsets(350, LOCAL_END))
    assert spans(choice) == [(0, 199), (200, 349)]
    epochs = [segment.segment_leader_epochs for segment in choice.chain]
    assert epochs == [((0, 0), (2, 150)), ((2, 200), (4, 300))]
    known = {each.listed.segment_id for each in sets}
    assert spans(choose(sets, Lineage(LOG), log_start_offset=0, known=known)) == [(200, 299)]
    sets = [first, object_set(2, 80, 199, LOG), ONE[2]]
    choice = choose(sets, Lineage(LOG), log_start_offset=0)
    assert (spans(choice), choice.compacted) == ([(0, 90), (80, 199), (200, 299)], ())


@pytest.mark.parametrize(("start", "is_needed"), [(0, False), (90, False), (91, True), (99, True)])
def test_an_unclear_set_is_needed_where_no_segment_of_the_chain_has_a_record(
    start: int, is_needed: bool
) -> None:
    """The log was compacted, as far as the others show, but the unclear set may have what they lack."""
    sets = [replace(object_set(1, 0, 90, LOG), has_gaps=True, log_end=LogEnd(offset=90)), ONE[1]]
    choice = choose(sets, Lineage(LOG), log_start_offset=0)
    unclear = ObjectSet(listed=object_set(9, start, start, LOG).listed, why_not_understood="encrypted")
    needed = why_needed(choice, [unclear], sets, start_offset=0, local=None)
    assert (needed is not None) == is_needed


@st.composite
def logs(draw: st.DrawFn) -> Pairs:
    """Return the leader epochs of a log of 100 offsets."""
    starts = sorted(draw(st.sets(st.integers(1, 90), max_size=4)))
    epochs = sorted(draw(st.sets(st.integers(0, 20), min_size=len(starts) + 1, max_size=len(starts) + 1)))
    return list(zip(epochs, [0, *starts], strict=True))


@st.composite
def tiers(draw: st.DrawFn) -> tuple[Pairs, list[ObjectSet]]:
    """Return a log and the sets of its leaders in a tier: other borders, losers, lost and incomplete sets.

    The last segment always exists, because without it the lineage would differ.
    """
    log = draw(logs())
    cuts = [0, *sorted(draw(st.sets(st.integers(1, 99), max_size=8))), 100]
    spans = [(a, b - 1, log) for a, b in pairwise(cuts)]
    last = spans.pop()
    kept = [span for span in spans if draw(st.integers(0, 5))]
    for _ in range(draw(st.integers(0, 4))):
        a = draw(st.integers(0, 98))
        kept.append((a, draw(st.integers(a, min(a + 30, 98))), log))
    # A former leader continued in its epoch although the log has a later epoch there.
    for epoch, start in log[1:]:
        if draw(st.booleans()):
            loser = [pair for pair in log if pair[0] < epoch]
            a = draw(st.integers(max(start - 20, 0), start))
            kept.append((a, draw(st.integers(start, min(start + 30, 120))), loser))
    sets = [object_set(n, a, b, lineage) for n, (a, b, lineage) in enumerate([*kept, last], 1)]
    halves = [
        object_set(90 + n, draw(st.integers(0, 99)), 0, log, half=True)
        for n in range(draw(st.integers(0, 2)))
    ]
    return log, draw(st.permutations([*sets, *halves]))


def served_after_the_last_hole(sets: Sequence[ObjectSet], lineage: Lineage, log_start: int) -> set[int]:
    """Return the offsets that sets on the lineage have, from the last hole on, one by one."""
    served: set[int] = set()
    for each in sets:
        if (
            each.segment is not None
            and agrees(each.segment, lineage)
            and each.segment.end_offset >= log_start
        ):
            served |= set(range(each.segment.start_offset, each.segment.end_offset + 1))
    end = max(served, default=-1)
    start = end
    while start - 1 in served:
        start -= 1
    return set(range(start, end + 1)) if served else set()


@given(tiers(), st.integers(0, 99))
def test_the_chain_serves_all_after_the_last_hole_and_every_set_has_one_place(
    tier: tuple[Pairs, list[ObjectSet]], log_start: int
) -> None:
    log, sets = tier
    truth = Lineage(log)
    lineage = lineage_of_sets(sets)
    for each in sets:
        if each.segment is not None:
            assert agrees(each.segment, lineage) == agrees(each.segment, truth)
    choice = choose(sets, lineage, log_start_offset=log_start)
    offsets = [o for s in choice.chain for o in range(s.start_offset, s.end_offset + 1)]
    assert set(offsets) == served_after_the_last_hole(sets, truth, log_start)
    ends = [segment.end_offset for segment in choice.chain]
    assert ends == sorted(set(ends))
    starts = [segment.start_offset for segment in choice.chain]
    assert starts == sorted(set(starts))
    placed = [
        *(segment.segment_id for segment in choice.chain),
        *(segment.segment_id for segment, _ in choice.discarded),
        *(each.listed.segment_id for each, _ in choice.left),
    ]
    assert sorted(placed) == sorted(each.listed.segment_id for each in sets)
    for segment, reason in choice.discarded:
        # Discarded sets have no offset that only they have, or no set belongs to this log.
        if reason.kind is K.DUPLICATE_SET:
            assert set(range(segment.start_offset, segment.end_offset + 1)) <= set(offsets) | set(
                range(choice.chain[0].start_offset)
            )
        if reason.kind is K.INCOMPLETE_SET:
            assert segment.start_offset in offsets
        assert segment.end_offset >= segment.start_offset
        assert segment.segment_leader_epochs


@given(tiers())
def test_the_order_of_the_listing_does_not_matter(tier: tuple[Pairs, list[ObjectSet]]) -> None:
    _, sets = tier
    ordered = sorted(sets, key=lambda each: each.listed.segment_id)
    assert lineage_of_sets(sets) == lineage_of_sets(ordered)
    choices = [choose(each, lineage_of_sets(each), log_start_offset=0) for each in (sets, ordered)]
    assert choices[0].chain == choices[1].chain


def test_without_indexes_the_lineage_is_chained_by_epochs() -> None:
    loser = object_set(9, 300, 399, ((0, 0), (3, 280)))
    segments = [each.segment for each in [*ONE, loser] if each.segment is not None]
    assert chain_by_epochs(segments) == LOG
