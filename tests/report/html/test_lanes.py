"""Columns of lanes: bins lose no segment and hide no kind of segment, for any input."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.model import TopicIdPartition
from tierctl.report.html_lanes import LaneItems, Lanes, LaneSegments, PartitionRow, items_per_lane
from tierctl.report.html_page import time_cell

from tests.report.html.pages import topic_id

SEGMENTS = st.lists(
    st.tuples(
        st.integers(0, 1 << 63),
        st.integers(0, 5000),
        st.integers(0, 1 << 31),
        st.integers(-1, 1 << 63),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=40,
)
OFFSET_MAX = (1 << 53) - 1


class Item(NamedTuple):
    start: int
    end: int
    count: int
    bytes: int
    time: int
    epoch: int
    kind: int
    is_mixed: bool


def items_of(data: dict[str, Any]) -> Iterator[Item]:
    """Return the items of one lane, decoded like the page's script does."""
    following = seconds = epoch = 0
    columns = data["items"]
    for gap, length, count, size, time, difference, kind in zip(*columns.values(), strict=True):
        start = following + gap
        following = start + length
        seconds, epoch = seconds + time, epoch + difference
        yield Item(start, following - 1, count, size, seconds, epoch, kind >> 1, bool(kind & 1))


def lane(rows: list[tuple[int, int, int, int, int, int]], limit: int) -> list[Item]:
    table = [
        (min(s, 2**62), min(s, 2**62) + more, size, min(at, 2**62), epoch, kind)
        for s, more, size, at, epoch, kind in rows
    ]
    items = LaneItems.of(LaneSegments.of_rows(table), limit)
    lanes = Lanes(limit)
    lanes.add(PartitionRow(partition=TopicIdPartition(topic_id(0), "orders", 0), tier=items))
    return list(items_of(lanes.to_json()))


@given(rows=SEGMENTS, limit=st.integers(4, 60))
def test_bins_lose_no_segment(rows: list[tuple[int, int, int, int, int, int]], limit: int) -> None:
    items = lane(rows, limit)
    assert len(items) <= max(limit, 0)
    assert sum(item.count for item in items) == len(rows)
    assert sum(item.bytes for item in items) == sum(size for _, _, size, _, _, _ in rows)
    if rows:
        assert items[0].start == min(min(start, OFFSET_MAX) for start, *_ in rows)
        assert max(item.end for item in items) == max(
            min(min(start, 2**62) + more, OFFSET_MAX) for start, more, *_ in rows
        )
    if len(rows) <= limit:
        assert not any(item.is_mixed for item in items)
        assert sorted(item.kind for item in items) == sorted(kind for *_, kind in rows)
    else:
        # If a kind is not drawn, its item states that.
        shown = {item.kind for item in items}
        hidden = {kind for *_, kind in rows} - shown
        assert not hidden or any(item.is_mixed for item in items)
    assert all(item.time >= -1 for item in items)


@given(counts=st.lists(st.integers(1, 500), max_size=60), most=st.integers(300, 5000))
def test_items_are_shared_fairly(counts: list[int], most: int) -> None:
    limit = items_per_lane(counts, most)
    assert sum(min(count, limit) for count in counts) <= max(most, 4 * len(counts))
    if sum(counts) > most and limit > 4:
        # One more item per lane would be more than there are segments.
        assert sum(min(count, limit + 1) for count in counts) > most


@given(st.none() | st.integers(0, (1 << 63) - 1))
@example(9_000_000_000_000_000)
def test_the_page_can_show_every_expiration(next_expiry_ms: int | None) -> None:
    """Dates of JavaScript end before the largest retention.ms does; the growth by day ends with 9999, too."""
    lanes = Lanes(4)
    partition = TopicIdPartition(topic_id(0), "orders", 0)
    lanes.add(PartitionRow(partition=partition, next_expiry_ms=next_expiry_ms))
    (seconds,) = lanes.to_json()["rows"]["expiry"]
    if next_expiry_ms is None:
        assert seconds is None
    else:
        assert seconds == min(next_expiry_ms // 1000, 253_402_300_799)
        assert time_cell(seconds * 1000).startswith("<time ")


def test_a_run_of_equal_segments_is_cut_into_equal_bins() -> None:
    rows = [(100 * at, 99, 10, 1_000_000 + at * 1000, 0, 0) for at in range(100)]
    rows[50] = (5000, 99, 10, 1_000_000, 0, 4)
    items = lane(rows, 13)
    assert [(item.start, item.kind) for item in items if item.kind] == [(5000, 4)]
    assert max(item.count for item in items) == 10
    assert not any(item.is_mixed for item in items)


def test_a_hole_is_not_hidden() -> None:
    rows = [(1000 * at + (500 if at > 30 else 0), 999, 10, 1000, 0, 0) for at in range(60)]
    items = lane(rows, 10)
    assert (31_000, 31_500) in [(before.end + 1, after.start) for before, after in pairwise(items)]
