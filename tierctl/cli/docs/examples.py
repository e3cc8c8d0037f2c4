"""Read the examples of commands from examples.toml, and the questions of operators from questions.toml."""

import tomllib
from pathlib import Path

from tierctl.cli.help.node import Example

_FILE = Path(__file__).with_name("examples.toml")
_QUESTIONS = Path(__file__).with_name("questions.toml")


def examples() -> dict[str, tuple[Example, ...]]:
    """Return the examples of each command by the words after `tierctl`; the program has questions."""
    return {"": questions("first")} | {path: _examples(table) for path, table in _tables(_FILE).items()}


def questions(*tables: str) -> tuple[Example, ...]:
    """Return the questions in these tables (`first`, `more`), each with the command line that answers it."""
    found = _tables(_QUESTIONS)
    return tuple(each for table in tables for each in _examples(found[table]))


def _tables(file: Path) -> dict[str, dict[str, str]]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _examples(table: dict[str, str]) -> tuple[Example, ...]:
    return tuple(Example(text=text, command=command) for text, command in table.items())
