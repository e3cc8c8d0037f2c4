"""The frame of the command line on Typer: the table of commands, and the classes of groups and commands.

`command` declares a command. `tierctl --help` makes the options of no command and imports no use case.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from tierctl.cli.options import Part, with_options
from tierctl.cli.profiles import RunSettings, option_key
from tierctl.commands.request import TYPED_ONLY
from tierctl.errors import UsageError
from tierctl.model.local import LARGEST_OFFSET
from tierctl.model.location import require_no_credentials
from tierctl.model.settings.scopes import Origin, SettingSource
from tierctl.report.columns import Columns

HELP_NAMES: Final = ["--help", "-h"]
_OPTION: Final = re.compile(r"--[a-z][a-z-]*")
_PLACES: Final = frozenset({"FILE", "DIR", "PATH", "URI"})


GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Ask about a tier; only delete changes it, with --apply": (
        *("status", "explain", "segments", "verify", "report", "doctor", "format", "delete", "fetch"),
    ),
    "Change a tier; without --apply only the plan is printed": ("copy", "sweep", "apply"),
    "Prepare for a loss, and come back from it": ("backup-config", "rebuild", "restore"),
    "Run unattended, or on Spark": ("schedule", "submit", "pipeline"),
    "Files and settings": ("config", "cache", "offsets"),
}
"""The commands by the title under which `tierctl --help` lists them.

