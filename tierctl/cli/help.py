"""The texts that Typer prints for --help: joined paragraphs, repeated options by name, and examples."""

import textwrap
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from tierctl.cli.everywhere import EVERYWHERE, HELP_ALL
from tierctl.cli.examples import command_lines, examples
from tierctl.cli.settings.profiles import option_key

_FOOTER: Final = (
    "Options can be set as TIERCTL_<OPTION> or in tierctl.toml, except --apply and others that decide what "
    "is deleted: see tierctl-settings(7)."
)


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
