"""Records of message formats 0 and 1 on executors: by the data source, and by `fetch --engine spark`."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tierctl.spark import register
from tierctl.wire.batches.batch_head import CompressionType, Record, compress

from tests.cli.shell import tierctl
from tests.hostile.worlds import World, batch_of, joined, plain_batch, record_bytes
from tests.wire.batches.messages import message, wrapper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME_MS = 1_700_000_000_000
LARGE = 65 << 20


def records(first: int, count: int) -> list[Record]:
    return [Record(at, TIME_MS + at, b"key %d" % at, b"value %d" % at) for at in range(first, first + count)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a tier with a segment of all three formats, with and without compression."""
    kinds = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
    parts: list[bytes] = []
    offset = 0
    for magic in (0, 1):
        parts += [message(each, magic) for each in records(offset, 3)]
        offset += 3
        for kind in kinds:
            parts.append(wrapper(records(offset, 4), magic, kind))
            offset += 4
    parts.append(plain_batch(offset, b"value %d" % offset))
    made = World(tmp_path)
    made.segment(0, joined(parts), end_offset=offset)
    return made


def test_formats(world: World, spark: "SparkSession") -> None:
    register(spark)
    options = {"metadata": str(world.metadata), "remote": str(world.remote)}
    found = spark.read.format("remote_log").options(**options).load().orderBy("offset").collect()
    assert [(row.offset, bytes(row.value)) for row in found] == [
        (at, b"value %d" % at) for at in range(len(found))
    ]
    assert len(found) == 31
    # Messages of format 0 have no time.
    assert [row.timestamp_ms for row in found] == [-1] * 15 + [TIME_MS + at for at in range(15, 30)] + [
        TIME_MS
    ]
    here = tierctl("fetch", *world.where)
    there = tierctl("fetch", *world.where, "--engine", "spark", "--master", "local[2]")
    assert (there.code, there.out) == (0, here.out)
    assert len(there.lines) == 31


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
