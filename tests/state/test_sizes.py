"""Sums of the sizes of a user partition's segments are exact."""

from hypothesis import given
from hypothesis import strategies as st
from tierctl.model import RemoteLogSegmentState
from tierctl.state.sizes import sizes_by_group
from tierctl.state.tier_state import TierState

from tests.state.histories import ORDERS, started

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
SIZES = st.one_of(st.integers(0, 3), st.sampled_from([0xFFFF, 0x10000, (1 << 31) - 1]))


@given(st.lists(SIZES, max_size=20), st.booleans())
def test_sizes_are_summed_exactly(sizes: list[int], is_regular: bool) -> None:
    state = TierState()
    part = state.add_partition(ORDERS, 0)
    cache = part.table.make_irregular(part.number)
    for at, size in enumerate(sizes):
        cache.add(started(at, 10 * at, 10 * at + 9, segment_size_in_bytes=size))
    if is_regular:
        part.table.make_regular(part.number)
    found = sizes_by_group(state, [(0, part)], 1)
    assert found.of(0, STARTED) == (len(sizes), sum(sizes))
    assert sum(found.of(0, each)[0] for each in RemoteLogSegmentState) == len(sizes)
