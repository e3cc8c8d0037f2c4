"""What every command says about the copies that a real broker's store refused, and that it withdrew."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.errors import ExitCode
from tierctl.model.times import iso_utc

from tests.cli.shell import rows, tierctl

Capture = Callable[..., Path]
NOW = ("--now", "2026-11-27T04:10:00Z")
"""Two minutes after the capture: the copy that the restart of the broker cut off is not dangling yet."""


@pytest.fixture
def root(capture: Capture) -> Path:
    return capture("failing-copies", "4.4.0")


def attempts(root: Path) -> int:
    """Return how many segments of orders-1 Kafka's own tool shows as begun and never finished."""
    dump = (root / "answers" / "failing.txt").read_text()
    lines = [line for line in dump.splitlines() if ":orders-1, id=" in line]
    ids = {
        state: {re.findall(r", id=([\w-]{22})", line)[0] for line in lines if f"state={state}" in line}
        for state in ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED")
    }
    return len(ids["DELETE_SEGMENT_STARTED"] - ids["COPY_SEGMENT_FINISHED"])


def test_while_they_fail(root: Path, tmp_path: Path) -> None:
    where = ("--metadata", root / "failing", *NOW)
    said = re.compile(
        rf"{attempts(root)} attempts to copy the log from offset 1000 on failed since "
        r"2026-11-27T04:06:\d\dZ, the last one begun at 2026-11-27T04:\d\d:\d\dZ by broker 7\Z"
    )
    for words in (("status", "--show", "problems"), ("verify",)):
        all_found = rows(*words, *where, code=ExitCode.PARTIAL)
        (found,) = [each for each in all_found if each["severity"] != "info"]
        assert (found["check"], found["severity"], found["subject"]) == (
            "failing_copies",
            "warning",
            "orders-1",
        )
        assert said.match(found["found"])
        assert "in the log of broker 7" in found["fix"]
    metrics = tmp_path / "tierctl.prom"
    (topic,) = rows("status", *where, "--metrics-file", metrics, code=ExitCode.PARTIAL)
    assert (topic["failing_copies"], topic["problems"]) == (1, 1)
    text = metrics.read_text()
    assert f'tierctl_tier_failed_copies{{topic="orders"}} {attempts(root)}.0\n' in text
    (since_s,) = re.findall(r'failing_since_timestamp_seconds\{topic="orders"\} (\S+)\n', text)
    assert iso_utc(round(float(since_s) * 1000)).startswith("2026-11-27T04:06:")
    assert 'tierctl_verify_findings{kind="failing_copies",severity="warning"} 1.0\n' in text
    rows("report", *where, code=ExitCode.PARTIAL)
    explained = tierctl("explain", "orders", 1, *where)
    assert explained.code == ExitCode.PARTIAL
    assert f"orders-1: {attempts(root)} attempts to copy the log from offset 1000 on failed" in explained.err
    assert tierctl("explain", "orders", 0, *where).code == ExitCode.OK
    checked = tierctl("segments", "--check", *where)
    assert checked.code == ExitCode.PARTIAL
    assert "failing_copies" in checked.out


def test_after_they_succeeded(root: Path, tmp_path: Path) -> None:
    where = ("--metadata", root / "healed", *NOW)
    metrics = tmp_path / "tierctl.prom"
    (topic,) = rows("status", *where, "--metrics-file", metrics, code=ExitCode.OK)
    assert (topic["failing_copies"], topic["problems"]) == (0, 0)
    text = metrics.read_text()
    assert 'tierctl_tier_failed_copies{topic="orders"} 0.0\n' in text
    assert "failing_since_timestamp_seconds{" not in text
    assert {each["severity"] for each in rows("verify", *where, code=ExitCode.OK)} == {"info"}
    assert rows("report", *where, code=ExitCode.OK)


@pytest.mark.parametrize(("moment", "copied", "deleted"), [("failing", 4, 0), ("healed", 6, 2)])
def test_growth_counts_only_what_was_copied(moment: str, copied: int, deleted: int, root: Path) -> None:
    ran = tierctl("report", "--metadata", root / moment, "--show", "growth", "--output", "json")
    (day,) = json.loads(ran.out)
    dump = (root / "answers" / f"{moment}.txt").read_text()
    ids = {
        state: set(re.findall(rf", id=([\w-]{{22}})\}}.*state={state}", dump))
        for state in ("COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_FINISHED")
    }
    assert len(ids["COPY_SEGMENT_FINISHED"]) == copied == day["copied_segments"]
    assert len(ids["DELETE_SEGMENT_FINISHED"] & ids["COPY_SEGMENT_FINISHED"]) == deleted
    assert len(ids["DELETE_SEGMENT_FINISHED"]) > 20
    sizes = dict(re.findall(r", id=([\w-]{22})\}, .*segmentSizeInBytes=(\d+)", dump))
    gone = ids["DELETE_SEGMENT_FINISHED"] & ids["COPY_SEGMENT_FINISHED"]
    assert (day["deleted_segments"], day["deleted_bytes"]) == (
        deleted,
        sum(int(sizes[each]) for each in gone),
    )
