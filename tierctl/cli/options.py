"""Options that every command has: the profile, messages, and runs without an operator. Make the other options
of a command from the fields of its request, and the request from a command line.

A field of the request is the one declaration of its option. `app` gives each option an environment variable,
TIERCTL_<OPTION>, and a key in tierctl.toml.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, Field, fields
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from types import EllipsisType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_origin

import typer

from tierctl.cli.profiles import RunSettings
from tierctl.commands import completion
from tierctl.commands.request import APPLY, RUN, TYPED_ONLY
from tierctl.commands.request import WHERE as PLACES
from tierctl.commands.request_fields import annotation_of, declaring, info_of
from tierctl.errors import UsageError
from tierctl.files import is_dir
from tierctl.model.choices import EngineName
from tierctl.model.times import DURATION_FORMS, parse_duration_ms
from tierctl.report.columns import Columns
from tierctl.report.console import LogFile, LogFormat
from tierctl.report.render import SHOW
from tierctl.wire.primitives import LIMIT_FACTOR_MAX, use_limit_factor

EVERYWHERE = "Everywhere"


def _once(receive: Callable[[RunSettings, Any], None]) -> Callable[[typer.Context, str, Any], None]:
    """Return a function that gives `receive` the value of an option, unless it keeps its present value.

    An option may be given before and after the command's name. A typed value takes precedence over the
    environment and the profile. The options of a command that `submit` or `schedule` only checks are in
    `ctx.meta`.
    """

    def take(ctx: typer.Context, name: str, value: Any) -> None:
        settings: RunSettings = ctx.obj
        if ctx.resilient_parsing:
            return
        ctx.meta[name] = value
        command = ctx.command_path.partition(" ")[2]
        if settings.command not in {"", command}:
            return
        settings.command = command
        if settings.log is not None:
            settings.log.command = command
        if value is not None and (is_typed(ctx, name) or name not in settings.unattended):
            settings.unattended.add(name)
            receive(settings, value)

    return take


def _require_folder(option: str, file: Path, hint: str) -> None:
    folder = file.absolute().parent
    if not is_dir(folder):
        raise UsageError(f"{option} {file}: {folder} is not a folder", hint=hint)


def _set_metrics_file(settings: RunSettings, value: Path) -> None:
    hint = "name a file in the folder of node_exporter's --collector.textfile.directory"
    _require_folder("--metrics-file", value, hint)
    from tierctl.report.prometheus import Meter

    settings.metrics_file, settings.meter = value, Meter()


def _set_log_format(settings: RunSettings, value: LogFormat) -> None:
    settings.log_format = value
    if settings.log is not None:
        settings.log.form = value


def _set_log_file(settings: RunSettings, value: Path) -> None:
    _require_folder("--log-file", value, "create the folder first, for the user who runs tierctl")
    log = LogFile(value.absolute(), settings.log_format or LogFormat.TEXT, settings.command)
    try:
        log.open()
    except OSError as e:
        raise UsageError(
            f"--log-file {value}: {e.strerror}",
            hint="name a new file, or a log of tierctl that belongs to this user and nobody else may write",
        ) from e
    settings.log = log


def _set_limit_factor(_settings: RunSettings, value: int) -> None:
    use_limit_factor(value)


def _set_lock_timeout(settings: RunSettings, value: int) -> None:
    settings.lock_timeout_ms = value


def _keep(ctx: typer.Context, name: str, value: object) -> None:
    """Keep the value of --profile or --config-file in the settings of the run; a typed one as in `_once`."""
    if value == "" and not ctx.resilient_parsing:
        raise UsageError(
            f"--{name}: expected a name, found an empty text",
            hint="name a profile of tierctl.toml, or leave the option out",
        )
    if value is not None and (is_typed(ctx, name) or name not in ctx.obj.unattended):
        ctx.obj.unattended.add(name)
        setattr(ctx.obj, name, value)


def _set_verbose(ctx: typer.Context, _name: str, value: int) -> None:
    if not ctx.resilient_parsing:
        ctx.obj.verbosity = max(ctx.obj.verbosity, value)
    if value > 1:
        import logging

        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")


def _set_quiet(ctx: typer.Context, _name: str, value: bool) -> None:
    if value:
        ctx.obj.is_quiet = True


HELP_ALL = "tierctl.help_all"
"""The key in a context's `meta` that --help-all sets."""


