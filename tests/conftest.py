"""Fixtures with data captured from real brokers, and the order of tests."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings

from tests.spark.fixtures import (
    connect_driver,
    connect_server,
    engine,
    local_cluster_driver,
    s3_driver,
    spark,
    standalone,
    standalone_driver,
)
from tests.support.amounts import TRIES_ALL
from tests.support.broker import broker, brokers, session_brokers
from tests.support.browser import browser
from tests.support.captures import DATA, unpack
from tests.support.kafka import kafka
from tests.support.kernels import both_forms
from tests.support.killing import forked
from tests.support.scheduling import pytest_xdist_make_scheduler
from tests.support.servers import (
    hdfs,
    hdfs_session,
    s3_server,
    s3_session,
    s3_tls_server,
    s3_tls_session,
    s3_versioned_server,
    s3_versioned_session,
)

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
    "both_forms",
    "broker",
    "brokers",
    "browser",
    "connect_driver",
    "connect_server",
    "engine",
    "forked",
    "hdfs",
    "hdfs_session",
    "kafka",
    "local_cluster_driver",
    "pytest_xdist_make_scheduler",
    "s3_driver",
    "s3_server",
    "s3_session",
    "s3_tls_server",
    "s3_tls_session",
    "s3_versioned_server",
    "s3_versioned_session",
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
        _keep_files_in_memory()
    if config.getoption("numprocesses", default=None):
        config.stash[_COMPILING] = _started(config, "kernels")
        config.stash[_ARCHIVING] = _started(config, "spark_classes")


def _started(config: pytest.Config, module: str) -> subprocess.Popen[bytes]:
    """Make what all processes need, in the background, unless `make test` has made it."""
    return subprocess.Popen([sys.executable, "-m", f"tests.support.{module}"], cwd=config.rootpath)


_COMPILING = pytest.StashKey[subprocess.Popen[bytes]]()
_ARCHIVING = pytest.StashKey[subprocess.Popen[bytes]]()
"""The first test on Spark waits for it."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    """Let no process run tests before the kernels are compiled: each would compile them, for 20 seconds."""
    if _COMPILING in node.config.stash:
        node.config.stash[_COMPILING].wait()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Wait for what was started in the background."""
    for key in (_COMPILING, _ARCHIVING):
        if key in config.stash:
            config.stash[key].wait()


MEMORY = Path("/dev/shm")
_ROOT = "PYTEST_DEBUG_TEMPROOT"
_FREE_MIN, _MEMORY_MIN = 8 << 30, 20 << 30


def _keep_files_in_memory() -> None:
    """Let pytest make the folders of tests in memory, where the machine has enough of it.

    The tests make and delete so many files that ext4 takes a third of their time. A folder that TMPDIR or
    pytest's own variable names is used in any case.
    """
    if {_ROOT, "TMPDIR"} & os.environ.keys():
        return
    with suppress(OSError):
        folder = os.statvfs(MEMORY)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        has_room = folder.f_bavail * folder.f_frsize >= _FREE_MIN and memory >= _MEMORY_MIN
        if has_room and not folder.f_flag & os.ST_NOEXEC:
            os.environ[_ROOT] = str(MEMORY)


THINNED = {"TRIES_ALL", "MUTATION_SHARE", "each_kill", "moments"}
"""Names whose modules try more in `make matrix`."""

LONGEST_FIRST = (
    *("simulation/", "spark/test_both_engines.py", "docs/test_lines.py", "spark/", "pipeline/", "live/"),
    *("wire/", "hostile/", "apply/", "commands/", "storage/", "cli/", "metadata/", ""),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first, so that all processes end at the same time; mark tests that need Kafka.

    Raise UsageError for a test of `make matrix` alone that asks for a fixture which does not exist.
    """
    tests = Path(__file__).parent
    for item in items:
        # pytest itself says so only when the test runs.
        known = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else ()
        if known and (missing := {*item.fixturenames} - {*known, "request"}):
            raise pytest.UsageError(f"{item.nodeid} asks for {', '.join(missing)}, which is no fixture")
        if {"kafka", "session_brokers"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("kafka")
        if isinstance(item, pytest.Function) and THINNED & {*vars(item.module)}:
            item.add_marker("thinned")

    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(tests).as_posix()
        return next(at for at, begin in enumerate(LONGEST_FIRST) if path.startswith(begin))

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
