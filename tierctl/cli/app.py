"""The frame of the command line on Typer: one group that imports a command when it is run, and its commands.

A command's module has `app`, a `typer.Typer` made by `new_app`; its options are the `Annotated` parameters of
its function. `COMMANDS` has the summaries, so that `tierctl --help` imports no command.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import chain
from typing import Any, Final, NamedTuple, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from tierctl.cli.settings.profiles import option_key
from tierctl.cli.settings.run import RunSettings
from tierctl.commands.shared_options import TYPED_ONLY
from tierctl.errors import UsageError
from tierctl.model.location import require_no_credentials

HELP_NAMES: Final = ["--help", "-h"]


class Entry(NamedTuple):
    """The module of a command, below `tierctl.cli`, and one line about it."""

    module: str
    summary: str


GROUPS: Final[Mapping[str, Mapping[str, Entry]]] = {
    "Ask about a tier; only delete changes it, with --apply": {
        "status": Entry(
            "status", "Show the state of a tier: its topics, the copy lag, problems and the last runs."
        ),
        "explain": Entry(
            "explain", "Explain what brokers do next with each segment of a partition, and why."
        ),
        "segments": Entry(
            "segments", "List remote segments, find one segment, sum up sizes, or check offsets."
        ),
        "verify": Entry("verify", "Compare metadata, store and logs; --plan-out plans repairs."),
        "report": Entry("report", "Report sizes by age, growth by day and the next expirations."),
        "doctor": Entry("doctor", "Find conditions that would make tiering fail."),
        "format": Entry("format", "Print the records of the metadata topic, one per line."),
        "delete": Entry(
            "delete",
            "Delete the segments of deleted topics (RemotePartitionRemover); --find lists them.",
        ),
        "fetch": Entry(
            "fetch", "Print records from the tier, and with --log-dir from the local log above it."
        ),
    },
    "Change a tier; without --apply only the plan is printed": {
        "copy": Entry(
            "copy", "Copy rolled segments below the last stable offset to the tier, as a broker does."
        ),
        "sweep": Entry("sweep", "Delete segments that retention or the log start expires, as a broker does."),
        "apply": Entry("apply", "Carry out a plan of copy, sweep, delete, rebuild, restore or verify."),
    },
    "Prepare for a loss, and come back from it": {
        "backup-config": Entry(
            "recovery.backup_config",
            "Save what a tier lacks: the topic ids and settings of a running cluster.",
        ),
        "rebuild": Entry("recovery.rebuild", "Publish lost metadata again, from the objects of the tier."),
        "restore": Entry("recovery.restore", "Restore topics from the objects of a tier."),
    },
    "Run unattended, or on Spark": {
        "schedule": Entry("schedule", "Print systemd units or cron lines that run a command."),
        "submit": Entry("submit", "Print, or run, the spark-submit command line that runs a command."),
        "pipeline": Entry("pipeline", "Write the metadata topic to Delta tables."),
    },
    "Files and settings": {
        "config": Entry("config.command", "Show the settings in force and their origins."),
        "cache": Entry("cache", "Show, verify, build and compact cache files (KIP-405)."),
        "offsets": Entry("offsets", "Show, check and repair _rlmm_committed_offsets."),
    },
}
"""The commands by the title under which `tierctl --help` lists them.

The first eight answer most questions.
"""

COMMANDS: Final[Mapping[str, Entry]] = dict(chain.from_iterable(each.items() for each in GROUPS.values()))


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
        _require_no_credentials(option, value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)


def why_refused(option: Any, value: Any) -> str | None:
    """Return why an option refuses a value of a profile; None if it accepts it."""
    if isinstance(value, list) and not option.multiple:
        return "the option takes one value, not a list"
    given = [value] if option.multiple and not isinstance(value, list) else value
    try:
        _require_no_credentials(option, value)
        # Without a callback: the value is converted, and not used.
        option.get_runtime_param().coerce(given, option, None)
    except typer.TyperException as e:
        return e.message.replace("\n", " ")
    except UsageError as e:
        return e.message
    return None


def _require_no_credentials(option: Any, value: Any) -> None:
    """Raise UsageError for a URI with credentials in the value of an option in a profile."""
    for text in value if isinstance(value, list) else (value,):
        if isinstance(text, str):
            require_no_credentials(max(option.opts, key=len), text)


def _prepare(params: Sequence[Any], callback: Any) -> frozenset[str]:
    """Give the options of a command their variables and parsers; return the names of those only typed."""
    annotations = {} if callback is None else inspect.signature(callback).parameters
    typed_only = {name for name, each in annotations.items() if TYPED_ONLY in get_args(each.annotation)}
    for param in params:
        param.show_envvar = False
        if param.param_type_name == "option" and param.name not in typed_only:
            param.envvar = f"TIERCTL_{option_key(param.opts).upper()}"
        info = param.type_descriptor.parameter_info
        if info.parser is not None:
            info.parser = _Parser(param, info.parser)
    return frozenset(typed_only)


class _Parser:
    """Converts the text of an option, and checks the bounds of the value; its errors name the option."""

    def __init__(self, param: Any, parse: Any) -> None:
        self._param, self._parse = param, parse

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, str):  # The default of the parameter.
            return value
        name = max(self._param.opts, key=len)
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


class LazyGroup(Group):
    """All commands: their summaries from `COMMANDS`, and each command from its module when it is run."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.typed_only = _prepare(self.params, self.callback)
        for panel, entries in GROUPS.items():
            for name, entry in entries.items():
                self.commands[name] = TyperCommand(name, help=entry.summary, rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name, the imported command and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if command is None or name is None else load(name), rest


def new_app(**more: Any) -> typer.Typer:
    """Return the Typer application of one module: a command, or a group with `name` and `help`."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode="rich",
        no_args_is_help=bool(more),
        **more,
    )


def load(name: str) -> Any:
    """Return a command, or a group, of `COMMANDS`, imported from its module."""
    if name not in _LOADED:
        module = import_module(f"tierctl.cli.{COMMANDS[name].module}")
        _LOADED[name] = get_command(module.app)
    return _LOADED[name]


_LOADED: dict[str, Any] = {}


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
    """Import all commands, and yield each with its words; groups are left out."""
    for name in COMMANDS:
        command = load(name)
        if isinstance(command, TyperGroup):
            yield from (((name, child), each) for child, each in command.commands.items())  # type: ignore[misc]
        else:
            yield (name,), command
