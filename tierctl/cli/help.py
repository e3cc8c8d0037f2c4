"""The texts that Typer prints for --help: joined paragraphs, repeated options by name, and examples.

No name is cut, and no choice is divided, at any width from 60 columns on.
"""

import re
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from importlib.resources import files
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer import rich_utils

from tierctl.cli.options import EVERYWHERE, HELP_ALL
from tierctl.cli.profiles import option_key

_FOOTER: Final = (
    "Options can be set as TIERCTL_<OPTION> or in tierctl.toml, except --apply and others that decide what "
    "is deleted: see tierctl-settings(7)."
)

_TEXT_WIDTH_MIN: Final = 24
_GAP: Final = 2
_INDENT: Final = (0, 0, 0, 6)
_DIVISION: Final = re.compile(r"(?<=[|,])|(?<= )")
"""Where the names of an option, or its choices, may be divided."""


class _OptionTable(Table):
    """Typer's table of options, which cuts no name and divides no choice.

    If the texts do not fit beside the names, each text stands below its names.
    """

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._options: list[tuple[Sequence[Text], Columns]] = []

    def add_row(self, *cells: Any, **more: Any) -> None:
        """Add an option: names, kind and text; or a command, whose columns are known."""
        if self.columns:
            super().add_row(*cells, **more)
        else:
            *names, text = cells
            self._options.append(([Text() if name == "" else name for name in names], text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table as lines of the terminal's width."""
        if not self._options:
            yield from super().__rich_console__(console, options)
            return
        width = options.max_width
        rows = [[_in_lines(name, width // 4) for name in names] for names, _ in self._options]
        used = [column for column in zip(*rows, strict=True) if any(column)]
        left = width - sum(max(map(_width, column)) + _GAP for column in used)
        texts = [text for _, text in self._options]
        if left >= max(_TEXT_WIDTH_MIN, *map(_longest_word, texts)):
            yield _grid(list(zip(*used, texts, strict=True)))
        else:
            for row, text in zip(rows, texts, strict=True):
                yield _grid([[name for name in row if name]])
                yield Padding(text, _INDENT)


class _HelpConsole(Console):
    """Print help; raise BrokenPipeError if nobody reads it, for which Rich would exit with code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


# Typer's help has no setting for these.
vars(rich_utils).update(Table=_OptionTable, Console=_HelpConsole)


def _grid(rows: Sequence[Sequence[Any]]) -> Table:
    """Return a table whose columns have the width of their content, but for the last one."""
    grid = Table.grid(padding=(0, _GAP), expand=True)
    for _ in rows[0][:-1]:
        grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    for row in rows:
        grid.add_row(*row)
    return grid


def _in_lines(names: Text, width: int) -> Text:
    """Return the names of an option, or its kind of value, in lines that divide no name and no choice."""
    lines, start = [], 0
    ends = [found.start() for found in _DIVISION.finditer(names.plain)] + [len(names)]
    for end, following in zip_longest(ends, ends[1:], fillvalue=len(names) + width + 1):
        if following - start > width:
            lines.append(names[start:end])
            start = end
    return Text("\n").join(lines)


def _width(text: Text) -> int:
    return max(map(len, text.plain.split("\n")))


def _longest_word(text: Columns) -> int:
    """Return the width of the longest word of an option's text."""
    words = (word for part in text.renderables if isinstance(part, Text) for word in part.plain.split())
    return max(map(len, words), default=0)


def shown(command: Any, ctx: Any) -> Any:
    """Return a copy of a command or group whose texts Typer prints as they are.

    The options that a command shares with most others are only named, unless --help-all asks for them.
    """
    repeated = _named_only(command, ctx)
    view = copy(command)
    view.help = escape(_joined(command.help or ""))
    view.params = [_printable(each) for each in command.params if each.name not in repeated]
    if hasattr(command, "commands"):
        view.commands = {name: _summarized(child) for name, child in command.commands.items()}
    return view


def ending(command: Any, ctx: Any) -> str:
    """Return the text below the options: the repeated ones by name, and the examples.

    Rich would pad its lines with blanks, so that a shell could not read a pasted example.
    """
    repeated = _named_only(command, ctx)
    named = [each for each in command.params if each.name in repeated]
    width = max(Console().width - 2, 20)
    parts = (_repeated(named, width), _examples(ctx, width), textwrap.wrap(_FOOTER, width))
    lines = "\n\n".join("\n".join(part) for part in map(list, parts) if part)
    return textwrap.indent(lines, " ") + "\n"


def _named_only(command: Any, ctx: Any) -> Collection[str]:
    """Return the names of the options that the help of a command only names; none with --help-all."""
    if ctx.meta.get(HELP_ALL):
        return ()
    everywhere = {each.name for each in command.params if each.rich_help_panel == EVERYWHERE}
    return everywhere | getattr(command.callback, "repeated", set())


def _joined(text: str) -> str:
    """Return the paragraphs, each in one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _printable(param: Any) -> Any:
    """Return a copy of an option or argument; a flag has no type."""
    view = copy(param)
    view.help = escape(_joined(param.help or ""))
    if getattr(param, "is_flag", False) or getattr(param, "count", False):
        view.metavar, view.show_default = "", False
    elif isinstance(param.show_default, str):
        # Typer would print it in parentheses.
        view.default, view.show_default = param.show_default, True
    return view


def _summarized(command: Any) -> Any:
    view = copy(command)
    view.help = escape(_joined((command.help or "").partition("\n\n")[0]))
    return view


def _repeated(named: Sequence[Any], width: int) -> Iterator[str]:
    """Yield each group of options that are only named, and how to read about them."""
    panels = dict.fromkeys(each.rich_help_panel for each in named)
    for panel in panels:
        names = ", ".join(
            f"--{option_key(each.opts).replace('_', '-')}" for each in named if each.rich_help_panel == panel
        )
        yield from textwrap.wrap(f"{panel}: {names}", width, subsequent_indent="  ", break_on_hyphens=False)
    if panels:
        yield "--help-all explains these options, too."


def _examples(ctx: Any, width: int) -> Iterator[str]:
    """Yield the examples of a command; those of the program are its questions."""
    for example in examples().get(ctx.command_path.partition(" ")[2], ()):
        text = example.text if example.text.endswith("?") else f"{example.text}:"
        yield from textwrap.wrap(text, width)
        yield from (f"  {line}" for line in command_lines(example.command, width - 2))


# Examples of commands in examples.toml, and the questions of operators in questions.toml.

_NO_BREAK = "\0"


class Example(NamedTuple):
    """A command line and a description of what it does."""

    text: str
    command: str


def examples() -> dict[str, tuple[Example, ...]]:
    """Return the examples of each command by the words after `tierctl`; the program has questions."""
    return {"": questions("first")} | {
        path: _of_table(table) for path, table in _tables("examples.toml").items()
    }


def questions(*tables: str) -> tuple[Example, ...]:
    """Return the questions in these tables (`first`, `more`), each with the command line that answers it."""
    found = _tables("questions.toml")
    return tuple(each for table in tables for each in _of_table(found[table]))


def _tables(name: str) -> dict[str, dict[str, str]]:
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _of_table(table: dict[str, str]) -> tuple[Example, ...]:
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
