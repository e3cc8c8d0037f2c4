"""`report --what-if` on captured data: sizes as in sweep, costs, and unknown values."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import ExitCode

from tests.cli.shell import rows, tierctl

Capture = Callable[..., Path]
Row = dict[str, Any]
NOW = "2026-11-25T12:00:00Z"
SETTINGS = "orders.retention.ms=604800000\nmetrics.retention.ms=864000000\n"


@pytest.fixture
def where(capture: Capture, tmp_path: Path) -> tuple[object, ...]:
    (tmp_path / "configs").write_text(SETTINGS)
    root = capture("tiered-cluster")
    settings = ("--topic-configs", tmp_path / "configs", "--now", NOW)
    return ("--metadata", root / "before", "--remote", root / "before-remote", *settings)


@pytest.fixture
def logs(capture: Capture) -> tuple[object, ...]:
    return ("--log-dir", capture("tiered-cluster") / "before")


def changes(*args: object, code: int = ExitCode.OK) -> dict[str, Row]:
    return {row["topic"]: row for row in rows("report", *args, code=code)}


def test_a_change_leaves_what_sweep_leaves_with_that_setting(
    where: tuple[object, ...], logs: tuple[object, ...], tmp_path: Path
) -> None:
    found = changes(*where, *logs, "--what-if", "metrics.retention.ms=5d")
    (tmp_path / "configs").write_text(SETTINGS.replace("864000000", "432000000"))
    planned = tierctl("sweep", *where, *logs, "-o", "json").json["steps"]
    segments = tierctl("segments", *where[:2], "--sizes", *where[2:4], "-o", "json").json
    for row in segments:
        own = [step for step in planned if step["topic"] == row["topic"]]
        changed = found[row["topic"]]
        assert changed["now_segments"] == row["segments"]
        assert changed["now_bytes"] == row["log_bytes"]
        assert changed["now_objects"] == row["objects"]
        assert changed["changed_segments"] == row["segments"] - len(own)
    assert 0 < found["metrics"]["changed_segments"] < found["metrics"]["now_segments"]


def test_an_assumed_setting_is_planned_and_never_applied(
    where: tuple[object, ...], logs: tuple[object, ...], tmp_path: Path
) -> None:
    """The plan is that of a sweep with the setting in force; neither `sweep` nor `apply` carries it out."""
    sweep, assume = ("sweep", *where, *logs), ("--assume", "m*s.retention.ms=5d")
    assumed = tierctl(*sweep, *assume, "-o", "json")
    (tmp_path / "plan.json").write_text(assumed.out)
    assert (assumed.code, "--apply would refuse this: settings of --assume" in assumed.err) == (0, True)
    for last in (("--apply",), ("--plan-out", tmp_path / "plan")):
        ran = tierctl(*sweep, *assume, *last)
        assert (ran.code, f"{last[0]} excludes it" in ran.err) == (2, True), ran.err
    ran = tierctl("apply", *where[:6], *logs, "--apply", tmp_path / "plan.json")
    assert (ran.code, "--assume" in ran.err) == (2, True), ran.err
    present = tierctl(*sweep, "-o", "json").json["steps"]
    (tmp_path / "configs").write_text(SETTINGS.replace("864000000", "432000000"))
    assert assumed.json["steps"] == tierctl(*sweep, "-o", "json").json["steps"]
    assert len(assumed.json["steps"]) > len(present)


def test_only_the_tables_need_deltalake(
    where: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/pipeline/test_warehouse_changes.py tests that the modules do not import it."""
    monkeypatch.setitem(sys.modules, "deltalake", None)
    change = (*where, "--what-if", "*.retention.ms=36h")
    assert changes(*change)
    refused = tierctl("report", *change, "--warehouse", tmp_path)
    assert refused.code == ExitCode.USAGE
    assert "deltalake, which is not installed" in refused.err
    assert "pip install tierctl[pipeline]" in refused.err


def test_costs_are_those_of_gigabytes_and_thousands(where: tuple[object, ...]) -> None:
    change = (*where, "--what-if", "*.retention.ms=36h")
    storage = changes(*change, "--price-per-gb-month", 1024)
    calls = changes(*change, "--price-per-1000-requests", 100)
    both = changes(*change, "--price-per-gb-month", 1024, "--price-per-1000-requests", 100)
    for topic, row in both.items():
        for when in ("now", "changed", "later"):
            of_storage, of_calls = storage[topic][f"{when}_cost"], calls[topic][f"{when}_cost"]
            assert row[f"{when}_cost"] == pytest.approx(of_storage + of_calls, abs=1e-3)
            if topic != "(total)":
                assert of_storage == round(row[f"{when}_bytes"] / 2**20, 4)
                assert of_calls == round(row[f"{when}_requests"] / 10, 4)
    names = [name for name in both["orders"] if name.endswith(("_bytes", "_cost", "_segments", "_requests"))]
    for name in (each for each in names if not each.startswith("local_")):
        each = [row[name] for topic, row in both.items() if topic != "(total)"]
        assert both["(total)"][name] == round(sum(each), 4), name
    assert changes(*change)["orders"]["now_cost"] is None


