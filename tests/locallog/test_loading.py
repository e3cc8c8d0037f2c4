"""Captured log directories as brokers loaded them, damaged ones, and those that change meanwhile."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tierctl.checks.findings import damaged_log_ends
from tierctl.commands.local_logs import read_local_logs
from tierctl.errors import CorruptInputError, NotFoundError, TierctlError, UsageError
from tierctl.locallog import folders as files_module
from tierctl.locallog import list_partitions, log_end, read_log_dirs
from tierctl.locallog.folders import list_log_files
from tierctl.model import EpochEntry, LocalLog, TopicPartition
from tierctl.model.progress import SilentProgress
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch

from tests.locallog.made import PARTITION, TIME_MS, TOPIC_ID, batch, three_segments, write_log
from tests.wire.batches.same import scan

Tree = Callable[[str], Path]


def _one(directory: Path, partition: TopicPartition = PARTITION) -> LocalLog:
    (log,) = (log for log in read_log_dirs([directory]) if log.topic_partition == partition)
    return log


def test_an_untiered_broker(capture: Tree) -> None:
    logs = {str(log.topic_partition): log for log in read_log_dirs([capture("untiered-broker") / "local"])}
    assert sorted(logs) == ["bills-0", "bills-1", "events-0", "ledger-0"]
    ledger = logs["ledger-0"]
    assert ledger.topic_id_partition.topic_id == "WXLMw9uDS32Q2fp63a9ugA"
    assert [s.base_offset for s in ledger.segments] == [0, 697, 1394, 2091, 2788, 3481, 4081, 4681]
    assert [s.next_base_offset for s in ledger.segments] == [697, 1394, 2091, 2788, 3481, 4081, 4681, None]
    assert (ledger.log_start_offset, ledger.high_watermark, ledger.log_end_offset) == (0, 4781, 4781)
    assert ledger.leader_epochs == (EpochEntry(0, 0), EpochEntry(2, 2050))
    assert [s.transaction_index is not None for s in ledger.segments] == [True] * 5 + [False] * 3
    assert [s.producer_snapshot.name[:20].lstrip("0") for s in ledger.segments if s.producer_snapshot] == [
        "697", "1394", "2091", "2788", "3481", "4081", "4681",
    ]  # fmt: skip
    assert ledger.segments[0].size_bytes == 1028483
    assert {str(p): log.last_stable_offset for p, log in logs.items()} == {
        "bills-0": 3500, "bills-1": 3500, "events-0": 5000, "ledger-0": 3280,
    }  # fmt: skip


def test_partitions_of_log_directories_without_their_logs(capture: Tree, tmp_path: Path) -> None:
    root = capture("untiered-broker") / "local"
    logs = read_log_dirs([root])
    assert list_partitions([root]) == sorted({log.topic_id_partition for log in logs})
    write_log(tmp_path, [[batch(0)]])
    (tmp_path / str(PARTITION) / "leader-epoch-checkpoint").write_bytes(b"damaged")
    (tmp_path / "other-1").mkdir()
    (tmp_path / "third-1").mkdir()
    (tmp_path / "third-1" / "partition.metadata").write_bytes(b"damaged")
    assert f"{TOPIC_ID}:{PARTITION}" in map(str, list_partitions([tmp_path, root]))
    assert len(list_partitions([tmp_path, root])) == len(logs) + 1
    with pytest.raises(NotFoundError, match="no such folder"):
        list_partitions([tmp_path / "none"])


def test_an_empty_transaction_index_is_none(tmp_path: Path) -> None:
    write_log(tmp_path, [[batch(0), batch(1)]])
    directory = tmp_path / str(PARTITION)
    index = next(directory.glob("*.log")).with_suffix(".txnindex")
    for content, found in ((b"", False), (bytes(34), True)):
        index.write_bytes(content)
        assert [s.transaction_index is not None for s in _one(tmp_path).segments] == [found]


def test_a_users_topic_may_have_a_name_like_internal_ones(tmp_path: Path) -> None:
    """Brokers tier every topic that is none of Kafka's own, as __CruiseControlMetrics."""
    users, internal = TopicPartition("__CruiseControlMetrics", 0), TopicPartition("__share_group_state", 0)
    write_log(tmp_path, [[batch(0)]], partition=internal)
    write_log(tmp_path, [[batch(0)], [batch(1)]], partition=users)
    assert [log.topic_partition for log in read_log_dirs([tmp_path])] == [users]
    assert [each.topic_partition for each in list_partitions([tmp_path])] == [users]


