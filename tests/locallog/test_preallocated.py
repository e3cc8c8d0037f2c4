"""Logs as a running broker leaves them: the indexes of the active segment are preallocated with zeros."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tierctl.locallog import read_log_dirs
from tierctl.model import TopicPartition, Uuid
from tierctl.wire.files.checkpoints import write_partition_metadata

from tests.cli.shell import tierctl
from tests.locallog.made import batch, write_log

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
    segments = [[batch(n, 2) for n in range(base, base + 20, 2)] for base in (0, 20, 40)]
    for number in range(REPLICAS):
        partition = TopicPartition("made", number)
        write_log(
            folder, segments, partition=partition, preallocated=preallocated, snapshots={20: (), 40: ()}
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
