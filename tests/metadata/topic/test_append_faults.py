"""The disk fails, or the process is killed, at any step of an append."""

import errno
from functools import partial
from pathlib import Path

import pytest
from tierctl.errors import MetadataError
from tierctl.files import FileSystem

from tests.metadata.topics import topic_in
from tests.support.faults import NEVER, Failing, assert_durable, operations_of, run_and_die

BEFORE = [(0, b"before-0"), (1, b"before-1")]
WAVE = [(0, b"wave-0"), (1, b"wave-1"), (0, b"wave-2")]


def make(folder: Path) -> Path:
    log = topic_in(folder, writable=True, partition_count=2)
    log.append(BEFORE)
    log.close()
    # The state that a broker leaves: indexes, and an unfinished last batch.
    for partition in (0, 1):
        for suffix in ("index", "timeindex"):
            (folder / f"__remote_log_metadata-{partition}" / f"{0:020d}.{suffix}").write_bytes(bytes(24))
    with (folder / "__remote_log_metadata-1" / f"{0:020d}.log").open("ab") as segment:
        segment.write(b"\0\0\0\0\0\0\0\1torn")
    return folder


def append(folder: Path, fs: FileSystem, segment_bytes: int = 1 << 30) -> None:
    log = topic_in(folder, writable=True, segment_bytes=segment_bytes, fs=fs)
    try:
        log.append(WAVE)
    finally:
        log.close()


def append_rolling(folder: Path, fs: FileSystem) -> None:
    append(folder, fs, segment_bytes=100)


def content(folder: Path) -> list[list[bytes | None]]:
    log = topic_in(folder)
    found: list[list[bytes | None]] = []
    for partition, end in log.end_offsets().items():
        chunks = list(log.read(partition, 0, end))
        assert not any(chunk.damage for chunk in chunks)
        found.append([value for chunk in chunks for value in chunk.values.to_pylist()])
    return found


NOTHING_NEW = [[b"before-0"], [b"before-1"]]
ALL_OF_IT = [[b"before-0", b"wave-0", b"wave-2"], [b"before-1", b"wave-1"]]


@pytest.mark.parametrize(
    ("segment_bytes", "number"), [(1 << 30, errno.ENOSPC), (100, errno.EIO)], ids=["same segment", "rolled"]
)
def test_a_failed_append_leaves_nothing_and_the_next_one_works(
    tmp_path: Path, number: int, segment_bytes: int
) -> None:
    operations = operations_of(lambda fs: append(make(tmp_path / "watched"), fs, segment_bytes))
    assert {"write", "fsync", "unlink", "truncate", "rename", "fsync-dir"} <= set(operations)
    hints = set()
    for nth in range(len(operations)):
        folder = make(tmp_path / str(nth))
        with pytest.raises(MetadataError) as caught:
            append(folder, Failing(nth, number), segment_bytes)
        hints.add(caught.value.hint)
        assert content(folder) == NOTHING_NEW, f"after {operations[nth]} number {nth} failed"
        append(folder, FileSystem(), segment_bytes)
        assert content(folder) == ALL_OF_IT
    assert hints
    assert all(hints)


@pytest.mark.parametrize("segment_bytes", [1 << 30, 100], ids=["same segment", "rolled"])
def test_an_acknowledged_append_is_on_the_disk(tmp_path: Path, segment_bytes: int) -> None:
    assert_durable(lambda fs: append(make(tmp_path / "m"), fs, segment_bytes))
    assert_durable(lambda fs: topic_in(tmp_path / "new", writable=True, fs=fs).close())


def test_the_same_writer_goes_on_after_a_full_disk(tmp_path: Path) -> None:
    folder = make(tmp_path / "m")
    failing = Failing(0, errno.ENOSPC, only=frozenset({"write"}))
    log = topic_in(folder, writable=True, fs=failing)
    with pytest.raises(MetadataError, match="No space left"):
        log.append(WAVE[2:])
    assert log.append(WAVE) == [1, 1, 2]
    log.close()
    assert content(folder) == ALL_OF_IT


def test_kill_9_at_every_step_loses_no_acknowledged_record(tmp_path: Path) -> None:
    steps = len(operations_of(lambda fs: append_rolling(make(tmp_path / "watched"), fs)))
    for nth in range(steps):
        folder = make(tmp_path / str(nth))
        assert run_and_die(partial(append_rolling, folder), nth)
        found = content(folder)
        for partition, expected in enumerate(ALL_OF_IT):
            # Complete records in order; records that were not acknowledged may be missing.
            assert found[partition] == expected[: len(found[partition])]
            assert len(found[partition]) >= 1
        append(folder, FileSystem())
        assert [values[-1] for values in content(folder)] == [b"wave-2", b"wave-1"]
    assert not run_and_die(partial(append_rolling, make(tmp_path / "whole")), NEVER)
    assert content(tmp_path / "whole") == ALL_OF_IT


def test_making_the_topic_fails_whole_and_is_resumed(tmp_path: Path) -> None:
    def make_new(folder: Path, fs: FileSystem) -> None:
        topic_in(folder, writable=True, partition_count=2, fs=fs).close()

    operations = operations_of(lambda fs: make_new(tmp_path / "watched", fs))
    for nth in range(len(operations)):
        folder = tmp_path / str(nth)
        with pytest.raises(MetadataError):
            make_new(folder, Failing(nth, errno.ENOSPC))
        make_new(folder, FileSystem())
        log = topic_in(folder)
        assert log.partition_count == 2
        ids = {(folder / f"__remote_log_metadata-{n}" / "partition.metadata").read_bytes() for n in range(2)}
        assert len(ids) == 1
