"""The stream of Spark: each event once, whatever it repeats; a clean end on a signal; runs that go on."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tierctl.pipeline import update
from tierctl.pipeline.update import StepResult, fold_woken, run_stream
from tierctl.pipeline.warehouse import offsets_of
from tierctl.spark.executors.transport import Executors

from tests.cli.shell import environment, tierctl
from tests.metadata.events import started
from tests.metadata.events import update as event_of_deletion
from tests.pipeline.tables import Rows, lives, pipeline, rows_of, run, run_once, write, write_all_kinds
from tests.spark.clusters import spark_environment, spark_home
from tests.spark.doings import SLOW_S, slow_bucket
from tests.state.histories import S
from tests.support.amounts import rest_in_matrix
from tests.support.killing import SIGKILLED, Zygote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 120
NOW_MS = started(1).event_timestamp_ms


def read_events(follower: "subprocess.Popen[bytes]", log: Path, count: int) -> None:
    """Read the commits that a run prints until they have `count` events, and no more."""
    assert follower.stdout is not None
    while count > 0:
        line = follower.stdout.readline()
        assert line, log.read_text()
        count -= json.loads(line)["events"]
    assert count == 0


@pytest.mark.matrix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_each_event_once_until_a_signal(number: int, tmp_path: Path) -> None:
    spark_home()
    topic, warehouse, log = (tmp_path / name for name in ("topic", "warehouse", "log"))
    where = ["--metadata", str(topic), "--warehouse", str(warehouse)]
    follow = ["--follow", "--interval", "1s", "--master", "local[1]", "--now", str(10**13)]
    write(topic, lives(range(4)))
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "tierctl", "pipeline", "run", *where, *follow],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment() | spark_environment(Path(sys.executable)),
        ) as follower,
    ):
        try:
            read_events(follower, log, len(lives(range(4))))
            for numbers in (range(4, 6), range(6, 9)):
                write(topic, lives(numbers))
                read_events(follower, log, len(lives(numbers)))
            held = tierctl("pipeline", "run", *where)
            assert held.code == 6, held.err
            follower.send_signal(number)
            assert follower.wait(WAIT_S) == 128 + number
        finally:
            follower.kill()
    assert rows_of(warehouse) == run_once(topic)


def test_a_signal_ends_a_batch_that_has_begun(
    tmp_path: Path, warehouse: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is committed: the tables have the events of whole batches."""
    begun_s, begun = time.monotonic(), tmp_path / "begun"

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if begun.exists():
            raise KeyboardInterrupt

    write(tmp_path / "topic", lives(range(2)))
    monkeypatch.setattr(update, "_bucket", slow_bucket)
    monkeypatch.setattr(update, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    with pipeline(tmp_path / "topic", warehouse).opened() as opened:
        with pytest.raises(KeyboardInterrupt):
            run_stream(Executors(spark), opened, pytest.fail)
        assert opened.latest.number == 0
    assert time.monotonic() - begun_s < SLOW_S


def test_not_over_spark_connect(tmp_path: Path, warehouse: Path) -> None:
    """The error comes before a connection is tried."""
    write(tmp_path / "topic", [None])
    where = ("--metadata", tmp_path / "topic", "--warehouse", warehouse)
    ran = tierctl("pipeline", "run", *where, "--master", "sc://127.0.0.1:1")
    assert ran.code == 2, ran.err
    assert "Spark Connect" in ran.err


def streamed(spark: "SparkSession", topic: Path, warehouse: Path, **how: Any) -> list[StepResult]:
    """Run the pipeline on Spark to the end; return its commits."""
    done: list[StepResult] = []
    with pipeline(topic, warehouse, **how).opened() as opened:
        run_stream(Executors(spark), opened, done.append)
    return done


@pytest.fixture(scope="module")
def few_buckets() -> Iterator[None]:
    """Spread a commit over few tasks."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(update, "BUCKETS_MIN", 3)
        yield


@dataclass(frozen=True, slots=True)
class Grown:
    """A topic with new events since the only commit of `begun`, and the rows of all its events."""

    topic: Path
    begun: Path
    expected: Rows


@pytest.fixture(scope="module")
def grown(module_folder: Path, spark: "SparkSession", few_buckets: None) -> Grown:
    topic, begun = module_folder / "topic", module_folder / "begun"
    write_all_kinds(topic)
    assert [each.commit for each in streamed(spark, topic, begun)] == [1]
    write(topic, lives(range(50, 53)))
    return Grown(topic, begun, run_once(topic))


@pytest.fixture(scope="module")
def ended(grown: Grown, module_folder: Path, spark: "SparkSession") -> Path:
    """Return a copy of `begun`, in a folder with any name, whose stream went on with the new events."""
    warehouse = module_folder / "große Tabellen"
    shutil.copytree(grown.begun, warehouse)
    assert [each.commit for each in streamed(spark, grown.topic, warehouse) if each.offsets] == [2]
    return warehouse


def test_a_run_goes_on_where_the_tables_end(grown: Grown, ended: Path) -> None:
    """Spark takes the escapes of a URI as they are written."""
    assert rows_of(ended) == grown.expected
    assert sorted(path.name for path in (ended / "_checkpoint" / "offsets").glob("[0-9]")) == ["0", "1"]


@pytest.mark.parametrize("source", ["", "0:"], ids=["version 1", "version 2"])
def test_the_offsets_of_a_batch_are_read_from_either_log(source: str, tmp_path: Path) -> None:
    """Version 2 names the source before its offsets."""
    (tmp_path / "offsets").mkdir()
    text = json.dumps({"topic_id": None, "next_offsets": {"0": 7, "3": 12}})
    (tmp_path / "offsets" / "4").write_text(f"v{2 if source else 1}\n{{}}\n{source}{text}")
    assert offsets_of(tmp_path, 4) == {0: 7, 3: 12}


@pytest.mark.matrix
def test_a_checkpoint_whose_log_of_offsets_names_its_source(
    grown: Grown, warehouse: Path, spark: "SparkSession"
) -> None:
    """Version 2 of that log, which an upgrade of Spark or its defaults may choose."""
    name = "spark.sql.streaming.offsetLog.formatVersion"
    shutil.copytree(grown.begun, warehouse, ignore=shutil.ignore_patterns("_checkpoint"))
    spark.conf.set(name, "2")
    try:
        done = streamed(spark, grown.topic, warehouse)
    finally:
        spark.conf.unset(name)
    assert (warehouse / "_checkpoint" / "offsets" / "0").read_text().startswith("v2")
    assert [each.commit for each in done] == [2]
    assert rows_of(warehouse) == grown.expected
    assert not streamed(spark, grown.topic, warehouse)
    assert (warehouse / "_checkpoint" / "offsets" / "0").read_text().startswith("v2")


@pytest.mark.parametrize("is_older", [False, True])
def test_a_checkpoint_of_other_tables(
    is_older: bool, grown: Grown, ended: Path, tmp_path: Path, spark: "SparkSession"
) -> None:
    """The tables were restored from a backup: they decide."""
    tables, checkpoint = (ended, grown.begun) if is_older else (grown.begun, ended)
    mixed = tmp_path / "mixed"
    shutil.copytree(tables, mixed, ignore=shutil.ignore_patterns("_checkpoint"))
    shutil.copytree(checkpoint / "_checkpoint", mixed / "_checkpoint")
    streamed(spark, grown.topic, mixed)
    assert rows_of(mixed) == grown.expected


@pytest.mark.parametrize(
    "step",
    rest_in_matrix(["warehouse.commit", "warehouse.follow.segments", "warehouse.follow.events"]),
)
def test_stopped_at_a_step_of_a_commit(
    step: str, grown: Grown, warehouse: Path, spark: "SparkSession"
) -> None:
    """Spark repeats the batch; the commit is made once."""
    shutil.copytree(grown.begun, warehouse)

    def stop(label: str) -> None:
        if label == step:
            raise RuntimeError(f"stopped at {label}")

    with pytest.raises(RuntimeError, match=step):
        streamed(spark, grown.topic, warehouse, effect=stop)
    streamed(spark, grown.topic, warehouse)
    assert rows_of(warehouse) == grown.expected
    with pipeline(grown.topic, warehouse).opened() as opened:
        assert opened.latest.number == 2


def test_rows_that_change_with_time_alone(tmp_path: Path, warehouse: Path, spark: "SparkSession") -> None:
    """A copy becomes dangling in its own bucket."""
    topic, later_ms = tmp_path / "topic", NOW_MS + 2 * 86_400_000
    write(topic, [started(1), started(2, partition=1)])
    run(topic, warehouse, now_ms=NOW_MS)
    before = rows_of(warehouse)
    with pipeline(topic, warehouse, now_ms=later_ms).opened() as opened:
        assert opened.step(fold_woken(lambda: Executors(spark))).commit == 2
    assert before != rows_of(warehouse) == run_once(topic, now_ms=later_ms)


@pytest.mark.parametrize("is_on_spark", [False, True])
def test_missing_events_explain_what_was_dropped_before(
    is_on_spark: bool, tmp_path: Path, spark: "SparkSession"
) -> None:
    """The events that came next are gone before a run read them: nothing else wakes the bucket.

    A batch of Spark has no events then, only offsets.
    """
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    update_tables = (
        partial(streamed, spark, topic, warehouse) if is_on_spark else partial(run, topic, warehouse)
    )
    write(topic, [event_of_deletion(2, S.DELETE_SEGMENT_STARTED)], segment_bytes=1)
    update_tables()
    write(topic, [started(5)], segment_bytes=1)
    expired = [path for path in topic.rglob("*.log") if path.stat().st_size]
    for path in expired:
        path.unlink()
    (expired[0].parent / f"{2:020d}.log").touch()
    update_tables()
    (dropped,) = [row for row in rows_of(warehouse)["anomalies"] if row["check"] == "dropped_event"]
    assert dropped["severity"] == "info"
    assert "its COPY_SEGMENT_STARTED among them" in dropped["found"]


@pytest.mark.matrix
def test_a_driver_that_is_killed(grown: Grown, warehouse: Path, forked: Zygote) -> None:
    """Kill -9 the driver on a warehouse with a commit, again and again, each time some changes later."""
    shutil.copytree(grown.begun, warehouse)
    command = ("pipeline", "run", "--metadata", grown.topic, "--warehouse", warehouse, "--master", "local[1]")
    killed = 0
    for nth in range(1, 60, 2):
        ran = forked(*command, "--now", 10**13, files=nth)
        assert ran.code in {0, SIGKILLED}, ran.err
        killed += ran.code == SIGKILLED
        if ran.code == 0:
            break
    assert killed > 2
    assert rows_of(warehouse) == grown.expected
