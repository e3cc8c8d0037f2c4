"""Read the examples of commands from examples.toml, and the questions of operators from questions.toml."""

import re
import textwrap
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

_NO_BREAK = "\0"


class Example(NamedTuple):
    """A command line and a description of what it does."""

    text: str
    command: str


def examples() -> dict[str, tuple[Example, ...]]:
    """Return the examples of each command by the words after `tierctl`; the program has questions."""
    return {"": questions("first")} | {
        path: _examples(table) for path, table in _tables("examples.toml").items()
    }


def questions(*tables: str) -> tuple[Example, ...]:
    """Return the questions in these tables (`first`, `more`), each with the command line that answers it."""
    found = _tables("questions.toml")
    return tuple(each for table in tables for each in _examples(found[table]))


def _tables(name: str) -> dict[str, dict[str, str]]:
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _examples(table: dict[str, str]) -> tuple[Example, ...]:
    return tuple(Example(text=text, command=command) for text, command in table.items())


def command_lines(command: str, width: int) -> Iterator[str]:
    """Yield a command line after a prompt; if it is too long, as several lines that a shell reads as one."""
    most = width - 4

    def joined(pair: re.Match[str]) -> str:
        return _NO_BREAK.join(pair.groups()) if len(pair[0]) <= most else pair[0]

    # An option and its value stay on one line, if they fit.
    text = re.sub(r"(?<= )(--[\w-]+) ([^-\s]\S*)", joined, f"$ {command}")
    lines = textwrap.wrap(text, most, break_long_words=False, break_on_hyphens=False)
    last = len(lines) - 1
    for i, line in enumerate(lines):
        continued = " \\" if i < last else ""
        yield f"{'  ' if i else ''}{line.replace(_NO_BREAK, ' ')}{continued}"
