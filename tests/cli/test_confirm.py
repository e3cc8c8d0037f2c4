"""`delete --apply` at a terminal: it asks for the topic's name, and without a terminal it never waits."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import at_terminal, tierctl_process

TOPIC_ID = "C-_VDc3nSdCk0xVcuxBnAA"


@pytest.fixture
def line(capture: Callable[[str], Path], tmp_path: Path) -> list[str]:
    root = capture("tiered-cluster")
    for name in ("before", "before-remote"):
        shutil.copytree(root / name, tmp_path / name)
    where = [f"--metadata={tmp_path / 'before'}", f"--remote={tmp_path / 'before-remote'}"]
    return ["delete", *where, "--topic-id", TOPIC_ID, "--mark", "--i-know-it-is-deleted", TOPIC_ID, "--apply"]


@pytest.mark.parametrize(("typed", "code"), [("payments\n", 0), ("payment\n", 4)])
def test_the_topics_name_is_asked_for(typed: str, code: int, line: list[str]) -> None:
    ran = at_terminal(*line, typed=typed)
    assert "type the topic's name to continue: " in ran.raw_err
    assert (ran.code, "done" in ran.out) == (code, code == 0), ran.raw_err
    if code:
        assert "not confirmed" in ran.raw_err
        # No event was published, so the plan is the same.
        assert "mark_partition" in tierctl_process(*line[:-1]).out


def test_yes_answers(line: list[str]) -> None:
    ran = at_terminal(*line, "--yes", typed="")
    assert (ran.code, "done" in ran.out, "continue" in ran.raw_err) == (0, True, False)


def test_without_a_terminal_nothing_is_asked(line: list[str]) -> None:
    ran = tierctl_process(*line)
    assert (ran.code, "continue" in ran.err) == (0, False)


@pytest.mark.parametrize(("typed", "code"), [("payments\n", 0), ("payment\n", 4)])
def test_a_saved_plan_is_asked_about(typed: str, code: int, line: list[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert tierctl_process(*line[:-1], "--plan-out", str(plan)).code == 0
    apply = ["apply", str(plan), *line[1:3], "--i-know-it-is-deleted", TOPIC_ID]
    ran = at_terminal(*apply, "--apply", typed=typed)
    assert "type the topic's name to continue: " in ran.raw_err
    assert (ran.code, "done" in ran.out) == (code, code == 0), ran.raw_err
    if code:
        assert at_terminal(*apply, "--apply", "--yes", typed="").code == 0


def test_a_saved_plan_that_deletes_no_topic_is_not_asked_about(line: list[str], tmp_path: Path) -> None:
    plan, configs = tmp_path / "plan.json", tmp_path / "topics.properties"
    configs.write_text("orders.retention.bytes=1000000\n")
    more = ["--topic-configs", str(configs), "--log-dir", str(tmp_path / "before")]
    ran = tierctl_process("sweep", *line[1:3], *more, "--topic", "orders", "--plan-out", str(plan))
    assert (ran.code, "delete_segment" in ran.out) == (0, True), ran.err
    ran = at_terminal("apply", plan, *line[1:3], *more, "--apply", typed="")
    assert (ran.code, "continue" in ran.raw_err) == (0, False), ran.raw_err
