"""A fold that continues from a snapshot has the same result as one that continues in memory."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.model import MetadataEvent
from tierctl.state import snapshot
from tierctl.state.fold import fold
from tierctl.state.snapshot import read_snapshot, write_snapshot
from tierctl.state.tier_state import MissingEvents, TierState

from tests.conftest import vectors
from tests.state.folding import assert_same, encodable, events_of, folded, values_of
from tests.state.histories import S, histories, regular_histories, started, updated
from tests.support.amounts import examples

PARTITION = 3


def folded_in_steps(values: Sequence[bytes | None], cuts: Sequence[int]) -> TierState:
    """Fold as `folded` does, with a snapshot and restore at each cut."""
    state, begin = TierState(), 0
    for end in [*sorted(min(cut, len(values)) for cut in cuts), len(values)]:
        fold(
            events_of(values[begin:end]),
            state,
            metadata_partition=PARTITION,
            metadata_offsets=range(begin, end),
        )
        state, begin = read_snapshot(write_snapshot(state, PARTITION)), end
    return state


def assert_equal(state: TierState, expected: TierState) -> None:
    assert_same(state, expected)
    assert state.read == expected.read
    found = [(q.metadata_partition, q.metadata_offset, q.error.message) for q in state.quarantined]
    assert found == [(q.metadata_partition, q.metadata_offset, q.error.message) for q in expected.quarantined]


@pytest.mark.parametrize("number", range(40))
def test_kafkas_histories(number: int) -> None:
    history = list(vectors("cache.jsonl"))[number]
    values: list[bytes | None] = [bytes.fromhex(event["hex"]) for event in history["events"]]
    cuts = range(0, len(values), 7)
    assert_equal(folded_in_steps(values, cuts), folded(values))


@examples(30)
@given(
    st.one_of(histories(), regular_histories()),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_any_history_cut_anywhere(events: list[MetadataEvent], cuts: list[int]) -> None:
    values: list[bytes | None] = [*values_of([e for e in events if encodable(e)])]
    values[1:1] = [b"\x01\x09\x00", None]
    assert_equal(folded_in_steps(values, cuts), folded(values))


def test_a_copy_that_was_begun_again_with_former_leader_epochs() -> None:
    """The links of its second leader epochs are free afterwards, and lead nowhere."""
    first, other, second = (started(1, 0, 9), started(2, 10, 19), started(1, 0, 9, ((1, 0),)))
    values: list[bytes | None] = [*values_of([first, other, second, first, second, first])]
    for cut in range(len(values)):
        assert_equal(folded_in_steps(values, [cut]), folded(values))


def test_missing_events_stay_missing() -> None:
    missing = [MissingEvents(PARTITION, 0, 7), MissingEvents(PARTITION, 9, 12)]
    state = TierState(missing=[*missing, MissingEvents(PARTITION + 1, 0, 5)])
    assert read_snapshot(write_snapshot(state, PARTITION)).missing == missing


def test_what_is_no_state_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = write_snapshot(TierState(), PARTITION)
    for wrong in (b"", data[: len(data) // 2], b"nonsense"):
        with pytest.raises(CorruptInputError):
            read_snapshot(wrong)
    monkeypatch.setattr(snapshot, "VERSION", snapshot.VERSION + 1)
    with pytest.raises(UnsupportedFormatError, match=f"version {snapshot.VERSION}"):
        read_snapshot(data)


def test_the_order_of_kafkas_hash_set_goes_on() -> None:
    """The size of the set decides the order of ids, also when it is nearly empty again."""
    ids = [number * 7919 for number in range(60)]
    begun = [started(number, 0, 9) for number in ids]
    left = [updated(number, S.COPY_SEGMENT_FINISHED) for number in ids[:50]]
    gone = [updated(n, s) for n in ids[:50] for s in (S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)]
    values: list[bytes | None] = [*values_of([*begun, *left, *gone])]
    assert_equal(folded_in_steps(values, [60, 110, 200]), folded(values))
