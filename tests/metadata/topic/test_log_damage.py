"""Damage of a metadata log: readers continue after it, writers keep it; failing disks, killed writers."""

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tierctl.commands.restore import new_logs
from tierctl.commands.restore.hosts import LogContent
from tierctl.commands.restore.new_logs import merge_offsets
from tierctl.errors import CorruptInputError, MetadataError
from tierctl.files import PLAIN, FileSystem
from tierctl.metadata.topic.base import PartitionLog
from tierctl.metadata.topic.folder import is_unfinished
from tierctl.metadata.topic.folder_writer import drop_stale_entries, known_id
from tierctl.model import TopicPartition
from tierctl.wire.files.checkpoints import read_offset_checkpoint

from tests.metadata.topic.test_folder import (
    NOW_MS,
    VALUES,
    bad_of,
    chunks_of,
    folder,
    open_log,
    segment,
    values_of,
)
from tests.metadata.topics import topic_in
from tests.support.faults import NEVER, Failing, assert_durable, operations_of, run_and_die
from tests.wire.batches.same import scan

__all__ = ["folder"]


class TestTornTails:
    def test_every_truncation_reads_as_the_valid_prefix_and_is_written_on(self, folder: Path) -> None:
        path = segment(folder)
        ends = batch_ends(path.read_bytes())[:3]
        whole = path.read_bytes()[: ends[-1]]
        path.chmod(0o600)
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            left = sum(end <= size for end in ends)
            reader = open_log(folder, writable=False)
            assert reader.end_offsets()[0] == left
            assert values_of(reader, 0) == VALUES[:left]
            assert bad_of(reader) == []
            assert path.read_bytes() == whole[:size], "a reader never writes"
            if size % 23:
                continue
            writer = open_log(folder)
            assert writer.append([(0, b"next")]) == [left]
            assert values_of(writer, 0) == [*VALUES[:left], b"next"]
            writer.close()
            kept = list(path.parent.glob("*.bak"))
            torn = whole[ends[left - 1] if left else 0 : size].rstrip(b"\0")
            assert [bak.read_bytes() for bak in kept] == ([torn] if torn else [])
            for bak in kept:
                assert bak.stat().st_mode == path.stat().st_mode
                bak.unlink()

    def test_preallocated_zeros_are_no_records(self, folder: Path) -> None:
        path = segment(folder)
        whole = path.read_bytes()
        path.write_bytes(whole + bytes(100_000))
        assert open_log(folder, writable=False).end_offsets()[0] == 10
        writer = open_log(folder)
        writer.append([(0, b"next")])
        writer.close()
        assert len(path.read_bytes()) < len(whole) + 100
        assert not list(path.parent.glob("*.bak"))


def batch_ends(data: bytes) -> list[int]:
    return [head.end for head in scan(bytes(data))]


FIRST = "__remote_log_metadata-0"
SMALL_FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "known id": (f"{FIRST}/partition.metadata", lambda folder: known_id(folder, [0])),
    "id of the topic": (
        f"{FIRST}/partition.metadata",
        lambda folder: open_log(folder, writable=False).topic_id,
    ),
    "stale entries": ("recovery-point-offset-checkpoint", lambda f: drop_stale_entries(f, {}, fs=PLAIN)),
    "new entries": (
        "replication-offset-checkpoint",
        lambda folder: merge_offsets(folder / "replication-offset-checkpoint", {}),
    ),
    "base of a plan": (
        f"{FIRST}/leader-epoch-checkpoint",
        lambda folder: LogContent(PartitionLog(folder / FIRST, 0)).base(),
    ),
}


@pytest.mark.parametrize("name", SMALL_FILES)
def test_the_error_of_a_damaged_small_file_names_it(folder: Path, name: str) -> None:
    file, read = SMALL_FILES[name]
    (folder / file).write_bytes(b"0\nx\n")
    with pytest.raises(CorruptInputError) as caught:
        read(folder)
    assert caught.value.source == str(folder / file)


def test_runs_side_by_side_keep_the_entries_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    read = new_logs.read_decoded
    runs = [Thread(target=merge_offsets, args=(path, {TopicPartition("t", at): at})) for at in range(2)]

    def slow(*args: Any) -> Any:
        found = read(*args)
        if runs[1].ident is None:
            runs[1].start()
            runs[1].join(0.2)
        return found

    monkeypatch.setattr(new_logs, "read_decoded", slow)
    runs[0].start()
    for run in runs:
        run.join(60)
    assert read_offset_checkpoint(path.read_bytes()) == {TopicPartition("t", at): at for at in range(2)}
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name, f"{path.name}.bak"]


