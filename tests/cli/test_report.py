"""`report` and `report --what-if` on captured data: figures of other commands, sizes, costs, the page."""

import re
import stat
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from tierctl.commands.what_if import Prices
from tierctl.errors import ExitCode
from tierctl.plan.forecast import Holding
from tierctl.report import printable
from tierctl.report.html_page import facts_section, findings_section, growth_section, text

from tests.cli.shell import rows, tierctl
from tests.metadata.events import started
from tests.report.html.pages import HOSTILE, content, hostile_rows, lanes_in, topic_id
from tests.verify.tiers import Spoilt

Capture = Callable[..., Path]
NOW = "2026-11-22T12:00:00Z"
SETTINGS = "orders.retention.ms=86400000\nmetrics.retention.ms=864000000\n"


@pytest.fixture
def where(capture: Capture, tmp_path: Path) -> tuple[object, ...]:
    root = capture("tiered-cluster")
    (tmp_path / "configs").write_text(SETTINGS)
    configs = ("--topic-configs", tmp_path / "configs", "--now", NOW)
    return ("--metadata", root / "before", "--log-dir", root / "before", *configs)


def test_sizes_are_those_of_segments_and_of_the_logs(where: tuple[object, ...]) -> None:
    sizes = rows("report", *where)
    tier: Counter[str] = Counter()
    for segment in rows("segments", *where[:2]):
        tier[segment["topic"]] += segment["segment_size_in_bytes"]
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in sizes:
        found[row["location"]][row["topic"]] += row["log_bytes"]
    assert found["tier"] == tier
    log_dir = where[3]
    assert isinstance(log_dir, Path)
    logs = {
        topic: sum(file.stat().st_size for file in log_dir.glob(f"{topic}-[0-9]*/*.log")) for topic in tier
    }
    assert found["local"] == logs
    assert {row["age"] for row in sizes} == {"1d to 7d"}


def test_growth_is_what_the_events_say(capture: Capture) -> None:
    root = capture("tiered-cluster") / "after"
    sizes = {
        row["segment_id"]: row["segment_size_in_bytes"]
        for row in rows("segments", "--metadata", root, "--all")
    }
    copied, deleted = Counter[str](), Counter[str]()
    for event in rows("format", "--metadata", root):
        if event["state"] == "COPY_SEGMENT_FINISHED":
            copied[event["topic"]] += sizes[event["segment_id"]]
        elif event["state"] == "DELETE_SEGMENT_FINISHED":
            deleted[event["topic"]] += sizes[event["segment_id"]]
    growth = rows("report", "--metadata", root, "--show", "growth", code=None)
    assert deleted.total() > 0
    assert {row["day"] for row in growth} == {"2026-11-21"}
    assert {row["topic"]: row["copied_bytes"] for row in growth} == copied
    assert {row["topic"]: row["deleted_bytes"] for row in growth if row["deleted_bytes"]} == deleted


def test_the_page_has_every_segment_with_its_state(capture: Capture, tmp_path: Path) -> None:
    root, page = capture("unclean-leader"), tmp_path / "tier.html"
    (tmp_path / "configs").write_text("payouts.remote.storage.enable=true\n")
    where = ("--metadata", root / "after" / "broker-1", "--log-dir", root / "after" / "broker-1")
    ran = tierctl("report", *where, "--topic-configs", tmp_path / "configs", "--html", page)
    assert ran.code == ExitCode.PARTIAL
    assert re.search(rf": \d+ problems in metadata, logs; {page}, ", ran.summary)
    data = lanes_in(page)
    segments = rows("segments", *where[:2])
    assert sum(data["rows"]["tier_segments"]) == len(segments)
    assert sum(data["rows"]["tier_bytes"]) == sum(each["segment_size_in_bytes"] for each in segments)
    items = data["items"]
    kinds = Counter(data["kinds"][code >> 1][0] for code in items["kind"])
    # Brokers never delete the segment of each topic that was copied again.
    assert kinds["due"] == 0
    assert kinds["diverged"] == 2
    assert kinds["current"] > 0
    # The row of a partition in the chart begins with its lowest offset.
    payouts = [each for each in segments if each["topic"] == "payouts"]
    assert items["gap"][0] == min(each["start_offset"] for each in payouts)
    serious = [each for each in rows("verify", *where, code=None) if each["severity"] != "info"]
    assert sum(data["findings"]["counts"]["warning"]) + sum(data["findings"]["counts"]["error"]) == len(
        [each for each in serious if each["partition"] is not None]
    )


