"""The positions of batches that a metadata partition remembers from a segment's offset index."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.metadata.topic import base
from tierctl.wire.files.indexes import OffsetIndex, OffsetPosition

BASE = 5
POSITIONS = st.lists(st.integers(1, 200), max_size=30, unique=True).map(sorted)


@given(POSITIONS)
def test_marks_are_apart_and_end_with_the_last_entry(positions: list[int]) -> None:
    entries = [OffsetPosition(BASE + at, position) for at, position in enumerate(positions, start=1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "_MARK_BYTES", 50)
        marks = list(base._marks_in(BASE, OffsetIndex.encode(BASE, entries).data))
    expected: list[tuple[int, int]] = []
    for entry in entries:
        if not expected or entry.position >= expected[-1][1] + 50 or entry is entries[-1]:
            expected.append((entry.offset, entry.position))
    assert marks == expected


def test_a_damaged_index_has_no_marks() -> None:
    falling = [OffsetPosition(BASE + 2, 9), OffsetPosition(BASE + 1, 4)]
    assert list(base._marks_in(BASE, OffsetIndex.encode(BASE, falling).data)) == []
