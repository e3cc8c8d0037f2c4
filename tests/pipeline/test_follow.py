"""--follow: each event once over many commits, a clean end on a signal, and a restart that continues."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import environment, tierctl
from tests.pipeline.tables import lives, rows_of, run, write
from tests.spark.clusters import spark_environment, spark_home

WAIT_S = 120


@contextmanager
def following(topic: Path, warehouse: Path, log: Path, *how: str) -> Iterator["Follower"]:
    """Return a process that follows; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "tierctl", "pipeline", "run", "--follow", "--interval", "1s", *how]
    command += ["--metadata", str(topic), "--warehouse", str(warehouse), "--now", str(10**13)]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment() | spark_environment(sys.executable),
        )
    try:
        yield Follower(process, log)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Follower:
    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log

    def commit(self) -> Any:
        """Return the next commit that it prints."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        return json.loads(line)

    def end(self, number: int) -> int:
        """Return the exit code after a signal."""
        self._process.send_signal(number)
        return self._process.wait(WAIT_S)


def events_until(follower: Follower, count: int) -> int:
    """Read commits until they have so many events; return the number of their events."""
    found = 0
    while found < count:
        found += follower.commit()["events"]
    return found


HOW: dict[str, tuple[tuple[str, ...], int]] = {
    "local": (("--engine", "local"), signal.SIGINT),
    "spark": (("--engine", "spark", "--master", "local[1]"), signal.SIGTERM),
}


@pytest.mark.parametrize(
    "engine", [pytest.param(each, marks=pytest.mark.matrix if each == "spark" else ()) for each in HOW]
)
def test_each_event_once(engine: str, tmp_path: Path) -> None:
    spark_home()
    how, number = HOW[engine]
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    first = lives(range(4))
    write(topic, first)
    with following(topic, warehouse, tmp_path / "log", *how) as follower:
        assert follower.commit()["events"] == len(first)
        for numbers in (range(4, 6), range(6, 9)):
            more = lives(numbers)
            write(topic, more)
            assert events_until(follower, len(more)) == len(more)
        held = tierctl("pipeline", "run", "--metadata", topic, "--warehouse", warehouse, "--engine", "local")
        assert held.code == 6, held.err
        assert follower.end(number) == 128 + number
    write(topic, lives(range(9, 11)))
    run(topic, warehouse)
    run(topic, tmp_path / "once")
    assert rows_of(warehouse) == rows_of(tmp_path / "once")


def test_not_over_spark_connect(tmp_path: Path) -> None:
    """The error comes before a connection is tried."""
    write(tmp_path / "topic", [None])
    where = ("--metadata", tmp_path / "topic", "--warehouse", tmp_path / "warehouse")
    ran = tierctl("pipeline", "run", "--follow", *where, "--master", "sc://127.0.0.1:1")
    assert ran.code == 2, ran.err
    assert "Spark Connect" in ran.err
