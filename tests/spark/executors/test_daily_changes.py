"""`report --show growth` on Spark: executors read the topic, and the sums are those of one reader."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.commands.insight import report
from tierctl.metadata.daily_changes import DailyChanges, DayChanges
from tierctl.model import Uuid
from tierctl.spark import fold

from tests.cli.shell import tierctl
from tests.support.amounts import rest_in_matrix

_TOPIC = ("t", Uuid("AAAAAAAAAAAAAAAAAAAAAQ"))


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
    monkeypatch.setattr(fold, "LEAST_EVENTS", 1)
    assert tierctl(*words, "--engine", "spark", "--master", "local[2]") == here


def test_parts_are_summed_up() -> None:
    parts = [
        DailyChanges({(*_TOPIC, 1): DayChanges(1, 2, 3, 4)}, 1),
        DailyChanges({(*_TOPIC, 1): DayChanges(10, 20, 30, 40), (*_TOPIC, 2): DayChanges(5)}, 2),
    ]
    found = DailyChanges()
    for part in parts:
        found.absorb(part)
    assert found.days == {(*_TOPIC, 1): DayChanges(11, 22, 33, 44), (*_TOPIC, 2): DayChanges(5)}
    assert found.unknown_segments == 3