def test_foreign_files_and_folders_on_their_way_are_none_of_ours(tmp_path: Path) -> None:
    folder = write_log(tmp_path, [[batch(0)], [batch(1)]])
    for name in (
        "made-0.5bdc1fcf2ea94c4aa0b0b1a8-delete", "made-1.5bdc1fcf2ea94c4aa0b0b1a8-future",
        "made-2.5bdc1fcf2ea94c4aa0b0b1a8-stray", "lost+found", "nodash", "made-x", "made-01", "ma de-0",
        "..-0", "made-99999999999",
    ):  # fmt: skip
        (tmp_path / name).mkdir()
    (tmp_path / ".lock").touch()
    for name in ("notes.txt", "00000000000000000000.log.deleted", "00000000000000000007.log.cleaned", "1.log",
                 "99999999999999999999.log", "notes.log.swap", "leader-epoch-checkpoint.tmp"):  # fmt: skip
        (folder / name).write_text("junk")
    assert [s.base_offset for s in _one(tmp_path).segments] == [0, 1]
    assert len(read_log_dirs([tmp_path])) == 1


def test_what_no_directory_is(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such folder"):
        read_log_dirs([tmp_path / "missing"])
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="no directory"):
        read_log_dirs([tmp_path / "file"])
    assert read_log_dirs([tmp_path]) == []


@pytest.mark.parametrize(
    ("high_watermark", "log_start", "expected"),
    [
        (60, None, (0, 60)),
        (35, None, (0, 35)),
        (99, None, (0, 60)),
        (0, None, (0, 0)),
        (35, 7, (7, 35)),
        (3, 7, (7, 7)),
    ],
)
def test_offsets_from_checkpoints(
    tmp_path: Path, high_watermark: int, log_start: int | None, expected: tuple[int, int]
) -> None:
    write_log(tmp_path, three_segments(), high_watermark=high_watermark, log_start=log_start)
    log = _one(tmp_path)
    assert (log.log_start_offset, log.high_watermark) == expected
    assert log.log_end_offset == 60
    assert log.last_stable_offset == log.high_watermark


def test_without_checkpoints_nothing_is_known_to_be_replicated(tmp_path: Path) -> None:
    write_log(tmp_path, three_segments()[1:])
    for path in tmp_path.glob("*-checkpoint"):
        path.unlink()
    log = _one(tmp_path)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (20, 20, 60)


def test_a_log_start_beyond_the_end_starts_the_log_anew(tmp_path: Path) -> None:
    write_log(tmp_path, three_segments(), log_start=61)
    log = _one(tmp_path)
    assert (log.segments, log.leader_epochs) == ((), ())
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.last_stable_offset) == (61,) * 4
    (finding,) = damaged_log_ends([log])
    assert "log-start-offset-checkpoint" in finding.found
    assert "expected at most 60, where the batches end, found 61" in finding.found
    assert "a broker that starts deletes all segments" in finding.fix
    read_local_logs([tmp_path], progress := SilentProgress(), select=lambda _: True)
    (note,) = progress.notes
    assert "expected at most 60, where the batches end, found 61" in note


def test_a_high_watermark_that_is_not_recorded_is_noted(tmp_path: Path) -> None:
    write_log(tmp_path, three_segments())
    read_local_logs([tmp_path], progress := SilentProgress(), select=lambda _: True)
    assert progress.notes == []
    (tmp_path / "replication-offset-checkpoint").unlink()
    (log,) = read_local_logs([tmp_path], progress, select=lambda _: True)
    assert (log.high_watermark, log.log_end_offset) == (0, 60)
    (note,) = progress.notes
    assert f"no high watermark of {log.directory}" in note


