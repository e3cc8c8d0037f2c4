"""`.remoteindex` files of KIP-405's early design."""

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError
from tierctl.files import FileBytes
from tierctl.wire.files.flatfile import RemoteIndexFile, find_remote_index_entry, parse_remote_index_name

# The example of the design document.
SAMPLE = (1000121, 1500024, 2000011, 2999999)


def written(starts: Sequence[int], allocated: int = 0) -> bytes:
    return b"".join(struct.pack(">i", start - starts[0]) for start in starts) + bytes(4 * allocated)


def found(data: bytes, base: int, offset: int, tmp_path: Path) -> tuple[int, int] | None:
    file = tmp_path / f"{base}.remoteindex"
    file.write_bytes(data)
    with FileBytes(file) as opened:
        return find_remote_index_entry(opened, base, offset)


def test_the_sample_of_the_design(tmp_path: Path) -> None:
    data = written(SAMPLE)
    assert RemoteIndexFile.decode("00000001000121.remoteindex", data).start_offsets == SAMPLE
    for offset, entry in [
        (1000120, None),
        (1000121, (0, 1000121)),
        (2999998, (8, 2000011)),
        (99_000_000, (12, 2999999)),
    ]:
        assert found(data, SAMPLE[0], offset, tmp_path) == entry


@given(
    starts=st.sets(st.integers(5, 1 << 31), max_size=60).map(sorted),
    allocated=st.integers(0, 70),
    offset=st.integers(0, 1 << 32),
)
def test_the_entry_is_that_of_the_last_segment_at_or_before(
    starts: list[int], allocated: int, offset: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = written(starts, allocated) if starts else b""
    expected = max((start, 4 * at) for at, start in enumerate([-1, *starts], -1) if start <= offset)
    entry = found(data, starts[0] if starts else 5, offset, tmp_path_factory.mktemp("index"))
    assert entry == (expected[::-1] if expected[0] >= 0 else None)


def test_few_entries_of_a_large_file_are_read(tmp_path: Path) -> None:
    reads: list[int] = []

    class Watched(FileBytes):
        def read(self, position: int, size_bytes: int) -> bytes:
            reads.append(size_bytes)
            return super().read(position, size_bytes)

    file = tmp_path / "0.remoteindex"
    file.write_bytes(written(range(0, 1 << 18, 2)))
    with Watched(file) as opened:
        assert find_remote_index_entry(opened, 0, 1001) == (2000, 1000)
    assert sum(reads) <= 4 * 18


def test_zeros_allocated_ahead_are_no_entries() -> None:
    decoded = RemoteIndexFile.decode("00000000000007.remoteindex", struct.pack(">ii", 0, 256) + bytes(400))
    assert decoded.start_offsets == (7, 263)
    assert RemoteIndexFile.decode("7.remoteindex", bytes(400)).start_offsets == (7,)
    assert RemoteIndexFile.decode("7.remoteindex", b"").start_offsets == ()


def test_names() -> None:
    assert parse_remote_index_name("0000001000121.remoteindex") == 1000121
    assert parse_remote_index_name("00000000000001000121.remoteindex") == 1000121
    for name in ("1000121.index", "x.remoteindex", ".remoteindex", "99999999999999999999.remoteindex"):
        assert parse_remote_index_name(name) is None


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
