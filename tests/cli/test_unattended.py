"""Runs at a terminal, which is asked before a delete, and runs without an operator: log file, disk, lock."""

import fcntl
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import answered, environment, tierctl

Capture = Callable[[str], Path]


@pytest.fixture
def sweep(tier: list[str]) -> list[str]:
    return ["sweep", *tier]


def entries(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_log_file_has_every_message_whatever_is_printed(sweep: list[str], tmp_path: Path) -> None:
    file = tmp_path / "tierctl.log"
    quiet = tierctl(*sweep, "--quiet", "--log-file", file, "--log-format", "json")
    assert (quiet.code, quiet.err) == (0, "")
    found = entries(file)
    assert {entry["command"] for entry in found} == {"sweep"}
    assert [entry["level"] for entry in found if "sweep: nothing to do" in str(entry["message"])] == ["info"]
    assert any(
        entry["level"] == "debug" and str(entry["message"]).startswith("metadata topic: ") for entry in found
    )
    assert found[-1]["exit_code"] == 0


def test_a_log_of_text_goes_on_where_it_ended(sweep: list[str], tmp_path: Path) -> None:
    file = tmp_path / "tierctl.log"
    failed = tierctl("--log-file", file, *sweep, "--topic", "absent", "-o", "json")
    assert failed.code == 10
    error = [line for line in file.read_text().splitlines() if " ERROR sweep[" in line]
    assert len(error) == 1
    assert 'unknown topic "absent" code=10 kind="NotFoundError" hint="known topics' in error[0]
    before = file.read_text()
    assert tierctl(*sweep, "--log-file", file).code == 0
    assert file.read_text().startswith(before)


def test_after_a_rename_the_next_message_is_in_a_new_file(tmp_path: Path) -> None:
    from tierctl.report.console import LogFile

    log = LogFile(tmp_path / "log")
    log.write("info", "first")
    (tmp_path / "log").rename(tmp_path / "log.1")
    log.write("warning", "second\nline")
    assert (tmp_path / "log.1").read_text().endswith(": first\n")
    assert (tmp_path / "log").read_text().count("\n") == 1


def test_a_full_disk_loses_the_log_and_not_the_run(sweep: list[str], tmp_path: Path) -> None:
    file, size_bytes = tmp_path / "log", 1 << 24
    file.write_text("2026-01-01T before\n")
    os.truncate(file, size_bytes)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        ran = tierctl(*sweep, "--log-file", file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ran.code == 0
    assert "sweep: nothing to do" in ran.raw_err
    assert f"--log-file {file}: some messages could not be written: File too large" in ran.raw_err


def test_what_is_typed_wins_over_the_environment_wherever_it_stands(sweep: list[str], tmp_path: Path) -> None:
    env = environment(TIERCTL_LOG_FILE=str(tmp_path / "env"))
    assert tierctl("--log-file", tmp_path / "before", *sweep, env=env).code == 0
    assert tierctl(*sweep, "--log-file", tmp_path / "after", env=env).code == 0
    assert "nothing to do" in (tmp_path / "before").read_text()
    assert "nothing to do" in (tmp_path / "after").read_text()
    assert "nothing to do" not in (tmp_path / "env").read_text()
    assert tierctl(*sweep, env=env).code == 0
    assert "nothing to do" in (tmp_path / "env").read_text()


def test_a_run_waits_for_the_lock_of_another_one(where: list[str], tmp_path: Path) -> None:
    """tests/cli/test_schedule.py has a run that does not wait."""
    state = tmp_path / "state"
    state.mkdir()
    words = ("sweep", *where, "--apply", "--state-dir", state, "--lock-timeout", "90s")
    command = [sys.executable, "-m", "tierctl", *words]
    with (state / ".tierctl-state.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment()
        ) as run:
            assert run.stderr is not None
            said = run.stderr.readline()
            assert b"is being written by another tierctl; waiting for it, at most 1m30s" in said
            assert run.poll() is None
            fcntl.flock(held, fcntl.LOCK_UN)
            rest = run.stderr.read()
            assert run.wait(60) == 0, rest


TOPIC_ID = "C-_VDc3nSdCk0xVcuxBnAA"


@pytest.fixture
def where(writable: Capture) -> list[str]:
    metadata, remote = (writable(f"tiered-cluster/{name}") for name in ("before", "before-remote"))
    return [f"--metadata={metadata}", f"--remote={remote}"]


@pytest.fixture
def line(where: list[str]) -> list[str]:
    """Return a command line that deletes a topic."""
    return ["delete", *where, "--topic-id", TOPIC_ID, "--mark", "--i-know-it-is-deleted", TOPIC_ID, "--apply"]


@pytest.mark.parametrize("is_saved", [False, True])
def test_the_topics_name_is_asked_for(
    is_saved: bool, line: list[str], where: list[str], tmp_path: Path
) -> None:
    if is_saved:
        plan = tmp_path / "plan.json"
        assert tierctl(*line[:-1], "--plan-out", plan).code == 0
        line = ["apply", str(plan), *where, "--i-know-it-is-deleted", TOPIC_ID, "--apply"]
    refused = answered(*line, typed="payment\n")
    assert "type the topic's name to continue: " in refused.raw_err
    assert (refused.code, "done" in refused.out, "not confirmed" in refused.raw_err) == (4, False, True)
    unseen = answered(*line, typed="payments\n", is_redirected=True)
    assert (unseen.code, "done" in unseen.out, "hint: --yes" in unseen.out) == (4, False, True)
    # No event was published, so the plan is the same.
    assert "mark_partition" in tierctl(*line[:-1]).out
    ran = answered(*line, typed="payments\n")
    assert (ran.code, "done" in ran.out) == (0, True), ran.raw_err


def test_yes_answers(line: list[str]) -> None:
    ran = answered(*line, "--yes", typed="")
    assert (ran.code, "done" in ran.out, "continue" in ran.raw_err) == (0, True, False)


def test_without_a_terminal_nothing_is_asked(line: list[str]) -> None:
    ran = tierctl(*line)
    assert (ran.code, "continue" in ran.err) == (0, False)


def test_a_saved_plan_that_deletes_no_topic_is_not_asked_about(
    where: list[str], capture: Capture, tmp_path: Path
) -> None:
    plan, configs = tmp_path / "plan.json", tmp_path / "topics.properties"
    configs.write_text("orders.retention.bytes=1000000\n")
    more = ["--topic-configs", configs, "--log-dir", capture("tiered-cluster") / "before"]
    ran = tierctl("sweep", *where, *more, "--topic", "orders", "--plan-out", plan)
    assert (ran.code, "delete_segment" in ran.out) == (0, True), ran.err
    ran = answered("apply", plan, *where, *more, "--apply", typed="")
    assert (ran.code, "continue" in ran.raw_err) == (0, False), ran.raw_err
