"""`format`, `segments` and `verify` with --engine spark print the same bytes, and what is refused."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.checks.cross_check import OfPartition
from tierctl.checks.deep import ReadCounts, SegmentsTask
from tierctl.checks.findings import Finding
from tierctl.metadata.state_dir import read_segments
from tierctl.metadata.topic import METADATA_TOPIC, MetadataSplit
from tierctl.spark.executors import examined
from tierctl.spark.executors import rendered_text as spark_format
from tierctl.spark.executors.examined import ReadTasks, Work

from tests.cli.shell import tierctl
from tests.spark.executors.bulk import (
    TIERS,
    assert_same,
    damaged,
    here,
    no_segments,
    small_pieces,
    within,
)
from tests.spark.worlds import Capture
from tests.verify.tiers import NOW_MS

__all__ = ["here", "no_segments", "small_pieces"]

pytestmark = pytest.mark.usefixtures("small_pieces")


AFTER = "tiered-cluster/after"
WAYS = (
    ("--style", "kip"),
    ("--style", "json", "--order", "time"),
    ("--property", "print.partition=true", "--property", "sep=|", "--state", "DELETE_SEGMENT_FINISHED"),
    ("--output", "csv", "--topic", "clicks", "--from-offset", "3", "--until", "12"),
    ("--order", "time", "--metadata-partition", "0", "--metadata-partition", "4"),
    ("--limit", "33", "--order", "time", "--type", "RemoteLogSegmentMetadataUpdate"),
)


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
@pytest.mark.usefixtures("here")
def test_every_way_to_print(way: tuple[str, ...], capture: Capture) -> None:
    assert assert_same("format", "--metadata", within(capture, AFTER), *way).lines


@pytest.mark.parametrize(
    ("records", "way"),
    [
        (1, ()),
        pytest.param(2, ("--order", "time"), marks=pytest.mark.matrix),
        pytest.param(3, ("--limit", "2"), marks=pytest.mark.matrix),
        (5, ("--from-offset", "9")),
        # The first of these offsets is in the middle of a damaged range.
        (2, ("--from-offset", "9", "--until", "10")),
    ],
)
@pytest.mark.usefixtures("here")
def test_damage_has_its_line_once(
    records: int, way: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_format, "RECORDS_PER_SPLIT_MIN", records)
    monkeypatch.setattr(spark_format, "RECORDS_PER_SPLIT_MAX", records)
    said = assert_same("format", "--metadata", damaged(tmp_path), *way)
    assert said.code == 7
    assert "could not be read" in said.err
    assert "not written to its end" in said.err or "--limit" in way


@pytest.mark.usefixtures("spark")
def test_few_messages_need_few_splits(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    splits: list[MetadataSplit] = []
    run = spark_format.Executors.run

    def counted(self: object, do: object, pieces: list[MetadataSplit], **how: object) -> object:
        splits.extend(pieces)
        return run(self, do, pieces, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(spark_format.Executors, "run", counted)
    assert_same("format", "--metadata", within(capture, AFTER), "--limit", "20")
    assert 0 < sum(split.end_offset - split.start_offset for split in splits) <= 3 * 20


@pytest.mark.parametrize(
    "words",
    [
        ("--follow", "--metadata", "."),
        ("00000000000000000000.log",),
        ("--input", "hex"),
        ("--bootstrap-server", "localhost:1"),
    ],
    ids=" ".join,
)
def test_what_comes_bit_by_bit_needs_no_executors(words: tuple[str, ...]) -> None:
    said = tierctl("format", *words, "--engine", "spark")
    assert said.code == 2
    assert "--engine spark can only print the existing records of --metadata" in said.err


def test_a_plugin_s_style_is_loaded_there(capture: Capture) -> None:
    said = tierctl("format", "--metadata", within(capture, AFTER), "--style", "none", "--engine", "spark")
    assert (said.code, said.out) == (2, "")
    assert "no style 'none'" in said.err


@pytest.mark.parametrize("more", ["--all", "--check", "--sizes", "--offsets"])
@pytest.mark.usefixtures("spark")
def test_everything_else_of_segments(more: str, capture: Capture) -> None:
    assert assert_same("segments", *_options(capture), more, "--now", NOW_MS, "-o", "csv").out


def _options(capture: Capture) -> list[object]:
    remote, logs = (within(capture, each) for each in TIERS["tiered-cluster/after"])
    return ["--metadata", logs, "--remote", remote, "--log-dir", logs]


@pytest.mark.usefixtures("spark")
def test_a_store_that_is_not_there(capture: Capture, tmp_path: Path) -> None:
    where = ("--metadata", within(capture, "tiered-cluster/after"), "--remote", tmp_path / "none")
    assert assert_same("verify", *where).code == 5


@pytest.mark.matrix
@pytest.mark.usefixtures("spark", "no_segments")
def test_a_sample_that_is_recorded(capture: Capture, tmp_path: Path) -> None:
    sample = ("--sample", "40%", "--seed", 5, "--state-dir", tmp_path, "--now", NOW_MS, "-o", "json")
    said = assert_same("verify", *_options(capture), *sample)
    assert "15 of 25 segments were not read" in said.json[-1]["found"]
    assert len(read_segments(tmp_path)) > 1


@pytest.mark.matrix
@pytest.mark.usefixtures("spark")
def test_a_topic_that_lost_its_oldest_events(writable: Callable[[str], Path]) -> None:
    """The driver has the segments, whose tables are sent to executors."""
    metadata, remote = (writable(f"tiered-cluster/{name}") for name in ("before", "before-remote"))
    (metadata / "log-start-offset-checkpoint").write_text(f"0\n1\n{METADATA_TOPIC} 0 1\n")
    where = ("--metadata", metadata, "--remote", remote, "--log-dir", metadata, "--now", NOW_MS)
    said = assert_same("verify", *where, "--deep", "-o", "json")
    assert said.code == 7
    assert len(said.json) > 1


@pytest.mark.usefixtures("spark")
def test_logs_that_an_executor_does_not_see(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examined, "ReadTasks", Blind)
    where = (*_options(capture), "--engine", "spark", "--master", "local[2]")
    said = tierctl("verify", *where, "--deep")
    assert said.code == 5
    assert "can't find" in said.err


class Blind(ReadTasks):
    """An executor without the folders of logs."""

    def __call__(self, work: Iterable[Work]) -> tuple[list[tuple[OfPartition, list[Finding]]], ReadCounts]:
        """Read segments that have logs in another folder."""
        return ReadTasks.__call__(self, (_elsewhere(place, task) for place, task in work))


def _elsewhere(place: OfPartition, task: SegmentsTask | list[Finding]) -> Work:
    if isinstance(task, list):
        return place, task
    logs = tuple(replace(log, directory=Path("/nowhere")) for log in task.logs)
    return place, replace(task, logs=logs)
