"""Describe click's command tree as data, for help, man pages and completions."""

import inspect
from typing import Any

import click

from tierctl.cli.declare import FINDING_KINDS, HELP_NAMES
from tierctl.cli.docs.examples import examples
from tierctl.cli.help.node import Node, Option
from tierctl.cli.main import GROUPS
from tierctl.verify.findings import FindingKind

_GENERATED = {FINDING_KINDS: tuple(map(str, FindingKind))}


def tree(command: Any, path: tuple[str, ...] = ()) -> Node:
    """Return the description of `command`, which `main.build` returned or which is below that."""
    ctx = click.Context(command, info_name=" ".join(("tierctl", *path)), help_option_names=list(HELP_NAMES))
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    return Node(
        path=path,
        help=inspect.cleandoc(command.help or ""),
        options=tuple(_option(param, ctx) for param in params if param.param_type_name == "option"),
        arguments=tuple(_option(param, ctx) for param in params if param.param_type_name == "argument"),
        children=tuple(
            tree(child, (*path, name)) for name, child in getattr(command, "commands", {}).items()
        ),
        examples=examples().get(" ".join(path), ()),
        group=_group(path),
    )


def _group(path: tuple[str, ...]) -> str:
    found = (title for title, names in GROUPS.items() if len(path) == 1 and path[0] in names)
    return next(found, "Commands")


def _option(param: Any, ctx: click.Context) -> Option:
    is_flag = bool(getattr(param, "is_flag", False) or getattr(param, "count", False))
    completed_from = getattr(param, "completed_from", "")
    choices = () if is_flag else _choices(param, ctx) or _GENERATED.get(completed_from, ())
    return Option(
        # The parser keeps the names of --help in a set: unsorted, the pages would differ between runs.
        names=(*sorted(param.opts, key=lambda name: not name.startswith("--")), *param.secondary_opts),
        metavar="" if is_flag else _metavar(param, choices),
        help=" ".join((getattr(param, "help", None) or "").split()),
        panel=getattr(param, "panel", "Options"),
        choices=choices,
        stored="" if completed_from in _GENERATED else completed_from,
        is_repeatable=bool(param.multiple or param.nargs == -1),
        is_required=bool(param.required),
        default=_default(param, is_flag=is_flag),
        is_typed_only=bool(getattr(param, "is_typed_only", False)),
    )


def _choices(param: Any, ctx: click.Context) -> tuple[str, ...]:
    return tuple(filter(None, (item.value for item in param.shell_complete(ctx, ""))))


def _metavar(param: Any, choices: tuple[str, ...]) -> str:
    return str(
        param.metavar or "|".join(choices) or param.opts[-1].removeprefix("--").replace("-", "_").upper()
    )


def _default(param: Any, *, is_flag: bool) -> str | None:
    given = param.to_info_dict()["default"]
    return None if is_flag or given in (None, ()) else str(given)
