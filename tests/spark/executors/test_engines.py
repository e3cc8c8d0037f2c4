"""Bulk reads and the rows of `remote_log` are the same on every kind of Spark; other tests use local[2]."""

import shutil
from typing import TYPE_CHECKING

import pytest
from tierctl.spark import register

from tests.cli.shell import Ran, tierctl
from tests.read import brute
from tests.spark.clusters import ENGINES, Engine
from tests.spark.executors.bulk import Capture, within
from tests.verify.cases import CASES
from tests.verify.tiers import NOW_MS, Spoilt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMANDS = {
    "format": ("format", "--style", "json", "--order", "time"),
    "segments": ("segments", "--all", "-o", "json"),
    "verify": ("verify", "--deep", "--now", NOW_MS, "-o", "json"),
    "rebuild": ("rebuild", "-o", "jsonl"),
    "fetch": ("fetch", "--topic", "payments", "--isolation", "read_committed", "--binary", "sha256"),
}
EVERYWHERE = pytest.mark.parametrize("engine", ENGINES[1:], indirect=True)


@pytest.fixture(scope="module")
def spoilt(capture: Capture, tmp_path_factory: pytest.TempPathFactory) -> Spoilt:
    """Return a tier with a cut log, missing and orphaned objects, and an unreadable record."""
    folder = tmp_path_factory.mktemp("spoilt")
    for name in ("before", "before-remote"):
        shutil.copytree(within(capture, f"tiered-cluster/{name}"), folder / name)
    tier = Spoilt(folder / "before", folder / "before-remote")
    for name in ("log cut", "snapshot gone", "foreign object", "metadata unreadable", "copy dangling"):
        CASES[name].spoil(tier)
    return tier


@pytest.fixture(scope="module")
def here(spoilt: Spoilt) -> dict[str, Ran]:
    return {name: tierctl(*_words(name, spoilt)) for name in COMMANDS}


def _words(name: str, tier: Spoilt) -> tuple[object, ...]:
    command, *more = COMMANDS[name]
    metadata = tier.metadata.with_name("new") if name == "rebuild" else tier.metadata
    remote = ("--remote", tier.remote) if name in {"verify", "rebuild", "fetch"} else ()
    return (command, "--metadata", metadata, *remote, *more)


@EVERYWHERE
@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_everywhere(engine: Engine, name: str, spoilt: Spoilt, here: dict[str, Ran]) -> None:
    said = engine.tierctl(*_words(name, spoilt))
    assert (said.code, said.out, said.err) == (here[name].code, here[name].out, here[name].err)
    assert said.out.strip()


def records(spark: "SparkSession", options: dict[str, str]) -> list[tuple[int, int, str | None, str | None]]:
    register(spark)
    frame = spark.read.format("remote_log").options(**options).load().where("offset >= 100 and partition = 0")
    rows = frame.toArrow().to_pylist()
    return [(r["offset"], r["timestamp_ms"], brute.sha(r["key"]), brute.sha(r["value"])) for r in rows]


@EVERYWHERE
def test_the_source_is_the_same(engine: Engine, capture: Capture) -> None:
    if engine.master is None:
        return
    root = capture("aiven-encrypted")
    options = {
        "metadata": str(root / "broker-logs"),
        "remote": str(root / "bucket"),
        "layout": "aiven",
        "log_dir": str(root / "broker-logs"),
        "aiven_private_key": f"key1={root / 'keys' / 'private.pem'}",
        "topic": "audit",
        "isolation_level": "read_committed",
    }
    expected = brute.answers(root / "answers" / "audit-0.read_committed.jsonl")
    assert engine.call(records, options) == [answer for answer in expected if answer[0] >= 100]
