"""The offset from which a metadata log must be read for a time, and positions of its batches."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.metadata.topic import base
from tierctl.metadata.topic.base import PartitionLog
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch
from tierctl.wire.files.indexes import OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset

Batches = Sequence[Sequence[int]]
"""Timestamps of the records of each batch."""

segments = st.lists(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=3), min_size=1, max_size=6),
    min_size=1,
    max_size=4,
)


def written(
    folder: Path, log: Sequence[Batches], kept: Callable[[], bool] = lambda: True
) -> list[tuple[int, int]]:
    """Return a log of segments with indexes as brokers write them, and (offset, timestamp) of all records.

    `kept` selects the entries of the indexes.
    """
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    records, offset = [], 0
    for batches in log:
        base, data, entries, largest = offset, b"", [], -1
        for timestamps in batches:
            made = [Record(offset + n, ms, None, b"v") for n, ms in enumerate(timestamps)]
            records += [(record.offset, record.timestamp_ms) for record in made]
            data += encode_batch(made)
            offset += len(made)
            if max(timestamps) > largest:
                largest = max(timestamps)
                entries += [TimestampOffset(largest, offset - 1)] if kept() else []
        (folder / f"{base:020d}.log").write_bytes(data)
        (folder / f"{base:020d}.timeindex").write_bytes(TimeIndex.encode(base, entries).data)
    return records


@given(segments, st.integers(-1, 42), st.data())
def test_nothing_as_late_lies_before_it(
    tmp_path_factory: pytest.TempPathFactory, log: list[list[list[int]]], time_ms: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-log"
    records = written(folder, log, kept=lambda: data.draw(st.booleans()))
    found = PartitionLog(folder, 0).offset_for_time(time_ms)
    assert all(timestamp_ms < time_ms for offset, timestamp_ms in records if offset < found)
    assert 0 <= found <= len(records)


RISING = [[[1], [2, 3], [4]], [[5], [5, 6]], [[7], [8, 9], [10]]]


@pytest.mark.parametrize(
    ("time_ms", "expected"),
    [(0, 0), (1, 0), (2, 1), (3, 1), (4, 3), (5, 4), (6, 5), (7, 7), (10, 10), (11, 11)],
)
def test_with_indexes_it_is_the_batch(tmp_path: Path, time_ms: int, expected: int) -> None:
    written(tmp_path / "log", RISING)
    assert PartitionLog(tmp_path / "log", 0).offset_for_time(time_ms) == expected


@pytest.mark.parametrize(
    "data", [b"", b"\x00" * 24, b"\xff" * 24, b"\x01"], ids=["none", "zeros", "bits", "cut"]
)
def test_a_segment_whose_index_says_nothing_is_read(tmp_path: Path, data: bytes) -> None:
    folder = tmp_path / "log"
    written(folder, RISING)
    (folder / f"{4:020d}.timeindex").write_bytes(data)
    assert PartitionLog(folder, 0).offset_for_time(11) == 4


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