def rolled(folder: Path, count: int) -> list[int]:
    """Append large records, so that segments end; return the base offset of each segment."""
    log = open_log(folder, segment_bytes=600)
    for _ in range(count):
        log.append([(0, b"x" * 300)])
    log.close()
    return sorted(int(path.stem) for path in segment(folder).parent.glob("*.log"))


class TestDamage:
    def test_a_corrupt_batch_is_a_bad_range_and_reading_goes_on(self, folder: Path) -> None:
        path = segment(folder)
        data = bytearray(path.read_bytes())
        third = batch_ends(data)[2]
        data[third + 80] ^= 0xFF
        path.write_bytes(data)
        log = open_log(folder, writable=False)
        assert log.end_offsets()[0] == 10
        assert bad_of(log) == [(3, 4)]
        assert values_of(log, 0) == VALUES[:3] + VALUES[4:]
        (bad,) = chunks_of(log)[0].damage
        assert bad.error.source == str(path)
        assert bad.error.at is not None
        assert third <= bad.error.at < third + 100

    def test_a_corrupt_end_is_met_by_readers_and_not_buried_by_writers(self, folder: Path) -> None:
        path = segment(folder)
        data = bytearray(path.read_bytes())
        data[-1] ^= 0xFF
        path.write_bytes(data)
        log = open_log(folder, writable=False)
        assert bad_of(log) == [(9, 10)]
        assert values_of(log, 0) == VALUES[:9]
        writer = open_log(folder)
        with pytest.raises(CorruptInputError, match="CRC-32C"):
            writer.append([(0, b"next")])
        assert writer.append([(1, b"elsewhere")]) == [0]
        writer.close()
        assert path.read_bytes() == data

    @pytest.mark.parametrize("bit", [31, 32, 48, 62])
    @pytest.mark.parametrize("row", [0, 4, 9])
    def test_a_base_offset_that_no_segment_can_have(self, folder: Path, row: int, bit: int) -> None:
        """The CRC does not cover it, and after the last batch no other one contradicts it."""
        path = segment(folder)
        whole = path.read_bytes()
        at = [0, *batch_ends(whole)][row]
        wrong = (row | 1 << bit).to_bytes(8, "big")
        path.write_bytes(whole[:at] + wrong + whole[at + 8 :])
        log = open_log(folder, writable=False)
        assert log.end_offsets()[0] == 10
        assert bad_of(log) == [(row, row + 1)]
        assert values_of(log, 0) == VALUES[:row] + VALUES[row + 1 :]
        if row == 9:
            writer = open_log(folder)
            with pytest.raises(CorruptInputError, match=f"to {(1 << 31) - 1}"):
                writer.append([(0, b"next")])
            writer.close()

    def test_every_flipped_byte_is_noticed_or_harmless(self, folder: Path) -> None:
        path = segment(folder)
        whole = path.read_bytes()
        for at in range(0, len(whole), 9):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
            log = open_log(folder, writable=False)
            found = values_of(log, 0)
            lost = [value for value in VALUES if value not in found]
            assert all(value in VALUES for value in found)
            # The last batch may look unfinished, because the CRC does not cover base offset and leader epoch.
            assert len(lost) <= 1
            assert not lost or bad_of(log) or log.end_offsets()[0] == 9
            assert chunks_of(log)[0].offsets.tolist() == [*range(10)] or lost or bad_of(log)

    def test_a_missing_segment_is_a_gap(self, folder: Path) -> None:
        bases = rolled(folder, 10)
        segment(folder, f"{bases[1]:020d}.log").unlink()
        reader = open_log(folder, writable=False)
        assert bad_of(reader) == [(bases[1], bases[2])]
        assert len(values_of(reader, 0)) == 20 - (bases[2] - bases[1])

    @pytest.mark.parametrize("bytes_left", [0, 8, 40, 65])
    @pytest.mark.parametrize("fill", [None, 0, 255])
    def test_bytes_at_the_end_of_a_middle_segment_are_no_gap(
        self, folder: Path, bytes_left: int, fill: int | None
    ) -> None:
        """Compaction leaves no bytes behind; a broker may have allocated zeros ahead."""
        bases = rolled(folder, 10)
        path = segment(folder, f"{bases[0]:020d}.log")
        data = path.read_bytes()
        end = [0, *batch_ends(data)][-3]
        rest = data[end : end + bytes_left] if fill is None else bytes([fill]) * bytes_left
        path.write_bytes(data[:end] + rest)
        lost = [bad for chunk in chunks_of(open_log(folder, writable=False)) for bad in chunk.damage]
        assert (lost[0].offset, lost[-1].next_offset) == (bases[1] - 2, bases[1])
        assert {bad.is_gap for bad in lost} == {fill == 0 or not bytes_left}
        assert {bad.error.source for bad in lost} == {str(path)}

    @pytest.mark.parametrize("at", [0, 1, -1])
    def test_a_segment_that_a_starting_broker_takes_into_the_log_is_no_gap(
        self, folder: Path, at: int
    ) -> None:
        path = segment(folder, f"{rolled(folder, 10)[at]:020d}.log")
        path.rename(f"{path}.swap")
        reader, writer = open_log(folder, writable=False), open_log(folder)
        for use in (reader.end_offsets, lambda: chunks_of(reader), lambda: writer.append([(0, b"next")])):
            with pytest.raises(CorruptInputError, match=rf"expected no segment .*, found {path.name}\.swap"):
                use()
        writer.close()

    @pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
    @pytest.mark.parametrize("at", [0, 1, -1])
    def test_a_segment_without_a_file_is_a_bad_range(
        self, folder: Path, at: int, make: Callable[[Path], None]
    ) -> None:
        bases = rolled(folder, 10)
        path = segment(folder, f"{bases[at]:020d}.log")
        path.unlink()
        make(path)
        lost = (bases[at], [*bases, bases[-1] + 1][bases.index(bases[at]) + 1])
        reader = open_log(folder, writable=False)
        end = bases[-1] + 1 if at == -1 else 20
        assert reader.end_offsets() == {0: end, 1: 0, 2: 0}
        assert bad_of(reader) == [lost]
        assert len(values_of(reader, 0)) == end - (lost[1] - lost[0])
        (bad,) = (bad for chunk in chunks_of(reader) for bad in chunk.damage)
        assert bad.error.source == str(path)
        assert bad.error.hint is not None
        assert reader.offsets_for_time([0], NOW_MS + 1)[0] <= end
        if at == -1:
            writer = open_log(folder)
            with pytest.raises(CorruptInputError, match="expected the file"):
                writer.append([(0, b"next")])
            assert writer.append([(1, b"elsewhere")]) == [0]
            writer.close()

    def test_a_lost_beginning_is_the_beginning_offset(self, folder: Path) -> None:
        (folder / "log-start-offset-checkpoint").write_bytes(b"0\n1\n__remote_log_metadata 0 4\n")
        log = open_log(folder, writable=False)
        assert log.beginning_offsets() == {0: 4, 1: 0, 2: 0}
        assert values_of(log, 0) == VALUES[4:]
        segment(folder).rename(segment(folder, f"{7:020d}.log"))
        assert open_log(folder, writable=False).beginning_offsets()[0] == 7

    def test_records_that_are_deleted_before_they_are_read_are_no_beginning(self, folder: Path) -> None:
        """A history without them would count as complete: those who read know where the log began."""
        rolled(folder, 4)
        reader = open_log(folder, writable=False)
        assert (reader.beginning_offsets()[0], reader.end_offsets()[0]) == (0, 14)
        segment(folder).unlink()
        for _ in range(2):
            with pytest.raises(MetadataError, match="offset 0 no longer exists, the log begins at 10"):
                list(reader.read(0, 0, 14))
        assert reader.beginning_offsets()[0] == 10
        assert len(values_of(reader, 0, 10)) == 4


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
    """Return the values of each partition of a log without damage."""
    log = topic_in(folder)
    assert not any(bad_of(log, partition) for partition in log.end_offsets())
    return [values_of(log, partition) for partition in log.end_offsets()]


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


@pytest.mark.parametrize("segment_bytes", [1 << 30, 100], ids=["same segment", "rolled"])
def test_a_failed_append_leaves_those_before_it_of_the_same_writer(
    tmp_path: Path, segment_bytes: int
) -> None:
    for nth in range(8):
        folder = make(tmp_path / str(nth))
        fs = Failing(NEVER, errno.ENOSPC)
        log = topic_in(folder, writable=True, fs=fs, segment_bytes=segment_bytes)
        log.append(WAVE)
        indexes = {path.with_suffix(".index") for path in folder.glob("*/*.log")}
        for index in indexes:
            index.touch()
        fs._nth = len(fs.seen) + nth
        with suppress(MetadataError):
            log.append([(0, b"wave-3"), (1, b"wave-4")])
        assert fs.failed is not None
        assert content(folder) == ALL_OF_IT, f"after {fs.seen[-1]} number {nth} failed"
        log.close()


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
    shutil.rmtree(folder / FIRST)
    assert is_unfinished(folder, [1])
    (folder / "__remote_log_metadata-1" / f"{7:020d}.log.swap").touch()
    assert not is_unfinished(folder, [1])
