"""TOML files with the line of each key, which Python's own parser does not report.

A file is parsed statement by statement, so that a malformed line hides no later one.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_VALUE_LINES_MAX = 500
_MAY_GO_ON = re.compile(r'"""|' + "'''" + r"|=\s*\[|[\[,]\s*(#.*)?$")
_LINE = re.compile(r"at line (\d+)")

Path = tuple[str, ...]


class TomlEntry(NamedTuple):
    """A key or a table: its whole path, its value ({} for a table) and its first line, from 1."""

    path: Path
    value: Any
    line: int


class TomlProblem(NamedTuple):
    """A line that is not TOML, or that states a key again; `first_line` stated the key before."""

    line: int
    message: str
    first_line: int | None = None


class TomlFile(NamedTuple):
    """The entries of a file in their order, the first of several with the same path, and its problems."""

    entries: list[TomlEntry]
    problems: list[TomlProblem]


def parse_toml(text: str) -> TomlFile:
    """Return the keys and tables in `text`, and every line that is not TOML."""
    import tomllib

    found: dict[Path, TomlEntry] = {}
    problems: list[TomlProblem] = []
    table: Path = ()
    for line, statement in _statements(text):
        if isinstance(statement, str):
            problems.append(TomlProblem(line, statement))
            continue
        entries = list(_flat(statement.values, ()))
        if statement.is_table:
            table = entries[0][0]
        for path, value in entries:
            whole = path if statement.is_table else table + path
            if whole in found:
                problems.append(TomlProblem(line, f"{'.'.join(whole)} is stated twice", found[whole].line))
            else:
                found[whole] = TomlEntry(whole, value, line)
    if not problems:
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError as e:
            # Here tomllib finds only errors that concern several lines, such as a key that is also a table.
            at = _LINE.search(str(e))
            problems.append(TomlProblem(int(at[1]) if at else 1, f"not TOML: {e}"))
    return TomlFile(list(found.values()), problems)


class _Statement(NamedTuple):
    values: Mapping[str, Any]
    is_table: bool


def _statements(text: str) -> Iterator[tuple[int, _Statement | str]]:
    """Yield each statement with its first line; a message for one that is malformed."""
    lines = re.split("\r?\n", text)
    at = 0
    while at < len(lines):
        length, parsed = _parsed(lines[at : at + _VALUE_LINES_MAX])
        if not isinstance(parsed, _Statement) or parsed.values:
            yield at + 1, parsed
        at += length


def _parsed(lines: list[str]) -> tuple[int, _Statement | str]:
    """Parse the statement at the beginning of `lines`; return its number of lines, 1 for a malformed one."""
    import tomllib

    message = ""
    for length in range(1, len(lines) + 1 if _MAY_GO_ON.search(lines[0]) else 2):
        try:
            values = tomllib.loads("\n".join(lines[:length]))
        except tomllib.TOMLDecodeError as e:
            message = message or re.sub(r" \(at .*\)$", "", str(e))
        else:
            return length, _Statement(values, is_table=lines[0].lstrip().startswith("["))
    return 1, f"not TOML: {message[:1].lower()}{message[1:]}"


def _flat(values: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the path of each value that is no table, or an empty one, with the value."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, (*path, key))
        else:
            yield (*path, key), value
