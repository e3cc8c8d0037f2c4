"""Read the examples of every command from examples.toml."""

import tomllib
from pathlib import Path

from tierctl.cli.help.node import Example

_FILE = Path(__file__).with_name("examples.toml")


def examples() -> dict[str, tuple[Example, ...]]:
    """Return the examples of each command by the words after `tierctl`."""
    tables = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {
        path: tuple(Example(text=text, command=command) for text, command in table.items())
        for path, table in tables.items()
    }
