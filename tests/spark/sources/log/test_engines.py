"""`remote_log` returns the same records on every kind of Spark, also with Spark Connect."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tierctl.spark import register

from tests.cli.shell import Ran
from tests.read import brute
from tests.spark.clusters import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = Callable[[str], Path]


def records(spark: "SparkSession", options: dict[str, str]) -> list[tuple[int, int, str | None, str | None]]:
    register(spark)
    frame = spark.read.format("remote_log").options(**options).load().where("offset >= 100 and partition = 0")
    rows = frame.toArrow().to_pylist()
    return [(r["offset"], r["timestamp_ms"], brute.sha(r["key"]), brute.sha(r["value"])) for r in rows]


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


def test_fetch_is_the_same(engine: Engine, capture: Capture) -> None:
    root = capture("tiered-cluster")
    where = ("--metadata", root / "before", "--remote", root / "before-remote", "--topic", "payments")
    args = ("fetch", *where, "--isolation", "read_committed", "--binary", "sha256")
    files = sorted((root / "before-remote").rglob("payments-0-*/*.log"))
    expected = [record.offset for record in brute.committed(brute.decode_files(files))]
    ran: Ran = engine.tierctl(*args)
    assert (ran.code, [int(line.split('"offset": ')[1].split(",")[0]) for line in ran.lines]) == (0, expected)
