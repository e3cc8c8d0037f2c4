"""Commands on Spark with a running broker: output, effects and records are those of threads."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tierctl.model.location import TopicLocation
from tierctl.spark import register

from tests.cli.shell import tierctl
from tests.live.commands import base_offsets, objects, plan, where
from tests.pipeline.tables import rows_of, run
from tests.support.broker import Broker, Brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]

TOPIC, GONE = "bulk", "gone"
ISOLATIONS = ("read_uncommitted", "read_committed")
SPARK = ("--engine", "spark", "--master", "local[2]")
NOW_MS = 1_900_000_000_000


class Tiered(NamedTuple):
    """A broker that no longer tiers, and the records of its tier that a consumer read."""

    broker: Broker
    served: dict[tuple[str, int], list[Any]]


@pytest.fixture(scope="module")
def tiered(brokers: Brokers) -> Iterator[Tiered]:
    broker = brokers.own()
    broker.create_topic(TOPIC, 2, tiered=True)
    broker.create_topic(GONE, tiered=True)
    for number in range(12):
        broker.produce_transaction(TOPIC, 300, commit=number % 3 != 1)
        broker.produce(TOPIC, 300, seed=number, partition=1)
    broker.produce(GONE, 2500)
    broker.await_idle()
    ends = broker.offsets("latest-tiered", TOPIC)
    served = {
        (isolation, number): [
            record
            for record in broker.records(TOPIC, number, isolation=isolation)
            if record[0] <= ends[TOPIC, number]
        ]
        for isolation, number in product(ISOLATIONS, (0, 1))
    }
    broker.restart(tiered=False, log_retention_bytes="1200000")
    yield Tiered(broker, served)
    broker.stop()


READS: dict[str, tuple[object, ...]] = {
    "segments": ("segments", "--all", "-o", "json"),
    "format": ("format", "--style", "json", "--order", "time"),
    "verify": ("verify", "--deep", "--now", NOW_MS, "-o", "json"),
    "fetch": ("fetch", "--topic", TOPIC, "--isolation", "read_committed", "--binary", "sha256"),
}


@pytest.mark.parametrize("name", READS)
def test_it_is_read_as_on_threads(tiered: Tiered, spark: "SparkSession", name: str) -> None:
    command, *more = READS[name]
    place = where(tiered.broker)
    words = (command, *(place if name in {"verify", "fetch"} else place[:2]), *more)
    here, there = tierctl(*words), tierctl(*words, *SPARK)
    assert (there.code, there.out) == (here.code, here.out), there.err
    assert there.out.strip()


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_source_has_a_consumers_records(tiered: Tiered, spark: "SparkSession", isolation: str) -> None:
    register(spark)
    broker = tiered.broker
    options = {"metadata": f"kafka://{broker.bootstrap}", "remote": str(broker.remote_dir), "topic": TOPIC}
    frame = spark.read.format("remote_log").options(**options, isolation_level=isolation).load()
    found: dict[tuple[str, int], list[object]] = {(isolation, number): [] for number in (0, 1)}
    for row in frame.toArrow().to_pylist():
        facts = (row["offset"], row["timestamp_ms"], row["key"], row["value"])
        found[isolation, row["partition"]].append(facts)
    assert found == {key: records for key, records in tiered.served.items() if key[0] == isolation}
    assert all(len(records) > 500 for records in found.values())


def test_the_tables_are_those_of_one_process(tiered: Tiered, spark: "SparkSession", tmp_path: Path) -> None:
    location = TopicLocation(uri=f"kafka://{tiered.broker.bootstrap}")
    run(location, tmp_path / "here", now_ms=NOW_MS)
    topic = ("--metadata", location.uri, "--master", "local[2]")
    ran = tierctl("pipeline", "run", *topic, "--warehouse", tmp_path / "spark", "--now", NOW_MS)
    assert ran.code == 0, ran.err
    assert rows_of(tmp_path / "spark") == rows_of(tmp_path / "here")
    assert len(rows_of(tmp_path / "here")["events"]) > 10


def test_what_is_to_go_goes(tiered: Tiered, spark: "SparkSession") -> None:
    """Delete an unknown topic, and then the expired segments of another topic."""
    broker = tiered.broker
    assert objects(broker, GONE)
    broker.delete_topic(GONE)
    delete = ("delete", *where(broker), "--topic", GONE)
    assert plan(*delete, "--find", "--mark", "--apply", *SPARK)["outcomes"]
    removed = plan(*delete, "--apply", *SPARK)
    assert {outcome["status"] for outcome in removed["outcomes"]} == {"done"}
    assert not objects(broker, GONE)

    before = base_offsets(broker, TOPIC)
    # The broker no longer tiers, but the fence also counts its recent events.
    sweep = ("sweep", *where(broker), "--topic", TOPIC, "--allow-live-brokers")
    planned = plan(*sweep)
    assert planned["steps"], planned["skipped"]
    assert plan(*sweep, *SPARK)["steps"] == planned["steps"]
    swept = plan(*sweep, "--apply", *SPARK)
    assert {outcome["status"] for outcome in swept["outcomes"]} == {"done"}
    went = [step["start_offset"] for step in planned["steps"]]
    assert sorted(base_offsets(broker, TOPIC) + went) == before
    assert plan(*sweep)["steps"] == []
