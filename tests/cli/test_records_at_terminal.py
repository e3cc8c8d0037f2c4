"""`fetch` and `format` print a table that fits the terminal, unless an option asks for another format."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import environment

WIDTH = 80


def at_terminal(args: list[str], errors: list[str] | None = None, *, code: int = 0) -> list[str]:
    """Run tierctl with a pseudo-terminal of 80 columns as stdout; return the lines that it prints there.

    Its stderr is appended to `errors`.
    """
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tierctl", *args],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=environment(TERM="dumb", COLUMNS=str(WIDTH)),
    )
    os.close(theirs)
    printed = b""
    try:
        while data := os.read(ours, 1 << 16):
            printed += data
    except OSError:
        # The terminal is closed when the process ends.
        pass
    os.close(ours)
    _, said = process.communicate()
    assert process.returncode == code, said.decode()
    if errors is not None:
        errors.append(said.decode())
    return printed.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize(
    ("command", "headings"),
    [
        (
            "fetch --topic clicks --partition 0 --limit 3",
            ["topic", "partition", "offset", "time"],
        ),
        ("fetch --topic clicks --limit 3 --columns offset,value", ["offset", "value"]),
        ("format --limit 3", ["metadata_offset", "topic", "partition", "start", "end", "state"]),
        ("format --limit 3 --sep ;", None),
        ("fetch --topic clicks --limit 3 --output jsonl", None),
    ],
)
def test_the_default_at_a_terminal(
    command: str, headings: list[str] | None, capture: Callable[[str], Path]
) -> None:
    root = capture("tiered-cluster")
    where = ["--metadata", str(root / "before")]
    if command.startswith("fetch"):
        where += ["--remote", str(root / "before-remote")]
    name, *options = command.split()
    lines = at_terminal([name, *where, *options])
    if headings is None:
        assert len(lines) == 3
        assert not lines[0].startswith(("topic", "metadata_offset"))
    else:
        assert len(lines) == 4
        assert lines[0].split()[: len(headings)] == headings
        assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ("--topic orders --output jsonl", 20),
        ("--topic orders --partition 0 --until 45", 45),
        ("--topic orders --partition 0 --sort -offset", 600),
    ],
)
def test_a_terminal_shows_20_records(options: str, count: int, capture: Callable[[str], Path]) -> None:
    root = capture("tiered-cluster")
    where = ["--metadata", str(root / "before"), "--remote", str(root / "before-remote")]
    said: list[str] = []
    lines = at_terminal(["fetch", *where, *options.split(), "--no-header"], said)
    assert len(lines) >= count
    assert ("a terminal shows 20 records, --limit N more" in "".join(said)) is (count == 20)
    assert (len(lines) == count) is (count < 600)


@pytest.mark.parametrize(
    ("options", "hints"),
    [
        ("--topic payments --partition 0 --offset 100 --index offset", ("--output table", "--out", "pipe")),
        ("--raw-segment AAAAAAAAAAAAAAAAAAAAEA", ("--out", "pipe")),
    ],
)
def test_a_terminal_gets_no_raw_bytes(
    options: str, hints: tuple[str, ...], capture: Callable[[str], Path]
) -> None:
    root = capture("tiered-cluster")
    where = ["--metadata", str(root / "before"), "--remote", str(root / "before-remote")]
    said: list[str] = []
    assert at_terminal(["fetch", *where, *options.split()], said, code=2) == []
    assert [hint in said[0] for hint in hints] == [True] * len(hints)
    if "--index" in options:
        assert len(at_terminal(["fetch", *where, *options.split(), "--output", "table"])) > 1


@pytest.mark.parametrize(("options", "rows"), [([], 6), (["--all"], 9)])
def test_findings_of_a_partition_are_one_row(
    options: list[str], rows: int, capture: Callable[[str], Path]
) -> None:
    """Each hint is printed once for its kind, and every finding is counted."""
    root = capture("tiered-cluster")
    where = ["--metadata", str(root / "before"), "--log-dir", str(root / "after")]
    said: list[str] = []
    lines = at_terminal(["verify", *where, *options], said, code=3)
    assert sum(line.startswith(("warning ", "info ")) for line in lines) == rows
    text = " ".join(" ".join(lines).split())
    assert text.count("fix: ") == 2
    assert ("; 2 more like this, see --all" in text) is not bool(options)
    assert ": 2 problems of 1 topic: 2 warning; 7 info" in said[0]
