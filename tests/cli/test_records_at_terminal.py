"""`fetch` and `format` print a table that fits the terminal, unless an option asks for another format."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import at_terminal

WIDTH = 80


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
    ran = at_terminal(name, *where, *options)
    lines = ran.lines
    assert ran.code == 0, ran.raw_err
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
    ran = at_terminal("fetch", *where, *options.split(), "--no-header")
    assert len(ran.lines) >= count
    assert ("a terminal shows 20 records, --limit N more" in ran.raw_err) is (count == 20)
    assert (len(ran.lines) == count) is (count < 600)


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
    ran = at_terminal("fetch", *where, *options.split())
    assert (ran.code, ran.out) == (2, "")
    assert [hint in ran.raw_err for hint in hints] == [True] * len(hints)
    if "--index" in options:
        assert len(at_terminal("fetch", *where, *options.split(), "--output", "table").lines) > 1


@pytest.mark.parametrize(("options", "rows"), [([], 6), (["--all"], 9)])
def test_findings_of_a_partition_are_one_row(
    options: list[str], rows: int, capture: Callable[[str], Path]
) -> None:
    """Each hint is printed once for its kind, and every finding is counted."""
    root = capture("tiered-cluster")
    where = ["--metadata", str(root / "before"), "--log-dir", str(root / "after")]
    ran = at_terminal("verify", *where, *options)
    lines = ran.lines
    assert ran.code == 3, ran.raw_err
    assert sum(line.startswith(("warning ", "info ")) for line in lines) == rows
    text = " ".join(" ".join(lines).split())
    assert text.count("fix: ") == 2
    assert ("; 2 more like this, see --all" in text) is not bool(options)
    assert ": 2 problems of 1 topic: 2 warning; 7 info" in ran.raw_err
