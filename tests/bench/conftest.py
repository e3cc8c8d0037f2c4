"""Fixtures of rows. Without --benchmark-only a row runs once, with little data, to show that it can."""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench import cache
from tests.bench.process import run, usage
from tests.bench.rows import Row

Measure = Callable[..., None]
_READY = re.compile(r"Spark: ready after ([0-9.]+) s")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give rows that are measured four hours: the data of large ones are made once."""
    for item in items if config.option.benchmark_only else ():
        item.add_marker(pytest.mark.timeout(4 * 3600))


@pytest.fixture(scope="session", autouse=True)
def _cache(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep little data in a folder of the session."""
    if not pytestconfig.option.benchmark_only:
        cache.FOLDER = tmp_path_factory.mktemp("cache")


def fresh(sources: Mapping[Path, Path | None]) -> Callable[[], None]:
    """Return a function that makes each folder a copy of its source, or an empty one, before a run."""

    def prepare() -> None:
        for target, source in sources.items():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir() if source is None else shutil.copytree(source, target)

    return prepare


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Row:
    """Return the row, with little data unless it is measured."""
    found: Row = request.param
    return found if request.config.option.benchmark_only else found.small()


@pytest.fixture
def measure(benchmark: Any, row: Row) -> Measure:
    """Return a function that measures a command: `measure(words, prepare=…)`, and the options of `run`.

    `prepare` is called before each run. The first run, which finds memory and processor time, is no round.
    `ready_s` is the part of the last run in which Spark started, if it did.
    """

    def measured(words: list[str], *, prepare: Callable[[], object] = lambda: None, **how: Any) -> None:
        def ready() -> None:
            prepare()
            if benchmark.enabled:
                # Otherwise the run waits until bytes that were written before it are on the disk.
                os.sync()

        if benchmark.enabled:
            ready()
            benchmark.extra_info |= usage(words, **how)
        printed = benchmark.pedantic(run, (words,), how, setup=ready, rounds=row.rounds)
        if started := _READY.search(printed):
            benchmark.extra_info["ready_s"] = float(started[1])

    return measured
