"""Every option that takes a time or a duration accepts the same forms, also times that begin with a dash."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.cli.docs.messages import command_tree

from tests.cli.shell import tierctl

TIMES = {"--now", "--time", "--from-time", "--to-time", "--until"}


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("segments --sizes --now", "2026-11-21T10:30:00Z"),
        ("segments --sizes --now", "1795257000000"),
        ("verify --now", "-1h"),
        ("format --limit 1 --to-time", "-3000d"),
        ("fetch --remote {root}/before-remote --limit 1 --to-time", "now"),
    ],
)
def test_every_form_is_accepted(line: str, time: str, capture: Callable[[str], Path]) -> None:
    root = capture("tiered-cluster")
    command, *args = line.format(root=root).split()
    ran = tierctl(command, "--metadata", root / "before", *args, time)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("time", ["noon", "-5"])
def test_others_are_refused_with_the_forms(time: str, capture: Callable[[str], Path]) -> None:
    ran = tierctl("segments", "--metadata", capture("tiered-cluster") / "before", "--now", time)
    assert (ran.code, ran.out) == (2, "")
    assert "-2h" in ran.err


def test_every_option_of_a_time_says_what_it_accepts() -> None:
    options = [option for node in command_tree().walk() for option in node.options]
    found = [option for option in options if "TIME" in (option.metavar or "").split("|")]
    assert {name for option in found for name in option.names} == TIMES
    # fetch and format end before an offset, restore before a time.
    others = [each for each in options if TIMES & {*each.names} and each not in found]
    assert {each.names for each in others} == {("--until",)}
    for option in found:
        assert "-2h" in option.help or "--to-time" in option.names


DURATIONS = [
    ("--copy-limit", "status"),
    ("--election-timeout", "restore check"),
    ("--interval", "delete"),
    ("--interval", "format"),
    ("--interval", "pipeline run"),
    ("--lock-timeout", "segments"),
    ("--max-age", "apply {tmp}/none.json"),
    ("--orphan-age", "verify"),
    ("--watch", "status"),
]
"""The options whose values are durations, each with a command."""
NAMES_OF_DURATIONS = re.compile(r"-(ms|s|timeout|interval|age|watch|wait|delay|seconds|days)\Z")


def test_every_option_of_a_duration_says_what_it_accepts() -> None:
    options = [option for node in command_tree().walk() for option in node.options]
    found = [option for option in options if "DURATION" in (option.metavar or "")]
    names = {name for name, _ in DURATIONS}
    assert {name for option in found for name in option.names} == names
    for option in found:
        assert "500ms, 90s, 1h30m, 7d, or PT90S (ISO 8601)" in option.help, option.names
    # The console consumer's option has its unit in its name.
    others = {name for option in options for name in option.names} - names - {"--timeout-ms"}
    assert not [name for name in others if NAMES_OF_DURATIONS.search(name)]


@pytest.mark.parametrize(("option", "words"), DURATIONS)
def test_every_form_of_a_duration_is_accepted(option: str, words: str, tmp_path: Path) -> None:
    command = words.format(tmp=tmp_path).split()
    for duration in ("2s", "PT2S", "25", "+30", "soon"):
        ran = tierctl(*command, "--metadata", tmp_path / "none", f"{option}={duration}", cwd=tmp_path)
        is_refused = f"{option}: not a duration: {duration!r}" in ran.err
        assert is_refused is (duration in {"25", "+30", "soon"}), ran.err
        assert ("a unit is missing: 25s or 25ms" in ran.err) is (duration == "25")


@pytest.mark.parametrize(
    ("command", "option", "value", "bounds"),
    [
        ("format", "--interval", "9ms", "from 10 to 60000"),
        ("format", "--interval", "2m", "from 10 to 60000"),
        ("pipeline run", "--interval", "500ms", "at least 1"),
        ("status", "--watch", "PT0.05S", "at least 0.1"),
    ],
)
def test_a_duration_out_of_bounds_is_refused(command: str, option: str, value: str, bounds: str) -> None:
    ran = tierctl(*command.split(), option, value)
    assert ran.code == 2
    assert f"'{option}': {value} is not {bounds}" in ran.err
