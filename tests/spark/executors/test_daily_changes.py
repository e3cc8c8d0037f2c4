"""`report --show growth` on Spark: executors read the topic, and the sums are those of one reader."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.cli.shell import tierctl
from tests.support.amounts import rest_in_matrix

report = import_module("tierctl.commands.report")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("topics", rest_in_matrix([("--topic", "clicks"), ()]))
def test_executors_read_the_topic(
    topics: tuple[str, ...], capture: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("report", "--metadata", capture("tiered-cluster") / "after", "--now", "2026-12-01T00:00:00Z")
    words = (*where, *topics, "--show", "growth", "-o", "json")
    here = tierctl(*words)
    assert any(row["copied_segments"] for row in here.json)
    assert any(row["deleted_segments"] for row in here.json)

    def read_by_the_driver(*_: object) -> None:
        raise AssertionError("the driver reads the topic again")

    monkeypatch.setattr(report, "read_daily_changes", read_by_the_driver)
    assert tierctl(*words, "--engine", "spark", "--master", "local[2]") == here
