"""kill -9 of executors during a bulk copy, sweep and delete: nothing is lost or invented."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tierctl.model import RemoteLogSegmentState

from tests.apply.worlds import World, check_deleted, check_durable, objects_of, segments_of
from tests.bench.process import executors_below, processes
from tests.cli.shell import Ran, tierctl
from tests.spark.clusters import Driver, run_command
from tests.spark.worlds import (
    Capture,
    copying,
    deleting,
    marking,
    sweeping,
    tiered,
    untiered,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMMANDS = {"copy": copying, "sweep": sweeping, "delete": deleting}
TIMEOUT_S = 240
_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def _all_executors(driver: Driver) -> list[int]:
    """Return the executors, once those that the previous test killed are replaced."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(found := executors_below(driver.pid, processes())) < 2 and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return found


def _run(driver: Driver, words: tuple[object, ...]) -> Ran:
    options = ("--engine", "spark", "--master", driver.master)
    return driver.call(run_command, [str(word) for word in (*words, *options)])


def _count(world: World) -> int:
    # Folders appear and vanish meanwhile, which os.walk accepts.
    return sum(name.endswith(".log") for _, _, names in os.walk(world.remote) for name in names)


def _killed_in_the_middle(run: Callable[[], Ran], pids: list[int], world: World) -> Ran:
    """Run a command; kill these processes after its first objects were stored or deleted."""
    before = _count(world)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        deadline_s = time.monotonic() + TIMEOUT_S
        while _count(world) == before and not running.done() and time.monotonic() < deadline_s:
            time.sleep(0.002)
        assert not running.done(), running.result().err
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return running.result(timeout=TIMEOUT_S)


def _world(command: str, capture: Capture, target: Path) -> World:
    if command == "copy":
        return untiered(capture, target)
    world = tiered(capture, target)
    if command == "delete":
        assert tierctl(*marking(world)).code == 0
    return world


@pytest.fixture(scope="module")
def undisturbed(capture: Capture, tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    """Return the result of each command on threads."""
    folder, ends = tmp_path_factory.mktemp("undisturbed"), {}
    for name, command in _COMMANDS.items():
        ends[name] = _world(name, capture, folder / name)
        assert tierctl(*command(ends[name])).code == 0
    return ends


@pytest.mark.matrix
@pytest.mark.parametrize("command", _COMMANDS)
def test_executors_are_killed(
    command: str,
    local_cluster_driver: Driver,
    undisturbed: dict[str, World],
    capture: Capture,
    tmp_path: Path,
) -> None:
    world, end = _world(command, capture, tmp_path / "world"), undisturbed[command]
    words, driver = _COMMANDS[command](world), local_cluster_driver
    # Kill all executors, because killing an idle one would prove nothing.
    ran = _killed_in_the_middle(lambda: _run(driver, words), _all_executors(driver), world)
    check_durable(world)
    check_deleted(world)
    # Spark repeats the lost tasks, which accept the objects that they stored before.
    assert ran.code == 0, ran.err
    assert segments_of(world.metadata) == segments_of(end.metadata)
    assert objects_of(world.remote) == objects_of(end.remote)


@pytest.mark.matrix
def test_the_driver_is_killed(
    standalone: str, undisturbed: dict[str, World], capture: Capture, tmp_path: Path
) -> None:
    """The next run withdraws the copies that were begun, although executors may go on for a moment."""
    world, end = _world("copy", capture, tmp_path / "world"), undisturbed["copy"]
    words, driver = copying(world), Driver(standalone, tmp_path)
    driver.call(_started)
    with pytest.raises(RuntimeError, match="has died"):
        _killed_in_the_middle(lambda: _run(driver, words), [driver.pid], world)
    driver.close()
    check_durable(world)
    assert [segment for segment in world.segments() if segment.state is _STARTED]
    next_driver = Driver(standalone, tmp_path)
    ran = _run(next_driver, words)
    next_driver.close()
    assert ran.code == 0, ran.err
    check_durable(world)
    assert segments_of(world.metadata) == segments_of(end.metadata)
    assert objects_of(world.remote) == objects_of(end.remote)


def _started(spark: "SparkSession") -> None:
    """Wait until the run has begun, so that the kill is in the middle."""
    spark.range(2).count()