The first eight answer most questions.
"""

_MODULES: Final = ("insight", "records", "changes", "runs", "config")
"""The modules of this package that declare the commands."""

COMMANDS: Final[tuple[str, ...]] = tuple(chain.from_iterable(GROUPS.values()))

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """A command as its module declares it: `options` gives its function the options that Typer reads."""

    function: Callable[..., Any]
    options: Callable[[Callable[..., Any]], Any]
    of_typer: Mapping[str, Any]


_DECLARED: Final[dict[str, _Declared]] = {}
"""The commands by their words; `_declared` returns all of them."""
_HELP_OF_GROUPS: Final[dict[str, str]] = {}


def command(
    words: str,
    *parts: Part,
    rows: Sequence[Columns] | Callable[[], Sequence[Columns]] = (),
    needs_valid_settings: bool = True,
    **of_typer: Any,
) -> Callable[[F], F]:
    """Return a decorator that declares a function as the command `tierctl WORDS`.

        @command("segments", WHERE, STATE, SELECTION, ..., Rows, ENGINE, rows=lambda: (commands.SEGMENTS,))
        def segments(ctx: typer.Context, request: commands.SegmentsRequest) -> ExitCode: ...

    Its docstring is the help. See `with_options` for its options; they are made, and its request is imported,
    when the command is first used. `of_typer` are further arguments for Typer.
    """

    def declare(function: F) -> F:
        options = with_options(*parts, rows=rows, needs_valid_settings=needs_valid_settings)
        _DECLARED[words] = _Declared(function=function, options=options, of_typer=of_typer)
        return function

    return declare


def group(name: str, text: str) -> None:
    """Declare the group `tierctl NAME`, of all commands whose first word it is, with the help `text`."""
    _HELP_OF_GROUPS[name] = inspect.cleandoc(text)


@cache
def _declared() -> Mapping[str, _Declared]:
    """Return the commands by their words."""
    for module in _MODULES:
        import_module(f"tierctl.cli.{module}")
    return _DECLARED


def _summary(name: str) -> str:
    """Return the first paragraph of the help of a command or a group."""
    declared = _declared()
    text = _HELP_OF_GROUPS.get(name) or inspect.getdoc(declared[name].function) or ""
    return text.partition("\n\n")[0]


class Command(TyperCommand):
    """A command of tierctl: its options may come from the environment and from tierctl.toml, too.

    Each option has the variable TIERCTL_<OPTION>, unless it is `TYPED_ONLY`.
    """

    def __init__(self, name: str | None, **more: Any) -> None:
        super().__init__(name, **more)
        self.typed_only = _prepare(self.params, self.callback)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments; the profile in use has the defaults of options that are not given."""
        if not parent.resilient_parsing:
            parent.obj.keys.add_own(self)
            is_strict = getattr(self.callback, "needs_valid_settings", True)
            extra.setdefault("default_map", ProfileValues(parent.obj, self, skips_refused=not is_strict))
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; an error about the words of the command line has the context, for its hint."""
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as e:
            e.ctx = getattr(e, "ctx", None) or ctx  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a UsageError says which of the options that it names were not typed."""
        try:
            return super().invoke(ctx)
        except UsageError as e:
            named = set(_OPTION.findall(e.message))
            for option in (each for each in self.options if _name_of(each) in named):
                source = source_of(ctx, option)
                if source is not None:
                    e.advised(f"{_name_of(option)} has the value of {source}")
            raise

    @property
    def options(self) -> list[Any]:
        """The options, without arguments."""
        return [each for each in self.params if each.param_type_name == "option"]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help as Typer does, with our texts."""
        _print_help(TyperCommand, self, ctx, formatter)


def _print_help(kind: Any, command: Any, ctx: Any, formatter: Any) -> None:
    # Rich takes long to import, and only the help needs it.
    from tierctl.cli.help import ending, shown

    kind.format_help(shown(command, ctx), ctx, formatter)
    typer.echo(ending(command, ctx), nl=False)


class ProfileValues(Mapping[str, Any]):
    """The values of a command's options in the profile in use, by the names of parameters.

    With `skips_refused`, an option that refuses its value has none; otherwise Typer raises its error.
    """

    def __init__(self, settings: RunSettings, command: Command, *, skips_refused: bool) -> None:
        self._settings = settings
        self._options = {each.name: each for each in command.options if each.name not in command.typed_only}
        self._skips_refused = skips_refused

    def __getitem__(self, name: str) -> Any:
        option: Any = self._options[name]
        value = self._settings.get(option_key(option.opts))
        if option.multiple and isinstance(value, str):
            value = [value]
        if value is None or (self._skips_refused and why_refused(option, value) is not None):
            raise KeyError(name)
        place = _in_profile(option, self._settings)
        wrong = _wrong_form(option, value)
        if wrong is not None:
            raise UsageError(f"{place}: {wrong}", hint="write the value as on the command line, in quotes")
        _require_no_credentials(place, value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)


_EXPECTED = {
    "Input should be a valid integer, unable to parse string as an integer": "expected a whole number",
    "Input should be a valid number, unable to parse string as a number": "expected a number",
    "Input should be a valid boolean, unable to interpret input": "expected true or false",
    "unexpected extra argument(s) ()": "an unexpected empty argument",
    "Input should be a": "expected a",
    "Input should be ": "expected a value ",
}
"""Texts of the library that converts values, and what stands in their place; the first that fits counts."""


def in_our_words(error: Any, text: str) -> str:
    """Return `text`, in which Typer states why it refuses a value, in words for operators, with the value."""
    text = text.replace("Value error, ", "").removesuffix(".")
    wrong: list[Any] = getattr(error.__cause__, "errors", list)()
    found = repr(wrong[0]["input"]) if wrong else ""
    for theirs, ours in _EXPECTED.items():
        text = text.replace(theirs, ours)
    return text if found in text else f"{text}, found {found}"


def why_refused(option: Any, value: Any) -> str | None:
    """Return why an option refuses a value of a profile; None if it accepts it."""
    wrong = _wrong_form(option, value)
    if wrong is not None:
        return wrong
    given = [value] if option.multiple and not isinstance(value, list) else value
    try:
        _require_no_credentials(max(option.opts, key=len), value)
        # Without a callback: the value is converted, and not used.
        option.get_runtime_param().coerce(given, option, None)
    except typer.TyperException as e:
        return in_our_words(e, e.message).replace("\n", " ")
    except UsageError as e:
        return e.message
    return None


def _wrong_form(option: Any, value: Any) -> str | None:
    """Return why a value of a profile is none that the option could have on the command line, or None.

    Typer would convert it to Python's text of it, such as True or ['a'], and take that for a name.
    """
    if isinstance(value, list) and not option.multiple:
        return "the option takes one value, not a list"
    for each in value if isinstance(value, list) else (value,):
        if isinstance(each, list) or (isinstance(each, bool) and not (option.is_flag or option.count)):
            found = "a list in a list" if isinstance(each, list) else str(each).lower()
            return f"expected text or a number, found {found}"
        if isinstance(each, str) and "\0" in each:
            return f"expected text without the character U+0000, found {each!r}"
    return None


def _require_no_credentials(where: str, value: Any) -> None:
    """Raise UsageError for a URI with credentials in a value of a profile, which `where` names."""
    for text in value if isinstance(value, list) else (value,):
        if isinstance(text, str):
            require_no_credentials(where, text)


def origin_of(param: Any, source: str, settings: RunSettings) -> Origin:
    """Return the origin of an option's value; `source` is the name of Typer's ParameterSource."""
    if source == "COMMANDLINE":
        return Origin(source=SettingSource.OPTION, name=max(param.opts, key=len))
    if source == "ENVIRONMENT":
        return Origin(source=SettingSource.ENVIRONMENT, name=str(param.envvar))
    in_profile = settings.origin(option_key(param.opts)) if source == "DEFAULT_MAP" else None
    return in_profile or Origin(source=SettingSource.DEFAULT)


def source_of(ctx: Any, param: Any) -> str | None:
    """Return where an option's value was stated, such as `tierctl.toml, line 4: output`; None if typed."""
    source = None if ctx is None or param is None else ctx.get_parameter_source(param.name)
    if source is None or source.name not in {"ENVIRONMENT", "DEFAULT_MAP"}:
        return None
    if source.name == "DEFAULT_MAP":
        return _in_profile(param, ctx.obj)
    return origin_of(param, source.name, ctx.obj).place


