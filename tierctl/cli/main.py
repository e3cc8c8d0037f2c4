"""Build the command tree, run one command line, and return its exit code."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import click
from click.exceptions import Exit, NoArgsIsHelpError

from tierctl import __version__
from tierctl.cli.declare import HELP_NAMES, option, params_of
from tierctl.cli.help.node import Node, load_commands, settings_key
from tierctl.cli.help.stored_names import StoredNames
from tierctl.cli.help.text import help_text
from tierctl.cli.settings.run import Defaults, RunSettings, every
from tierctl.cli.signals import PIPE_CLOSED, Signalled
from tierctl.cli.unattended import EVERYWHERE as _EVERYWHERE
from tierctl.cli.unattended import (
    LimitFactor,
    LockTimeout,
    LogFileOption,
    LogFormatOption,
    MetricsFile,
    console_of_run,
    record_names,
    record_run,
    record_success,
    until_unlocked,
)
from tierctl.errors import NOT_ALLOWED, WRONG_PATH, ExitCode, TierctlError
from tierctl.report.console import ErrorReport
from tierctl.wire.limits import use_limit_factor

GROUPS: Mapping[str, Sequence[str]] = {
    "Look at a tier; nothing is changed": (
        *("status", "explain", "report", "doctor", "segments", "verify", "format", "fetch"),
    ),
    "Change a tier; without --apply only the plan is printed": (*("copy", "sweep", "delete", "apply"),),
    "Prepare for a loss, and come back from it": ("backup-config", "rebuild", "restore"),
    "Run unattended, or on Spark": ("schedule", "submit", "pipeline"),
    "Files and settings": ("config", "cache", "offsets"),
}
"""The commands by the title under which `tierctl --help` lists them."""

COMMANDS = tuple(chain.from_iterable(GROUPS.values()))
_PACKAGES = dict.fromkeys(("backup-config", "rebuild", "restore"), "recovery")
"""The package below `tierctl.cli` of commands whose module is in a package."""


def _print_version(ctx: click.Context, value: bool) -> None:
    if value:
        click.echo(f"tierctl {__version__}")
        ctx.exit()


def _set_profile(ctx: click.Context, value: str | None) -> None:
    if value is not None and isinstance(ctx.obj, RunSettings):
        ctx.obj.profile = value


def _set_config_file(ctx: click.Context, value: Path | None) -> None:
    if value is not None and isinstance(ctx.obj, RunSettings):
        ctx.obj.config_file = value


def _set_verbose(ctx: click.Context, value: int) -> None:
    if isinstance(ctx.obj, RunSettings):
        ctx.obj.verbosity = max(ctx.obj.verbosity, value)
    if value > 1:
        import logging

        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")


def _set_quiet(ctx: click.Context, value: bool) -> None:
    if value and isinstance(ctx.obj, RunSettings):
        ctx.obj.is_quiet = True


Profile = Annotated[
    str | None,
    option(
        "--profile",
        metavar="NAME",
        help="Use the settings of this profile in tierctl.toml.",
        completed_from=StoredNames.PROFILES,
        callback=_set_profile,
        panel=_EVERYWHERE,
    ),
]
ConfigFile = Annotated[
    Path | None,
    option(
        "--config-file",
        metavar="FILE",
        help="The tierctl.toml to read. Default: ./tierctl.toml, then ~/.config/tierctl/tierctl.toml.",
        callback=_set_config_file,
        panel=_EVERYWHERE,
    ),
]
Verbose = Annotated[
    int,
    option(
        "--verbose",
        "-v",
        help="Print more on stderr: what is opened, and the traceback of an error. -vv also prints the logs "
        "of Spark and of libraries.",
        callback=_set_verbose,
        is_counted=True,
        panel=_EVERYWHERE,
    ),
]
Quiet = Annotated[
    bool,
    option(
        "--quiet",
        "-q",
        help="Print only errors on stderr: no notes, no progress, no summary.",
        callback=_set_quiet,
        panel=_EVERYWHERE,
    ),
]
Version = Annotated[
    bool, option("--version", help="Print the version.", callback=_print_version, is_typed_only=True)
]


def _root(
    profile: Profile = None,
    config_file: ConfigFile = None,
    verbose: Verbose = 0,
    quiet: Quiet = False,
    metrics_file: MetricsFile = None,
    log_format: LogFormatOption = None,
    log_file: LogFileOption = None,
    lock_timeout: LockTimeout = None,
    limit_factor: LimitFactor = None,
    version: Version = False,
) -> None:
    """Operations toolkit for Apache Kafka tiered storage (KIP-405, KIP-917).

    copy, sweep, delete, rebuild, restore and apply print a plan and change nothing unless --apply is given.
    """


def module_of(command: str) -> str:
    """Return the name of the module that registers a command of `COMMANDS`."""
    words = ("tierctl.cli", _PACKAGES.get(command), command.replace("-", "_"))
    return ".".join(word for word in words if word)


def build(names: Sequence[str] = COMMANDS) -> click.Group:
    """Return the tree of the commands in `names`, ready to parse a command line; import no heavy library."""
    own = params_of(_root)
    root = click.Group(
        "tierctl",
        no_args_is_help=True,
        params=own,
        help=cleandoc(_root.__doc__ or ""),
        context_settings={"help_option_names": HELP_NAMES},
    )
    for name in names:
        import_module(module_of(name)).register(root)
    for command in leaves(root):
        command.params.extend(param for param in own if param.name != "version")
    for command in everything(root):
        command.format_help = _write_help
    return root


def _write_help(ctx: Any, formatter: Any) -> None:
    formatter.write(help_text(load_commands(), _path(ctx).split()[1:]))


def everything(command: Any) -> Iterator[Any]:
    """Yield `command` itself, and every group and command below it."""
    yield command
    for child in getattr(command, "commands", {}).values():
        yield from everything(child)


def leaves(command: Any) -> Iterator[Any]:
    """Yield every command below `command`, without groups."""
    return (each for each in everything(command) if not hasattr(each, "commands"))


def _options(command: Any) -> list[Any]:
    return [param for param in command.params if param.param_type_name == "option"]


def _defaults(command: Any, settings: RunSettings) -> Defaults:
    children = getattr(command, "commands", {})
    options = {option.name: option for option in _options(command)}
    needs_valid = getattr(command, "needs_valid_settings", True)
    return Defaults(
        settings,
        keys={
            name: settings_key(option.opts)
            for name, option in options.items()
            if not getattr(option, "is_typed_only", False)
        },
        lists={name for name, option in options.items() if option.multiple},
        accepted=every if needs_valid else lambda name, value: _is_valid(command, options[name], value),
        commands={name: _defaults(child, settings) for name, child in children.items()},
    )


def _is_valid(command: Any, option: Any, value: Any) -> bool:
    """Return whether an option accepts a value of the profile."""
    try:
        option.type_cast_value(click.Context(command), value)
    except (click.ClickException, TierctlError):
        return False
    return not isinstance(value, list) or option.multiple


def _fail(settings: RunSettings, report: ErrorReport) -> None:
    # The traceback comes first, so that message and hint are the last lines on the screen.
    if settings.verbosity:
        import traceback

        traceback.print_exc()
    console_of_run(settings).error(report)


def _usage_message(error: Any) -> str:
    # The possibilities are in the hint, which click would add to its message.
    return str(error.message if hasattr(error, "possibilities") else error.format_message())


def _usage_hint(error: Any) -> str:
    possibilities = sorted(getattr(error, "possibilities", None) or ())
    if possibilities:
        return f"did you mean {' or '.join(possibilities)}?"
    ctx = getattr(error, "ctx", None)
    return f"see '{_path(ctx) if ctx else 'tierctl'} --help'"


def _path(ctx: Any) -> str:
    return f"{_path(ctx.parent)} {ctx.info_name}" if ctx.parent else str(ctx.info_name)


def _named(args: Sequence[str], known: Node) -> Sequence[str]:
    """Return the command that `args` name, or all commands, from which an error finds the nearest."""
    valued = {name for option in known.options if not option.is_flag for name in option.names}
    words = (word for before, word in zip(("", *args), args, strict=False) if before not in valued)
    first = next((word for word in words if not word.startswith("-")), None)
    # These commands need the options of other commands, which they find in the tree.
    return (first,) if first in COMMANDS and first not in {"submit", "schedule", "config"} else COMMANDS


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code; no other function catches every exception."""
    use_limit_factor(1)
    known = load_commands()
    root = build(_named(args, known))
    settings = RunSettings(
        option_names=known.option_keys - known.typed_only_keys,
        typed_only=known.typed_only_keys,
        environ=os.environ,
        args=args,
        known=known,
    )
    error: BaseException | None = None
    try:
        code = until_unlocked(settings, lambda: _invoked(root, args, settings))
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt, Signalled) as e:
        if settings.is_read:
            settings.announce()
        error, code = e, _exit_code(e, settings)
    record_names(settings)
    record_run(settings, code, error)
    if error is None:
        record_success(settings, code)
    return code


