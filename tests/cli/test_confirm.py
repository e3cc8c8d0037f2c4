"""`delete --apply` at a terminal: it asks for the topic's name, and without a terminal it never waits."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import environment, tierctl_process

TOPIC_ID = "C-_VDc3nSdCk0xVcuxBnAA"


@pytest.fixture
def line(capture: Callable[[str], Path], tmp_path: Path) -> list[str]:
    root = capture("tiered-cluster")
    for name in ("before", "before-remote"):
        shutil.copytree(root / name, tmp_path / name)
    where = [f"--metadata={tmp_path / 'before'}", f"--remote={tmp_path / 'before-remote'}"]
    return ["delete", *where, "--topic-id", TOPIC_ID, "--mark", "--i-know-it-is-deleted", TOPIC_ID, "--apply"]


def at_terminal(args: list[str], typed: str) -> tuple[int, str, str]:
    """Run tierctl with a pseudo-terminal as stdin and stderr; return its exit code, stdout and stderr."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tierctl", *args],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment(TERM="dumb"),
        text=True,
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        said = ""
        try:
            while data := os.read(ours, 4096):
                said += data.decode()
        except OSError:
            # The terminal is closed when the process ends.
            pass
        assert process.stdout is not None
        out = process.stdout.read()
    os.close(ours)
    return process.returncode, out, said


@pytest.mark.parametrize(("typed", "code"), [("payments\n", 0), ("payment\n", 4), ("\n", 4)])
def test_the_topics_name_is_asked_for(typed: str, code: int, line: list[str]) -> None:
    found, out, said = at_terminal(line, typed)
    assert "type the topic's name to continue: " in said
    assert (found, "done" in out) == (code, code == 0), said
    if code:
        assert "not confirmed" in said
        # No event was published, so the plan is the same.
        assert "mark_partition" in tierctl_process(*line[:-1]).out


def test_yes_answers(line: list[str]) -> None:
    code, out, said = at_terminal([*line, "--yes"], "")
    assert (code, "done" in out, "continue" in said) == (0, True, False)


def test_without_a_terminal_nothing_is_asked(line: list[str]) -> None:
    ran = tierctl_process(*line)
    assert (ran.code, "continue" in ran.err) == (0, False)


@pytest.mark.parametrize(("typed", "code"), [("payments\n", 0), ("payment\n", 4)])
def test_a_saved_plan_is_asked_about(typed: str, code: int, line: list[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert tierctl_process(*line[:-1], "--plan-out", str(plan)).code == 0
    apply = ["apply", str(plan), *line[1:3], "--i-know-it-is-deleted", TOPIC_ID]
    found, out, said = at_terminal([*apply, "--apply"], typed)
    assert "type the topic's name to continue: " in said
    assert (found, "done" in out) == (code, code == 0), said
    if code:
        assert at_terminal([*apply, "--apply", "--yes"], "")[0] == 0


def test_a_saved_plan_that_deletes_no_topic_is_not_asked_about(line: list[str], tmp_path: Path) -> None:
    plan, configs = tmp_path / "plan.json", tmp_path / "topics.properties"
    configs.write_text("orders.retention.bytes=1000000\n")
    more = ["--topic-configs", str(configs), "--log-dir", str(tmp_path / "before")]
    ran = tierctl_process("sweep", *line[1:3], *more, "--topic", "orders", "--plan-out", str(plan))
    assert (ran.code, "delete_segment" in ran.out) == (0, True), ran.err
    found, _, said = at_terminal(["apply", str(plan), *line[1:3], *more, "--apply"], "")
    assert (found, "continue" in said) == (0, False), said
