"""`tierctl config show`, and the values of options with their origins, in Typer's order of precedence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from tierctl import commands
from tierctl.cli.app import (
    Command,
    command,
    context_of,
    group,
    leaves,
    named_command,
    origin_of,
    parsed,
    unknown_command,
    why_refused,
)
from tierctl.cli.display import Printer, Rows, console_of, view_of
from tierctl.cli.options import request_of
from tierctl.cli.profiles import ProfilesFile, RunSettings, option_key
from tierctl.errors import ExitCode
from tierctl.model.choices import EngineName
from tierctl.model.events import TopicPartition
from tierctl.model.progress import Progress
from tierctl.model.selection import named_partition
from tierctl.model.settings.known import ProblemKind, SettingProblem, shown
from tierctl.model.settings.scopes import KafkaVersion, Origin, SettingSource

_FILES = ("broker_config", "command_config", "topic_configs")
_NOT_LISTED = frozenset({"apply", "config_file", "profile", "help", "help_all", "version"})
"""Options that are no settings, and the options that select tierctl.toml and its profile."""
_WHERE = (
    *("broker_config", "override", "command_config", "topic_configs", "kafka_version"),
    *("throttle_copy", "throttle_fetch", "metadata", "bootstrap_server", "topic"),
)
"""Files of settings, the version of the brokers that read them, and the topics of a cluster."""

_Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND",
        help="A command of tierctl with its options; default: all commands.",
        show_default=False,
    ),
]


group("config", "Show the settings in force and their origins.")


@command(
    "config show",
    _WHERE,
    ...,
    Rows,
    rows=lambda: (commands.SETTINGS,),
    needs_valid_settings=False,
    context_settings={"allow_interspersed_args": False},
)
def show_config(ctx: typer.Context, request: commands.ConfigRequest, command: _Words = None) -> ExitCode:
    """Print every setting in force and the origin of its value.

    The value of a tierctl option comes from the command line, else from the environment (TIERCTL_...), else
    from the profile in tierctl.toml, else it is the default. Broker, client and topic settings come from the
    files of --broker-config, --command-config and --topic-configs, else they have Kafka's default; --override
    takes precedence. With --topic and a cluster, show prints the settings that these topics have there. With
    a COMMAND, show prints the settings of that command line. Secrets are hidden in every format.

    Exit 0 if an option accepts each value. Exit 3 if all refuse a value of the profile or the environment:
    "refused: " and the reason stand in place of the value. A value in the environment that an option of
    config show itself refuses, such as --output, ends it with exit code 2, as on the command line.
    """
    settings: RunSettings = ctx.obj
    settings.require_valid()
    printer = Printer.of(ctx)
    found, typed, request = _in_force(ctx, request, command or [])
    of_options = [*_choice_of_profile(ctx, settings), *_options_in_force(found, typed, settings)]
    rows = commands.show_config(request, of_options, console_of(ctx))
    printer.show(asdict(row) for row in rows)
    files = (settings.profiles_file, request.broker_config, request.command_config, request.topic_configs)
    accepted = {each.key for each in of_options if not each.is_refused}
    is_refused = any(each.is_refused and each.key not in accepted for each in of_options)
    has_files = any(each is not None for each in files)
    printer.finish(following="tierctl doctor" if has_files or is_refused else None)
    return ExitCode.PARTIAL if is_refused else ExitCode.OK


def parsed_for_later(
    ctx: typer.Context, words: Sequence[str], command: Any, arguments: Sequence[str]
) -> typer.Context:
    """Return the context of a command that runs later, with the profile that its arguments choose.

    Raise UsageError for a problem in that profile, in its tierctl.toml, or in the environment, and for names
    of columns that no rows of the command have.
    """
    parsed(ctx, words, command, arguments)
    # The arguments may name another profile or another tierctl.toml than those of this run.
    ctx.obj.read_again()
    given = parsed(ctx, words, command, arguments)
    ctx.obj.require_valid()
    rows = getattr(command.callback, "rows", ())
    if rows and not any(map(view_of(given).fits, rows)):
        view_of(given).check(rows[0])
    return given


_MAKING = frozenset({"copy", "rebuild", "restore"})
"""Commands that create the metadata topic or the tier if they do not exist."""
_FROM_TIER = frozenset({"rebuild", "restore"})
"""Commands whose topics are those of the tier."""


def check_names(
    given: typer.Context, params: Mapping[str, Any], command: str, progress: Progress, *, is_asked: bool
) -> None:
    """Raise the error that a command would end with because of a name in its options.

    `given` is its parsed context, and `params` are its options and arguments. Note what is not checked;
    nothing is checked unless `is_asked`.
    """
    if not is_asked:
        progress.note("the names of topics, tiers, settings and files in the command were not checked")
        return
    more: dict[str, Any] = {}
    if "topic_name" in params:
        more |= named_partition(params["topic_name"], params["partition_number"])
    is_new = command in _MAKING
    if params.get("from_remote") is not None:
        target = {"metadata": params["to_metadata"], "topic": (), "partition": (), "may_be_new": True}
        _check_names(given, progress, **target)
        more, is_new = {"remote": params["from_remote"], "layout": params["from_layout"]}, False
    _check_names(given, progress, may_be_new=is_new, has_topics_of_tier=command in _FROM_TIER, **more)
    if command in _FROM_TIER and params["topic"]:
        progress.note("the topics in the command were not checked: they are those of the tier")


def _check_names(given: typer.Context, progress: Progress, **more: Any) -> None:
    own = {"state_dir": None, "engine": EngineName.LOCAL, "meter": None}
    result = commands.check_names(request_of(commands.NamesRequest, given, **own, **more), progress)
    if result.unchecked is not None:
        progress.note(f"the names of topics and tiers in the command were not checked: {result.unchecked}")


def choosing_profile(arguments: Sequence[str], *, file: Path | None, profile: str | None) -> list[str]:
    """Return the options for a tierctl.toml and a profile that `arguments` do not choose themselves."""
    values = {"--config-file": None if file is None else str(file.absolute()), "--profile": profile}
    typed = {word.partition("=")[0] for word in arguments}
    return [word for name, value in values.items() if value and name not in typed for word in (name, value)]


def _options_in_force(
    found: Sequence[typer.Context], typed: Mapping[str, Any], settings: RunSettings
) -> list[commands.OptionValue]:
    """Return the options of commands that have a value; `typed` has those of the command line by name."""
    values: dict[tuple[str, str, Origin], commands.OptionValue] = {}
    having: dict[str, set[str]] = {}
    by_value: dict[tuple[str, str, Origin], list[str]] = {}
    for ctx in found:
        name = ctx.command_path.partition(" ")[2]
        for param in _options(ctx):
            key = option_key(param.opts)
            having.setdefault(key, set()).add(name)
            value, source, why = _stated(param, ctx, typed)
            text = _text(value) if why is None else f"refused: {why}"
            if text is None:
                continue
            origin = origin_of(param, source, settings)
            at = (key, text, origin)
            by_value.setdefault(at, []).append(name)
            values[at] = commands.OptionValue(
                key=key.replace("_", "-"),
                value=text,
                origin=origin,
                use=str(getattr(param, "help", "")),
                is_refused=why is not None,
            )
    return [
        replace(each, commands=() if set(by_value[at]) == having[at[0]] else tuple(by_value[at]))
        for at, each in sorted(values.items(), key=lambda item: item[0][:2])
    ]


def _stated(param: Any, ctx: typer.Context, typed: Mapping[str, Any]) -> tuple[Any, str, str | None]:
    """Return an option's value, the name of Typer's ParameterSource, and why the option refuses it."""
    command: Any = ctx.command
    value, source = param.consume_value(ctx, typed)
    if source.name == "ENVIRONMENT":
        return value, source.name, why_refused(param, value)
    in_profile = ctx.obj.get(option_key(param.opts)) if source.name == "DEFAULT" else None
    if in_profile is None or param.name in command.typed_only:
        return value, source.name, None
    return in_profile, "DEFAULT_MAP", why_refused(param, in_profile)


def _options(ctx: typer.Context) -> Iterator[Any]:
    command: Any = ctx.command
    return (each for each in command.options if each.name not in _NOT_LISTED)


def _choice_of_profile(ctx: typer.Context, settings: RunSettings) -> list[commands.OptionValue]:
    """Return the tierctl.toml and the profile in use, which choose the values of the other options."""
    file = settings.profiles_file
    if file is None:
        return []
    stated = {
        "config-file": (str(file.path), None),
        "profile": (
            file.name_in_use(settings.profile),
            None if file.chosen is None else file.origin(file.chosen.line),
        ),
    }
    found = []
    for key, (value, in_file) in stated.items():
        name = key.replace("-", "_")
        sources = {getattr(each.get_parameter_source(name), "name", None) for each in (ctx, ctx.find_root())}
        origin = in_file or Origin(source=SettingSource.DEFAULT)
        if "COMMANDLINE" in sources:
            origin = Origin(source=SettingSource.OPTION, name=f"--{key}")
        elif "ENVIRONMENT" in sources:
            origin = Origin(source=SettingSource.ENVIRONMENT, name=f"TIERCTL_{name.upper()}")
        found.append(commands.OptionValue(key=key, value=value, origin=origin))
    return found


def _text(value: Any) -> str | None:
    """Return the value of an option as text; None for an option without a value, also for Typer's own.

    Secrets in the texts of a list are hidden.
    """
    match value:
        case () | []:
            return None
        case bool():
            return str(value).lower()
        case list() | tuple():
            # Each text by itself: in the joined one only the first NAME=VALUE would be seen.
            return ", ".join(shown("", str(_text(each))) for each in value)
        case Enum() if isinstance(value.value, str):
            return str(value.value)
        case str() | int() | float() | Path() | KafkaVersion() | TopicPartition():
            return str(value)
    return None


def _profile_problems(
    file: ProfilesFile, found: Sequence[typer.Context], asked: str | None
) -> Iterator[SettingProblem]:
    """Yield every problem of tierctl.toml; `found` are contexts of all commands, whose options it states."""
    yield from file.problems
    if any(each.kind is ProblemKind.MALFORMED for each in file.problems):
        return  # No profile was read.
    for problems in file.problems_of.values():
        yield from problems
    if file.name_in_use(asked) not in file.profiles and (asked or file.chosen):
        yield file.missing(file.name_in_use(asked))
    for profile in file.profiles.values():
        for key, stated in profile.items():
            message = _refusal(key, stated.value, found)
            if message is not None:
                yield SettingProblem(
                    kind=ProblemKind.WRONG_VALUE,
                    file=file.path,
                    line=stated.line,
                    setting=key.replace("_", "-"),
                    message=f"{key.replace('_', '-')}: {message}",
                    hint=f"see the option --{key.replace('_', '-')} in the help of a command",
                )


def _refusal(key: str, value: Any, found: Sequence[typer.Context]) -> str | None:
    """Return why no command accepts `value` for the option `key`; None if one does."""
    message = None
    for ctx in found:
        for param in _options(ctx):
            if option_key(param.opts) != key:
                continue
            message = why_refused(param, value)
            if message is None:
                return None
    return message


def _in_force(
    ctx: typer.Context, request: commands.ConfigRequest, words: Sequence[str]
) -> tuple[list[typer.Context], dict[str, Any], commands.ConfigRequest]:
    """Return the contexts of the commands that are shown, their typed options, and the request."""
    if not words:
        root = ctx.find_root()
        before, rest, _ = root.command.make_parser(root).parse_args(list(ctx.obj.args))
        after, _, _ = ctx.command.make_parser(ctx).parse_args(rest[2:])  # Without `config show`.
        return list(_contexts(ctx)), before | after, request
    command, arguments = named_command(words)
    if not isinstance(command, Command):
        raise unknown_command(words, "as in: tierctl config show sweep")
    path = words[: len(words) - len(arguments)]
    of_command = context_of(ctx, path, command)
    typed, _, _ = command.make_parser(of_command).parse_args(list(arguments))
    given = parsed(ctx, path, command, arguments, default_map=of_command.default_map)
    request = request_of(commands.ConfigRequest, given)
    return [of_command], typed, request


def _contexts(ctx: typer.Context) -> Iterator[typer.Context]:
    """Yield a context of each command; nothing is parsed."""
    for words, found in leaves():
        yield context_of(ctx, words, found)


def own_settings(ctx: typer.Context) -> commands.OwnSettings:
    """Return the problems of tierctl.toml and of the environment, and the files that profiles name."""
    settings: RunSettings = ctx.obj
    problems = list(settings.environment_problems())
    file, error = settings.profiles_file, settings.unreadable
    named: dict[str, list[Path]] = {name: [] for name in _FILES}
    if error is not None:
        problems.append(
            SettingProblem(
                kind=ProblemKind.UNREADABLE,
                file=settings.file,
                message=str(error.message).removeprefix(f"{settings.file}: "),
                hint=error.hint or "correct --config-file, or the permissions of the file",
            )
        )
    if file is not None:
        problems += _profile_problems(file, list(_contexts(ctx)), settings.profile)
        for name, path in _named_files(file.profiles.values()):
            named[name].append(path)
    return commands.OwnSettings(problems=problems, file=settings.file, **named)


def _named_files(profiles: Any) -> Iterator[tuple[str, Path]]:
    for profile in profiles:
        for name in _FILES:
            if name in profile and isinstance(profile[name].value, str):
                yield name, Path(profile[name].value)
