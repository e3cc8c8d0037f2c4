"""TOML with the line of each key, and errors with the line that is not TOML."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.wire.files.properties import parse_toml


def test_every_key_has_its_line() -> None:
    text = 'a=1\r\n\n[p.x]\nb = [\n 1, # one\n 2]\nc="""\nx = 1\n[y]"""\n[p."a b"]\nq={z=1}\n'
    found, problems = parse_toml(text)
    assert [(entry.path, entry.value, entry.line) for entry in found] == [
        (("a",), 1, 1),
        (("p", "x"), {}, 3),
        (("p", "x", "b"), [1, 2], 4),
        (("p", "x", "c"), "x = 1\n[y]", 7),
        (("p", "a b"), {}, 10),
        (("p", "a b", "q", "z"), 1, 11),
    ]
    assert problems == []


@pytest.mark.parametrize(
    ("text", "lines", "keys"),
    [
        ("a=1\nb\nc=3\nd=x\ne=5\n", [2, 4], "ace"),
        ("a=1\nb=2\na=3\n", [3], "ab"),
        ("[t]\na=1\n[t]\nb=2\n", [3], "ab"),
        ('a="x\nb=2\n', [1], "b"),
        ("a=[1,\nb=2\nc=3\n", [1], "bc"),
        ("a=1\na.b=2\nc=3\n", [2], "ac"),
        ("\ufeffa=1\nb=2", [1], "b"),
    ],
)
def test_a_broken_line_hides_no_later_one(text: str, lines: list[int], keys: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    found, problems = parse_toml(text)
    assert [problem.line for problem in problems] == lines
    assert {entry.path[-1] for entry in found} >= set(keys)


def _nested(text: str) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path, value, _ in parse_toml(text).entries:
        table = root
        for key in path[:-1]:
            table = table.setdefault(key, {})
        table.setdefault(path[-1], value)
    return root


_VALUES = st.sampled_from(['"x"', "'[y]'", "3", "true", "[1,\n 2]", '"""\na = 1\n"""', "{k = 1}", '"a#b"'])
_LINES = st.one_of(
    st.tuples(st.sampled_from("abcd"), _VALUES).map(" = ".join),
    st.sampled_from(["", "# note", "[t]", "[u.v]", "  "]),
)


@given(st.lists(_LINES, max_size=8))
def test_values_are_those_of_pythons_own_parser(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assert parse_toml(text).problems
    else:
        assert parse_toml(text).problems == []
        assert _nested(text) == expected
