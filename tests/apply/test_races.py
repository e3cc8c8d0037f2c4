"""50 processes of copy, sweep and delete on one tier and one state directory, most of them killed."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.locallog import list_partitions
from tierctl.model import RemoteLogSegmentState

from tests.apply.worlds import World, check_deleted, check_durable
from tests.metadata.topics import topic_in
from tests.support.killing import SIGKILLED, Zygote, met

PROCESSES = 50
KILLED = 46
CHANGES = 40
"""A process is killed at a file change up to this number; copying two segments makes more changes."""
SEED = 20260405
DELETED = "ledger"
SETTINGS = (
    "bills.remote.storage.enable=true\nledger.remote.storage.enable=true\nbills.retention.bytes=2500000\n"
)


@pytest.fixture
def beginning(capture: Callable[..., Path], forked: Zygote, tmp_path: Path) -> World:
    """Make a world with a topic to copy and sweep, and a topic that was copied, deleted and marked."""
    world = World(*(tmp_path / name for name in ("metadata", "remote", "logs", "state")))
    topic_in(world.metadata, writable=True, partition_count=3).close()
    shutil.copytree(capture("untiered-broker") / "local", world.logs)
    shutil.rmtree(world.logs / "events-0")
    (world.logs / "configs").write_text(SETTINGS)
    for command in (("copy", "--topic", DELETED, *_logs(world), "--layout", "kafka"),):
        _run(forked, world, *command)
    shutil.rmtree(world.logs / f"{DELETED}-0")
    _run(forked, world, "delete", "--mark", "--topic", DELETED, "--log-dir", world.logs, "--all-log-dirs")
    return world


def _logs(world: World) -> tuple[object, ...]:
    return ("--log-dir", world.logs, "--topic-configs", world.logs / "configs")


def _commands(world: World) -> dict[str, tuple[object, ...]]:
    return {
        "copy": ("copy", *_logs(world), "--layout", "kafka"),
        "sweep": ("sweep", *_logs(world)),
        "delete": ("delete",),
    }


def _arguments(world: World, *command: object) -> tuple[object, ...]:
    name, *rest = command
    how = ("--state-dir", world.state_dir, "--apply", "--threads", 2, "--wave-size", 2)
    return (name, *world.where, *rest, *how)


def _run(forked: Zygote, world: World, *command: object) -> bool:
    """Run a command that must succeed; return whether it changed anything besides the state directory."""
    ran = forked(*_arguments(world, *command))
    assert ran.code == 0, ran.err
    return bool({label for label, _ in met(ran)} - {"file", "delete.offsets.commit"})


def _converge(forked: Zygote, world: World) -> None:
    """Run every command twice; the second run of each must find no work."""
    for _ in range(2):
        # After a copy, sweep may find new work, and vice versa.
        has_worked = [_run(forked, world, *command) for command in _commands(world).values()]
    assert not any(has_worked), "a second rerun still did something"


@pytest.mark.matrix
@pytest.mark.slow
def test_races_end_as_one_run_does(beginning: World, forked: Zygote, tmp_path: Path) -> None:
    undisturbed = beginning.clone(tmp_path / "undisturbed")
    _converge(forked, undisturbed)

    world = beginning.clone(tmp_path / "raced")
    rng = random.Random(SEED)
    names = rng.choices(list(_commands(world)), (5, 3, 2), k=PROCESSES)
    kills = [rng.randint(1, CHANGES) if at < KILLED else None for at in range(PROCESSES)]
    rng.shuffle(kills)
    racers = [
        (_arguments(world, *_commands(world)[name]), kill) for name, kill in zip(names, kills, strict=True)
    ]
    ended = forked.race(racers)
    codes = Counter(ran.code for ran in ended)
    unexpected = [ran.err for ran in ended if ran.code not in {0, SIGKILLED}]
    assert not unexpected, f"{codes}: {unexpected[0]}"
    # Processes that get the lock late find no work and are not killed.
    assert codes[SIGKILLED] >= 5, codes
    print(f"{PROCESSES} processes: {codes[SIGKILLED]} killed")
    check_durable(world)
    check_deleted(world)

    _converge(forked, world)
    check_durable(world)
    check_deleted(world)
    assert world.facts() == undisturbed.facts()
    assert not [s for s in world.segments() if s.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    topics = {partition.topic for partition in list_partitions([world.logs])}
    assert {segment.topic for segment in world.segments()} == topics