def test_a_report_replaces_a_report_and_nothing_else(where: tuple[object, ...], tmp_path: Path) -> None:
    page = tmp_path / "pages" / "tier.html"
    page.parent.mkdir()
    command = ("report", *where, "--html", page)
    (link := tmp_path / "index.html").symlink_to(page)
    for _ in range(2):
        assert tierctl(*command[:-1], link).code == 0
    assert link.is_symlink()
    first = page.read_bytes()
    page.chmod(0o604)
    assert tierctl(*command).code == 0
    assert page.read_bytes() == first
    # Somebody else may have made the file: its mode is that of a new file.
    (tmp_path / "new").touch()
    assert stat.S_IMODE(page.stat().st_mode) == stat.S_IMODE((tmp_path / "new").stat().st_mode)
    assert {each.name for each in page.parent.iterdir()} == {"tier.html"}
    page.write_text("<title>Ours</title>")
    ran = tierctl(*command)
    assert ran.code == ExitCode.REFUSED
    assert "is no report of tierctl, and is not replaced" in ran.err
    assert page.read_text() == "<title>Ours</title>"
    page.write_text("")
    assert tierctl(*command).code == 0
    assert page.read_bytes() == first


def test_the_page_says_what_it_did_not_check(where: tuple[object, ...], tmp_path: Path) -> None:
    page = tmp_path / "tier.html"
    tierctl("report", *where, "--html", page)
    assert "without --remote only metadata and logs were" in page.read_text()
    assert "no settings are known for this topic" in page.read_text()


def test_the_page_names_what_was_not_understood(capture: Capture, tmp_path: Path) -> None:
    root, page = capture("finite-metadata"), tmp_path / "page.html"
    where = ("--metadata", root / "next", "--log-dir", root / "next")
    where += ("--topic-configs", root / "topics-next.properties")
    ran = tierctl("report", *where, "--html", page)
    for ended in (ran, tierctl("status", *where)):
        assert (ended.code, ended.summary.count("; 1 partition not understood")) == (7, 1)
    facts, limits = (
        page.read_text().count("1 partition not understood"),
        page.read_text().count("<li>quiet-0 is not known to be complete"),
    )
    assert (facts, limits) == (2, 1)
    assert "Problems</dt><dd>none" not in page.read_text()


def test_expirations_without_settings_are_not_known(capture: Capture) -> None:
    root = capture("tiered-cluster")
    where = ("--metadata", root / "after", "--remote", root / "after-remote", "--log-dir", root / "after")
    for more in ((), ("--show", "expirations")):
        ran = tierctl("report", *where, *more)
        assert "; expirations not known for 7 partitions" in ran.summary
        assert "note: skipped 7 partitions of 4 topics" in ran.err


def test_names_of_damaged_records_are_text(writable: Callable[[str], Path], tmp_path: Path) -> None:
    metadata, page = writable("tiered-cluster/before"), tmp_path / "tier.html"
    # Names in records may contain every character of UTF-8.
    names = [name for name in HOSTILE if "\ud800" not in name]
    hostile = Spoilt(metadata, tmp_path)
    hostile.append(*(started(100 + at, topic=name, topic_id=topic_id(at)) for at, name in enumerate(names)))
    ran = tierctl("report", "--metadata", metadata, "--html", page)
    assert ran.code == ExitCode.PARTIAL, ran.err
    shown = [name for name, _ in lanes_in(page)["topics"]]
    assert {printable(name) for name in names} <= set(shown)
    text = page.read_text()
    assert "<img" not in text
    assert "\u202e" not in text
    assert text.count("</script>") == 2


@pytest.mark.parametrize(("sizes", "shown"), [([], "not read"), ([0], "0 B"), ([1024, 0], "1.0 KiB")])
def test_logs_without_a_byte_were_read(sizes: list[int], shown: str) -> None:
    row = {"topic": "t", "topic_id": "i", "location": "local", "age": "unknown"}
    local = [row | {"log_bytes": size} for size in sizes]
    facts = facts_section(content(hostile_rows(), sizes=local))
    assert re.search(rf"Size of the logs</dt><dd>(<data [^>]*>)?{shown}<", facts)