def test_what_is_not_known_is_null_and_never_0(where: tuple[object, ...], logs: tuple[object, ...]) -> None:
    without_tier = changes(*where[:2], *where[4:], *logs, "--what-if", "orders.local.retention.ms=1h")
    assert without_tier["orders"]["now_objects"] is without_tier["orders"]["now_requests"] is None
    assert 0 < without_tier["orders"]["local_changed_bytes"] <= without_tier["orders"]["local_now_bytes"]
    ran = tierctl("report", *where, "--what-if", "orders.local.retention.ms=1h", "-o", "json")
    assert (
        {row["local_now_bytes"] for row in ran.json}
        == {row["local_later_bytes"] for row in ran.json}
        == {None}
    )
    assert "not known without --log-dir" in ran.err
    assert "it is unknown without a cluster which consumer groups would lose records" in ran.err
    # retention.bytes needs the size of the local log, and no --log-dir is given.
    by_size = changes(*where, "--what-if", "orders.retention.bytes=1M", code=ExitCode.PARTIAL)
    assert by_size["orders"]["changed_bytes"] is by_size["(total)"]["changed_bytes"] is None
    assert by_size["orders"]["undecided_partitions"] == by_size["orders"]["partitions"]
    assert by_size["metrics"]["changed_bytes"] == by_size["metrics"]["now_bytes"]
    # All segments are from the same minute.
    young = (*where[:-1], "2026-11-22T06:00:00Z", *logs, "--what-if", "orders.retention.ms=1d")
    ran = tierctl("report", *young, "-o", "json")
    rows = {row["topic"]: row for row in ran.json}
    assert rows["orders"]["later_bytes"] is rows["orders"]["growth_bytes_per_day"] is None
    assert rows["orders"]["changed_bytes"] is not None
    assert "less than a day of history: the growth of " in ran.err


def test_a_retention_that_nobody_stated_is_named(where: tuple[object, ...], tmp_path: Path) -> None:
    """A retention that is not stated deletes nothing in sweep, but brokers use their default."""
    asked = ("report", *where, "--topic", "orders", "--what-if", "orders.retention.bytes=-1")
    assert "is not stated" not in tierctl(*asked).err
    (tmp_path / "configs").write_text("orders.retention.bytes=-1\nmetrics.retention.ms=864000000\n")
    ran = tierctl(*asked)
    assert "orders: retention.ms is not stated: tierctl deletes nothing by age" in " ".join(ran.err.split())
    assert "so the figures count no expiry" in " ".join(ran.err.split())
    (tmp_path / "configs").write_text("metrics.retention.ms=864000000\n")
    ran = tierctl(*asked[:-1], "orders.retention.ms=1d")
    assert "so the figures without the change count no expiry" in " ".join(ran.err.split())
    assert "no settings are known" not in ran.err
    ran = tierctl(*asked[:-1], "orders.retention.ms=1d", "--topic", "clicks")
    assert "no settings are known" in ran.err


def test_a_glob_changes_each_topic_and_a_later_change_wins(where: tuple[object, ...]) -> None:
    glob = changes(*where, "--what-if", "*.retention.ms=1d", "--what-if", "orders.retention.ms=-1")
    assert {topic for topic, row in glob.items() if row["changed_segments"]} == {"orders", "(total)"}
    one = changes(*where, "--what-if", "*.retention.ms=1d", "--topic", "orders")
    assert one.keys() == {"orders", "(total)"}


WRONG = {
    "no value": ("orders.retention.ms", "the value is missing", "expected TOPIC.SETTING=VALUE"),
    "other setting": (
        "orders.segment.bytes=1",
        "the effect of segment.bytes can't be calculated",
        "takes retention.ms",
    ),
    "unknown topic": ("order.retention.ms=7d", "no selected topic has the name order", 'mean "orders"?'),
    "bad time": ("orders.retention.ms=7y", "not a duration", "7d"),
    "bad size": ("orders.retention.bytes=7d", "is no number of bytes", "50M"),
    "bound": ("orders.retention.ms=-2", "is not a whole number of at least -1", ""),
    "refused by Kafka": (
        "orders.local.retention.ms=8d",
        "Kafka refuses this change of topic orders",
        "lower",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_change_is_refused(name: str, where: tuple[object, ...]) -> None:
    change, message, hint = WRONG[name]
    ran = tierctl("report", *where, "--what-if", change)
    assert (ran.code, ran.out) == (ExitCode.USAGE, "")
    assert message in ran.err
    assert hint in ran.err


@pytest.mark.parametrize(
    ("option", "price"),
    [("--price-per-gb-month", "-1"), ("--price-per-gb-month", "nan"), ("--price-per-1000-requests", "inf")],
)
def test_a_wrong_price_is_refused(option: str, price: str, where: tuple[object, ...]) -> None:
    ran = tierctl("report", *where, "--what-if", "orders.retention.ms=1d", option, price)
    assert (ran.code, ran.out, option in ran.err) == (ExitCode.USAGE, "", True), ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("--what-if", "orders.retention.ms=1d", "--html", "x.html"),
        ("--what-if", "orders.retention.ms=1d", "--show", "sizes"),
        ("--price-per-gb-month", "1"),
        ("--show", "groups"),
    ],
)
def test_options_that_exclude_each_other(words: tuple[str, ...], where: tuple[object, ...]) -> None:
    assert tierctl("report", *where, *words).code == ExitCode.USAGE
