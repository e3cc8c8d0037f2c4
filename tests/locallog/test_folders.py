"""Folders that are not current logs, logs of running brokers, and the lock of a log directory."""

import errno
import fcntl
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import CorruptInputError, SafetyRefusal, TierctlError
from tierctl.files import broker_kept_out, exclusive
from tierctl.locallog import (
    FolderKind,
    ensure_stopped,
    is_locked,
    left_out_folders,
    list_partitions,
    read_log_dirs,
)
from tierctl.locallog.folders import distinct_dirs, is_log_dir, read_log_dir_facts
from tierctl.model import LocalLog, TopicPartition, Uuid
from tierctl.storage.lease import FolderLease
from tierctl.wire.files.checkpoints import write_partition_metadata

from tests.cli.shell import tierctl
from tests.locallog.made import PARTITION, TOPIC_ID, batch, three_segments, write_log
from tests.support.broker_lock import can_start, running_broker

UNIQUE = "5bdc1fcf2ea94c4aa0b0b1a8"


@pytest.mark.parametrize(
    ("name", "partition", "kind"),
    [
        (f"made-0.{UNIQUE}-delete", TopicPartition("made", 0), FolderKind.DELETE),
        (f"made-12.{UNIQUE}-future", TopicPartition("made", 12), FolderKind.FUTURE),
        (f"a.b-c.d-3.{UNIQUE}-stray", TopicPartition("a.b-c.d", 3), FolderKind.STRAY),
        ("made-0", None, None),
        (f"made-0.{UNIQUE}-deleted", None, None),
        ("made.x-future-0", None, None),
        ("nodash.x-future", None, None),
        (f"made-01.{UNIQUE}-future", None, None),
        (f"__audit-0.{UNIQUE}-stray", TopicPartition("__audit", 0), FolderKind.STRAY),
        (f"__consumer_offsets-0.{UNIQUE}-future", None, None),
    ],
)
def test_left_out_folders(
    tmp_path: Path, name: str, partition: TopicPartition | None, kind: FolderKind | None
) -> None:
    (tmp_path / name).mkdir()
    found = [(folder.partition, folder.kind, folder.path) for folder in left_out_folders([tmp_path])]
    assert found == ([] if partition is None else [(partition, kind, tmp_path / name)])
    assert left_out_folders([tmp_path], lambda _: False) == []


def test_a_future_replica_shows_that_the_topic_exists_and_a_folder_to_be_deleted_does_not(
    tmp_path: Path,
) -> None:
    folder = write_log(tmp_path, [[batch(0)]])
    folder.rename(tmp_path / f"{PARTITION}.{UNIQUE}-future")
    assert [(p.topic_id, p.topic_partition) for p in list_partitions([tmp_path])] == [(TOPIC_ID, PARTITION)]
    (tmp_path / f"{PARTITION}.{UNIQUE}-future").rename(tmp_path / f"{PARTITION}.{UNIQUE}-delete")
    assert list_partitions([tmp_path]) == []
    assert read_log_dirs([tmp_path]) == []


@pytest.mark.parametrize("is_checkpoint_damaged", [False, True])
@pytest.mark.parametrize("kind", ["link", "file", "link to a file"])
def test_what_is_no_folder_is_an_unreadable_log_unless_brokers_see_a_file(
    tmp_path: Path, kind: str, is_checkpoint_damaged: bool
) -> None:
    """As a link to a disk that is not mounted: a topic must not seem to be deleted because of it."""
    write_log(tmp_path, [[batch(0)]])
    for name in ("lost-0", f"lost-1.{UNIQUE}-delete"):
        target = tmp_path / "disk" if kind == "link" else tmp_path / "notes"
        (tmp_path / "notes").touch()
        (tmp_path / name).touch() if kind == "file" else (tmp_path / name).symlink_to(target)
    if is_checkpoint_damaged:
        (tmp_path / "log-start-offset-checkpoint").write_text("damaged")
    errors: dict[Path, TierctlError] = {}
    logs = read_log_dirs([tmp_path], on_error=errors.__setitem__)
    assert [log.topic_partition for log in logs] == ([] if is_checkpoint_damaged else [PARTITION])
    assert (tmp_path / "lost-0" in errors) == (kind == "link")
    assert [folder.path.name for folder in left_out_folders([tmp_path])] == [f"lost-1.{UNIQUE}-delete"]
    assert list(read_log_dir_facts(tmp_path).unreadable_topics) == ["lost"]


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", f"{PARTITION}/leader-epoch-checkpoint"])
def test_a_link_to_nothing_is_no_missing_checkpoint(name: str, tmp_path: Path) -> None:
    write_log(tmp_path, [[batch(0)]])
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("nothing")
    errors: dict[Path, TierctlError] = {}
    assert read_log_dirs([tmp_path], on_error=errors.__setitem__) == []
    assert "can't be read" in str([*errors.values()])


