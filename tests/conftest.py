"""Fixtures with data captured from real brokers, and the order and distribution of tests."""

import functools
import json
import re
import shutil
import signal
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler.loadscope import LoadScopeScheduling

from tests.spark.fixtures import (
    connect_driver,
    connect_server,
    engine,
    local_cluster_driver,
    spark,
    standalone,
    standalone_driver,
)
from tests.support.amounts import TRIES_ALL
from tests.support.broker import broker, brokers
from tests.support.browser import browser
from tests.support.kafka import kafka
from tests.support.servers import hdfs, hdfs_session, s3_server, s3_session, s3_tls_server, s3_tls_session

# The time of an example depends on the other work of the machine, so none fails a test.
settings.register_profile(
    "tests",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    **({} if TRIES_ALL else {"max_examples": 25}),
)
settings.load_profile("tests")

__all__ = [
    "broker",
    "brokers",
    "browser",
    "connect_driver",
    "connect_server",
    "engine",
    "hdfs",
    "hdfs_session",
    "kafka",
    "local_cluster_driver",
    "s3_server",
    "s3_session",
    "s3_tls_server",
    "s3_tls_session",
    "spark",
    "standalone",
    "standalone_driver",
]

# In a suite that was started in the background, child processes would ignore SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup, every tierctl that a test starts would ignore SIGHUP.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    """Measure the rows of tests/bench only with --benchmark-only, then also those of `make matrix`."""
    if config.getoption("benchmark_only", default=False):
        config.option.markexpr = ""
    else:
        config.option.benchmark_disable = True


class ByServers(LoadScopeScheduling):
    """Assign tests to processes: per file, all that need Spark together, all that need brokers together.

    Each process has its own servers, and an idle broker costs time, too. If only tests that need brokers run,
    as for a version of Kafka in `make matrix`, each file is assigned separately.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file.startswith(("tests/spark/", "tests/pipeline/")):
            return "spark"
        return "brokers" if _wants_brokers(file) and self.config.option.markexpr != "kafka" else file


@functools.cache
def _wants_brokers(file: str) -> bool:
    if file.startswith(("tests/live/", "tests/kafka/", "tests/console_consumer/")):
        return True
    return re.search(r"\bbrokers?: Brokers?\b", (Path(__file__).parents[1] / file).read_text()) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServers:
    """Return the scheduler for `-n`."""
    config.option.loadscopereorder = False
    return ByServers(config, log)


LONGEST_FIRST = ("spark", "pipeline", "live", "apply", "storage", "metadata", "kafka", "console_consumer")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first, so that all processes end at the same time; mark tests that need Kafka."""
    tests = Path(__file__).parent
    for item in items:
        if {"kafka", "brokers"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("kafka")

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(tests).parts[0]
        return (*LONGEST_FIRST, folder).index(folder)

    items.sort(key=rank)


DATA = Path(__file__).parent / "data"


def vectors(name: str) -> Iterator[Any]:
    """Return the JSON lines (or the JSON document) of a golden vector file, named without `.zst`."""
    with pa.CompressedInputStream(DATA / "vectors" / f"{name}.zst", "zstd") as stream:
        text = stream.read().decode()
    return (json.loads(line) for line in text.splitlines()) if ".jsonl" in name else iter([json.loads(text)])


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Unpack a capture of a real broker once per session. It is read only: copy what a test changes."""
    unpacked: dict[str, Path] = {}

    def unpack(name: str, version: str = "4.3.0") -> Path:
        if name not in unpacked:
            target = tmp_path_factory.mktemp(name)
            with (
                pa.CompressedInputStream(DATA / f"{name}-{version}.tar.zst", "zstd") as stream,
                tarfile.open(fileobj=stream, mode="r|") as archive,
            ):
                archive.extractall(target, filter="data")
            unpacked[name] = target
        return unpacked[name]

    return unpack


@pytest.fixture
def writable(capture: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of part of a capture that a test may change: `writable("tiered-cluster/before")`."""

    def copy(where: str) -> Path:
        name, _, part = where.partition("/")
        target = tmp_path / where.replace("/", "-")
        shutil.copytree(capture(name) / part, target)
        return target

    return copy
