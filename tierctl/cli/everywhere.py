"""Options that every command has: the profile, messages, and runs without an operator.

The runs' waits for locks, their metrics and their log are here, too.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tierctl.cli.profiles import RunSettings
from tierctl.commands import completion
from tierctl.commands.completion import store_topics
from tierctl.commands.request import TYPED_ONLY
from tierctl.errors import ExitCode, LockedError, TierctlError, UsageError
from tierctl.model.times import DURATION_FORMS, duration_text, parse_duration_ms
from tierctl.report.console import Console, LogFile, LogFormat
from tierctl.wire.primitives import LIMIT_FACTOR_MAX, use_limit_factor

EVERYWHERE = "Everywhere"
_ONLY_LOOK = frozenset({"status", "explain", "doctor", "cache show", "offsets show"})
"""Commands whose user may have no right to write into the state directory."""
_FIRST_PAUSE_S = 0.5
_PAUSE_S_MAX = 30.0


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
        source = ctx.get_parameter_source(name)
        is_typed = source is not None and source.name == "COMMANDLINE"
        if value is not None and (is_typed or name not in settings.unattended):
            settings.unattended.add(name)
            receive(settings, value)

    return take


def _require_folder(option: str, file: Path, hint: str) -> None:
    folder = file.absolute().parent
    if not folder.is_dir():
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
            hint="name a new file, or a regular file of this user that nobody else may write",
        ) from e
    settings.log = log


def _set_limit_factor(_settings: RunSettings, value: int) -> None:
    use_limit_factor(value)


def _set_lock_timeout(settings: RunSettings, value: int) -> None:
    settings.lock_timeout_ms = value


def _keep(ctx: typer.Context, name: str, value: object) -> None:
    """Keep the value of --profile or --config-file in the settings of the run."""
    if value is not None:
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
        help="Print only errors on stderr: no notes, no progress, no summary.",
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


def until_unlocked(settings: RunSettings, begin: Callable[[], int]) -> int:
    """Return the result of `begin`, which is called again while other runs hold a lock.

    Each call decides again, because the other run may have changed the state. Raise the LockedError of
    `begin` once the lock timeout has passed.
    """
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return begin()
        except LockedError as e:
            # The option is known only after `begin` has read the command line.
            deadline_s = settings.started_s + settings.lock_timeout_ms / 1000
            if time.monotonic() + pause_s > deadline_s:
                raise
            if pause_s == _FIRST_PAUSE_S:
                limit = duration_text(settings.lock_timeout_ms)
                settings.console.say(f"{e.message}; waiting for it, at most {limit}")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def record_success(settings: RunSettings, code: int) -> None:
    """Store in the state directory, if one was named, that the run ended without an error, for `status`.

    A failure is only a warning, and none for commands that only look. Runs that only plan are not stored.
    """
    if settings.state_dir is None or code != ExitCode.OK:
        return
    from tierctl.metadata.state_dir import record_successful_run

    try:
        record_successful_run(settings.state_dir, settings.command, int(time.time() * 1000))
    except (OSError, TierctlError) as e:
        if settings.command in _ONLY_LOOK:
            return
        where = f"--state-dir {settings.state_dir}"
        settings.console.warn(f"{where}: the end of the run could not be stored: {_why(e)}")


def _why(error: OSError | TierctlError) -> str:
    """Return the reason of an error, without the number that an OSError adds."""
    return str(error) if isinstance(error, TierctlError) else error.strerror or str(error)


def record_names(settings: RunSettings) -> None:
    """Store the names of the topics that the run read, for completion by shells.

    If the home directory is missing, read-only or belongs to another user, store nothing and print no
    message.
    """
    if settings.topics:
        with suppress(OSError):
            store_topics(settings.profile_in_use, settings.topics, settings.environ)


def record_run(settings: RunSettings, code: int, error: BaseException | None) -> None:
    """Write the metrics and the last line of the log of a run that ended with `code`, or by `error`.

    A failure is only a warning: it does not change what the run did, nor its exit code.
    """
    if isinstance(error, typer.Exit):
        return
    console = settings.console
    if settings.metrics_file is not None and settings.meter is not None:
        _write_metrics(settings, code, error, console)
    if settings.log is not None:
        seconds = round(time.monotonic() - settings.started_s, 3)
        settings.log.write("info", f"exit code {code}", exit_code=code, seconds=seconds)
        if settings.log.error is not None:
            why = settings.log.error
            console.warn(
                f"--log-file {settings.log.path}: some messages could not be written: {why.strerror or why}"
            )


def _write_metrics(settings: RunSettings, code: int, error: BaseException | None, console: Console) -> None:
    from tierctl.report.prometheus import Run, measure_run, measure_throttle
    from tierctl.report.prometheus_file import write_metrics

    assert settings.metrics_file is not None
    assert settings.meter is not None
    run = Run(
        command=settings.command,
        exit_code=code,
        error=None if error is None else type(error).__name__,
        is_applied="--apply" in settings.args,
        end_s=time.time(),
        seconds=time.monotonic() - settings.started_s,
    )
    measure_run(settings.meter, run)
    measure_throttle(settings.meter, settings.throttle)
    try:
        lost = write_metrics(settings.metrics_file, settings.meter)
    except (OSError, TierctlError) as e:
        console.warn(f"--metrics-file {settings.metrics_file} could not be written: {_why(e)}")
    else:
        if lost is not None:
            console.warn(f"--metrics-file: {lost}")
