"""The stream of Spark: each event once, whatever it repeats; a clean end on a signal; runs that go on."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tierctl.pipeline.update import StepResult, fold_woken, run_stream
from tierctl.spark.executors.transport import Executors

from tests.cli.shell import environment, tierctl
from tests.metadata.events import started
from tests.pipeline.tables import lives, pipeline, rows_of, run, write
from tests.spark.clusters import spark_environment, spark_home
from tests.support.amounts import rest_in_matrix
from tests.support.killing import SIGKILLED, Zygote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 120
NOW_MS = started(1).event_timestamp_ms


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


@pytest.mark.matrix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_each_event_once_until_a_signal(number: int, tmp_path: Path) -> None:
    spark_home()
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    first = lives(range(4))
    write(topic, first)
    with following(topic, warehouse, tmp_path / "log", "--master", "local[1]") as follower:
        assert follower.commit()["events"] == len(first)
        for numbers in (range(4, 6), range(6, 9)):
            more = lives(numbers)
            write(topic, more)
            assert events_until(follower, len(more)) == len(more)
        held = tierctl("pipeline", "run", "--metadata", topic, "--warehouse", warehouse)
        assert held.code == 6, held.err
        assert follower.end(number) == 128 + number
    run(topic, tmp_path / "once")
    assert rows_of(warehouse) == rows_of(tmp_path / "once")


def test_not_over_spark_connect(tmp_path: Path) -> None:
    """The error comes before a connection is tried."""
    write(tmp_path / "topic", [None])
    where = ("--metadata", tmp_path / "topic", "--warehouse", tmp_path / "warehouse")
    ran = tierctl("pipeline", "run", *where, "--master", "sc://127.0.0.1:1")
    assert ran.code == 2, ran.err
    assert "Spark Connect" in ran.err


def streamed(spark: "SparkSession", topic: Path, warehouse: Path, **how: Any) -> list[StepResult]:
    """Run the pipeline on Spark to the end; return its commits."""
    done: list[StepResult] = []
    with pipeline(topic, warehouse, **how).opened() as opened:
        run_stream(Executors(spark), opened, done.append)
    return done


def newest(checkpoint: Path, folder: str) -> Path:
    """Return the newest file of a log of the checkpoint."""
    return max((checkpoint / folder).glob("[0-9]*"), key=lambda path: int(path.name))


def forget_commit(checkpoint: Path) -> None:
    """Leave the checkpoint as a driver does that is killed after the commit of the tables."""
    last = newest(checkpoint, "commits")
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink()


def damage(checkpoint: Path) -> None:
    (checkpoint / "metadata").write_text("{}")


CHECKPOINTS: dict[str, Callable[[Path], None]] = {
    "as it was": lambda _checkpoint: None,
    "with a batch that is repeated": forget_commit,
    "damaged": damage,
}


@pytest.mark.parametrize("what", CHECKPOINTS)
def test_a_run_goes_on_where_the_tables_end(
    what: str, topic: Path, tmp_path: Path, spark: "SparkSession"
) -> None:
    warehouse = tmp_path / "warehouse"
    assert [each.commit for each in streamed(spark, topic, warehouse)] == [1]
    CHECKPOINTS[what](warehouse / "_checkpoint")
    write(topic, lives(range(50, 53)))
    commits = [each.commit for each in streamed(spark, topic, warehouse) if each.offsets]
    assert commits == [2]
    run(topic, tmp_path / "once")
    assert rows_of(warehouse) == rows_of(tmp_path / "once")


def test_a_folder_with_any_name(topic: Path, tmp_path: Path, spark: "SparkSession") -> None:
    """Spark takes the escapes of a URI as they are written."""
    warehouse = tmp_path / "große Tabellen"
    assert [each.commit for each in streamed(spark, topic, warehouse)] == [1]
    write(topic, lives(range(50, 53)))
    assert [each.commit for each in streamed(spark, topic, warehouse)] == [2]
    assert [path.name for path in (warehouse / "_checkpoint" / "offsets").glob("[0-9]")] == ["0", "1"]


def test_rows_that_change_with_time_alone(tmp_path: Path, spark: "SparkSession") -> None:
    """A copy becomes dangling in its own bucket."""
    topic, warehouse, later_ms = tmp_path / "topic", tmp_path / "warehouse", NOW_MS + 2 * 86_400_000
    write(topic, [started(1), started(2, partition=1)])
    streamed(spark, topic, warehouse, now_ms=NOW_MS)
    before = rows_of(warehouse)
    with pipeline(topic, warehouse, now_ms=later_ms).opened() as opened:
        assert opened.step(fold_woken(lambda: Executors(spark))).commit == 2
    run(topic, tmp_path / "once", now_ms=later_ms)
    assert before != rows_of(warehouse) == rows_of(tmp_path / "once")


def test_a_checkpoint_of_other_tables(topic: Path, tmp_path: Path, spark: "SparkSession") -> None:
    """The tables were restored from a backup, or made anew: they decide."""
    warehouse, older = tmp_path / "warehouse", tmp_path / "older"
    streamed(spark, topic, warehouse)
    shutil.copytree(warehouse, older)
    write(topic, lives(range(50, 53)))
    streamed(spark, topic, warehouse)
    run(topic, tmp_path / "once")
    for tables, checkpoint in ((older, warehouse), (tmp_path / "none", warehouse), (warehouse, older)):
        mixed = tmp_path / f"mixed-{tables.name}"
        if tables.exists():
            shutil.copytree(tables, mixed, ignore=shutil.ignore_patterns("_checkpoint"))
        shutil.copytree(checkpoint / "_checkpoint", mixed / "_checkpoint")
        streamed(spark, topic, mixed)
        assert rows_of(mixed) == rows_of(tmp_path / "once")


STEPS = ("warehouse.commit", "warehouse.follow.segments", "warehouse.follow.events")


@pytest.mark.parametrize("step", rest_in_matrix(STEPS, tried=2))
def test_stopped_at_a_step_of_a_commit(step: str, topic: Path, tmp_path: Path, spark: "SparkSession") -> None:
    """Spark repeats the batch; the commit is made once."""
    warehouse = tmp_path / "warehouse"
    streamed(spark, topic, warehouse)
    write(topic, lives(range(50, 53)))

    def stop(label: str) -> None:
        if label == step:
            raise RuntimeError(f"stopped at {label}")

    with pytest.raises(RuntimeError, match=step):
        streamed(spark, topic, warehouse, effect=stop)
    streamed(spark, topic, warehouse)
    run(topic, tmp_path / "once")
    assert rows_of(warehouse) == rows_of(tmp_path / "once")
    with pipeline(topic, warehouse).opened() as opened:
        assert opened.latest.number == 2


@pytest.mark.matrix
def test_a_driver_that_is_killed(topic: Path, tmp_path: Path, spark: "SparkSession", forked: Zygote) -> None:
    """Kill -9 the driver on a warehouse with a commit, again and again, each time some changes later."""
    warehouse = tmp_path / "warehouse"
    streamed(spark, topic, warehouse)
    write(topic, lives(range(50, 53)))
    run(topic, tmp_path / "expected")
    command = ("pipeline", "run", "--metadata", topic, "--warehouse", warehouse, "--master", "local[1]")
    killed = 0
    for nth in range(1, 60, 2):
        ran = forked(*command, "--now", 10**13, files=nth)
        assert ran.code in {0, SIGKILLED}, ran.err
        killed += ran.code == SIGKILLED
        if ran.code == 0:
            break
    assert killed > 2
    assert rows_of(warehouse) == rows_of(tmp_path / "expected")
