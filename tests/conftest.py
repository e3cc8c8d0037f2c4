"""Fixtures with data captured from real brokers, and the order and distribution of tests."""

import functools
import json
import re
import shutil
import signal
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
from tests.support.broker import broker, brokers, session_brokers
from tests.support.browser import browser
from tests.support.captures import DATA, unpack
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
    "DATA",
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
    "session_brokers",
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
    """Assign tests to processes file by file, so that few processes start the same servers.

    Each process has its own servers, and an idle broker costs time, too. A process goes on with files that
    need the servers it has, then with a kind of server that no process has, then with files that need none.
    When these have run, it starts servers of another process as well, so that all processes end together.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        waiting: dict[str, list[str]] = {}
        for file in self.workqueue:
            waiting.setdefault(_servers_of(file), []).append(file)
        started = {each: set(map(_servers_of, files)) for each, files in self.assigned_work.items()}

        def order(servers: str) -> tuple[int, int]:
            tests = sum(len(self.workqueue[file]) for file in waiting[servers])
            if servers in started[node] - {""}:
                return 0, -tests
            is_new = not any(servers in kinds for kinds in started.values())
            return (2 if not servers else 1 if is_new else 3), -tests

        self.workqueue.move_to_end(waiting[min(waiting, key=order)][0], last=False)
        super()._assign_work_unit(node)


@functools.cache
def _servers_of(file: str) -> str:
    """Return the servers that a file of tests needs: "spark", "brokers" or ""."""
    if file.startswith(("tests/spark/", "tests/pipeline/")):
        return "spark"
    if file.startswith(("tests/live/", "tests/kafka/", "tests/console_consumer/")):
        return "brokers"
    text = (Path(__file__).parents[1] / file).read_text()
    return "brokers" if re.search(r"\bbrokers?: Brokers?\b", text) else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServers:
    """Return the scheduler for `-n`."""
    config.option.loadscopereorder = False
    return ByServers(config, log)


LONGEST_FIRST = ("simulation", "spark", "live", "apply", "commands", "storage", "cli", "metadata")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first, so that all processes end at the same time; mark tests that need Kafka."""
    tests = Path(__file__).parent
    for item in items:
        if {"kafka", "session_brokers"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("kafka")

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(tests).parts[0]
        return (*LONGEST_FIRST, folder).index(folder)

    items.sort(key=rank)


def vectors(name: str) -> Iterator[Any]:
    """Return the JSON lines (or the JSON document) of a golden vector file, named without `.zst`."""
    with pa.CompressedInputStream(DATA / "vectors" / f"{name}.zst", "zstd") as stream:
        text = stream.read().decode()
    return (json.loads(line) for line in text.splitlines()) if ".jsonl" in name else iter([json.loads(text)])


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Unpack a capture of a real broker once per session. It is read only: copy what a test changes."""
    unpacked: dict[str, Path] = {}

    def unpack_once(name: str, version: str = "4.3.0") -> Path:
        if name not in unpacked:
            unpacked[name] = unpack(name, tmp_path_factory.mktemp(name), version)
        return unpacked[name]

    return unpack_once


@pytest.fixture
def writable(capture: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of part of a capture that a test may change: `writable("tiered-cluster/before")`."""

    def copy(where: str) -> Path:
        name, _, part = where.partition("/")
        return Path(shutil.copytree(capture(name) / part, tmp_path / where.replace("/", "-")))

    return copy


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return a folder for the fixtures of a module; it goes when the last test of the module has run."""
    folder = tmp_path_factory.mktemp(request.module.__name__.rpartition(".")[2])
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
