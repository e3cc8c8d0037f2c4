"""Folders that are not current logs, and partitions that occur twice (LogManager.loadLog)."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.errors import CorruptInputError, TierctlError
from tierctl.locallog import FolderKind, left_out_folders, list_partitions, read_log_dirs
from tierctl.locallog.folders import distinct_dirs
from tierctl.model import LocalLog, TopicPartition

from tests.locallog.made import PARTITION, TOPIC_ID, batch, write_log

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
        (f"__internal-0.{UNIQUE}-future", None, None),
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