def test_an_empty_active_segment_ends_where_it_begins(tmp_path: Path) -> None:
    write_log(tmp_path, [*three_segments(), []])
    log = _one(tmp_path)
    assert log.log_end_offset == 60
    assert [s.base_offset for s in log.segments] == [0, 20, 40, 60]


@pytest.mark.parametrize(
    ("entries", "log_start", "expected"),
    [
        ([(0, 0), (2, 15), (5, 60)], None, [(0, 0), (2, 15), (5, 60)]),
        ([(0, 0), (2, 15), (5, 61)], None, [(0, 0), (2, 15)]),
        ([(0, 0), (2, 15), (5, 40)], 15, [(2, 15), (5, 40)]),
        ([(0, 0), (2, 15), (5, 40)], 30, [(2, 30), (5, 40)]),
        ([(2, 15)], 3, [(2, 15)]),
        ([], None, [(0, 0)]),
    ],
)
def test_epochs_are_cut_to_the_log(
    tmp_path: Path, entries: list[tuple[int, int]], log_start: int | None, expected: list[tuple[int, int]]
) -> None:
    epochs = [EpochEntry(*entry) for entry in entries]
    write_log(tmp_path, three_segments(), epochs=epochs, log_start=log_start, recovery_point=0)
    log = _one(tmp_path)
    assert list(log.leader_epochs) == [EpochEntry(*entry) for entry in expected]
    # Brokers cut the file before they store a higher log start.
    assert log.is_log_start_doubtful == any(start < (log_start or 0) for _, start in entries[:1])


def test_epochs_of_unflushed_batches_are_recovered(tmp_path: Path) -> None:
    active = [batch(40, epoch=1), batch(41, epoch=3), batch(42, epoch=3), batch(43, epoch=4)]
    write_log(
        tmp_path,
        [*three_segments()[:2], active],
        epochs=[EpochEntry(0, 0), EpochEntry(1, 40)],
        recovery_point=40,
    )
    assert _one(tmp_path).leader_epochs == (
        EpochEntry(0, 0), EpochEntry(1, 40), EpochEntry(3, 41), EpochEntry(4, 43),
    )  # fmt: skip


def test_every_truncation_of_the_active_segment(tmp_path: Path) -> None:
    folder = write_log(tmp_path, three_segments(), high_watermark=50)
    path = folder / "00000000000000000040.log"
    data = path.read_bytes()
    ends = {0: 40} | {head.end: head.next_offset for head in scan(data)}
    for cut in range(0, len(data), 5):
        path.write_bytes(data[:cut])
        log = _one(tmp_path)
        assert log.log_end_offset == max(offset for end, offset in ends.items() if end <= cut)
        assert log.high_watermark == min(50, log.log_end_offset)


@pytest.mark.parametrize("is_clean", [False, True])
def test_zeros_that_a_broker_allocated_ahead_do_not_count(tmp_path: Path, is_clean: bool) -> None:
    """With `preallocate`, a running broker's active file has segment.bytes; what is written counts."""
    folder = write_log(tmp_path, three_segments())
    if is_clean:
        (tmp_path / ".kafka_cleanshutdown").touch()
    whole = _one(tmp_path)
    os.truncate(folder / "00000000000000000040.log", 1 << 26)
    assert [s.size_bytes for s in _one(tmp_path).segments] == [s.size_bytes for s in whole.segments]
    (folder / "00000000000000000060.log").touch()
    os.truncate(folder / "00000000000000000060.log", 1 << 26)
    assert _one(tmp_path).segments[-1].size_bytes == 0


@pytest.mark.parametrize("how", ["torn", "damaged"])
def test_bytes_that_a_broker_cuts_off_after_a_crash_do_not_count(tmp_path: Path, how: str) -> None:
    """Size and largest timestamp of the last segment count what LogSegment.recover keeps."""
    folder = write_log(tmp_path, three_segments())
    path = folder / "00000000000000000040.log"
    second = scan(path.read_bytes())[1]
    if how == "torn":
        os.truncate(path, second.end - 1)
    else:
        _break(folder, 40, 1)
    (*_, last) = _one(tmp_path).segments
    assert (last.base_offset, last.size_bytes, last.max_timestamp_ms) == (40, second.position, TIME_MS + 41)