def test_a_file_with_the_name_of_a_partition_makes_no_log_directory(tmp_path: Path) -> None:
    (tmp_path / "notes-2").touch()
    assert not is_log_dir(tmp_path)
    (tmp_path / "orders-0").symlink_to(tmp_path / "unmounted")
    assert is_log_dir(tmp_path)


def test_a_directory_is_read_once_however_it_is_named(tmp_path: Path) -> None:
    write_log(tmp_path / "a", [[batch(0)]])
    (tmp_path / "link").symlink_to(tmp_path / "a")
    dirs = [tmp_path / "a", tmp_path / "link", tmp_path / "a" / ".." / "a"]
    assert distinct_dirs(dirs) == [tmp_path / "a"]
    assert len(read_log_dirs(dirs)) == 1


V0, V1 = "version=0\nbroker.id={}\ncluster.id={}\n", "version=1\nnode.id={}\ncluster.id={}\n"

TWICE = pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        (V1.format(1, "c"), V1.format(1, "c"), True),
        (V0.format(1, "c"), V1.format(1, "c"), True),
        (V1.format(1, "c"), V1.format(2, "c"), False),
        (V1.format(1, "c"), V1.format(1, "d"), False),
        (V1.format(1, "c"), None, False),
        (None, None, False),
        ("version=1\n", "version=1\n", False),
        ("\\u1", "\\u1", False),
    ],
)


@pytest.fixture
def twice(tmp_path: Path) -> Callable[..., list[Path]]:
    """Return two log directories with a log of one partition, each with its meta.properties or None."""

    def make(first: str | None, second: str | None) -> list[Path]:
        for name, meta in (("a", first), ("b", second)):
            write_log(tmp_path / name, [[batch(0)], [batch(1)]])
            write_log(tmp_path / name, [[batch(0)]], partition=TopicPartition(f"only-{name}", 0))
            if meta is not None:
                (tmp_path / name / "meta.properties").write_text(meta)
        return [tmp_path / "a", tmp_path / "b"]

    return make


@TWICE
def test_two_logs_of_one_partition_and_one_broker_are_refused_as_by_the_broker(
    twice: Callable[..., list[Path]], first: str | None, second: str | None, is_refused: bool
) -> None:
    dirs = twice(first, second)
    reported: list[tuple[Path, TierctlError]] = []
    logs = read_log_dirs(dirs, on_error=lambda folder, error: reported.append((folder, error)))
    names = sorted(str(log.topic_partition) for log in logs)
    if not is_refused:
        assert (names, reported) == (["made-0", "made-0", "only-a-0", "only-b-0"], [])
        assert len(read_log_dirs(dirs)) == len(logs)
        return
    assert names == ["only-a-0", "only-b-0"]
    [(folder, error)] = reported
    assert folder == dirs[0] / "made-0"
    assert (
        f"expected one folder on broker 1 of cluster c, found 2: {dirs[0]}/made-0, {dirs[1]}/made-0"
        in str(error)
    )
    with pytest.raises(CorruptInputError, match="one folder on broker 1"):
        read_log_dirs(dirs)


