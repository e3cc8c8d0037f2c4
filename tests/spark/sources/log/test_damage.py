"""`remote_log` with damage: the job ends, or returns all other records and a row for each error."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tierctl.errors import CorruptInputError, RemoteResourceNotFound, TierctlError
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.spark import register
from tierctl.spark.sources.metadata_splits import Predicate

from tests.read.test_damage import flip, heads
from tests.read.tier import Tier
from tests.spark.sources.log.loads import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = Callable[[str], Path]
PERMISSIVE = {"mode": "permissive"}


class Damaged:
    """A copy of one partition of a tier, and its segments."""

    def __init__(self, root: Path, folder: Path) -> None:
        shutil.copytree(root / "before-remote", folder / "remote", ignore=shutil.ignore_patterns("[!o]*-?-*"))
        self.tier = Tier.of(root / "before", folder / "remote")
        self.segments: list[RemoteLogSegmentMetadata] = self.tier.segments("orders")
        self.options = {
            "metadata": str(root / "before"),
            "remote": str(folder / "remote"),
            "topic": "orders",
            "partition": "0",
        }

    def object(self, number: int, suffix: str) -> Path:
        return self.tier.object(self.segments[number], suffix)

    def flip_batch(self, number: int, batch: int) -> tuple[int, int]:
        """Flip a bit in a batch; return its first and last offset."""
        log = self.object(number, ".log")
        position, first, last = heads(log)[batch]
        flip(log, position + 200)
        return first, last


@pytest.fixture
def damaged(capture: Capture, tmp_path: Path) -> Damaged:
    return Damaged(capture("tiered-cluster"), tmp_path)


def split(found: list[dict[str, Any]]) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the offsets of records, and the rows of errors."""
    errors = [row for row in found if row["error"] is not None]
    assert all(row["value"] is None and row["timestamp_ms"] is None for row in errors)
    return [row["offset"] for row in found if row["error"] is None], errors


@pytest.mark.parametrize("bytes_per_task", ["300000", "134217728"])
def test_a_damaged_batch_costs_itself(damaged: Damaged, bytes_per_task: str) -> None:
    first, last = damaged.flip_batch(1, 1)
    options = damaged.options | {"bytes_per_task": bytes_per_task}
    with pytest.raises(CorruptInputError) as e:
        rows(options)
    segment_id = damaged.segments[1].segment_id
    assert segment_id in e.value.message
    assert "at byte" in e.value.message
    assert "mode=PERMISSIVE" in e.value.__notes__[0]

    offsets, errors = split(rows(options | PERMISSIVE))
    assert offsets == [*range(first), *range(last + 1, 3000)]
    assert {row["offset"] for row in errors} <= set(range(first, last + 1))
    for row in errors:
        assert (row["topic"], row["partition"]) == ("orders", 0)
        assert segment_id in row["error"]
        assert f"to {last} may be lost there" in row["error"] or bytes_per_task == "300000"
    assert len(errors) == 1 or bytes_per_task == "300000"


def test_a_missing_object_costs_its_segment(damaged: Damaged) -> None:
    damaged.object(2, ".log").unlink()
    with pytest.raises(RemoteResourceNotFound, match=damaged.segments[2].segment_id):
        rows(damaged.options)
    offsets, (error,) = split(rows(damaged.options | PERMISSIVE))
    first, last = damaged.segments[2].start_offset, damaged.segments[2].end_offset
    assert offsets == [*range(first), *range(last + 1, 3000)]
    assert error["offset"] == first
    assert f"offsets {first} to {last}" in error["error"]


def test_a_damaged_index_costs_nothing(damaged: Damaged, capfd: pytest.CaptureFixture[str]) -> None:
    damaged.object(1, ".index").write_bytes(b"\x00\x01\x02")
    asked = Predicate("offset", ">=", damaged.segments[1].start_offset + 300)
    found = rows(damaged.options, asked)
    assert [row["offset"] for row in found] == list(range(damaged.segments[1].start_offset + 300, 3000))
    assert "offset index" in capfd.readouterr().err
    offsets, (error,) = split(rows(damaged.options | PERMISSIVE, asked))
    assert offsets == [row["offset"] for row in found]
    assert error["offset"] is None
    assert "offset index" in error["error"]


def test_damage_out_of_range_is_nobodys_concern(damaged: Damaged) -> None:
    first, last = damaged.flip_batch(3, 1)
    asked = Predicate("offset", "<", first)
    assert [row["offset"] for row in rows(damaged.options, asked)] == list(range(first))
    asked = Predicate("offset", ">", last)
    assert [row["offset"] for row in rows(damaged.options | PERMISSIVE, asked)] == list(range(last + 1, 3000))


def test_errors_are_rows_as_to_all_but_their_place(damaged: Damaged) -> None:
    first, last = damaged.flip_batch(1, 0)
    only = rows(damaged.options | PERMISSIVE, Predicate("error", "is null", is_negated=True))
    assert len(only) == 1
    assert only[0]["offset"] == first
    for predicates in (
        [Predicate("offset", ">=", last - 1)],
        [Predicate("timestamp_ms", ">", 5)],
        [Predicate("topic", "=", "orders"), Predicate("offset", "is null", is_negated=True)],
    ):
        _, errors = split(rows(damaged.options | PERMISSIVE, *predicates))
        assert len(errors) == 1, predicates
    for predicates in ([Predicate("error", "is null")], [Predicate("value", "is null", is_negated=True)]):
        _, errors = split(rows(damaged.options | PERMISSIVE, *predicates))
        assert errors == [], predicates


def test_a_lineage_that_is_a_guess_is_no_silent_one(damaged: Damaged) -> None:
    damaged.object(-1, ".leader_epoch_checkpoint").write_bytes(b"0\n7\n")
    with pytest.raises(CorruptInputError, match="leader-epoch index"):
        rows(damaged.options)
    offsets, (error,) = split(rows(damaged.options | PERMISSIVE))
    assert offsets == [*range(3000)]
    assert "leader-epoch index" in error["error"]


def test_metadata_that_can_not_be_read_may_hide_segments(damaged: Damaged, tmp_path: Path) -> None:
    shutil.copytree(damaged.options["metadata"], tmp_path / "metadata")
    (log, *_) = (log for log in (tmp_path / "metadata").rglob("__remote_log*/*.log") if log.stat().st_size)
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)
    options = {"metadata": str(tmp_path / "metadata"), "remote": damaged.options["remote"]}
    with pytest.raises(TierctlError):
        rows(options)
    _, errors = split(rows(options | PERMISSIVE))
    assert any("__remote_log_metadata" in row["error"] and row["topic"] is None for row in errors)


def test_spark_shows_the_error_or_the_rows(spark: "SparkSession", damaged: Damaged) -> None:
    from pyspark.errors import PySparkException

    register(spark)
    first, last = damaged.flip_batch(1, 1)
    damaged.object(3, ".log").unlink()
    reader = spark.read.format("remote_log").options(**damaged.options)
    with pytest.raises(PySparkException) as e:
        reader.load().toArrow()
    assert damaged.segments[1].segment_id in str(e.value)
    assert "may be lost there; with option mode=PERMISSIVE" in str(e.value)

    frame = reader.option("mode", "PERMISSIVE").load()
    offsets, errors = split(frame.where(f"offset >= {first}").toArrow().to_pylist())
    missing = damaged.segments[3]
    expected = {*range(first, 3000)} - {*range(first, last + 1)}
    assert set(offsets) == expected - {*range(missing.start_offset, missing.end_offset + 1)}
    assert [row["offset"] for row in errors] == [first, missing.start_offset]
    assert frame.where("error is not null").count() == 2