@pytest.mark.parametrize("changes", [{}, {"findings": [], "finding_counts": {}}], ids=["findings", "none"])
def test_copies_that_stopped_stand_with_the_findings(changes: dict[str, Any]) -> None:
    made = content(hostile_rows(), **changes)
    shown = findings_section(made)
    assert made.stopped
    assert all(f"<p>Copies wait for an operator: {text(line)}</p>" in shown for line in made.stopped)
    assert ("findings-list" in shown) == bool(made.findings)
    facts = facts_section(made)
    assert ("copies that wait for an operator" in facts, "<dd>none" in facts) == (True, False)


@pytest.mark.parametrize("days_left", [0, 1, 20, 29, 30, 31, 100])
def test_the_days_end_with_the_year_9999(days_left: int) -> None:
    """A retention of any length counts its segments for the last of these days."""
    today = date.max - timedelta(days=days_left)
    now_ms = (today - date(1970, 1, 1)).days * 86_400_000
    rows = [{**each, "day": date.max.isoformat()} for each in content(hostile_rows()).growth]
    shown = today + timedelta(days=min(days_left, 30))
    assert f" to {shown.isoformat()}: " in growth_section(rows, now_ms)


def test_the_page_counts_the_topics_that_the_tier_has() -> None:
    made = content(hostile_rows()[:2])
    others = [made.topics[0], {**made.topics[1], "partitions": 0, "segments": 0, "log_bytes": 0}]
    assert "<dt>Topics in the tier</dt><dd>1</dd>" in facts_section(replace(made, topics=others))


Row = dict[str, Any]
CHANGED_AT = "2026-11-25T12:00:00Z"
CHANGES = "orders.retention.ms=604800000\nmetrics.retention.ms=864000000\n"


@pytest.fixture
def what_if_places(capture: Capture, tmp_path: Path) -> tuple[object, ...]:
    (tmp_path / "configs").write_text(CHANGES)
    root = capture("tiered-cluster")
    settings = ("--topic-configs", tmp_path / "configs", "--now", CHANGED_AT)
    return ("--metadata", root / "before", "--remote", root / "before-remote", *settings)


@pytest.fixture
def logs(capture: Capture) -> tuple[object, ...]:
    return ("--log-dir", capture("tiered-cluster") / "before")


def changes(*args: object, code: int = ExitCode.OK) -> dict[str, Row]:
    return {row["topic"]: row for row in rows("report", *args, code=code)}


def test_a_change_leaves_what_sweep_leaves_with_that_setting(
    what_if_places: tuple[object, ...], logs: tuple[object, ...], tmp_path: Path
) -> None:
    found = changes(*what_if_places, *logs, "--what-if", "metrics.retention.ms=5d")
    (tmp_path / "configs").write_text(CHANGES.replace("864000000", "432000000"))
    planned = tierctl("sweep", *what_if_places, *logs, "-o", "json").json["steps"]
    segments = tierctl("segments", *what_if_places[:2], "--sizes", *what_if_places[2:4], "-o", "json").json
    for row in segments:
        own = [step for step in planned if step["topic"] == row["topic"]]
        changed = found[row["topic"]]
        assert changed["now_segments"] == row["segments"]
        assert changed["now_bytes"] == row["log_bytes"]
        assert changed["now_objects"] == row["objects"]
        assert changed["changed_segments"] == row["segments"] - len(own)
    assert 0 < found["metrics"]["changed_segments"] < found["metrics"]["now_segments"]


