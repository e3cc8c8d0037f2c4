"""Describe Typer's command tree as data, for man pages and the tables of the manual."""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tierctl.cli.app import COMMANDS, GROUPS, HELP_NAMES, load
from tierctl.cli.help import Example, examples
from tierctl.cli.main import app


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option or argument of a command; `choices` is empty if any value is allowed.

    An option that `is_typed_only` has neither an environment variable nor a key in tierctl.toml.
    """

    names: tuple[str, ...]
    metavar: str
    help: str
    panel: str
    choices: tuple[str, ...]
    is_repeatable: bool
    is_required: bool
    default: str | None
    is_typed_only: bool = False

    @property
    def is_flag(self) -> bool:
        """Whether the option has no value."""
        return not self.metavar

    @property
    def explained(self) -> str:
        """The help, followed by the default value."""
        return self.help if self.default is None else f"{self.help} Default: {self.default}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The program, a group or a command; `path` are the words after `tierctl`.

    `group` is the title under which the help of the program lists the command.
    """

    path: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    arguments: tuple[Option, ...]
    children: tuple["Node", ...]
    examples: tuple["Example", ...] = ()
    group: str = "Commands"

    @property
    def summary(self) -> str:
        """The first line of the help, without its full stop."""
        return self.help.partition("\n")[0].removesuffix(".")

    @property
    def usage(self) -> str:
        """The text after the command's name on its usage line: [OPTIONS] and the arguments."""
        rest = "COMMAND [ARGS]..." if self.children else " ".join(map(_usage, self.arguments))
        return f"[OPTIONS] {rest}".strip()

    @property
    def groups(self) -> dict[str, list["Node"]]:
        """The groups and commands below this node by the title under which its help lists them."""
        found: dict[str, list[Node]] = {}
        for child in self.children:
            found.setdefault(child.group, []).append(child)
        return found

    @property
    def panels(self) -> list[str]:
        """The titles of the groups of options, general ones last."""
        found = dict.fromkeys(option.panel for option in self.options)
        return sorted(found, key=lambda panel: panel in {"Options", "Everywhere"})

    def walk(self) -> Iterator["Node"]:
        """Yield this node, and every group and command below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@cache
def command_tree() -> Node:
    """Return the description of the program and of all its commands."""
    root = get_command(app)
    return _node(root, (), tuple(_of(load(name), (name,)) for name in COMMANDS))


def _of(command: Any, path: tuple[str, ...]) -> Node:
    children = command.commands.items() if isinstance(command, TyperGroup) else ()
    return _node(command, path, tuple(_of(child, (*path, name)) for name, child in children))


def _node(command: Any, path: tuple[str, ...], children: tuple[Node, ...]) -> Node:
    ctx = typer.Context(command, info_name=" ".join(("tierctl", *path)), help_option_names=HELP_NAMES)
    params = [param for param in command.get_params(ctx) if not param.hidden]
    typed_only = getattr(command, "typed_only", ())
    described = [(param.param_type_name, _option(param, ctx, typed_only)) for param in params]
    return Node(
        path=path,
        help=inspect.cleandoc(command.help or ""),
        options=tuple(each for kind, each in described if kind == "option"),
        arguments=tuple(each for kind, each in described if kind == "argument"),
        children=children,
        examples=examples().get(" ".join(path), ()),
        group=_group(path),
    )


def _group(path: tuple[str, ...]) -> str:
    found = (title for title, names in GROUPS.items() if len(path) == 1 and path[0] in names)
    return next(found, "Commands")


def _option(param: Any, ctx: typer.Context, typed_only: Sequence[str]) -> Option:
    is_flag = bool(getattr(param, "is_flag", False) or getattr(param, "count", False))
    choices = () if is_flag else _choices(param, ctx)
    return Option(
        # The parser keeps the names of --help in a set: unsorted, the pages would differ between runs.
        names=(*sorted(param.opts, key=lambda name: not name.startswith("--")), *param.secondary_opts),
        metavar="" if is_flag else _metavar(param, choices),
        help=" ".join((param.help or "").split()),
        panel=param.rich_help_panel or "Options",
        choices=choices,
        is_repeatable=bool(getattr(param, "multiple", False) or param.nargs == -1),
        is_required=bool(param.required),
        default=_default(param, is_flag=is_flag),
        is_typed_only=param.name in typed_only,
    )


def _choices(param: Any, ctx: typer.Context) -> tuple[str, ...]:
    """Return the values of an enumeration."""
    found = param.type_descriptor.choices
    return () if found is None else tuple(str(each.value) for each in found)


def _metavar(param: Any, choices: tuple[str, ...]) -> str:
    return str(
        param.metavar or "|".join(choices) or param.opts[-1].removeprefix("--").replace("-", "_").upper()
    )


def _default(param: Any, *, is_flag: bool) -> str | None:
    if is_flag or param.default in (None, (), []):
        return None
    return param.show_default if isinstance(param.show_default, str) else str(param.default)


def _usage(argument: Option) -> str:
    if argument.is_repeatable:
        return f"[{argument.metavar}]..."
    return argument.metavar if argument.is_required else f"[{argument.metavar}]"
