"""TOML files with the line of each key, which Python's own parser does not report.

Python's parser reads the values. One pass over the text finds the line of each statement. A statement that is
malformed is blanked, and the rest is read again, so that it hides no later one.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

_PROBLEMS_MAX = 20
"""Number of malformed statements after which the rest of a file is not read."""
_DOTS_MAX = 32
"""Dots outside of texts on one line: the time of Python's parser grows with the square of a key's parts."""
_AT_LINE = re.compile(r"\(at line (\d+)")
_TOKEN = re.compile(
    r'"""|' + "'''" + r"""|"(?:[^"\\\n]|\\[^\n])*"|'[^'\n]*'|\#[^\n]*|[\[\]{}=\n]|[^"'\#\[\]{}=\n]+|."""
)
_STRING_ENDS = {
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    "'''": re.compile(r"(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
}
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

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
    """Return the keys and tables in `text`, and the statements that are not TOML, at most twenty."""
    import tomllib

    if (long := _long_key(text)) is not None:
        return TomlFile([], [long])
    lines = re.split("\r?\n", text)
    problems: list[TomlProblem] = []
    while True:
        kept = "\n".join(lines)
        statements = list(_statements(kept))
        try:
            return TomlFile(_entries(tomllib.loads(kept), statements), problems)
        except (tomllib.TOMLDecodeError, RecursionError) as e:
            problem, last_line = _problem(e, statements, len(lines))
            problems.append(problem)
            if len(problems) == _PROBLEMS_MAX:
                return TomlFile([], problems)
            lines[problem.line - 1 : last_line] = [""] * (last_line - problem.line + 1)


def _long_key(text: str) -> TomlProblem | None:
    """Return the problem of the first line that has a key of too many parts; None without one."""
    line, dots = 1, 0
    for token in _TOKEN.findall(text):
        line, dots = (line + 1, 0) if token == "\n" else (line, dots)
        dots += 0 if token[0] in "\"'#" else token.count(".")
        if dots > _DOTS_MAX:
            return TomlProblem(line, f"not TOML that is read: a key has more than {_DOTS_MAX} dots")
    return None


class _Statement(NamedTuple):
    first_line: int
    last_line: int
    path: Path | None
    """The whole path of its key or table; None if it has none."""
    is_table: bool
    is_whole: bool
    """Whether all its brackets are closed."""


def _statements(text: str) -> Iterator[_Statement]:
    """Yield each key with its value, and each table, with the lines on which it stands."""
    table: Path = ()
    line, at, depth = 1, 0, 0
    first: tuple[int, int] | None = None
    equals: int | None = None
    while at <= len(text):
        token = text[at : at + 1] if at == len(text) else _TOKEN.match(text, at)[0]  # type: ignore[index]
        if token in {"\n", ""} and first is not None and (not depth or not token):
            path, is_table = _path_of(text[first[1] : at if equals is None else equals], equals, table)
            table = path if is_table and path is not None else table
            yield _Statement(first[0], line, path, is_table, not depth)
            first, equals, depth = None, None, 0
        if not token:
            return
        if first is None and not token.isspace() and not token.startswith("#"):
            first = line, at
        depth = max(depth + (token in "[{") - (token in "]}"), 0)
        equals = at if token == "=" and not depth and equals is None else equals
        line, at = line + (token == "\n"), at + len(token)
        if token in _STRING_ENDS:
            end = _STRING_ENDS[token].match(text, at)
            begin, at = at, len(text) if end is None else end.end()
            line += text.count("\n", begin, at)


def _path_of(text: str, equals: int | None, table: Path) -> tuple[Path | None, bool]:
    """Return the path of the statement that begins with `text`, and whether it is a table."""
    import tomllib

    words, is_table = text.strip(), equals is None
    if not is_table and _BARE_KEY.fullmatch(words):
        return (*table, words), False
    try:
        path = next(_flat(tomllib.loads(words if is_table else f"{words} = 0"), ()))[0]
    except (tomllib.TOMLDecodeError, RecursionError, StopIteration):
        return None, is_table
    return path if is_table else (*table, *path), is_table


def _problem(error: Exception, statements: list[_Statement], line_count: int) -> tuple[TomlProblem, int]:
    """Return the problem that stopped Python's parser, and the last line that must be blanked to go on."""
    at = _AT_LINE.search(str(error))
    line = int(at[1]) if at else line_count
    index = next((i for i, each in enumerate(statements) if each.first_line <= line <= each.last_line), None)
    message = re.sub(r" \(at .*\)$", "", str(error)) or "too many levels"
    text = f"not TOML: {message[:1].lower()}{message[1:]}"
    if index is None:
        return TomlProblem(line, text), line
    found = statements[index]
    before = (each for each in islice(statements, index) if each.path == found.path is not None)
    first = next(before, None)
    if first is not None and found.path is not None:
        text = f"{'.'.join(found.path)} is stated twice"
    known = None if first is None else first.first_line
    # Without its end, the statement seems to have the following ones, too.
    last_line = found.last_line if found.is_whole else max(line - 1, found.first_line)
    return TomlProblem(found.first_line, text, known), last_line


def _entries(values: Mapping[str, Any], statements: list[_Statement]) -> list[TomlEntry]:
    """Return the keys in `values` and the tables of `statements`, in the order of their lines."""
    lines: dict[Path, int] = {}
    found = []
    for each in statements:
        if each.path is not None and each.path not in lines:
            lines[each.path] = each.first_line
            if each.is_table:
                found.append(TomlEntry(each.path, {}, each.first_line))
    for path, value in _flat(values, ()):
        # The keys of an inline table stand on its line.
        stated = next((path[:length] for length in range(len(path), 0, -1) if path[:length] in lines), ())
        if path not in lines or value != {}:
            found.append(TomlEntry(path, value, lines.get(stated, 1)))
    return sorted(found, key=lambda entry: entry.line)


def _flat(values: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the path of each value that is no table, or an empty one, with the value."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, (*path, key))
        else:
            yield (*path, key), value
