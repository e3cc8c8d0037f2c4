"""kill -9 around every side effect of `restore log`: a broker loads no log or the whole log.

The run erases the records of some keys. It has every side effect of a plain run, and also writes the signed
list.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.run_context import LABELS
from tierctl.locallog import read_log_dirs
from tierctl.model import Uuid

from tests.apply.worlds import World
from tests.support.killing import SIGKILLED, Zygote, met, moments
from tests.support.signing import signing_key

OWN_LABELS = tuple(
    label
    for label in LABELS
    if label.startswith(("materialise.", "restore.staging.", "restore.partition.", "restore.old_folder."))
    or label == "restore.checkpoints.write"
)
NEW_ID = Uuid("AAAAAAAAAAAAAAAAAAAAAQ")


def new_broker(folder: Path) -> Path:
    """Return the directory of a stopped broker with the empty log of a new topic."""
    partition = folder / "bills-0"
    partition.mkdir(parents=True)
    (folder / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {NEW_ID}")
    (partition / "00000000000000000000.log").touch()
    return folder


def command(world: World, log_dir: Path) -> tuple[object, ...]:
    return ("restore", "log", *world.where, "--topic", "bills", "--log-dir", log_dir, "--apply")


@pytest.fixture
def without_keys(tiered: World, tierctl: Any, tmp_path: Path) -> tuple[object, ...]:
    """Return the options that erase the records of the first key of bills-0, with the lists in `lists`."""
    row = json.loads(tierctl("fetch", *tiered.where, "--topic", "bills", "--binary", "hex").lines[0])
    (tmp_path / "keys").write_text(f"hex:{row['key']}\n")
    signing_key(tmp_path / "key.pem")
    files_of = ("--without-keys", tmp_path / "keys", "--sign-with", tmp_path / "key.pem")
    return (*files_of, "--left-out", tmp_path / "lists")


def lists(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "lists").glob("*"))}


def files(log_dir: Path) -> dict[str, bytes]:
    """Return every file that a broker does not delete when it starts."""
    found = (path for path in log_dir.rglob("*") if path.is_file() and path.suffix != ".bak")
    return {
        str(path.relative_to(log_dir)): path.read_bytes()
        for path in found
        if not path.relative_to(log_dir).parts[0].endswith("-delete")
    }


@pytest.mark.slow
def test_kill_around_every_side_effect(
    tiered: World, forked: Zygote, tmp_path: Path, without_keys: tuple[object, ...]
) -> None:
    whole = new_broker(tmp_path / "whole")
    ran = forked(*command(tiered, whole), *without_keys)
    assert ran.code == 0, ran.err
    end, listed = files(whole), lists(tmp_path)
    assert list(listed) == ["bills-0.jsonl", "bills-0.jsonl.sig"]
    assert not list(whole.glob("*-delete"))
    for at, kill in enumerate(moments(met(ran), OWN_LABELS)):
        log_dir = new_broker(tmp_path / str(at))
        shutil.rmtree(tmp_path / "lists")
        before = {name: data for name, data in files(log_dir).items() if name.startswith("bills-0")}
        assert forked(*command(tiered, log_dir), *without_keys, kills=[kill]).code == SIGKILLED
        there = {name: data for name, data in files(log_dir).items() if name.startswith("bills-0")}
        committed = {name: data for name, data in end.items() if name.startswith("bills-0")}
        assert there in ({}, before, committed), kill
        if there == committed:
            assert files(log_dir) == end
            assert lists(tmp_path) == listed
        for _ in range(2):
            again = forked(*command(tiered, log_dir), *without_keys)
            assert again.code == 0, again.err
            assert "left out" in again.err
        assert files(log_dir) == end
        assert lists(tmp_path) == listed
        assert not list(log_dir.glob("*-delete"))


def test_a_full_disk_leaves_the_folder_as_it_was(
    tiered: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tierctl: Any
) -> None:
    log_dir = new_broker(tmp_path / "broker")
    before = files(log_dir)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tierctl.commands.restore.new_logs.PLAIN.rename", full)
    ran = tierctl(*command(tiered, log_dir))
    assert (ran.code, "No space left on device" in ran.err) == (5, True), ran.err
    monkeypatch.undo()
    assert files(log_dir) == before
    assert not list(log_dir.glob("*-delete"))
    assert tierctl(*command(tiered, log_dir)).code == 0
    (log,) = read_log_dirs([log_dir])
    assert log.log_end_offset > 0
    assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs] == [(0, 0)]


def test_too_little_room_is_refused_before_anything_is_written(
    tiered: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tierctl: Any
) -> None:
    log_dir = new_broker(tmp_path / "broker")
    before = files(log_dir)
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("tierctl.commands.restore.to_log.shutil.disk_usage", lambda _path: usage)
    ran = tierctl(*command(tiered, log_dir))
    assert (ran.code, "has 1000 bytes free, the logs need" in ran.err) == (4, True), ran.err
    assert files(log_dir) == before
