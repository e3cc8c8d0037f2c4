"""Sums of the sizes of a user partition's segments are exact."""

from hypothesis import given
from hypothesis import strategies as st
from tierctl.model import RemoteLogSegmentState
from tierctl.state.tier_state import keep_sizes, sizes_by_group

from tests.state.folding import folded, values_of
from tests.state.histories import ORDERS, started

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
SIZES = st.one_of(st.integers(0, 3), st.sampled_from([0xFFFF, 0x10000, (1 << 31) - 1]))


@given(st.lists(SIZES, max_size=20), st.booleans())
def test_sizes_are_summed_exactly(sizes: list[int], is_dropped: bool) -> None:
    events = [started(at, 10 * at, 10 * at + 9, segment_size_in_bytes=size) for at, size in enumerate(sizes)]
    state = folded(values_of([*events, started(99, 990, 999, partition=2)]))
    if is_dropped:
        keep_sizes(state)
    members = [(0, part) for part in state if part.topic_id_partition == ORDERS]
    found = sizes_by_group(state, members, 1)
    assert found.of(0, STARTED) == (len(sizes), sum(sizes))
    assert sum(found.of(0, each)[0] for each in RemoteLogSegmentState) == len(sizes)
    assert [part.segment_count for part in state if part.topic_id_partition == ORDERS] == [len(sizes)] * bool(
        sizes
    )