# An index entry at a position where no batch begins.
_NOWHERE = bytes.fromhex("000000010000000100000002000000337fffffff7fffffff")
_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-3],
    "zeros": lambda data: bytes(len(data)),
    "garbage": lambda data: b"\xff" * len(data),
    "allocated ahead": lambda data: data + bytes(2400),
    "never closed": lambda data: data[:12] + bytes(1200),
    "empty": lambda _: b"",
}


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [(suffix, damage) for suffix in (".index", ".timeindex") for damage in ("missing", *_DAMAGES)]
    + [(".index", "nowhere")],
)
@pytest.mark.parametrize("base", [20, 40])
def test_a_damaged_index_costs_time_only(tmp_path: Path, suffix: str, damage: str, base: int) -> None:
    folder = write_log(tmp_path, three_segments())
    whole = _one(tmp_path)
    path = folder / f"{base:020d}{suffix}"
    data = path.read_bytes()
    assert len(data) >= 24
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(_NOWHERE if damage == "nowhere" else _DAMAGES[damage](data))
    assert _one(tmp_path) == whole


def test_without_timestamps_the_files_time_counts(tmp_path: Path) -> None:
    folder = write_log(tmp_path, [[encode_batch([Record(0, -1, None, b"v")])], [batch(1)]])
    os.utime(folder / "00000000000000000000.log", ns=(0, 1_234_567_890_000_000))
    assert _one(tmp_path).segments[0].max_timestamp_ms == 1_234_567_890


def _break(folder: Path, base: int, batch_number: int) -> None:
    path = folder / f"{base:020d}.log"
    data = bytearray(path.read_bytes())
    data[list(scan(bytes(data)))[batch_number].position + 40] ^= 4
    path.write_bytes(data)


def test_a_broken_unflushed_segment_ends_the_log(tmp_path: Path) -> None:
    folder = write_log(tmp_path, three_segments(), recovery_point=20)
    _break(folder, 20, 3)
    log = _one(tmp_path)
    assert [s.base_offset for s in log.segments] == [0, 20]
    assert log.segments[-1].next_base_offset is None
    assert (log.log_end_offset, log.high_watermark) == (26, 26)


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_a_broker_recovers_the_whole_segment_of_the_recovery_point(
    tmp_path: Path, has_snapshot: bool
) -> None:
    """It reads from the segment's start, and cuts the log before damage below the recovery point, too."""
    folder = write_log(
        tmp_path, three_segments(), recovery_point=50, snapshots={50: []} if has_snapshot else {}
    )
    _break(folder, 40, 1)
    log = _one(tmp_path)
    assert (log.log_end_offset, log.high_watermark) == (42, 42)
    assert log.damaged_end is not None
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert _one(tmp_path).log_end_offset == 60


@pytest.mark.parametrize("how", ["recovery point", "clean shutdown"])
def test_flushed_segments_are_not_read_again(tmp_path: Path, how: str) -> None:
    """Segments below the recovery point are trusted as in a broker; a copy checks every byte anyway."""
    folder = write_log(tmp_path, three_segments(), recovery_point=40 if how == "recovery point" else 0)
    if how == "clean shutdown":
        (tmp_path / ".kafka_cleanshutdown").touch()
    _break(folder, 20, 3)
    log = _one(tmp_path)
    assert (len(log.segments), log.log_end_offset) == (3, 60)


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
def test_one_bad_partition_does_not_hide_the_others(tmp_path: Path, name: str) -> None:
    write_log(tmp_path, three_segments(), partition=TopicPartition("good", 3))
    folder = write_log(tmp_path, three_segments())
    data = (folder / name).read_bytes()
    reported: list[tuple[Path, TierctlError]] = []
    for cut in range(1, len(data)):
        (folder / name).write_bytes(data[:cut])
        with pytest.raises(CorruptInputError) as caught:
            read_log_dirs([tmp_path])
        assert caught.value.source == str(folder / name)
        reported.clear()
        logs = read_log_dirs([tmp_path], on_error=lambda where, error: reported.append((where, error)))
        assert [str(log.topic_partition) for log in logs] == ["good-3"]
        assert [where for where, _ in reported] == [folder]


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex"])
@pytest.mark.parametrize("base", [0, 20, 40])
def test_a_log_with_files_that_a_broker_will_take_into_it_is_not_understood(
    tmp_path: Path, kind: str, base: int
) -> None:
    """The segment would be missing in the log, as if it had no records at these offsets."""
    write_log(tmp_path, three_segments(), partition=TopicPartition("good", 3))
    folder = write_log(tmp_path, three_segments())
    name = f"{base:020d}.{kind}"
    (folder / name).touch()
    (folder / name).rename(folder / f"{name}.swap")
    errors: dict[Path, TierctlError] = {}
    logs = read_log_dirs([tmp_path], on_error=errors.__setitem__)
    assert ([str(log.topic_partition) for log in logs], list(errors)) == (["good-3"], [folder])
    assert f"log of {folder}" in str(errors[folder])
    assert f"found {name}.swap" in str(errors[folder])
    assert "start the broker" in (errors[folder].hint or "")


