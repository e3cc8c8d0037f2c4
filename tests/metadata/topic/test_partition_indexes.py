"""The indexes of segments to which tierctl appended match their batches."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.wire.batches.record_batch import scan
from tierctl.wire.files.indexes import OffsetIndex, TimeIndex, build_indexes

from tests.metadata.topics import topic_in

FOLDER = "__remote_log_metadata-0"


def append(folder: Path, count: int, *, size: int = 100, segment_bytes: int = 1 << 30) -> None:
    topic = topic_in(folder, writable=True, partition_count=1, segment_bytes=segment_bytes)
    for number in range(count):
        topic.append([(0, b"%03d" % number + bytes(size))])
    topic.close()


def check(folder: Path, names: int = 1) -> None:
    """Check that each segment has the offset entries that a broker's recovery makes.

    Each session adds an entry for the largest timestamp at its end, as a broker does when it closes a log.
    """
    logs = sorted((folder / FOLDER).glob("*.log"))
    assert len(logs) >= names
    for log in logs:
        offsets, times = build_indexes(scan(log.read_bytes()), int(log.stem))
        assert log.with_suffix(".index").read_bytes() == offsets.data
        found = TimeIndex.decode(log.with_suffix(".timeindex").read_bytes(), int(log.stem))
        assert found.last == times.last
        heads = list(scan(log.read_bytes()))
        for entry in found:
            assert (
                max(h.max_timestamp_ms for h in heads if h.last_offset <= entry.offset) == entry.timestamp_ms
            )


def test_indexes_of_one_session_and_of_several(tmp_path: Path) -> None:
    append(tmp_path, 30)
    check(tmp_path)
    append(tmp_path, 200)
    check(tmp_path)
    for _ in range(3):
        append(tmp_path, 40)
    check(tmp_path)
    index = (tmp_path / FOLDER / f"{0:020d}.index").read_bytes()
    assert len(OffsetIndex.decode(index, 0)) > 5


def test_indexes_of_rolled_segments(tmp_path: Path) -> None:
    append(tmp_path, 100, segment_bytes=5000)
    append(tmp_path, 100, segment_bytes=5000)
    check(tmp_path, 5)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("data", [None, b"", b"damaged", bytes(24), b"\x00\x00\x00\x05\x00\x00\x00\x07"])
def test_an_index_that_is_not_of_the_log_is_made_anew(
    data: bytes | None, suffix: str, tmp_path: Path
) -> None:
    append(tmp_path, 100)
    index = (tmp_path / FOLDER / f"{0:020d}").with_suffix(suffix)
    index.unlink()
    if data is not None:
        index.write_bytes(data)
    append(tmp_path, 1)
    log = index.with_suffix(".log").read_bytes()
    offsets, times = build_indexes(scan(log), 0)
    made = OffsetIndex.decode(index.with_suffix(".index").read_bytes(), 0)
    assert set(made) <= set(offsets) if suffix == ".timeindex" else made == offsets
    last = TimeIndex.decode(index.with_suffix(".timeindex").read_bytes(), 0).last
    assert last == times.last


def test_a_session_without_an_append_leaves_the_files_alone(tmp_path: Path) -> None:
    append(tmp_path, 3)
    (tmp_path / FOLDER / f"{0:020d}.index").unlink()
    append(tmp_path, 0)
    assert not (tmp_path / FOLDER / f"{0:020d}.index").exists()


def test_a_broker_may_open_them(tmp_path: Path, writable: Callable[[str], Path]) -> None:
    """Mode and owner are those of the log, also if the broker's indexes were removed."""
    folder = writable("tiered-cluster/before")
    log = folder / FOLDER / f"{0:020d}.log"
    log.chmod(0o660)
    append(folder, 2)
    for suffix in (".index", ".timeindex"):
        assert log.with_suffix(suffix).stat().st_mode & 0o777 == 0o660
