"""Commands on Spark with a running broker: output, effects and records are those of threads."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tierctl.model.location import TopicLocation
from tierctl.spark import register

from tests.cli.shell import tierctl
from tests.live.commands import base_offsets, objects, plan, rows, where
from tests.pipeline.tables import rows_of, run
from tests.spark.on_engines import SPARK
from tests.support.broker import Broker, Brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]

TOPIC, GONE = "bulk", "gone"
NOW_MS = 1_900_000_000_000


@pytest.fixture(scope="module")
def tiered(brokers: Brokers) -> Iterator[Broker]:
    """Return a broker that no longer tiers, with transactions in its tier."""
    broker = brokers.own()
    broker.create_topic(TOPIC, 2, tiered=True)
    broker.create_topic(GONE, tiered=True)
    for number in range(12):
        broker.produce_transaction(TOPIC, 300, commit=number % 3 != 1)
        broker.produce(TOPIC, 300, seed=number, partition=1)
    broker.produce(GONE, 2500)
    broker.await_idle()
    broker.restart(tiered=False, log_retention_bytes="1200000")
    yield broker
    broker.stop()


READS: dict[str, tuple[object, ...]] = {
    "segments": ("segments", "--all", "-o", "json"),
    "format": ("format", "--style", "json", "--order", "time"),
    "verify": ("verify", "--deep", "--now", NOW_MS, "-o", "json"),
    "fetch": ("fetch", "--topic", TOPIC, "--isolation", "read_committed", "--binary", "sha256"),
}


@pytest.mark.parametrize("name", READS)
def test_it_is_read_as_on_threads(tiered: Broker, spark: "SparkSession", name: str) -> None:
    command, *more = READS[name]
    place = where(tiered)
    words = (command, *(place if name in {"verify", "fetch"} else place[:2]), *more)
    here, there = tierctl(*words), tierctl(*words, *SPARK)
    assert (there.code, there.out) == (here.code, here.out), there.err
    assert there.out.strip()


def test_the_source_reads_what_fetch_prints(tiered: Broker, spark: "SparkSession") -> None:
    register(spark)
    options = {"metadata": f"kafka://{tiered.bootstrap}", "remote": str(tiered.remote_dir), "topic": TOPIC}
    frame = spark.read.format("remote_log").options(**options).load().select("partition", "offset")
    printed = rows("fetch", *where(tiered), "--topic", TOPIC)
    assert sorted(map(tuple, frame.collect())) == sorted((row["partition"], row["offset"]) for row in printed)


def test_the_tables_are_those_of_one_process(tiered: Broker, spark: "SparkSession", tmp_path: Path) -> None:
    location = TopicLocation(uri=f"kafka://{tiered.bootstrap}")
    run(location, tmp_path / "here", now_ms=NOW_MS)
    topic = ("--metadata", location.uri, "--master", "local[2]")
    ran = tierctl("pipeline", "run", *topic, "--warehouse", tmp_path / "spark", "--now", NOW_MS)
    assert ran.code == 0, ran.err
    assert rows_of(tmp_path / "spark") == rows_of(tmp_path / "here")
    assert len(rows_of(tmp_path / "here")["events"]) > 10


def test_what_is_to_go_goes(tiered: Broker, spark: "SparkSession") -> None:
    """Delete an unknown topic, and then the expired segments of another topic."""
    assert objects(tiered, GONE)
    tiered.delete_topic(GONE)
    delete = ("delete", *where(tiered), "--topic", GONE)
    assert plan(*delete, "--find", "--mark", "--apply", *SPARK)["outcomes"]
    removed = plan(*delete, "--apply", *SPARK)
    assert {outcome["status"] for outcome in removed["outcomes"]} == {"done"}
    assert not objects(tiered, GONE)

    before = base_offsets(tiered, TOPIC)
    # The broker no longer tiers, but the fence also counts its recent events.
    sweep = ("sweep", *where(tiered), "--topic", TOPIC, "--allow-live-brokers")
    planned = plan(*sweep)
    assert planned["steps"], planned["skipped"]
    assert plan(*sweep, *SPARK)["steps"] == planned["steps"]
    swept = plan(*sweep, "--apply", *SPARK)
    assert {outcome["status"] for outcome in swept["outcomes"]} == {"done"}
    went = [step["start_offset"] for step in planned["steps"]]
    assert sorted(base_offsets(tiered, TOPIC) + went) == before
    assert plan(*sweep)["steps"] == []
