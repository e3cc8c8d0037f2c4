"""kill -9 of a sweep between raising log starts and deleting, where log starts cross leader epochs."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.journal import Journal
from tierctl.locallog import read_log_dirs
from tierctl.model import TopicPartition

from tests.apply.worlds import World, check_durable, objects_of
from tests.locallog.made import raise_log_start
from tests.support.killing import SIGKILLED, Zygote

KEPT_OF_BOTH = "506"
KILLS = [
    ["sweep.log_start.write", "after", 1],
    ["sweep.started.publish", "after", 2],
    ["sweep.segment.delete", "after", 4],
    ["sweep.finished.publish", "before", 1],
]


def deleted_by_broker(root: Path) -> set[str]:
    """Return the ids of the segments that the broker deleted, without those of topic `both`."""
    return {line.split()[3] for line in (root / "deleted.txt").read_text().splitlines()}


@pytest.fixture
def before(capture: Callable[..., Path], tmp_path: Path) -> World:
    """Return the tier before the broker's expiration task ran; DeleteRecords has cut the checkpoints."""
    root = capture("delete-across-epoch")
    shutil.copytree(root / "before", tmp_path / "before")
    shutil.copytree(root / "before-remote", tmp_path / "remote")
    return World(tmp_path / "before", tmp_path / "remote", tmp_path / "before", tmp_path / "state")


def sweep(world: World, root: Path, *more: object) -> tuple[object, ...]:
    """Return a sweep command whose retention.ms includes the age of the capture."""
    settings = world.remote.parent / "topics.properties"
    if not settings.exists():
        text = (root / "topics.properties").read_text()
        name, retention_ms = next(line.split("=") for line in text.splitlines() if "retention.ms" in line)
        age_ms = time.time_ns() // 1_000_000 - int((root / "now_ms").read_text())
        settings.write_text(f"{text}\n{name}={int(retention_ms) + age_ms}\n")
    logs = ("--log-dir", world.logs, "--topic-configs", settings)
    return ("sweep", *world.where, *logs, "--wave-size", 4, "--threads", 2, *more)


def cut_as_brokers_do(world: World, starts: dict[TopicPartition, int]) -> None:
    """Raise log starts in the log directory as DeleteRecords does, which cuts the checkpoints."""
    for log in read_log_dirs([world.logs]):
        partition = log.topic_partition
        raise_log_start(world.logs, partition, starts.get(partition, log.log_start_offset))


def left(world: World) -> set[str]:
    return {str(segment.segment_id) for segment in world.segments()}


def wanted(world: World, root: Path) -> set[str]:
    """Return the segment ids that must remain: the broker's, and that of `both` which the limit keeps."""
    lines = (root / "deleted-over-retention.txt").read_text().splitlines()
    both = {line.split()[3] for line in lines if line.split()[1] != KEPT_OF_BOTH}
    assert len(both) == len(lines) - 1
    return left(world) - deleted_by_broker(root) - both


@pytest.mark.parametrize("is_cut", [False, True], ids=["same log directory", "checkpoints cut, no state"])
@pytest.mark.parametrize("kill", KILLS, ids=str)
def test_a_killed_sweep_is_finished_by_the_next(
    before: World, capture: Callable[..., Path], forked: Zygote, kill: list[Any], is_cut: bool
) -> None:
    """A broker may start in between; its checkpoints then have the new log starts and lack epochs."""
    root = capture("delete-across-epoch")
    kept = wanted(before, root)
    state = ("--state-dir", before.state_dir)
    killed = forked(*sweep(before, root, *state, "--apply"), kills=[kill])
    assert killed.code == SIGKILLED, killed.err
    check_durable(before)
    raised = Journal(before.state_dir).log_starts()
    assert raised, "killed before a log start was raised"
    if is_cut:
        ids = {log.topic_id_partition.key: log.topic_partition for log in read_log_dirs([before.logs])}
        cut_as_brokers_do(before, {ids[key]: offset for key, offset in raised.items()})
        state = ()
    again = forked(*sweep(before, root, *state, "--apply", "-o", "json"))
    assert again.code == 0, again.err
    assert left(before) == kept
    check_durable(before)
    last = forked(*sweep(before, root, *state, "--apply", "-o", "json"))
    assert (last.code, last.json["steps"]) == (0, []), last.err


def test_the_sweep_leaves_what_the_broker_left(
    before: World, capture: Callable[..., Path], forked: Zygote
) -> None:
    """Without a kill, the remaining objects are those of the broker, and the segment of `both`."""
    root = capture("delete-across-epoch")
    swept = forked(*sweep(before, root, "--apply", "--state-dir", before.state_dir))
    assert swept.code == 0, swept.err
    own, by_broker = objects_of(before.remote), objects_of(root / "after-remote")
    extra = {place: own[place] for place in own.keys() - by_broker.keys()}
    assert {int(start) for _, start, _ in extra} == {int(KEPT_OF_BOTH)}
    assert all("/both-0-" in folder for folder, _, _ in extra)
    assert {place: own[place] for place in by_broker} == by_broker
