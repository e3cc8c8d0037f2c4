"""Every command refuses a --topic, --partition or --topic-id without a match, and names similar values."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import tierctl

METADATA, REMOTE, LOGS = (
    "--metadata={root}/before",
    "--remote={root}/before-remote",
    "--log-dir={root}/before",
)
COMMANDS = {
    "segments": ("segments", METADATA),
    "segments --all": ("segments", METADATA, "--all"),
    "segments --sizes": ("segments", METADATA, REMOTE, "--sizes"),
    "segments --offsets": ("segments", METADATA, LOGS, "--offsets"),
    "segments --check": ("segments", METADATA, REMOTE, LOGS, "--check"),
    "segments --epoch": ("segments", METADATA, "--epoch", "0", "--offset", "0"),
    "segments --offset": ("segments", METADATA, "--offset", "0"),
    "segments --time": ("segments", METADATA, "--time", "0"),
    "fetch": ("fetch", METADATA, REMOTE),
    "fetch with a log": ("fetch", METADATA, REMOTE, LOGS),
    "fetch --raw-segment": ("fetch", METADATA, REMOTE, "--raw-segment", "AAAAAAAAAAAAAAAAAAAAAQ"),
    "fetch --index": ("fetch", METADATA, REMOTE, "--index", "offset", "--output", "json"),
    "fetch --auxiliary-state": ("fetch", METADATA, REMOTE, "--auxiliary-state", "1000"),
    "format": ("format", METADATA),
    "format by time": ("format", METADATA, "--order", "time"),
    "status": ("status", METADATA),
    "report": ("report", METADATA),
    "verify": ("verify", METADATA),
    "verify with a store": ("verify", METADATA, REMOTE),
    "verify --deep": ("verify", METADATA, REMOTE, LOGS, "--deep"),
    "copy": ("copy", METADATA, REMOTE, LOGS),
    "sweep": ("sweep", METADATA, REMOTE, LOGS),
    "delete": ("delete", METADATA, REMOTE),
    "cache build": ("cache", "build", METADATA, "--out={tmp}/flat"),
}
"""A command line of each command that has a selection; `{root}` is a captured cluster."""

UNKNOWN = {
    "topic": (("--topic", "oders"), 'unknown topic "oders"', "known topics with similar names: orders"),
    "glob": (("--topic", "oders*"), 'no topic matches "oders*"', "similar names: orders"),
    "one of two topics": (("--topic", "orders", "--topic", "none"), 'unknown topic "none"', "known topics"),
    "partition": (
        ("--topic", "orders", "--partition", "7"),
        'topic "orders" has no partition 7',
        'known partitions of topic "orders": 0-2',
    ),
    "named partition": (
        ("--partition", "orders-7"),
        'topic "orders" has no partition 7',
        'known partitions of topic "orders": 0-2',
    ),
    "partition of every topic": (("--partition", "99"), "no selected topic has a partition 99", "0-2"),
    "topic id": (("--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ"), "unknown topic id AAAAAAAAAAAAAAAAAAAAAQ", "("),
}


@pytest.mark.parametrize(
    ("command", "unknown"),
    [*((name, "topic") for name in COMMANDS), *(("segments", each) for each in UNKNOWN if each != "topic")],
)
def test_an_unknown_value_is_not_found(
    command: str, unknown: str, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    args = [arg.format(root=capture("tiered-cluster"), tmp=tmp_path) for arg in COMMANDS[command]]
    selection, message, hint = UNKNOWN[unknown]
    ran = tierctl(*args, *selection)
    assert ran.code == 10
    # format prints records of the known topic before it has read all records.
    assert ran.out == "" or (command.startswith("format") and "orders" in selection)
    assert f"error: {message}" in ran.err
    assert hint in ran.err


@pytest.mark.parametrize("command", ["segments", "fetch", "format", "verify"])
def test_a_partition_by_its_name(command: str, capture: Callable[[str], Path], tmp_path: Path) -> None:
    """orders-1 means partition 1 of the topic orders, as Kafka's tools print it."""
    args = [arg.format(root=capture("tiered-cluster"), tmp=tmp_path) for arg in COMMANDS[command]]
    by_number, by_name = (
        tierctl(*args, *selection)
        for selection in (("--topic", "orders", "--partition", "1"), ("--partition", "orders-1"))
    )
    assert (by_name.code, by_name.out) == (by_number.code, by_number.out)


def test_an_id_with_a_second_spelling_is_refused(capture: Callable[[str], Path], tmp_path: Path) -> None:
    args = [arg.format(root=capture("tiered-cluster"), tmp=tmp_path) for arg in COMMANDS["segments"]]
    ran = tierctl(*args, "--topic-id", "AAAAAAAAAAAAAAAAAAAAAR")
    assert (ran.code, ran.out) == (2, "")
    assert "AAAAAAAAAAAAAAAAAAAAAR" in ran.err


@pytest.mark.parametrize("command", ["segments", "fetch", "format", "verify"])
def test_a_glob_selects_what_the_names_select(
    command: str, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    args = [arg.format(root=capture("tiered-cluster"), tmp=tmp_path) for arg in COMMANDS[command]]
    by_name = tierctl(*args, "--topic", "orders", "--topic", "payments")
    assert tierctl(*args, "--topic", "o*", "--topic", "pay[lm]ents").out == by_name.out