def test_a_folder_that_a_running_broker_has_renamed_meanwhile_is_no_duplicate(
    twice: Callable[..., list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that moves a partition first renames the new folder, and then the old one."""
    dirs = twice(V1.format(1, "c"), V1.format(1, "c"))
    read = read_log_dirs.__globals__["read_log"]

    def and_then_moved(partition: TopicPartition, folder: Path, checkpoints: object) -> LocalLog:
        log: LocalLog = read(partition, folder, checkpoints)
        if folder.parent == dirs[1] and partition == PARTITION:
            shutil.move(dirs[0] / "made-0", dirs[0] / f"made-0.{UNIQUE}-delete")
        return log

    monkeypatch.setattr("tierctl.locallog.log_end.read_log", and_then_moved)
    logs = read_log_dirs(dirs)
    assert [log.directory.parent for log in logs if log.topic_partition == PARTITION] == [dirs[1]]


REPLICAS = 20
READ_BYTES_MAX = 32 << 10
"""Bytes that are read of one replica, whose two preallocated indexes have 20 MiB."""
SUFFIXES = {".log", ".index", ".timeindex", ".snapshot"}

_opened: list[Counter[Path]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _opened and isinstance(arguments[0], str):
        _opened[-1][Path(arguments[0])] += 1


@contextmanager
def _opened_files() -> Iterator[Counter[Path]]:
    """Yield how often each file is opened meanwhile."""
    if not _opened:
        sys.addaudithook(_hook)  # It can't be removed.
    _opened.append(Counter())
    yield _opened[-1]
    _opened.append(Counter())


def _write(folder: Path, *, preallocated: bool) -> Path:
    for number in range(REPLICAS):
        partition = TopicPartition("made", number)
        write_log(
            folder,
            three_segments(),
            partition=partition,
            preallocated=preallocated,
            snapshots={20: (), 40: ()},
        )
    return folder


@pytest.mark.parametrize("how", ["crashed", "clean shutdown"])
def test_preallocated_indexes_say_what_trimmed_ones_say(tmp_path: Path, how: str) -> None:
    whole = _write(tmp_path, preallocated=False)
    if how == "clean shutdown":
        (whole / ".kafka_cleanshutdown").touch()
    expected = read_log_dirs([whole])
    for folder in whole.iterdir():
        if folder.is_dir():
            for path in (*folder.glob("*40.index"), *folder.glob("*40.timeindex")):
                with path.open("ab") as file:
                    file.truncate((10 << 20) // 24 * 24)
    assert read_log_dirs([whole]) == expected


def _read_bytes() -> int:
    """Return the number of bytes that this process has read so far."""
    return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["rchar"])


def test_a_status_reads_little_and_each_file_once(tmp_path: Path) -> None:
    data, settings = _write(tmp_path / "data", preallocated=True), tmp_path / "topics.properties"
    settings.write_text("made.remote.storage.enable=true\n")
    where = ("--metadata", tmp_path / "metadata", "--log-dir", data, "--topic-configs", settings)
    made = tierctl("copy", *where, "--remote", tmp_path / "tier", "--apply")
    assert made.out.count("copy_segment") == 2, made.err
    for command in (("status",), ("explain", "made", str(REPLICAS - 1)), ("report",)):
        tierctl(*command, *where)  # The modules that it needs are read before.
        before = _read_bytes()
        with _opened_files() as files:
            ran = tierctl(*command, *where)
        assert ran.code == 0, ran.err
        assert _read_bytes() - before < REPLICAS * READ_BYTES_MAX
        in_logs = {p: n for p, n in files.items() if data in p.parents and p.suffix in SUFFIXES}
        assert {path.suffix for path in in_logs} >= {".log", ".timeindex", ".snapshot"}
        assert not {path for path, count in in_logs.items() if count > 1}, command


@pytest.mark.parametrize(("settings", "is_read"), [("", False), ("false", False), ("true", True)])
def test_a_status_reads_no_log_of_an_untiered_topic(tmp_path: Path, settings: str, is_read: bool) -> None:
    data, other, configs = tmp_path / "data", tmp_path / "other", tmp_path / "topics.properties"
    write_log(data, [[batch(0)], [batch(1)]], preallocated=True)
    configs.write_text("made.remote.storage.enable=true\n")
    where = ("--metadata", tmp_path / "metadata", "--log-dir", data, "--topic-configs", configs)
    made = tierctl("copy", *where, "--remote", tmp_path / "tier", "--apply")
    assert made.code == 0, made.err
    tiered = tierctl("status", *where, "--output", "json")
    plain = write_log(other, [[batch(0)], [batch(1)]], partition=TopicPartition("plain", 0))
    (plain / "partition.metadata").write_bytes(write_partition_metadata(Uuid("PL8Mw9uDS32Q2fp63a9ugA")))
    where = (*where, "--log-dir", other)
    if settings:
        configs.write_text(f"{configs.read_text()}plain.remote.storage.enable={settings}\n")
    with _opened_files() as files:
        ran = tierctl("status", *where, "--output", "json")
    assert ran.code == 0, ran.err
    assert {path.name for path in files if plain in path.parents} >= {"partition.metadata"}
    assert any(path.suffix in SUFFIXES for path in files if plain in path.parents) is is_read
    assert ("the copy lag is unknown for plain: no settings state" in ran.err) is (not settings)
    rows = [row for row in json.loads(ran.out) if row["topic"] == "made"]
    assert rows == json.loads(tiered.out)
    mistyped = configs.read_text().replace("plain", "plian") + "plian.retention.ms=1\n"
    configs.write_text(mistyped)
    assert 'did you mean "plain"?' in tierctl("status", *where).err


def test_a_held_lock_is_seen_and_left_alone(tmp_path: Path) -> None:
    """To ask does not take the lock: a broker that starts at this moment must not fail because of it."""
    (tmp_path / ".lock").touch()
    assert not is_locked(tmp_path)
    with running_broker(tmp_path):
        assert is_locked(tmp_path)
        assert is_locked(tmp_path)
        with pytest.raises(SafetyRefusal, match="running broker"):
            ensure_stopped(tmp_path)
    assert not is_locked(tmp_path)
    ensure_stopped(tmp_path)


def test_a_directory_without_a_lock_file(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert not (tmp_path / ".lock").exists()


def test_what_can_not_be_told_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(SafetyRefusal, match="can't be queried"):
        is_locked(tmp_path)


def test_a_lock_of_this_process_is_kept_until_its_last_block_ends(tmp_path: Path) -> None:
    """POSIX locks end when the process closes any descriptor of the file."""
    (tmp_path / ".lock").touch()
    outer, inner = broker_kept_out(tmp_path), broker_kept_out(tmp_path / "." / "")
    with outer:
        with inner:
            ensure_stopped(tmp_path)
            assert not can_start(tmp_path)
        assert not is_locked(tmp_path)
        assert not can_start(tmp_path)
    assert can_start(tmp_path)
    first, second = broker_kept_out(tmp_path), broker_kept_out(tmp_path)
    first.__enter__()
    with second:
        first.__exit__(None, None, None)
        assert not can_start(tmp_path)
    assert can_start(tmp_path)


def test_a_lock_that_a_broker_holds_is_refused_each_time(tmp_path: Path) -> None:
    with running_broker(tmp_path):
        for _ in range(2):
            with pytest.raises(SafetyRefusal, match="a broker is running"), broker_kept_out(tmp_path):
                pass
    with broker_kept_out(tmp_path):
        assert not can_start(tmp_path)


@pytest.mark.parametrize(
    ("lock", "call", "name"),
    [
        (broker_kept_out, "lockf", ".lock"),
        (exclusive, "flock", ".tierctl.lock"),
        (lambda folder: FolderLease(folder, folder), "flock", ""),
    ],
)
def test_an_error_of_a_lock_names_the_file(
    lock: Callable[[Path], AbstractContextManager[object]],
    call: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a folder on a server that was exchanged; Python names the files of errors of opening only."""

    def fail(_fd: int, _operation: int) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    (tmp_path / ".lock").touch()
    monkeypatch.setattr(fcntl, call, fail)
    with pytest.raises(OSError, match="Stale") as caught, lock(tmp_path):
        pass
    assert caught.value.filename == str(tmp_path / name)


def test_a_captured_log_directory(capture: Callable[[str], Path]) -> None:
    before, after = (read_log_dir_facts(capture("tiered-cluster") / stage) for stage in ("before", "after"))
    gone = {name.rpartition("-")[0] for i, name in before.topic_ids.items() if i not in after.topic_ids}
    assert gone == {"shortlived"}
    assert (before.cluster_id, before.unreadable_topics, before.why_unreadable) == (None, {}, None)


@pytest.mark.parametrize("suffix", ["", ".5bdc1fcf2ea94c4aa0b0b1a85bdc1f-delete", ".5b-stray", ".5b-future"])
def test_folders_on_their_way_count(suffix: str, tmp_path: Path) -> None:
    folder = write_log(tmp_path, [[batch(0)]])
    folder.rename(tmp_path / f"made-0{suffix}")
    assert read_log_dir_facts(tmp_path).topic_ids == {TOPIC_ID: f"made-0{suffix}"}
    (tmp_path / f"made-0{suffix}" / "partition.metadata").write_text("damaged")
    facts = read_log_dir_facts(tmp_path)
    assert (facts.topic_ids, facts.unreadable_topics) == ({}, {"made": f"made-0{suffix}"})
    assert facts.has_partitions


def test_what_is_no_log_directory(tmp_path: Path) -> None:
    assert not read_log_dir_facts(tmp_path).has_partitions
    assert read_log_dir_facts(tmp_path / "none").why_unreadable == "No such file or directory"
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=yDRBVCh3QKmOs6aFeYUCUQ\n")
    facts = read_log_dir_facts(tmp_path)
    assert (facts.cluster_id, facts.has_partitions) == ("yDRBVCh3QKmOs6aFeYUCUQ", False)
    (tmp_path / "meta.properties").write_bytes(b"cluster.id=\\u00")
    assert "meta.properties" in (read_log_dir_facts(tmp_path).why_unreadable or "")
