"""`fetch --engine spark` prints the same bytes as `fetch`, and reads no more than it must."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tierctl.spark.executors import rendered_text
from tierctl.wire.batches.batch_head import CompressionType

from tests.cli.shell import tierctl
from tests.hostile.worlds import World, batch_of, record_bytes
from tests.read.made import counting
from tests.read.test_damage import heads
from tests.spark.executors.bulk import Here, assert_same, here
from tests.spark.on_engines import SPARK
from tests.spark.worlds import Capture
from tests.support.faults import flip_bit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["here"]


@pytest.fixture
def cluster(capture: Capture) -> list[str]:
    root = capture("tiered-cluster")
    return ["fetch", f"--metadata={root / 'before'}", f"--remote={root / 'before-remote'}"]


FORMS = {
    "jsonl": ["--topic", "payments"],
    "json": ["-o", "json", "--topic", "clicks", "--partition", "1"],
    "csv": ["-o", "csv", "--topic", "clicks", "--binary", "base64"],
    "table": ["-o", "table", "--topic", "orders", "--partition", "2", "--until", "1400"],
    "committed": ["--topic", "payments", "--isolation", "read_committed", "--binary", "sha256"],
    "offsets": ["--topic", "payments", "--offset", "333", "--until", "1444"],
    "several batches": ["--topic", "payments", "--limit", "1500"],
    "latest": ["--topic", "orders", "--offset", "latest-tiered"],
    "out of range": ["--offset", "2500", "-o", "json"],
    "nothing": ["-o", "json", "--topic", "orders", "--offset", "latest"],
    "nothing as csv": ["-o", "csv", "--topic", "orders", "--offset", "latest"],
    "no such topic": ["--topic", "none"],
    "no offset": ["--topic", "orders", "--offset", "soon"],
}


@pytest.mark.parametrize(
    ("what", "split_bytes"),
    [*((each, 100_000) for each in FORMS), ("several batches", rendered_text.SPLIT_BYTES)],
)
def test_every_form_is_the_same(
    here: Here, cluster: list[str], what: str, split_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendered_text, "SPLIT_BYTES", split_bytes)
    assert_same(*cluster, *FORMS[what])


@pytest.mark.parametrize("rows", [1, 1000, 1001, 4700, 4701])
def test_so_many_records_and_no_more(
    here: Here, cluster: list[str], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendered_text, "SPLIT_BYTES", 300_000)
    ran = assert_same(*cluster, "--topic", "metrics", "--topic", "clicks", "--limit", str(rows))
    assert ran.code == 0


def test_text_that_grows_beyond_a_task_goes_on_in_another(
    here: Here, cluster: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendered_text, "TEXT_BYTES_PER_TASK", 100_000)
    for more in ([], ["--limit", "3900"], ["--isolation", "read_committed"]):
        assert_same(*cluster, "--topic", "payments", "--topic", "clicks", *more)
    assert here.jobs.count(1) > 20


def test_jobs_are_of_bounded_size(here: Here, cluster: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered_text, "TEXT_BYTES_PER_JOB", 2 << 20)
    monkeypatch.setattr(rendered_text, "SPLIT_BYTES", 200_000)
    assert_same(*cluster, "--topic", "orders")
    assert max(here.jobs) < 12
    assert len(here.jobs) > 5


def test_few_records_are_few_bytes(here: Here, cluster: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with counting(monkeypatch) as asked:
        ran = tierctl(*cluster, "--limit", "5", *SPARK)
    assert len(ran.out.splitlines()) == 5
    assert here.jobs == [1]
    assert len(asked.logs) == 1
    with counting(monkeypatch) as asked:
        tierctl(*cluster, "--limit", "5", "--isolation", "read_committed", *SPARK)
    assert len(asked.logs) == 1


@pytest.mark.parametrize("damage", ["flip", "missing", "index", "both"])
def test_what_is_wrong_is_told_the_same(here: Here, capture: Capture, tmp_path: Path, damage: str) -> None:
    root = capture("tiered-cluster")
    shutil.copytree(root / "before-remote", tmp_path / "remote")
    logs = sorted((tmp_path / "remote").rglob("orders-0-*/*.log"))
    (_, before, _), (second, _, _), *_ = heads(logs[1])
    if damage in {"flip", "both"}:
        flip_bit(logs[1], second + 100)
    if damage in {"missing", "both"}:
        logs[2].unlink()
    if damage == "index":
        logs[1].with_suffix(".index").write_bytes(b"\x01")
    args = ["fetch", f"--metadata={root / 'before'}", f"--remote={tmp_path / 'remote'}", "--topic=orders"]
    ran = assert_same(*args, "--partition=0", *(["--offset=900"] if damage == "index" else []))
    assert ran.code in {7, 10}
    assert assert_same(*args, "--partition=0", "--limit=100").code == 0
    if damage == "flip":
        # The reader is one group of batches ahead of the output.
        assert assert_same(*args, "--partition=0", f"--offset={before}", "--limit=10").code == 0


def test_where_committed_records_end_is_told(here: Here, capture: Capture) -> None:
    root = capture("unclean-leader") / "after"
    args = ["fetch", f"--metadata={root / 'broker-1'}", f"--remote={root / 'remote'}"]
    logs = [f"--log-dir={root / broker}" for broker in ("broker-1", "broker-2")]
    assert_same(*args, *logs)
    assert_same(*args, "--isolation=read_committed")


def test_on_spark(spark: "SparkSession", cluster: list[str], capture: Capture) -> None:
    assert_same(*cluster, "--topic", "payments", "--isolation", "read_committed", "-o", "csv")
    root = capture("aiven-encrypted")
    key = f"key1={root / 'keys' / 'private.pem'}"
    where = [f"--metadata={root / 'broker-logs'}", f"--remote={root / 'bucket'}", "--layout=aiven"]
    assert_same(
        "fetch", *where, "--aiven-private-key", key, f"--log-dir={root / 'broker-logs'}", "--topic=audit"
    )


@pytest.mark.usefixtures("spark")
def test_the_limit_factor_reaches_executors(tmp_path: Path) -> None:
    world = World(tmp_path)
    value = b"x" * (9 << 20)
    world.segment(0, batch_of(record_bytes(value), CompressionType.ZSTD, offset=0), end_offset=0)
    ran = tierctl("fetch", *world.where, "--limit-factor", 2, *SPARK)
    assert (ran.code, len(ran.lines)) == (0, 1), ran.err
    assert len(ran.rows[0]["value"]) == len(value)