def test_an_assumed_setting_is_planned_and_never_applied(
    what_if_places: tuple[object, ...], logs: tuple[object, ...], tmp_path: Path
) -> None:
    """The plan is that of a sweep with the setting in force; neither `sweep` nor `apply` carries it out."""
    sweep, assume = ("sweep", *what_if_places, *logs), ("--assume", "m*s.retention.ms=5d")
    assumed = tierctl(*sweep, *assume, "-o", "json")
    (tmp_path / "plan.json").write_text(assumed.out)
    assert (assumed.code, "--apply would refuse this: settings of --assume" in assumed.err) == (0, True)
    for last in (("--apply",), ("--plan-out", tmp_path / "plan")):
        ran = tierctl(*sweep, *assume, *last)
        assert (ran.code, f"{last[0]} excludes it" in ran.err) == (2, True), ran.err
    ran = tierctl("apply", *what_if_places[:6], *logs, "--apply", tmp_path / "plan.json")
    assert (ran.code, "--assume" in ran.err) == (2, True), ran.err
    present = tierctl(*sweep, "-o", "json").json["steps"]
    (tmp_path / "configs").write_text(CHANGES.replace("864000000", "432000000"))
    assert assumed.json["steps"] == tierctl(*sweep, "-o", "json").json["steps"]
    assert len(assumed.json["steps"]) > len(present)