def _invoked(root: click.Group, args: Sequence[str], settings: RunSettings) -> int:
    ctx = root.make_context("tierctl", list(args), obj=settings, default_map=_defaults(root, settings))
    with ctx:
        return int(root.invoke(ctx) or ExitCode.OK)


def _exit_code(error: BaseException, settings: RunSettings) -> int:
    """Print the message of the error that ended a run, and return the exit code."""
    if isinstance(error, NoArgsIsHelpError):
        click.echo(error.message, err=True)
        return error.exit_code
    code = _code_of(error)
    report = _report(error, code)
    if report is not None:
        _fail(settings, report)
    return code


def _code_of(error: BaseException) -> int:
    match error:
        case TierctlError() | Exit() | click.ClickException():
            return error.exit_code
        case BrokenPipeError():
            return PIPE_CLOSED
        case KeyboardInterrupt() | Signalled():
            return 128 + getattr(error, "number", signal.SIGINT)
        case OSError():
            return _file_error_code(error)
    return ExitCode.INTERNAL


def _report(error: BaseException, code: int) -> ErrorReport | None:
    """Return the report to print for an error; None if no report is printed."""
    kind = type(error).__name__
    match error:
        case TierctlError():
            return ErrorReport.of(error)
        case click.ClickException():
            message, hint = _usage_message(error), _usage_hint(error)
            return ErrorReport(code=code, kind="UsageError", message=message, hint=hint)
        case Exit() | BrokenPipeError() | KeyboardInterrupt() | Signalled():
            return None
        case OSError():
            where = error.filename or "input/output"
            message = f"{where}: {error.strerror or error}"
            advice = NOT_ALLOWED if isinstance(error, PermissionError) else None
            return ErrorReport(code=code, kind=kind, message=message, where=str(where), hint=advice)
    return ErrorReport(
        code=code,
        kind=kind,
        message=f"internal: {kind}: {error}",
        hint="run it again with --verbose for the traceback",
    )


def _file_error_code(error: OSError) -> ExitCode:
    """Return NOT_FOUND or USAGE for a wrong path, which the operator must correct, otherwise RETRYABLE."""
    match error:
        case FileNotFoundError():
            return ExitCode.NOT_FOUND
        case _ if isinstance(error, WRONG_PATH):
            return ExitCode.USAGE
    return ExitCode.RETRYABLE
