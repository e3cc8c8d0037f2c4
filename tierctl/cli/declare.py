"""Declare commands as functions: each parameter is annotated with the option or argument that it receives.

    Topics = Annotated[list[str] | None, option("--topic", metavar="NAME", help="Only this topic.")]

    def segments(ctx: click.Context, topic: Topics = None) -> ExitCode: ...

    add(group, "segments", segments)

The type decides how text is converted, and the default of the parameter is the option's.
"""

import inspect
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

import click

from tierctl.cli.help.node import settings_key
from tierctl.cli.settings.run import RunSettings
from tierctl.errors import UsageError
from tierctl.model.uris import require_no_credentials

FINDING_KINDS = "finding kinds"
"""A value of `completed_from`: the kinds of findings of `verify`, whose module takes long to import."""
HELP_NAMES = ("--help", "-h")
_GENERAL = "Options"


class Declaration(NamedTuple):
    """An option, or an argument if it has no names."""

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    panel: str = _GENERAL
    min: Any = None
    max: Any = None
    parser: Callable[[str], Any] | None = None
    completions: Sequence[str] = ()
    completed_from: str = ""
    callback: Callable[[click.Context, Any], None] | None = None
    is_counted: bool = False
    is_typed_only: bool = False


def option(*names: str, help: str, **more: Any) -> Declaration:  # noqa: A002
    """Declare an option of the given names.

    `panel` is its heading in the help, `min` and `max` bound a number, `parser` converts the text and
    raises UsageError, `completions` are shown by shells; `completed_from` is a kind of `StoredNames`, or
    FINDING_KINDS, whose names shells show. An option with a `callback` is handled before others and not
    passed on. The value of an option that `is_counted` is how often it is given. Only the command line gives
    an option that `is_typed_only`, neither the environment nor tierctl.toml: it chooses what is deleted, or
    weakens a rule of safety.
    """
    return Declaration(names, help, **more)


def argument(*, metavar: str, help: str, completed_from: str = "") -> Declaration:  # noqa: A002
    """Declare an argument; `completed_from` as in `option`."""
    return Declaration((), help, metavar, completed_from=completed_from)


class Option(click.Option):
    """An option with a heading in the help; it refuses URIs with credentials."""

    panel = _GENERAL
    completed_from = ""
    is_typed_only = False

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert the text of the value, unless it contains credentials."""
        _require_no_credentials(max(self.opts, key=len), value)
        return super().type_cast_value(ctx, value)


class Argument(click.Argument):
    """An argument with a help; it refuses URIs with credentials."""

    help = ""
    completed_from = ""

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert the text of the value, unless it contains credentials."""
        _require_no_credentials(self.make_metavar(ctx), value)
        return super().type_cast_value(ctx, value)


def _require_no_credentials(name: str, value: Any) -> None:
    for text in value if isinstance(value, list | tuple) else (value,):
        if isinstance(text, str):
            require_no_credentials(name, text)


class _Choice(click.Choice[str]):
    """Converts the value of a member of an enumeration to the member."""

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__([str(member.value) for member in kind])
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._kind(value if isinstance(value, self._kind) else super().convert(value, param, ctx))