def test_only_the_tables_need_deltalake(
    what_if_places: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/pipeline/test_warehouse_changes.py tests that the modules do not import it."""
    monkeypatch.setitem(sys.modules, "deltalake", None)
    change = (*what_if_places, "--what-if", "*.retention.ms=36h")
    assert changes(*change)
    refused = tierctl("report", *change, "--warehouse", tmp_path)
    assert refused.code == ExitCode.USAGE
    assert "deltalake, which is not installed" in refused.err
    assert "pip install tierctl[pipeline]" in refused.err


def test_costs_are_those_of_gigabytes_and_thousands(what_if_places: tuple[object, ...]) -> None:
    change = (*what_if_places, "--what-if", "*.retention.ms=36h")
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
        assert both["(total)"][name] == pytest.approx(sum(each), abs=1e-3 if name.endswith("_cost") else 0), (
            name
        )
    assert changes(*change)["orders"]["now_cost"] is None


@pytest.fixture
def across_epoch(capture: Capture) -> tuple[object, ...]:
    root = capture("delete-across-epoch")
    where = ("--metadata", root / "before", "--remote", root / "before-remote", "--log-dir", root / "before")
    return (*where, "--topic-configs", root / "topics.properties")


def test_a_total_of_costs_is_that_of_the_bytes_and_no_cost_is_rounded_to_0(
    across_epoch: tuple[object, ...],
) -> None:
    asked = ("--now", 1795593154301, "--what-if", "*.retention.ms=2d", "--price-per-gb-month", "0.023")
    found = changes(*across_epoch, *asked)
    for row in found.values():
        for when in ("now", "later"):
            exact = row[f"{when}_bytes"] / 2**30 * 0.023
            assert row[f"{when}_cost"] == pytest.approx(exact, abs=5e-5)
            assert (row[f"{when}_cost"] > 0) == (exact > 0)
    assert 0 < found["aged"]["later_cost"] < 5e-5


def test_a_total_is_not_known_if_that_of_a_topic_with_a_log_is_not(across_epoch: tuple[object, ...]) -> None:
    found = changes(*across_epoch, "--now", 1795333954301, "--what-if", "aged.retention.ms=3d")
    later = {topic: row["local_later_bytes"] for topic, row in found.items()}
    assert None in (size for topic, size in later.items() if topic != "(total)")
    assert later["(total)"] is None
    assert found["(total)"]["local_now_bytes"] > 0


def test_what_is_not_known_is_null_and_never_0(
    what_if_places: tuple[object, ...], logs: tuple[object, ...]
) -> None:
    without_tier = changes(
        *what_if_places[:2], *what_if_places[4:], *logs, "--what-if", "orders.local.retention.ms=1h"
    )
    assert without_tier["orders"]["now_objects"] is without_tier["orders"]["now_requests"] is None
    assert 0 < without_tier["orders"]["local_changed_bytes"] <= without_tier["orders"]["local_now_bytes"]
    ran = tierctl("report", *what_if_places, "--what-if", "orders.local.retention.ms=1h", "-o", "json")
    assert {row[f"local_{when}_bytes"] for row in ran.json for when in ("now", "later")} == {None}
    assert "not known without --log-dir" in ran.err
    assert "it is unknown without a cluster which consumer groups would lose records" in ran.err
    # retention.bytes needs the size of the local log, and no --log-dir is given.
    by_size = changes(*what_if_places, "--what-if", "orders.retention.bytes=1M", code=ExitCode.PARTIAL)
    assert by_size["orders"]["changed_bytes"] is by_size["(total)"]["changed_bytes"] is None
    assert by_size["orders"]["undecided_partitions"] == by_size["orders"]["partitions"]
    assert by_size["metrics"]["changed_bytes"] == by_size["metrics"]["now_bytes"]
    # All segments are from the same minute.
    young = (*what_if_places[:-1], "2026-11-22T06:00:00Z", *logs, "--what-if", "orders.retention.ms=1d")
    ran = tierctl("report", *young, "-o", "json")
    rows = {row["topic"]: row for row in ran.json}
    assert rows["orders"]["later_bytes"] is rows["orders"]["growth_bytes_per_day"] is None
    assert rows["orders"]["changed_bytes"] is not None
    assert "less than a day of history: the growth of " in ran.err


def test_a_retention_that_nobody_stated_is_named(what_if_places: tuple[object, ...], tmp_path: Path) -> None:
    """A retention that is not stated deletes nothing in sweep, but brokers use their default."""
    asked = ("report", *what_if_places, "--topic", "orders", "--what-if", "orders.retention.bytes=-1")
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


def test_a_glob_changes_each_topic_and_a_later_change_wins(what_if_places: tuple[object, ...]) -> None:
    glob = changes(*what_if_places, "--what-if", "*.retention.ms=1d", "--what-if", "orders.retention.ms=-1")
    assert {topic for topic, row in glob.items() if row["changed_segments"]} == {"orders", "(total)"}
    one = changes(*what_if_places, "--what-if", "*.retention.ms=1d", "--topic", "orders")
    assert one.keys() == {"orders", "(total)"}


WRONG_CHANGES = {
    "orders.retention.ms": ("the value is missing", "expected TOPIC.SETTING=VALUE"),
    "orders.segment.bytes=1": ("the effect of segment.bytes can't be calculated", "takes retention.ms"),
    "order.retention.ms=7d": ("no selected topic has the name order", 'mean "orders"?'),
    "orders.retention.ms=7y": ("--what-if: retention.ms: not a duration: '7y'", "7d"),
    "orders.retention.bytes=7d": ("--what-if: retention.bytes: '7d' is no number of bytes", "50M"),
    "orders.retention.ms=-2": ("is not a whole number of at least -1", ""),
    "orders.local.retention.ms=8d": ("Kafka refuses this change of topic orders", "lower"),
}


@pytest.mark.parametrize("change", WRONG_CHANGES)
def test_a_wrong_change_is_refused(change: str, what_if_places: tuple[object, ...]) -> None:
    message, hint = WRONG_CHANGES[change]
    ran = tierctl("report", *what_if_places, "--what-if", change)
    assert (ran.code, ran.out) == (ExitCode.USAGE, "")
    assert message in ran.err
    assert hint in ran.err


def test_the_largest_price_has_a_cost_for_any_size() -> None:
    largest = Prices(per_gb_month=1e12, per_1000_requests=1e12)
    cost = largest.cost(Holding(log_bytes=1 << 80), 1 << 63)
    assert cost is not None
    assert isfinite(cost)


PRICED = ("--what-if", "orders.retention.ms=1d")


@pytest.mark.parametrize(
    "words",
    [
        (*PRICED, "--price-per-gb-month", "-1"),
        (*PRICED, "--price-per-gb-month", "nan"),
        (*PRICED, "--price-per-gb-month", "1e308"),
        (*PRICED, "--price-per-1000-requests", "inf"),
        (*PRICED, "--price-per-1000-requests", "1000000000001"),
        (*PRICED, "--html", "x.html"),
        ("--html", "x.html", "--columns", "topic"),
        ("--html", "x.html", "--sort", "topic"),
        ("--html", "x.html", "--limit", "5"),
        (*PRICED, "--show", "sizes"),
        ("--price-per-gb-month", "1"),
        ("--show", "groups"),
    ],
)
def test_wrong_prices_and_options_that_exclude_each_other(
    words: tuple[str, ...], what_if_places: tuple[object, ...]
) -> None:
    ran = tierctl("report", *what_if_places, *words)
    assert (ran.code, ran.out, words[-2] in ran.err) == (ExitCode.USAGE, "", True), ran.err
