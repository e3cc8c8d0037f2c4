"""`.remoteindex` files of KIP-405's early design."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError
from tierctl.wire.files.flatfile import RemoteIndex, RemoteIndexFile, RollPolicy, parse_name

# The example of the design document.
SAMPLE = (1000121, 1500024, 2000011, 2999999, 3000000, 3500024, 4000011)


def test_the_sample_of_the_design() -> None:
    index = RemoteIndex.build(SAMPLE, policy=RollPolicy(max_entries=4))
    assert [file.name for file in index.files] == ["00000001000121.remoteindex", "00000003000000.remoteindex"]
    assert index.files[0].encode() == struct.pack(">iiii", 0, 499903, 999890, 1999878)
    assert index.files[1].encode() == struct.pack(">iii", 0, 500024, 1000011)
    assert index.lookup(1000120) is None
    assert index.lookup(1000121) == 1000121
    assert index.lookup(2999998) == 2000011
    assert index.lookup(3499999) == 3000000
    assert index.lookup(99_000_000) == 4000011


def test_files_read_back_and_in_any_order() -> None:
    index = RemoteIndex.build(SAMPLE, policy=RollPolicy(max_entries=3))
    files = [RemoteIndexFile.decode(file.name, file.encode()) for file in reversed(index.files)]
    assert RemoteIndex.of(files) == index


def test_entries_that_do_not_fit_into_four_bytes_begin_a_file() -> None:
    far = 10 + (1 << 31) - 1
    index = RemoteIndex.build([10, far, far + 1])
    assert [file.base_offset for file in index.files] == [10, far + 1]
    assert index.files[0].encode() == struct.pack(">ii", 0, (1 << 31) - 1)


def test_files_are_rolled_with_time_and_when_full() -> None:
    policy = RollPolicy(max_entries=3, max_age_ms=1000)
    index = RemoteIndex()
    for start, now_ms in [(0, 0), (10, 999), (20, 1000), (30, 1001), (40, 1002), (50, 1003)]:
        index = index.append(start, policy=policy, now_ms=now_ms)
    assert [file.start_offsets for file in index.files] == [(0, 10), (20, 30, 40), (50,)]
    with pytest.raises(ValueError, match="not after"):
        index.append(50, policy=policy, now_ms=2000)


@given(
    starts=st.sets(st.integers(0, 1 << 34), max_size=60),
    max_entries=st.integers(1, 9),
    offset=st.integers(0, 1 << 34),
)
def test_lookup_is_the_last_segment_at_or_before(starts: set[int], max_entries: int, offset: int) -> None:
    index = RemoteIndex.build(starts, policy=RollPolicy(max_entries=max_entries))
    index = RemoteIndex.of(RemoteIndexFile.decode(file.name, file.encode()) for file in index.files)
    assert index.lookup(offset) == max((start for start in starts if start <= offset), default=None)
    assert all(len(file.start_offsets) <= max_entries for file in index.files)
    one_by_one = RemoteIndex()
    for start in sorted(starts):
        one_by_one = one_by_one.append(start, policy=RollPolicy(max_entries=max_entries), now_ms=None)
    assert one_by_one == index


def test_zeros_allocated_ahead_are_no_entries() -> None:
    decoded = RemoteIndexFile.decode("00000000000007.remoteindex", struct.pack(">ii", 0, 256) + bytes(400))
    assert decoded.start_offsets == (7, 263)
    assert RemoteIndexFile.decode("7.remoteindex", bytes(400)).start_offsets == (7,)
    assert RemoteIndexFile.decode("7.remoteindex", b"").start_offsets == ()
    assert RemoteIndex.of([RemoteIndexFile.decode("7.remoteindex", b"")]).lookup(9) is None


def test_names() -> None:
    assert parse_name("0000001000121.remoteindex") == 1000121
    assert parse_name("00000000000001000121.remoteindex") == 1000121
    for name in ("1000121.index", "x.remoteindex", ".remoteindex", "99999999999999999999.remoteindex"):
        assert parse_name(name) is None


@pytest.mark.parametrize(
    ("name", "data", "at"),
    [
        ("7.remoteindex", bytes(5), 4),
        ("7.remoteindex", struct.pack(">ii", 3, 9), 0),
        ("7.remoteindex", struct.pack(">iii", 0, 9, 9), 8),
        ("7.remoteindex", struct.pack(">ii", 0, -9), 4),
        ("9223372036854775807.remoteindex", struct.pack(">ii", 0, 9), 4),
        ("7.index", b"", None),
    ],
)
def test_what_is_wrong(name: str, data: bytes, at: int | None) -> None:
    with pytest.raises(CorruptInputError) as caught:
        RemoteIndexFile.decode(name, data)
    assert caught.value.at == at


def test_files_may_not_overlap() -> None:
    first = RemoteIndexFile(base_offset=0, start_offsets=(0, 10, 20))
    second = RemoteIndexFile(base_offset=15, start_offsets=(15,))
    with pytest.raises(CorruptInputError, match="below 15"):
        RemoteIndex.of([second, first])