def test_a_bad_checkpoint_is_named(tmp_path: Path) -> None:
    write_log(tmp_path, three_segments())
    (tmp_path / "replication-offset-checkpoint").write_bytes(b"0\n1\nmade 0 x\n")
    with pytest.raises(CorruptInputError, match="replication-offset-checkpoint"):
        read_log_dirs([tmp_path])


def test_nothing_is_changed(tmp_path: Path) -> None:
    write_log(tmp_path, three_segments(), recovery_point=0)

    def state() -> list[tuple[str, int, int]]:
        return sorted((str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*"))

    before = state()
    read_log_dirs([tmp_path])
    assert state() == before
    assert _one(tmp_path).topic_id_partition.topic_id == TOPIC_ID


def test_a_segment_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention deletes the first segment after the folder was listed, so the log is read again."""
    folder = write_log(tmp_path, three_segments())
    read_log_end = log_end.read_log_end
    reads: list[int] = []

    def delete_first(segments: Any, *args: Any, **more: Any) -> Any:
        reads.append(len(segments))
        for path in folder.glob(f"{0:020d}.*"):
            path.rename(path.with_name(path.name + ".deleted"))
        return read_log_end(segments, *args, **more)

    monkeypatch.setattr(log_end, "read_log_end", delete_first)
    (log,) = read_log_dirs([tmp_path])
    assert ([s.base_offset for s in log.segments], log.log_start_offset) == ([20, 40], 20)
    assert reads == [3, 2]


def test_a_file_that_stays_missing(tmp_path: Path) -> None:
    folder = write_log(tmp_path, three_segments())
    (folder / "partition.metadata").unlink()
    with pytest.raises(NotFoundError, match=r"partition\.metadata"):
        read_log_dirs([tmp_path])


def test_a_topic_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker renames the folder of a deleted topic: the partition is missing, without an error."""
    folder = write_log(tmp_path, three_segments())
    write_log(tmp_path / "other", [[batch(0)]])

    def delete_topic(*_args: Any, **_more: Any) -> Any:
        if folder.exists():
            folder.rename(tmp_path / f"{PARTITION}.5bdc1fcf2ea94c4aa0b0b1a8-delete")
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "gone")

    monkeypatch.setattr(log_end, "read_log_end", delete_topic)
    assert read_log_dirs([tmp_path]) == []
    with pytest.raises(NotFoundError, match="gone"):
        read_log_dirs([tmp_path / "other"])


def test_two_segments_added_during_one_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """readdir may return only the later one; the segment before it would seem to reach up to that offset."""
    folder = write_log(tmp_path, three_segments())
    listings = [[0, 40], [0, 20, 40], [0, 20, 40], *([[n] for n in range(100)])]
    shown: Iterator[list[int]] = iter(listings)
    monkeypatch.setattr(files_module, "_numbers", lambda *_args: iter(next(shown)))
    assert [s.base_offset for s in list_log_files(folder).segments] == [0, 20, 40]
    with pytest.raises(OSError, match="all the time"):
        list_log_files(folder)