class _Parsed(click.ParamType[Any]):
    """Converts text with the parser of a declaration, and checks the bounds of the value."""

    name = "text"

    def __init__(self, declared: Declaration, parser: Callable[[str], Any]) -> None:
        self._declared, self._parser = declared, parser

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # The default of the command's parameter.
            return value
        try:
            found = self._parser(value)
        except UsageError as e:
            raise UsageError(_naming(param, e.message), hint=e.hint) from None
        least, most = self._declared.min, self._declared.max
        if (least is not None and found < least) or (most is not None and found > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            self.fail(f"{value} is not {bounds}.", param, ctx)
        return found


def _naming(param: click.Parameter | None, message: str) -> str:
    """Return the message, with the longest name of the option before it if the message does not have it."""
    name = "" if param is None else max(param.opts, key=len)
    return message if name in message else f"{name}: {message}"


def add(
    group: click.Group,
    name: str,
    function: Callable[..., Any],
    kind: type[click.Command] = click.Command,
    needs_valid_settings: bool = True,
    **context_settings: Any,
) -> None:
    """Add the command `name` to `group`: it calls `function`, whose docstring is its help.

    With `needs_valid_settings` it raises UsageError for a wrong tierctl.toml or environment before that.
    """
    command: Any = kind(
        name,
        callback=_with_context(function, needs_valid_settings=needs_valid_settings),
        params=params_of(function),
        help=inspect.cleandoc(function.__doc__ or ""),
        context_settings=context_settings,
    )
    command.needs_valid_settings = needs_valid_settings
    group.add_command(command)


def add_group(parent: click.Group, name: str, help: str) -> click.Group:  # noqa: A002
    """Add a group of commands to `parent` and return it."""
    group = click.Group(name, no_args_is_help=True, help=help)
    parent.add_command(group)
    return group


def _with_context(function: Callable[..., Any], *, needs_valid_settings: bool) -> Callable[..., Any]:
    def called(**given: Any) -> Any:
        ctx = click.get_current_context()
        if isinstance(ctx.obj, RunSettings):
            ctx.obj.announce()
            if needs_valid_settings:
                ctx.obj.require_valid()
        return function(ctx=ctx, **given)

    return called


def params_of(function: Callable[..., Any]) -> list[click.Parameter]:
    """Return the options and arguments that the parameters of `function` declare, in their order."""
    parameters = inspect.signature(function).parameters.values()
    return [_param(each) for each in parameters if get_args(each.annotation)]


def _param(parameter: inspect.Parameter) -> click.Parameter:
    kind, declared = get_args(parameter.annotation)
    assert isinstance(declared, Declaration)
    if isinstance(kind, UnionType):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    is_list = get_origin(kind) is list
    if is_list:
        (kind,) = get_args(kind)
    is_required = parameter.default is parameter.empty
    common: dict[str, Any] = {"type": _type(kind, declared), "required": is_required}
    if not is_required and parameter.default is not None:
        common["default"] = parameter.default
    if not declared.names:
        made = Argument([parameter.name], nargs=-1 if is_list else 1, metavar=declared.metavar, **common)
        made.help, made.completed_from = declared.help, declared.completed_from
        return made
    # With False, click would take a value that begins with a dash, such as -2h, for the next option.
    return _option(parameter.name, declared, common | {"multiple": is_list, "is_flag": kind is bool or None})


def _option(name: str, declared: Declaration, common: dict[str, Any]) -> Option:
    is_eager = declared.callback is not None
    made = Option(
        [name, *declared.names],
        metavar=declared.metavar,
        help=declared.help,
        envvar=None if declared.is_typed_only else f"TIERCTL_{settings_key(declared.names).upper()}",
        is_eager=is_eager,
        expose_value=not is_eager,
        callback=_callback(declared.callback),
        count=declared.is_counted,
        shell_complete=(lambda *_: list(declared.completions)) if declared.completions else None,
        **common,
    )
    made.panel, made.completed_from = declared.panel, declared.completed_from
    made.is_typed_only = declared.is_typed_only
    return made


def _callback(
    callback: Callable[[click.Context, Any], None] | None,
) -> Callable[[click.Context, click.Parameter, Any], Any] | None:
    if callback is None:
        return None
    return lambda ctx, _param, value: callback(ctx, value)


def _type(kind: Any, declared: Declaration) -> Any:
    """Return click's type for values of class `kind`."""
    if declared.parser is not None:
        return _Parsed(declared, declared.parser)
    if declared.min is not None or declared.max is not None:
        return (click.IntRange if kind is int else click.FloatRange)(declared.min, declared.max)
    if issubclass(kind, Enum):
        return _Choice(kind)
    return click.Path(path_type=Path) if kind is Path else kind
