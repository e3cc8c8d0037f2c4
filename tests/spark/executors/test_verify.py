"""What executors refuse in `verify`, and `segments`, which prints the same rows on both engines."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.checks.cross_check import OfPartition
from tierctl.checks.deep import ReadCounts, SegmentsTask
from tierctl.checks.findings import Finding
from tierctl.metadata.state_dir import read_segments
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.spark.executors import checked_segments
from tierctl.spark.executors.checked_segments import ReadTasks, Work

from tests.cli.shell import tierctl
from tests.spark.executors.bulk import (
    METADATA,
    TIERS,
    Capture,
    assert_same,
    no_segments,
    small_pieces,
    within,
)
from tests.support.amounts import rest_in_matrix
from tests.verify.tiers import NOW_MS

__all__ = ["no_segments", "small_pieces"]

pytestmark = pytest.mark.usefixtures("spark", "small_pieces")


@pytest.mark.parametrize("place", rest_in_matrix(METADATA))
def test_segments(place: str, capture: Capture) -> None:
    assert assert_same("segments", "--metadata", within(capture, place), "-o", "json").code == 0


@pytest.mark.parametrize("more", ["--all", "--check", "--sizes", "--offsets"])
def test_everything_else_of_segments(more: str, capture: Capture) -> None:
    assert assert_same("segments", *_options(capture), more, "--now", NOW_MS, "-o", "csv").out


def _options(capture: Capture) -> list[object]:
    remote, logs = (within(capture, each) for each in TIERS["tiered-cluster/after"])
    return ["--metadata", logs, "--remote", remote, "--log-dir", logs]


def test_a_store_that_is_not_there(capture: Capture, tmp_path: Path) -> None:
    where = ("--metadata", within(capture, "tiered-cluster/after"), "--remote", tmp_path / "none")
    assert assert_same("verify", *where).code == 5


@pytest.mark.usefixtures("no_segments")
def test_a_sample_that_is_recorded(capture: Capture, tmp_path: Path) -> None:
    sample = ("--sample", "40%", "--seed", 5, "--state-dir", tmp_path, "--now", NOW_MS, "-o", "json")
    said = assert_same("verify", *_options(capture), *sample)
    assert "15 of 25 segments were not read" in said.json[-1]["found"]
    assert len(read_segments(tmp_path)) > 1


def test_a_topic_that_lost_its_oldest_events(writable: Callable[[str], Path]) -> None:
    """The driver has the segments, whose tables are sent to executors."""
    metadata, remote = (writable(f"tiered-cluster/{name}") for name in ("before", "before-remote"))
    (metadata / "log-start-offset-checkpoint").write_text(f"0\n1\n{METADATA_TOPIC} 0 1\n")
    where = ("--metadata", metadata, "--remote", remote, "--log-dir", metadata, "--now", NOW_MS)
    said = assert_same("verify", *where, "--deep", "-o", "json")
    assert said.code == 7
    assert len(said.json) > 1


def test_logs_that_an_executor_does_not_see(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_segments, "ReadTasks", Blind)
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
