"""All options that take a time accept the same forms, also relative times that begin with a dash."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.cli.help.node import load_commands

from tests.cli.shell import tierctl

TIMES = {"--now", "--time", "--from-time", "--to-time", "--until"}
RESTORE = "restore --materialise --topic orders --as-id AAAAAAAAAAAAAAAAAAAAAQ --log-dir {tmp}"


@pytest.mark.parametrize("time", ["2026-11-21T10:30:00Z", "1795257000000", "-1h", "3000d", "now"])
@pytest.mark.parametrize(
    "line",
    [
        "segments --sizes --now",
        "verify --now",
        "format --max-messages 1 --to-time",
        "fetch --remote {root}/before-remote --max-records 1 --to-time",
    ],
)
def test_every_form_is_accepted(line: str, time: str, capture: Callable[[str], Path]) -> None:
    root = capture("tiered-cluster")
    command, *args = line.format(root=root).split()
    ran = tierctl(command, "--metadata", root / "before", *args, time)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("time", ["2026-11-21T10:30:00Z", "1795257000000", "-1h", "3000d"])
@pytest.mark.parametrize(
    "line",
    [
        "segments --metadata {root}/before --time",
        "explain orders 0 --metadata {root}/before --log-dir {root}/before --time",
        f"{RESTORE} --remote {{root}}/before-remote --until",
    ],
)
def test_every_form_finds_something_or_nothing(
    line: str, time: str, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    """No record is from the last hour."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=new\n")
    ran = tierctl(*line.format(root=capture("tiered-cluster"), tmp=tmp_path).split(), time)
    assert ran.code in {0, 10}, ran.err
    assert bool(ran.out) is (ran.code == 0)


@pytest.mark.parametrize("time", ["noon", "-5"])
def test_others_are_refused_with_the_forms(time: str, capture: Callable[[str], Path]) -> None:
    ran = tierctl("segments", "--metadata", capture("tiered-cluster") / "before", "--now", time)
    assert (ran.code, ran.out) == (2, "")
    assert "-2h" in ran.err


def test_every_option_of_a_time_says_what_it_accepts() -> None:
    options = [option for node in load_commands().walk() for option in node.options]
    found = [option for option in options if "TIME" in (option.metavar or "").split("|")]
    assert {name for option in found for name in option.names} == TIMES
    assert not [each for each in options if TIMES & {*each.names} and each not in found]
    for option in found:
        assert "-2h" in option.help or "--to-time" in option.names
