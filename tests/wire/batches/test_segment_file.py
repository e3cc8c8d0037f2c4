"""A segment read in windows of any size has the same batches and damage as in one scan."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.amounts import examples
from tests.wire.batches.samples import Bytes, mixed_log, one_record_log
from tierctl.wire.batches import scan
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch
from tierctl.wire.batches.scan import OFFSET_MAX, OffsetBounds, scan_heads
from tierctl.wire.batches.segment_file import ZEROS_BYTES, highest_offset_of, scan_windows, skip_to

pytestmark = pytest.mark.usefixtures("every_way")


def _assert_windows_find_the_same(data: bytes, window_bytes: int, size_bytes: int | None = None) -> None:
    whole = scan_heads(data, OffsetBounds(0))
    positions, bad, torn = [], [], []
    for window in islice(
        scan_windows(Bytes(data, size_bytes), 0, 0, window_bytes=window_bytes, highest_offset=OFFSET_MAX),
        len(data) + 2,
    ):
        positions += (window.heads.positions + window.position).tolist()
        bad += [(b.position + window.position, b.end + window.position) for b in window.heads.bad]
        torn += [window.heads.torn] if window.heads.torn else []
    assert positions == whole.positions.tolist()
    assert bad == [(b.position, b.end) for b in whole.bad]
    assert [t.size_bytes for t in torn] == ([whole.torn.size_bytes] if whole.torn else [])


@examples(100)
@given(
    flips=st.lists(st.tuples(st.integers(0, 59), st.integers(0, 60), st.integers(0, 7)), max_size=4),
    cut=st.integers(0, 90),
    window_bytes=st.integers(1, 2000),
)
def test_windows_of_damaged_logs(flips: list[tuple[int, int, int]], cut: int, window_bytes: int) -> None:
    data = bytearray(one_record_log(60))
    positions = scan_heads(bytes(data)).positions.tolist()
    for batch, at, bit in flips:
        data[positions[batch] + at] ^= 1 << bit
    _assert_windows_find_the_same(bytes(data[: len(data) - cut]), window_bytes)


@pytest.mark.parametrize("window_bytes", [10, 300, 100_000])
@pytest.mark.parametrize("after", [0, 1])
def test_zeros_at_the_end_and_in_the_middle(after: int, window_bytes: int) -> None:
    whole = one_record_log(60)
    positions = scan_heads(whole).positions.tolist()
    _assert_windows_find_the_same(
        whole[: positions[30]] + bytes(5000) + after * whole[positions[30] :], window_bytes
    )


class _Allocated(Bytes):
    """A file in which a gigabyte was allocated ahead; notes the largest read."""

    largest_bytes = 0

    def __init__(self, data: bytes) -> None:
        super().__init__(data, 1 << 30)

    def read(self, position: int, size_bytes: int) -> bytes:
        self.largest_bytes = max(self.largest_bytes, size_bytes)
        size_bytes = min(size_bytes, self.size_bytes - position)
        return super().read(position, size_bytes).ljust(size_bytes, b"\0")


def test_zeros_that_were_allocated_ahead_are_not_read_into_memory() -> None:
    data = one_record_log(60)
    file = _Allocated(data)
    *_, last = scan_windows(file, 0, 0, highest_offset=OFFSET_MAX)
    assert file.largest_bytes == ZEROS_BYTES
    assert last.heads.torn is not None
    assert last.position + last.heads.torn.position == len(data)
    assert last.heads.torn.size_bytes == file.size_bytes - len(data)


@examples(60)
@given(window_bytes=st.integers(1, 2000), place=st.integers(0, 2))
def test_a_batch_in_the_value_of_a_record_is_none(window_bytes: int, place: int) -> None:
    """A topic may have copies of logs: in a part of a large batch, such a value was taken for a batch."""
    inner = encode_batch([Record(5000, 1, None, b"inner")])
    values = [b"x", b"y", b"z"]
    values[place] = bytes(300) + inner + bytes(900)
    data = b"".join(encode_batch([Record(at, 1, None, value)]) for at, value in enumerate(values))
    _assert_windows_find_the_same(data, window_bytes)


@pytest.mark.parametrize("window_bytes", [10, 500, 100_000])
@pytest.mark.parametrize("cut", [0, 1, 30, 90])
def test_a_file_that_was_cut_since_its_size_was_read(cut: int, window_bytes: int) -> None:
    data = one_record_log(60)
    _assert_windows_find_the_same(data[: len(data) - cut], window_bytes, len(data) + 10)


@pytest.mark.parametrize("cut", [0, 1, 30, 60, 90])
def test_a_batch_is_found_in_a_file_that_was_cut_since_its_size_was_read(cut: int) -> None:
    whole = one_record_log(60)
    data = whole[: len(whole) - cut]
    assert skip_to(Bytes(data, len(whole) + 100), 0, 1000) == skip_to(Bytes(data), 0, 1000)


def test_a_batch_that_a_window_cuts_is_not_searched_for_good_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a valid batch checks every byte that may be a magic, which is slow."""
    data = mixed_log()
    largest_bytes = int(scan_heads(data).sizes_bytes.max())
    searched: list[int] = []
    monkeypatch.setattr(scan, "_search", lambda _buf, position, _expected: searched.append(position))
    for window_bytes in (largest_bytes, largest_bytes + 61, 2 * largest_bytes):
        _assert_windows_find_the_same(data, window_bytes)
    assert searched == []


@pytest.mark.parametrize("base", [(1 << 63) - 1, (1 << 63) - (1 << 31)])
def test_a_segment_at_the_end_of_all_offsets_has_no_batch(base: int) -> None:
    batch = encode_batch([Record(0, 1, None, b"x")])
    data = base.to_bytes(8, "big") + batch[8:]
    [window] = scan_windows(Bytes(data), 0, base, highest_offset=highest_offset_of(base))
    assert (len(window.heads), [bad.end for bad in window.heads.bad]) == (0, [len(data)])


@pytest.mark.parametrize("window_bytes", [500, 5000, 100_000])
def test_a_wrong_base_offset_after_a_wrong_record_costs_these_two_batches(window_bytes: int) -> None:
    data = bytearray(one_record_log(60))
    positions = scan_heads(bytes(data)).positions.tolist()
    for number in range(1, 58):
        wrong = bytearray(data)
        wrong[positions[number] + 65] ^= 1
        wrong[positions[number + 1] + 5] ^= 1
        windows = list(
            scan_windows(Bytes(bytes(wrong)), 0, 0, window_bytes=window_bytes, highest_offset=OFFSET_MAX)
        )
        assert sum(len(window.heads) for window in windows) == 58
        [bad] = [bad for window in windows for bad in window.heads.bad]
        assert (bad.first_offset, bad.next_offset) == (number, number + 2)
