"""A metadata topic folded and made into tables: on Spark with one core and two, in one process, in one loop.

Wall time is what an operator waits for, processor time what it costs, of the JVM and all Python workers; on
a machine with other work only the latter says much. As plain tests these are small, and start no Spark.

    pytest tests/bench/test_bench_spark.py --benchmark-enable --benchmark-only
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from tierctl.state.fold import fold_event
from tierctl.state.tier import TierState
from tierctl.wire.metadata import decode

from tests.bench.spark_work import Cost, Waves, fold_on, measured, tables_on, waves_on
from tests.bench.topics import make_topic
from tests.metadata.topics import manager_at, topic_in
from tests.pipeline.tables import run
from tests.spark.clusters import LOOPBACK, Driver

MILLION, SMALL = 1_000_000, 4_000
FIVE = 5
CURVE = (1, 2, 5, 10)
"""Millions of events."""

LOOP_MOST = 1_000_000
"""Events of the five millions that the plain loop is measured on: each costs it the same."""

WAVE_SIZES = (64, 256, 1024)
WAVES = 10
MASTERS = ("local[1]", "local[2]")

_costs: dict[tuple[str, int], Cost] = {}
"""By who folded, and millions of events."""

Topics = Callable[[int], Path]


@pytest.fixture(scope="module")
def topics(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Topics:
    """Topics by millions of events, each made once; of a few thousand when only run."""
    made: dict[int, Path] = {}
    unit = MILLION if request.config.getoption("benchmark_enable") else SMALL

    def topic(millions: int) -> Path:
        if millions not in made:
            made[millions] = tmp_path_factory.mktemp("topic")
            make_topic(made[millions], millions * unit)
        return made[millions]

    return topic


@pytest.fixture(scope="module", params=MASTERS)
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, topics: Topics
) -> Iterator[Driver | None]:
    """A session that has done such work before; None when this is no benchmark."""
    if not request.config.getoption("benchmark_enable"):
        yield None
        return
    found = Driver(request.param, tmp_path_factory.mktemp("driver"), conf=LOOPBACK)
    found.call(fold_on, topics(1))
    yield found
    found.close()


def events_in(topic: Path) -> int:
    with closing(topic_in(topic)) as log:
        return sum(log.end_offsets().values())


Measure = Callable[[str, int, int, int, Callable[[], object]], None]


@pytest.fixture
def measure(benchmark: BenchmarkFixture, capsys: pytest.CaptureFixture[str]) -> Measure:
    """Measures, and tells, what work costs a process: (name, millions, events, pid, work)."""

    def measure(name: str, millions: int, events: int, pid: int, work: Callable[[], object]) -> None:
        cost = Cost(events)

        def once() -> None:
            with measured(cost, pid):
                work()

        benchmark.pedantic(once, rounds=1, iterations=1)
        _costs[name, millions] = cost
        if benchmark.enabled:
            with capsys.disabled():
                print(f"\n{name:16} {millions:3} million: {cost}", flush=True)

    return measure


def fold_here(topic: Path) -> TierState:
    with closing(manager_at(topic)) as manager:
        return manager.refresh()


def fold_in_a_loop(topic: Path, most: int) -> TierState:
    """What somebody would write first: every record decoded and folded, one after the other."""
    state, left = TierState(), most
    with closing(topic_in(topic)) as log:
        for partition, end in log.end_offsets().items():
            for chunk in log.read(partition, 0, min(end, left)):
                for offset, value in zip(chunk.offsets.tolist(), chunk.values.to_pylist(), strict=True):
                    event = decode(value)
                    fold_event(event, state, metadata_partition=partition, metadata_offset=offset)
            left -= min(end, left)
    return state


def test_fold_in_a_loop(measure: Measure, topics: Topics) -> None:
    topic = topics(FIVE)
    most = min(LOOP_MOST, events_in(topic))
    measure("loop", FIVE, most, os.getpid(), lambda: fold_in_a_loop(topic, most))


@pytest.mark.parametrize("millions", CURVE)
def test_fold_here(measure: Measure, topics: Topics, millions: int) -> None:
    topic = topics(millions)
    measure("here", millions, events_in(topic), os.getpid(), lambda: fold_here(topic))


def test_a_loop_folds_the_same(benchmark: BenchmarkFixture, topics: Topics) -> None:
    topic = topics(1)
    state, other = benchmark.pedantic(lambda: (fold_here(topic), fold_in_a_loop(topic, SMALL)), rounds=1)
    if not benchmark.enabled:
        assert {k: len(p.cache) for k, p in state.partitions.items()} == {
            k: len(p.cache) for k, p in other.partitions.items()
        }


@pytest.mark.parametrize("millions", CURVE)
def test_fold_on_spark(
    benchmark: BenchmarkFixture, measure: Measure, topics: Topics, driver: Driver | None, millions: int
) -> None:
    if driver is not None:
        topic, pid = topics(millions), driver.pid
        work = lambda: driver.call(fold_on, topic)  # noqa: E731
        measure(driver.master, millions, events_in(topic), pid, work)
    else:
        benchmark.pedantic(events_in, (topics(1),), rounds=1)


def test_tables_here(measure: Measure, topics: Topics, tmp_path: Path) -> None:
    topic = topics(FIVE)
    work = lambda: run(topic, tmp_path / "warehouse")  # noqa: E731
    measure("tables here", FIVE, events_in(topic), os.getpid(), work)


def test_tables_on_spark(
    benchmark: BenchmarkFixture, measure: Measure, topics: Topics, driver: Driver | None, tmp_path: Path
) -> None:
    topic = topics(FIVE)
    if driver is not None:
        work = lambda: driver.call(tables_on, topic, tmp_path / "warehouse")  # noqa: E731
        pid = driver.pid
        measure(f"tables {driver.master}", FIVE, events_in(topic), pid, work)
    else:
        benchmark.pedantic(events_in, (topic,), rounds=1)


def test_a_wave_with_nothing_to_do(
    benchmark: BenchmarkFixture, driver: Driver | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if driver is None:
        benchmark.pedantic(Waves, rounds=1)
        return
    waves = benchmark.pedantic(lambda: driver.call(waves_on, tmp_path / "tier", WAVE_SIZES, WAVES), rounds=1)
    with capsys.disabled():
        told = ", ".join(
            f"{size} pieces {1000 * waves.wall_s[size]:.0f} ms ({1000 * waves.cpu_s[size]:.0f} of processors)"
            for size in WAVE_SIZES
        )
        print(f"\na wave with nothing to do, {driver.master}: {told}; the first {waves.first_s:.1f} s")


def test_ratios(benchmark: BenchmarkFixture, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark.pedantic(int, rounds=1)
    if not benchmark.enabled:
        return
    with capsys.disabled():
        print()
        loop = _costs["loop", FIVE]
        for name in ("here", *MASTERS):
            cost = _costs[name, FIVE]
            wall, cpu = (
                getattr(loop, what) / loop.events / (getattr(cost, what) / cost.events)
                for what in ("wall_s", "cpu_s")
            )
            print(
                f"{name}: {wall:.1f} times as fast as the loop by the clock, {cpu:.1f} times by processor "
                f"time; the loop's events are {loop.events:,}"
            )
        for prefix in ("", "tables "):
            one, two = (_costs[f"{prefix}{master}", FIVE] for master in MASTERS)
            print(
                f"{prefix or 'fold '}from one core to two: {one.wall_s / two.wall_s:.2f} times as fast, "
                f"efficiency {one.wall_s / two.wall_s / 2:.0%}"
            )
