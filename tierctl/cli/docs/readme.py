"""Write the tables of README.md: a command for each question, and the engines of each command."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tierctl.cli.examples import questions
from tierctl.model.engine import WITHOUT_ENGINE, WORK_ON_EXECUTORS, EngineName, engines_of

README: Final = Path(__file__).parents[3] / "README.md"
BEGIN: Final = "<!-- The table to the next mark is written by `make docs` from {source}. -->"
END: Final = "<!-- The end of the table. -->"


def readme() -> str:
    """Return the text of README.md with the current tables. Raises RuntimeError if it lacks their marks."""
    text = README.read_text(encoding="utf-8")
    for source, table in _TABLES.items():
        begin = BEGIN.format(source=source)
        between = re.compile(re.escape(begin) + ".*?" + re.escape(END), re.DOTALL)
        if not between.search(text):
            raise RuntimeError(f"{README} lacks the marks between which a table stands:\n{begin}\n{END}")
        before, after = between.split(text, maxsplit=1)
        text = f"{before}{begin}\n\n{table()}\n\n{END}{after}"
    return text


def _questions() -> str:
    rows = [f"| {each.text} | `{each.command}` |" for each in questions("first", "more")]
    return "\n".join(("| question | command |", "|---|---|", *rows))


def _engines() -> str:
    engines = tuple(EngineName)
    rows = []
    for command, work in WORK_ON_EXECUTORS.items():
        cells = " | ".join("yes" if engine in engines_of(command) else "–" for engine in engines)
        rows.append(f"| `{command}` | {cells} | {work or f'none: {WITHOUT_ENGINE[command]}'} |")
    header = " | ".join(f"`{engine}`" for engine in engines)
    return "\n".join(
        (f"| command | {header} | work of executors |", "|---" * (len(engines) + 2) + "|", *rows)
    )


_TABLES: Final[dict[str, Callable[[], str]]] = {
    "tierctl/cli/questions.toml": _questions,
    "tierctl/model/engine.py": _engines,
}
"""The function that makes each table, by the file that contains the table's data."""
