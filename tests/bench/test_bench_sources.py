"""`remote_log` and `remote_log_metadata` on Spark, beside the loops that somebody without them would write.

Every column is made and handed to Spark, which throws it away. As plain tests these are small, without Spark.

    pytest tests/bench/test_bench_sources.py --benchmark-enable --benchmark-only
"""

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from tierctl.model import TopicIdPartition, Uuid
from tierctl.wire.metadata import decode

from tests.bench.spark_work import Cost, measured, read_all
from tests.bench.topics import make_topic
from tests.metadata.topics import topic_in
from tests.read.made import day, made_tier
from tests.read.tier import Tier
from tests.spark.clusters import LOOPBACK, Driver

PARTITION = TopicIdPartition(Uuid.from_bytes(bytes(15) + b"\x01"), "orders", 0)
RECORDS_A_MINUTE, EVENTS = 300, 1_000_000
SMALL_RECORDS_A_MINUTE, SMALL_EVENTS = 1, 2_000
LOOP_MOST = 200_000
"""Events that the loop is measured on: each costs it the same."""

MASTERS = ("local[1]", "local[2]")
RECORDS, METADATA = "remote_log", "remote_log_metadata"

_loops: dict[str, Cost] = {}
"""What the loop costs, by the source it stands beside."""


def _is_measured(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("benchmark_enable"))


@pytest.fixture(scope="module")
def tier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A day of a partition, 24 segments."""
    count = RECORDS_A_MINUTE if _is_measured(request) else SMALL_RECORDS_A_MINUTE
    return made_tier(
        tmp_path_factory.mktemp("tier"), PARTITION, day(random.Random(1), records_a_minute=count)
    )


@pytest.fixture(scope="module")
def topic(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("topic")
    make_topic(folder, EVENTS if _is_measured(request) else SMALL_EVENTS)
    return folder


@pytest.fixture(scope="module", params=MASTERS)
def driver(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tier: dict[str, str],
    topic: Path,
) -> Iterator[Driver | None]:
    """A session that has read both before; None when this is no benchmark."""
    if not _is_measured(request):
        yield None
        return
    found = Driver(request.param, tmp_path_factory.mktemp("driver"), conf=LOOPBACK)
    found.call(read_all, METADATA, {"metadata": str(topic)})
    found.call(read_all, RECORDS, tier)
    yield found
    found.close()


def loop_over_records(options: dict[str, str]) -> int:
    """Record by record, as `tierctl fetch` reads them."""
    tier = Tier.of(Path(options["metadata"]), Path(options["remote"]))
    return sum(1 for _ in tier.reader(PARTITION.topic, PARTITION.partition).read())


def loop_over_events(topic: Path, most: int) -> int:
    """Value by value, decoded one after the other."""
    count = 0
    with closing(topic_in(topic)) as log:
        for number, end in log.end_offsets().items():
            for chunk in log.read(number, 0, end):
                for value in chunk.values.to_pylist():
                    decode(value)
                    count += 1
                    if count == most:
                        return count
    return count


def test_loop_over_records(benchmark: BenchmarkFixture, tier: dict[str, str]) -> None:
    cost = Cost(0)
    with measured(cost, os.getpid()):
        cost.events = benchmark.pedantic(lambda: loop_over_records(tier), rounds=1)
    _loops[RECORDS] = cost
    assert cost.events % (24 * 60) == 0


def test_loop_over_events(benchmark: BenchmarkFixture, topic: Path) -> None:
    cost = Cost(0)
    with measured(cost, os.getpid()):
        cost.events = benchmark.pedantic(lambda: loop_over_events(topic, LOOP_MOST), rounds=1)
    _loops[METADATA] = cost
    assert cost.events > 0


@pytest.fixture(params=[RECORDS, METADATA])
def source(request: pytest.FixtureRequest, tier: dict[str, str], topic: Path) -> tuple[str, dict[str, str]]:
    """A source and its options."""
    return request.param, tier if request.param == RECORDS else {"metadata": str(topic)}


def test_source(
    benchmark: BenchmarkFixture,
    driver: Driver | None,
    source: tuple[str, dict[str, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if driver is None:
        benchmark.pedantic(int, rounds=1)
        return
    name, _ = source
    loop = _loops[name]
    cost = Cost(loop.events if name == RECORDS else EVENTS)
    with measured(cost, driver.pid):
        benchmark.pedantic(lambda: driver.call(read_all, *source), rounds=1)
    ratio = loop.wall_s / loop.events / (cost.wall_s / cost.events)
    with capsys.disabled():
        print(f"\n{name}, {driver.master}: {cost}; {ratio:.1f} times as fast as the loop: {loop}")
