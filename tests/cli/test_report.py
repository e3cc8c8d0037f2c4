"""`report` on captured data: its figures equal those of other commands, and the page is written."""

import re
import stat
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import ExitCode
from tierctl.report import printable
from tierctl.report.html_page import findings_section, text

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


def test_expirations_are_those_of_explain(where: tuple[object, ...]) -> None:
    due = rows("report", *where, "--show", "expirations")
    assert [row["due_ms"] for row in due] == sorted(row["due_ms"] for row in due)
    explained = {}
    for topic, partition in {(row["topic"], row["partition"]) for row in due}:
        for row in rows("explain", topic, partition, *where):
            if row["next_action"] == "delete" or row["expires_at_ms"] is not None:
                explained[row["segment_id"]] = row["expires_at_ms"]
    assert {row["segment_id"] for row in due} == explained.keys()
    now_ms = 1795348800000
    assert all(row["due_ms"] == (explained[row["segment_id"]] or now_ms) for row in due)
    assert {row["due_ms"] == now_ms for row in due} == {True, False}


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
    assert tierctl(*command).code == 0
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
    assert ran.code == ExitCode.USAGE
    assert "tierctl report did not write" in ran.err
    assert page.read_text() == "<title>Ours</title>"
    page.write_text("")
    assert tierctl(*command).code == 0
    assert page.read_bytes() == first


def test_a_link_stays_a_link(where: tuple[object, ...], tmp_path: Path) -> None:
    link = tmp_path / "index.html"
    link.symlink_to(tmp_path / "tier.html")
    for _ in range(2):
        assert tierctl("report", *where, "--html", link).code == 0
    assert link.is_symlink()
    assert "tierctl report" in (tmp_path / "tier.html").read_text()


WRONG = {
    "folder": ("{tmp}", "is a folder"),
    "no folder": ("{tmp}/none/tier.html", "does not exist"),
    "device": ("/dev/null", "is not a regular file"),
    "other file": ("{tmp}/configs", "did not write"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_cannot_be_replaced_ends_the_run_at_once(
    wrong: str, where: tuple[object, ...], tmp_path: Path
) -> None:
    name, said = WRONG[wrong]
    # The metadata topic does not exist, and is not read.
    ran = tierctl("report", *where[2:], "--metadata", "/none", "--html", name.format(tmp=tmp_path))
    assert ran.code == ExitCode.USAGE
    assert said in ran.err
    assert "hint:" in ran.err


def test_the_page_says_what_it_did_not_check(where: tuple[object, ...], tmp_path: Path) -> None:
    page = tmp_path / "tier.html"
    tierctl("report", *where, "--html", page)
    assert "without --remote only metadata and logs were" in page.read_text()
    assert "no settings are known for this topic" in page.read_text()


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


@pytest.mark.parametrize("changes", [{}, {"findings": [], "finding_counts": {}}], ids=["findings", "none"])
def test_copies_that_stopped_stand_with_the_findings(changes: dict[str, Any]) -> None:
    made = content(hostile_rows(), **changes)
    shown = findings_section(made)
    assert made.stopped
    assert all(f"<p>Copies wait for an operator: {text(line)}</p>" in shown for line in made.stopped)
    assert ("findings-list" in shown) == bool(made.findings)
