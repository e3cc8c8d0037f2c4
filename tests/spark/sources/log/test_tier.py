"""The tier of `remote_log` must belong to the metadata, and reads respect the limits."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tierctl.errors import RemoteTierMissing, SafetyRefusal, TierctlError, UsageError
from tierctl.model import TopicIdPartition, Uuid
from tierctl.spark import register
from tierctl.spark.executors.task import shared_tier, take_transfers
from tierctl.spark.sources.remote_log import rows_of
from tierctl.storage.throttle import Direction, Limit
from tierctl.wire.batches.batch_head import CompressionType, compress

from tests.cli.shell import tierctl
from tests.hostile.worlds import World, batch_of, record_bytes
from tests.read.made import day, made_tier
from tests.spark.sources.log.loads import rows, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20
PARTITION = TopicIdPartition(Uuid("AAAAAAAAAAAAAAAAAAAAAQ"), "hours", 3)
OTHER = TopicIdPartition(Uuid("AAAAAAAAAAAAAAAAAAAAAg"), "days", 0)


@pytest.fixture
def tier(tmp_path: Path) -> dict[str, str]:
    return made_tier(tmp_path, PARTITION, day(random.Random(1)))


def with_other_objects(tier: dict[str, str], folder: Path) -> dict[str, str]:
    return tier | {"remote": made_tier(folder / "other", OTHER, day(random.Random(2)))["remote"]}


def with_other_identity(tier: dict[str, str], _folder: Path) -> dict[str, str]:
    identity = {"tier_identity": 1, "cluster_id": None, "metadata_topic_id": "AAAAAAAAAAAAAAAAAAAAAw"}
    text = json.dumps(identity | {"layout": "kafka"})
    Path(tier["remote"].removeprefix("file://"), ".tierctl-identity").write_text(text)
    return tier


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
@pytest.mark.parametrize(
    ("spoiled", "error"), [(with_other_objects, RemoteTierMissing), (with_other_identity, SafetyRefusal)]
)
def test_the_tier_of_another_metadata_topic_is_refused(
    spoiled: Callable[[dict[str, str], Path], dict[str, str]],
    error: type[TierctlError],
    mode: str,
    tier: dict[str, str],
    tmp_path: Path,
) -> None:
    (tmp_path / "other").mkdir()
    assert rows(tier)
    with pytest.raises(error):
        rows(spoiled(tier, tmp_path) | {"mode": mode})


def test_all_tasks_together_hold_the_limit(tier: dict[str, str], tmp_path: Path) -> None:
    server = tmp_path / "server.properties"
    server.write_text(
        f"remote.log.manager.fetch.max.bytes.per.second={8 * MIB}\n"
        "remote.log.manager.fetch.quota.window.num=2\n"
    )
    small = {"bytes_per_task": "2000"}
    assert {task.scan.spec.throttle.fetch for task in tasks_of(tier | small)} == {None}
    for more, bytes_per_second in (({}, 8 * MIB), ({"throttle_fetch": "1M"}, MIB)):
        found = tasks_of(tier | small | {"broker_config": str(server)} | more)
        assert len(found) > 1
        (limit,) = {task.scan.spec.throttle.fetch for task in found}
        assert isinstance(limit, Limit)
        assert limit.bytes_per_second == bytes_per_second / len(found)


@pytest.mark.matrix
def test_a_task_waits_for_its_limit(tier: dict[str, str]) -> None:
    take_transfers()
    found = tasks_of(tier | {"throttle_fetch": "100K"})
    read = [row for task in found for batch in rows_of(task) for row in batch.to_pylist()]
    assert read == rows(tier)
    assert shared_tier(found[0].scan.spec) is not shared_tier(tasks_of(tier)[0].scan.spec)
    taken = take_transfers()
    assert taken is not None
    assert taken.waits[Direction.FETCH].sum_s > 0


@pytest.mark.parametrize("text", ["", "0", "fast"])
def test_a_limit_that_is_no_rate(text: str, tier: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="no number of bytes per second"):
        tasks_of(tier | {"throttle_fetch": text})


LARGE = 65 << 20


def test_the_limit_factor_reaches_executors(tmp_path: Path, spark: "SparkSession") -> None:
    register(spark)
    world = World(tmp_path)
    stored = compress(CompressionType.ZSTD, record_bytes(bytes(LARGE)))
    world.segment(0, batch_of(b"", CompressionType.ZSTD, offset=0, stored=stored), end_offset=0)
    options = {"metadata": str(world.metadata), "remote": str(world.remote), "mode": "PERMISSIVE"}
    source = spark.read.format("remote_log").options(**options)
    (refused,) = source.load().select("value", "error").collect()
    assert refused.value is None
    assert "--limit-factor raises this limit" in refused.error
    (row,) = source.option("limit_factor", "2").load().selectExpr("length(value) as size", "error").collect()
    assert (row.size, row.error) == (LARGE, None)
    fetch = ("fetch", *world.where, "--binary", "sha256", "--engine", "spark", "--master", "local[2]")
    assert (tierctl(*fetch).code, tierctl(*fetch).lines) == (7, [])
    raised = tierctl(*fetch, "--limit-factor", 2)
    assert (raised.code, len(raised.lines)) == (0, 1), raised.err
