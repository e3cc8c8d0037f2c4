"""Which user partitions have a complete history although their metadata partition lost events."""

import pytest
from tierctl.model import RemoteLogSegmentMetadataUpdate, TopicIdPartition, Uuid
from tierctl.plan.preconditions import (
    Evidence,
    decide_histories,
    why_history_unknown,
    why_maybe_unheard_of,
    why_unknown,
)
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import MissingEvents, TierState
from tierctl.wire.metadata.values import metadata_partition

from tests.plan.tier import OTHER_ID, PARTITION, S, advance, segment, segment_id

HEAD = MissingEvents(0, 0, 28)
HOLE = MissingEvents(0, 28, 40)
IDS = frozenset({segment_id(2), segment_id(3)})
"""Ids of the known segments, which begin at offsets 200 and 300."""


def state_with(*missing: MissingEvents) -> TierState:
    """Return a state with segments from offset 200 on, and missing events of metadata partition 0."""
    state = TierState(missing=list(missing))
    for number in (2, 3):
        advance(state, segment(number, 100 * number, 100 * number + 99), S.COPY_SEGMENT_FINISHED)
    return state


CASES: dict[str, tuple[list[MissingEvents], Evidence, str | None]] = {
    "nothing is known": ([HEAD], Evidence(), "begins at offset 200, the log start is not known"),
    "the log start is below": ([HEAD], Evidence(log_start_offset=199), "the log start is 199"),
    "the log start is there": ([HEAD], Evidence(log_start_offset=200), None),
    "the log start is above": ([HEAD], Evidence(log_start_offset=350), None),
    "the local log begins at the log start": (
        [HEAD],
        Evidence(log_start_offset=100, local_log_start_offset=100),
        "begins at offset 200, the log start is 100",
    ),
    "every object has its events": ([HEAD], Evidence(stored_ids=IDS), None),
    "an object of a deleted segment is gone": ([HEAD], Evidence(stored_ids=IDS - {segment_id(2)}), None),
    "an object without events": (
        [HEAD],
        Evidence(stored_ids=IDS | {segment_id(9)}),
        "the tier has objects of 1 segment without events",
    ),
    "two objects without events, but below the log start": (
        [HEAD],
        Evidence(log_start_offset=200, stored_ids=IDS | {segment_id(8), segment_id(9)}),
        None,
    ),
    "a hole after known events": (
        [HOLE],
        Evidence(log_start_offset=200),
        "the events at offsets 28 to 39 of metadata partition 0 are gone",
    ),
    "a head and a hole": ([HEAD, HOLE], Evidence(log_start_offset=200), "begins at offset 28"),
    "a hole that the objects close": ([HEAD, HOLE], Evidence(stored_ids=IDS), None),
}


@pytest.mark.parametrize(("missing", "evidence", "expected"), CASES.values(), ids=CASES)
def test_evidence(missing: list[MissingEvents], evidence: Evidence, expected: str | None) -> None:
    state = state_with(*missing)
    reasons = decide_histories(state, {PARTITION: evidence})
    assert (expected is None) == (reasons == {}) == (PARTITION.key in state.complete)
    if expected is not None:
        assert expected in reasons[PARTITION]
    part = state.partition(PARTITION)
    assert part is not None
    assert (why_unknown(state, part) is None) == (expected is None)


def test_a_partition_that_is_younger_than_the_missing_events_is_complete() -> None:
    """Its first segment was deleted since; both events of the deletion are known."""
    state = TierState(missing=[HEAD])
    advance(state, segment(0, 0, 99), S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED)
    advance(state, segment(0, 0, 99), S.DELETE_SEGMENT_FINISHED)
    advance(state, segment(1, 100, 199), S.COPY_SEGMENT_FINISHED)
    assert decide_histories(state, {PARTITION: Evidence()}) == {}


def test_an_update_alone_shows_no_segment() -> None:
    """The first event of the segment is missing, so its start offset is unknown."""
    whole = state_with(HEAD)
    state = TierState(missing=[HEAD], read={0: 5})
    [part] = whole
    copied = segment(2, 200, 299)
    update = RemoteLogSegmentMetadataUpdate.of(
        copied, S.COPY_SEGMENT_FINISHED, broker_id=1, event_timestamp_ms=1
    )
    fold_event(update, state, metadata_partition=0, metadata_offset=29)
    reasons = decide_histories(state, {PARTITION: Evidence(log_start_offset=900)})
    assert "no segment is known" in reasons[PARTITION]
    assert part.lowest_start_offset == 200


def test_without_a_decision_nothing_is_complete_unless_missing_events_are_accepted() -> None:
    state = state_with(HEAD)
    assert "begins at offset 28" in (why_history_unknown(state, PARTITION) or "")
    state.accepts_missing = True
    assert why_history_unknown(state, PARTITION) is None


def test_events_that_go_missing_later_make_a_complete_history_unknown() -> None:
    state = state_with(HEAD)
    decide_histories(state, {PARTITION: Evidence(log_start_offset=200)})
    assert why_history_unknown(state, PARTITION) is None
    state.add_missing(HOLE)
    assert why_history_unknown(state, PARTITION) is not None


UNHEARD_OF = TopicIdPartition(OTHER_ID, "payments", 0)


@pytest.mark.parametrize(
    ("evidence", "is_complete"),
    [
        (Evidence(log_start_offset=0), False),
        (Evidence(log_start_offset=5, local_log_start_offset=6), False),
        (Evidence(log_start_offset=6, local_log_start_offset=6), True),
        (Evidence(stored_ids=frozenset({Uuid("2QZ5FAXaQrqgUzsReWnweA")})), False),
        (Evidence(stored_ids=frozenset()), True),
    ],
)
def test_a_partition_without_any_event(evidence: Evidence, is_complete: bool) -> None:
    own = metadata_partition(OTHER_ID, 0, 3)
    state = TierState(read=dict.fromkeys(range(3), 50), missing=[MissingEvents(own, 0, 50)])
    reasons = decide_histories(state, {UNHEARD_OF: evidence})
    assert (reasons == {}) == is_complete
    assert (why_maybe_unheard_of(state, UNHEARD_OF) is None) == is_complete


def test_missing_events_of_another_metadata_partition_do_not_matter() -> None:
    own = metadata_partition(OTHER_ID, 0, 3)
    state = TierState(read=dict.fromkeys(range(3), 50), missing=[MissingEvents((own + 1) % 3, 0, 50)])
    assert decide_histories(state, {UNHEARD_OF: Evidence()}) == {}
    assert why_maybe_unheard_of(state, UNHEARD_OF) is None
    state.read = {}
    assert why_maybe_unheard_of(state, UNHEARD_OF) is not None