def _print_all_help(ctx: typer.Context, _name: str, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[HELP_ALL] = True
        ctx.get_help()
        raise typer.Exit


def eager_option(
    kind: Any,
    receive: Callable[[typer.Context, str, Any], None],
    *names: str,
    default: Any = None,
    marks: Sequence[object] = (),
    **more: Any,
) -> Parameter:
    """Return an option whose value `receive` gets before the command runs; the command does not see it."""
    key = names[0].removeprefix("--").replace("-", "_")

    def call(ctx: typer.Context, value: Any) -> None:
        receive(ctx, key, value)

    option = typer.Option(*names, callback=call, is_eager=True, expose_value=False, **more)
    annotation = Annotated[(kind, option, *marks)]
    return Parameter(key, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_everywhere = partial(eager_option, rich_help_panel=EVERYWHERE)

OPTIONS: Final = (
    _everywhere(
        str | None,
        _keep,
        "--profile",
        metavar="NAME",
        help="Use the settings of this profile in tierctl.toml.",
        autocompletion=completion.profiles,
    ),
    _everywhere(
        Path | None,
        _keep,
        "--config-file",
        metavar="FILE",
        help="The tierctl.toml to read. Default: ./tierctl.toml, then ~/.config/tierctl/tierctl.toml.",
    ),
    _everywhere(
        int,
        _set_verbose,
        "--verbose",
        "-v",
        default=0,
        help="Print more on stderr: what is opened, and the traceback of an error. -vv also prints the logs "
        "of Spark and of libraries.",
        count=True,
    ),
    _everywhere(
        bool,
        _set_quiet,
        "--quiet",
        "-q",
        default=False,
        help="Print only errors and warnings on stderr: no notes, no progress, no summary.",
    ),
    _everywhere(
        Path | None,
        _once(_set_metrics_file),
        "--metrics-file",
        metavar="FILE",
        help="At the end of the run, write its metrics to this file for node_exporter's textfile collector, "
        "which reads files named *.prom. Metrics of earlier runs stay in the file, and counters are "
        "increased.",
    ),
    _everywhere(
        LogFormat | None,
        _once(_set_log_format),
        "--log-format",
        help="Format of --log-file: one line of text per message (the default), or one JSON object per line.",
    ),
    _everywhere(
        Path | None,
        _once(_set_log_file),
        "--log-file",
        metavar="FILE",
        help="Append every message of the run to this file, also those that --quiet hides. If logrotate "
        "renames the file, a new one is created. It must be a regular file of this user that nobody else may "
        "write, and no link.",
    ),
    _everywhere(
        int | None,
        _once(_set_lock_timeout),
        "--lock-timeout",
        metavar="DURATION",
        parser=parse_duration_ms,
        help="If another tierctl holds a lock or the tier's lease, try again until this time has passed, "
        f"then exit with code 6. The time is written as {DURATION_FORMS}. Default: 0s, exit at once.",
    ),
    _everywhere(
        int | None,
        _once(_set_limit_factor),
        "--limit-factor",
        metavar="N",
        min=1,
        max=LIMIT_FACTOR_MAX,
        help="Multiply the limits on what one batch, record or manifest may cost, such as 64 MiB for a "
        "decompressed batch and 8 MiB for a record that is printed. Raise it if an error about your own data "
        "names this option; memory use grows with it. Default: 1.",
    ),
)
"""The options of every command."""
HELP_OPTION: Final = eager_option(
    bool,
    _print_all_help,
    "--help-all",
    default=False,
    marks=(TYPED_ONLY,),
    help="Show the help with all options.",
)


_Command = Callable[..., Any]
R = TypeVar("R")


class Fields(NamedTuple):
    """Fields of another request, which are options that need not be given."""

    request: type
    names: tuple[str, ...]


Part = str | tuple[str, ...] | Callable[[], Fields] | type | EllipsisType
"""A field of the request, a group of fields, a dataclass whose fields are options, or other own fields."""

METADATA_TOPIC: Final = ("metadata", "bootstrap_server", "command_config", "broker_config")
WHERE: Final = (*METADATA_TOPIC, "remote", "layout", "log_dir")
PRIVATE_KEYS: Final = ("aiven_private_key",)
STATE: Final = ("state_dir", "truncated_metadata")
SELECTION: Final = ("topic", "partition", "topic_id")
SPARK: Final = ("master", "spark_conf")
ENGINE: Final = ("engine", *SPARK)
TIER: Final = (WHERE, PRIVATE_KEYS, STATE, SELECTION)
"""The metadata, the objects and the logs of a tier; and of which partitions."""
THROTTLES: Final = ("throttle_copy", "throttle_fetch")
PUBLISHING: Final = ("plan_out", "apply", "broker_id", "wave_size", "threads", "attempts")
"""How a plan that changes no object of the tier is printed or carried out."""
CHANGING: Final = (
    *("plan_out", "apply", "allow_live_brokers", "allow_missing_objects", "adopt_tier", "no_lease"),
    *("broker_id", "wave_size", "threads", "attempts", "override"),
)
"""How a plan is printed or carried out."""

DetailedExitcode = Annotated[
    bool,
    typer.Option(
        "--detailed-exitcode",
        help="Without --apply: exit with code 9 instead of 0 if the plan has steps.",
        rich_help_panel=APPLY,
    ),
]
NoCheck = Annotated[
    bool,
    typer.Option(
        "--no-check",
        help="Do not check the names of topics, tiers, settings and files in the command: they are those of "
        "another machine, or not reachable from this one.",
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        help="Do not ask for confirmation. Without this option, --apply at a terminal asks for the topic's "
        "name before it carries out a plan of delete.",
        rich_help_panel=APPLY,
    ),
    TYPED_ONLY,
]
_REPEATED = frozenset({PLACES, SHOW, RUN})
"""The titles of groups of options that most commands have, whose help only names them."""


def with_options(
    *parts: Part,
    rows: Sequence[Columns] | Callable[[], Sequence[Columns]] = (),
    needs_valid_settings: bool = True,
) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command options; it calls the command with the request of their values.

    The options are fields of the class of its parameter `request`: those that `parts` name, in this order,
    and in place of `...` the fields that neither Request nor MutationRequest declares. A dataclass in `parts`
    adds its own fields, and the parameters of the command that are annotated with an option are options, too.
    `rows` are the kinds of rows that the command prints: completion and the JSON schemas read them. With
    `needs_valid_settings` the command raises UsageError for a wrong tierctl.toml or environment, and for a
    file or folder that this user may not read.
    """

    def decorate(command: _Command) -> _Command:
        own = inspect.signature(command, eval_str=True).parameters
        request = own["request"].annotation if "request" in own else None
        taken = {"ctx": own["ctx"]}
        repeated = set()
        for part in parts if ... in parts else (*parts, ...):
            for option in _options(request, part, own):
                taken.setdefault(option.name, option)
                if not isinstance(part, str | EllipsisType) and _panel(option) in _REPEATED:
                    repeated.add(option.name)
        taken |= {each.name: each for each in (*OPTIONS, HELP_OPTION)}
        if not needs_valid_settings:
            taken = {name: _that_may_be_unreadable(each) for name, each in taken.items()}

        @functools.wraps(command)
        def called(**given: Any) -> Any:
            ctx = given["ctx"]
            ctx.obj.announce()
            if needs_valid_settings:
                ctx.obj.require_valid()
            if request is not None:
                given["request"] = request_of(request, ctx)
            return command(**{name: given[name] for name in own})

        set_parameters(called, taken.values())
        called.needs_valid_settings = needs_valid_settings  # type: ignore[attr-defined]
        called.repeated = repeated  # type: ignore[attr-defined]
        called.request = request  # type: ignore[attr-defined]
        called.rows = rows() if callable(rows) else rows  # type: ignore[attr-defined]
        return called

    return decorate


def set_parameters(command: Any, parameters: Iterable[Parameter]) -> None:
    """Let Typer see these parameters in place of the command's own."""
    named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = Signature(named)
    command.__annotations__ = {each.name: each.annotation for each in named}


def _options(request: type | None, part: Part, own: Mapping[str, Parameter]) -> Iterator[Parameter]:
    """Yield the options of one part of a command's options."""
    if isinstance(part, EllipsisType):
        yield from (each for each in own.values() if info_of(each.annotation) is not None)
        if request is not None:
            yield from (_option(request, each) for each in fields(request) if _is_own(request, each.name))
    elif isinstance(part, type):
        yield from (_option(part, each) for each in fields(part) if info_of(annotation_of(part, each.name)))
    elif callable(part):
        other = part()
        for option in _options(other.request, other.names, own):
            yield option.replace(default=None) if option.default is Parameter.empty else option
    else:
        assert request is not None
        by_name = {each.name: each for each in fields(request)}
        yield from (_option(request, by_name[name]) for name in ((part,) if isinstance(part, str) else part))


def _is_own(request: type, name: str) -> bool:
    """Return whether a field is an option that not every command of its kind has."""
    shared = {"Request", "MutationRequest"}
    declares = declaring(request, name)
    return declares.__name__ not in shared and info_of(annotation_of(request, name)) is not None


def _option(kind: type, field: Field[Any]) -> Parameter:
    """Return the field of a dataclass as a parameter that Typer reads; Typer takes lists, not sequences."""
    annotation = annotation_of(kind, field.name)
    value, info, *more = get_args(annotation)
    if value is bool and info.default is ...:  # It states no name, and Typer would add one with `no-`.
        info = copy(info)
        info.param_decls = (f"--{field.name.replace('_', '-')}",)
    if get_origin(value) is tuple:  # Its parser makes it of one text.
        value = str
    elif get_origin(value) is Sequence:
        # What a parser returns may be of a type that Typer does not know.
        value = list[str] if info.parser is not None else list[get_args(value)]  # type: ignore[misc]
    default = Parameter.empty if field.default is MISSING else field.default
    default = None if default == () else default
    return Parameter(
        field.name, Parameter.KEYWORD_ONLY, annotation=Annotated[value, info, *more], default=default
    )


def _that_may_be_unreadable(option: Parameter) -> Parameter:
    """Return a parameter of which Typer accepts a path that this user may not read."""
    info = info_of(option.annotation)
    if info is None or get_args(option.annotation)[0] is bool:
        return option
    value, *more = get_args(option.annotation)
    lenient = copy(info)
    lenient.readable = False
    marks = (lenient if each is info else each for each in more)
    return option.replace(annotation=Annotated[(value, *marks)])


def _panel(option: Parameter) -> str | None:
    """Return the title under which the help lists an option."""
    info = info_of(option.annotation)
    return None if info is None else info.rich_help_panel


def is_typed(ctx: Any, name: str) -> bool:
    """Return whether an option was given on the command line, not by the environment or a profile."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def typed_option(ctx: typer.Context, names: Iterable[str]) -> str | None:
    """Return the first option of the parameters `names` that the command line has, as --log-dir, or None."""
    written = {param.name: max(param.opts, key=len) for param in ctx.command.get_params(ctx)}
    return next((written[name] for name in names if is_typed(ctx, name)), None)


_CLUSTER: Final = ("metadata", "bootstrap_server")


def _other_cluster(ctx: typer.Context) -> list[str]:
    """Return the options whose values of the environment or the profile a typed option replaces.

    A typed --bootstrap-server names the metadata topic, too, and a typed --metadata kafka://... the cluster:
    both replace the cluster that the other one states elsewhere, unless two clusters are stated there.
    """
    metadata, servers = (ctx.params.get(name) for name in _CLUSTER)
    typed = [name for name in _CLUSTER if is_typed(ctx, name)]
    are_clusters = servers is not None and str(metadata).startswith("kafka:")
    if len(typed) != 1 or not are_clusters or _is_stated(ctx, typed[0]):
        return []
    return [name for name in _CLUSTER if name not in typed]


def _is_stated(ctx: typer.Context, name: str) -> bool:
    """Return whether the environment or the profile has a value for an option."""
    settings: RunSettings = ctx.obj
    return f"TIERCTL_{name.upper()}" in settings.environ or settings.get(name) is not None


def request_of(kind: type[R], ctx: typer.Context, **more: object) -> R:
    """Return the request of class `kind` whose fields have the values of the options of the same names.

    Options that were not given leave a field at its default; fields in `more` have the values given there.
    Raise UsageError for options of Spark that are typed without `--engine spark`.
    """
    given: Mapping[str, Any] = ctx.params
    if given.get("engine") is EngineName.LOCAL:
        # A profile may have them for other runs, so only typed options are an error.
        option = typed_option(ctx, ("master", "spark_conf"))
        if option:
            raise UsageError(
                f"{option} needs --engine spark", hint=f"add --engine spark, or leave {option} out"
            )
    of_run = {"verbose": getattr(ctx.obj, "verbosity", 0) > 1, "meter": getattr(ctx.obj, "meter", None)}
    if isinstance(ctx.obj, RunSettings):
        of_run |= {"on_topics": ctx.obj.topics.update, "throttle": ctx.obj.throttle}
        of_run |= {"command_name": ctx.obj.command, "on_begun": ctx.obj.begun.set}
    values = dict(given) | of_run | dict.fromkeys(_other_cluster(ctx)) | more
    if isinstance(ctx.obj, RunSettings) and given.get("apply") is not False:
        # A run that only plans changes nothing in the state directory.
        ctx.obj.state_dir = values.get("state_dir")
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if name in names and value is not None
        }
    )
