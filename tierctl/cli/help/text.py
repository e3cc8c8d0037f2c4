"""Print the help of a command, wrapped at the terminal's width."""

import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence

from tierctl.cli.help.node import Node, Option

_WIDTH_DEFAULT = 80
_WIDTH_MIN = 40
_NAMES_MAX = 26
_NO_BREAK = "\0"
_FOOTER = (
    "Options can be set as TIERCTL_<OPTION> or in tierctl.toml, except --apply and others that decide what "
    "is deleted: see tierctl-settings(7)."
)

Rows = Sequence[tuple[str, str]]


def help_text(root: Node, path: Sequence[str]) -> str:
    """Return the help of the command below `root` whose words are `path`.

    The line width is that of the terminal, or COLUMNS. Titles are bold at a terminal, unless NO_COLOR is set.
    Raise KeyError if there is no such command.
    """
    node, others = root.named(path)
    if others:
        raise KeyError(others[0])
    return "\n".join(_lines(node, _width())) + "\n"


def _lines(node: Node, width: int) -> Iterator[str]:
    yield from textwrap.wrap(
        " ".join(("Usage: tierctl", *node.path, node.usage)), width, subsequent_indent=" " * 7
    )
    for paragraph in node.help.split("\n\n"):
        yield ""
        yield from textwrap.wrap(" ".join(paragraph.split()), width, break_on_hyphens=False)
    yield from _section("Arguments", [(each.metavar, each.explained) for each in node.arguments], width)
    for title, children in node.groups.items():
        yield from _section(title, [(each.path[-1], f"{each.summary}.") for each in children], width)
    if node.children:
        yield from _section("Questions", [(each.command, each.text) for each in node.examples], width)
    for panel in node.panels:
        rows = [(_names(each), each.explained) for each in node.options if each.panel == panel]
        yield from _section(panel, rows, width)
    yield from _examples(node, width)
    yield ""
    yield from textwrap.wrap(_FOOTER, width)


def _examples(node: Node, width: int) -> Iterator[str]:
    """Yield the examples of a command; those of the program are its questions."""
    if not node.examples or node.children:
        return
    yield ""
    yield _bold("Examples")
    for example in node.examples:
        yield from textwrap.wrap(f"{example.text}:", width, initial_indent="  ", subsequent_indent="  ")
        yield from (f"    {line}" for line in command_lines(example.command, width - 4))


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
        yield ("  " if i else "") + line.replace(_NO_BREAK, " ") + (" \\" if i < last else "")


def _section(title: str, rows: Rows, width: int) -> Iterator[str]:
    """Yield a title and two columns; a name that is too long for its column has a line of its own."""
    if not rows:
        return
    yield ""
    yield from map(_bold, textwrap.wrap(title, width))
    column = min(max(len(name) for name, _ in rows), _NAMES_MAX, width // 3) + 4
    for name, text in rows:
        wrapped = textwrap.wrap(text, width - column, break_on_hyphens=False) or [""]
        if len(name) + 4 > column:
            yield from textwrap.wrap(
                name, width, initial_indent="  ", subsequent_indent=" " * 4, break_on_hyphens=False
            )
        else:
            yield f"  {name}".ljust(column) + wrapped.pop(0)
        yield from (" " * column + line for line in wrapped)


def _names(option: Option) -> str:
    return " ".join(filter(None, (", ".join(option.names), option.metavar)))


def _width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit():
        width = int(columns)
    else:
        try:
            width = os.get_terminal_size(sys.stdout.fileno()).columns
        except (OSError, ValueError):
            width = _WIDTH_DEFAULT
    return max(width or _WIDTH_DEFAULT, _WIDTH_MIN)


def _bold(title: str) -> str:
    is_styled = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return f"\033[1m{title}\033[0m" if is_styled else title