def _in_profile(option: Any, settings: RunSettings) -> str:
    place = origin_of(option, "DEFAULT_MAP", settings).place
    return f"{place}: {option_key(option.opts).replace('_', '-')}"


def _processed(param: Any, process: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """Return the value that Typer makes for an option; an error of ours names the source of it."""
    try:
        return process(ctx, value)
    except UsageError as e:
        source = source_of(ctx, param)
        if source is None:
            raise
        reason = e.message.removeprefix(max(param.opts, key=len)).removeprefix(":").strip()
        raise UsageError(f"{source}: {reason}", hint=e.hint) from None


def _prepare(params: Sequence[Any], callback: Any) -> frozenset[str]:
    """Give the options of a command their variables and parsers; return the names of those only typed.

    Numbers without a bound have 64 bits, as Kafka's offsets.
    """
    annotations = {} if callback is None else inspect.signature(callback).parameters
    typed_only = {name for name, each in annotations.items() if TYPED_ONLY in get_args(each.annotation)}
    for param in params:
        param.show_envvar = False
        if param.param_type_name == "option" and param.name not in typed_only:
            param.envvar = f"TIERCTL_{option_key(param.opts).upper()}"
            param.process_value = partial(_processed, param, param.process_value)
        info = param.type_descriptor.parameter_info
        if info.parser is not None:
            info.parser = _Parser(param, info.parser)
        elif info.max is None and int in _types_of(param):
            info.max = LARGEST_OFFSET
        if _names_place(param):
            param.get_runtime_param = partial(_PlaceConverter, param.get_runtime_param)
    return frozenset(typed_only)


def _name_of(param: Any) -> str:
    """Return the name of an option, as --log-dir, or of an argument, as FILE."""
    return str(max(param.opts, key=len) if param.param_type_name == "option" else param.metavar)


def _names_place(param: Any) -> bool:
    """Return whether the values of an option are paths, or URIs that may be paths."""
    return Path in _types_of(param) or param.metavar in _PLACES


def _types_of(param: Any) -> tuple[Any, ...]:
    """Return the type of an option's value, and that of the values in a list."""
    annotation = param.type_descriptor.annotation
    return annotation, *get_args(annotation)


@dataclass(frozen=True, slots=True)
class _PlaceConverter:
    """Converts the text of an option as Typer's converter `of_typer()`, but refuses an empty text.

    An empty path would be the current folder.
    """

    of_typer: Callable[[], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value, or the list of values; raise UsageError for an empty text."""
        if "" in (value if isinstance(value, list | tuple) else (value,)):
            raise UsageError(
                f"{_name_of(param)}: expected a name, found an empty text",
                hint="name a file or a folder, . for the current folder; or leave it out",
            )
        return self.of_typer().coerce(value, param=param, ctx=ctx)


class _Parser:
    """Converts the text of an option, and checks the bounds of the value; its errors name the option."""

    def __init__(self, param: Any, parse: Any) -> None:
        self._param, self._parse = param, parse

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, str):  # The default of the parameter.
            return value
        name = _name_of(self._param)
        try:
            found = self._parse(value)
        except UsageError as e:
            message = e.message if name in e.message else f"{name}: {e.message}"
            raise UsageError(message, hint=e.hint) from None
        least, most = self._param.min, self._param.max
        if (least is not None and found < least) or (most is not None and found > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise typer.BadParameter(f"{value} is not {bounds}.", param=self._param)
        return found


class Group(TyperGroup):
    """A group of commands, such as `cache`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help as Typer does, with our texts."""
        _print_help(TyperGroup, self, ctx, formatter)


class Root(Group):
    """All commands: their summaries, and the options of each command only when it is run."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.typed_only = _prepare(self.params, self.callback)
        for panel, names in GROUPS.items():
            for name in names:
                self.commands[name] = TyperCommand(name, help=_summary(name), rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name, the command with its options, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if command is None or name is None else load(name), rest


@cache
def load(name: str) -> Any:
    """Return the command, or the group, `tierctl NAME` with its options."""
    all_declared = _declared()
    is_group = name in _HELP_OF_GROUPS
    app = typer.Typer(add_completion=False, rich_markup_mode="rich", no_args_is_help=is_group)
    if is_group:
        # Without a callback, a group of one command would be that command.
        app.callback(cls=Group, help=_HELP_OF_GROUPS[name])(lambda: None)
    for words, declared in all_declared.items():
        first, _, second = words.partition(" ")
        if first == name:
            of_typer = {"cls": Command, **declared.of_typer}
            app.command(second or name, **of_typer)(declared.options(declared.function))
    return get_command(app)


def named_command(words: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the command, or the group, that the first of `words` name, or None, and the other words."""
    if not words or words[0] not in COMMANDS:
        return None, list(words)
    command, left = load(words[0]), list(words[1:])
    while isinstance(command, TyperGroup) and left and left[0] in command.commands:
        command = command.commands[left.pop(0)]
    return command, left


def unknown_command(words: Sequence[str], hint: str) -> UsageError:
    """Return the error for `words` that name no command; its hint is the nearest command, or else `hint`."""
    command, left = named_command(words)
    known = COMMANDS if command is None else getattr(command, "commands", {})
    nearest = get_close_matches(left[0], known, n=1) if left else []
    if nearest:
        path = words[: len(words) - len(left)]
        hint = f'did you mean "{" ".join([*path, *nearest])}"?'
    what = " ".join(words[:2] if command is not None else words[:1]) or "nothing"
    return UsageError(f"{what}: no command of tierctl", hint=hint)


def context_of(ctx: typer.Context, words: Sequence[str], command: Any) -> typer.Context:
    """Return a context of a command, whose words are given, below that of `ctx`; nothing is parsed.

    Options that refuse their values in the profile have none.
    """
    above = ctx.find_root()
    for word in words[:-1]:
        above = typer.Context(load(word), parent=above, info_name=word)
    values: Any = ProfileValues(ctx.obj, command, skips_refused=True)
    return typer.Context(command, parent=above, info_name=words[-1], default_map=values)


def parsed(
    root: typer.Context, words: Sequence[str], command: Any, arguments: Sequence[str], **more: Any
) -> typer.Context:
    """Return the context of a command after parsing its arguments, with the defaults of its profile."""
    above = context_of(root, words, command).parent
    return command.make_context(words[-1], list(arguments), parent=above, **more)  # type: ignore[no-any-return]


def leaves() -> Iterator[tuple[tuple[str, ...], Command]]:
    """Make the options of all commands, and yield each command with its words; groups are left out."""
    for name in COMMANDS:
        command = load(name)
        if isinstance(command, TyperGroup):
            yield from (((name, child), each) for child, each in command.commands.items())  # type: ignore[misc]
        else:
            yield (name,), command
