"""Build the command tree, run one command line, and return its exit code."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import typer
from typer.main import get_command

from tierctl import __version__
from tierctl.cli.app import HELP_NAMES, Root, leaves
from tierctl.cli.everywhere import (
    HELP_OPTION,
    OPTIONS,
    eager_option,
    record_names,
    record_run,
    record_success,
    until_unlocked,
)
from tierctl.cli.options import set_parameters
from tierctl.cli.profiles import OptionKeys, RunSettings, require_no_credentials_in
from tierctl.cli.signals import PIPE_CLOSED, Signalled
from tierctl.commands.request import TYPED_ONLY
from tierctl.errors import NOT_ALLOWED, WRONG_PATH, ExitCode, TierctlError
from tierctl.report.console import ErrorReport
from tierctl.wire.primitives import use_limit_factor

_COMPLETE = "_TIERCTL_COMPLETE"


def _print_version(ctx: typer.Context, _name: str, value: bool) -> None:
    if value:
        typer.echo(f"tierctl {__version__}")
        ctx.exit()


_VERSION = eager_option(
    bool, _print_version, "--version", default=False, marks=(TYPED_ONLY,), help="Print the version."
)

app = typer.Typer(
    cls=Root,
    name="tierctl",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": HELP_NAMES},
)


def root(**_handled_before: object) -> None:
    """Operations toolkit for Apache Kafka tiered storage (KIP-405, KIP-917).

    copy, sweep, delete, rebuild, restore and apply print a plan and change nothing unless --apply is given.
    """


set_parameters(root, (*OPTIONS, _VERSION, HELP_OPTION))
app.callback()(root)


def _fail(settings: RunSettings, report: ErrorReport) -> None:
    # The traceback comes first, so that message and hint are the last lines on the screen.
    if settings.verbosity:
        import traceback

        traceback.print_exc()
    settings.console.error(report)


def _usage_message(error: Any) -> str:
    if hasattr(error, "possibilities"):
        return str(error.message)  # The possibilities are in the hint.
    text = str(error.format_message()).replace("Value error, ", "").removesuffix(".")
    wrong: list[Any] = getattr(error.__cause__, "errors", list)()
    found = repr(wrong[0]["input"]) if wrong else ""
    return text if found in text else f"{text}: found {found}"


def _usage_hint(error: Any) -> str:
    possibilities = sorted(getattr(error, "possibilities", None) or ())
    if possibilities:
        return f"did you mean {' or '.join(possibilities)}?"
    ctx = getattr(error, "ctx", None)
    return f"see '{_path(ctx) if ctx else 'tierctl'} --help'"


def _path(ctx: Any) -> str:
    return f"{_path(ctx.parent)} {ctx.info_name}" if ctx.parent else str(ctx.info_name)


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code; no other function catches every exception."""
    use_limit_factor(1)
    settings = RunSettings(
        keys=OptionKeys(lambda: (command for _, command in leaves())), environ=os.environ, args=args
    )
    command = get_command(app)
    if _COMPLETE in os.environ:
        command.main(list(args), prog_name="tierctl", complete_var=_COMPLETE, obj=settings)
    error: BaseException | None = None
    try:
        require_no_credentials_in(args, os.environ)
        code = until_unlocked(settings, partial(_invoked, command, args, settings))
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


def _invoked(command: Any, args: Sequence[str], settings: RunSettings) -> int:
    ctx = command.make_context("tierctl", list(args), obj=settings)
    with ctx:
        return int(command.invoke(ctx) or ExitCode.OK)


def _exit_code(error: BaseException, settings: RunSettings) -> int:
    """Print the message of the error that ended a run, and return the exit code."""
    code = _code_of(error)
    if isinstance(error, KeyboardInterrupt | Signalled):
        _say_what_was_changed(error, code - 128, settings)
    report = _report(error, code)
    if report is not None:
        _fail(settings, report)
    return code


_ENDLESS = frozenset({"--follow", "-f", "--watch"})
_WHAT_WAS_CHANGED = {
    "pipeline run": "the next run continues after the last commit",
    "cache build": "each file is the old or the new one",
    "cache compact": "each file is the old or the new one",
    "offsets repair": "each file is the old or the new one",
    # They end with an interruption, or another process does the work.
    "format": None,
    "submit": None,
}


def _say_what_was_changed(error: BaseException, number: int, settings: RunSettings) -> None:
    """End a run that a signal ended as other runs end: with what was changed, and the command to continue."""
    changed = _WHAT_WAS_CHANGED.get(settings.command, "nothing was changed")
    if changed is None or not settings.command or not _ENDLESS.isdisjoint(settings.args):
        return
    changed = next(iter(getattr(error, "__notes__", ())), changed)
    text = f"stopped by {signal.Signals(number).name}; {changed}"
    seconds = time.monotonic() - settings.started_s
    with suppress(OSError):  # The terminal may be gone.
        if sys.stderr.isatty():
            print(file=sys.stderr)  # The terminal shows ^C in the line of a progress bar.
        settings.console.summary(
            settings.command, text, seconds=seconds, next_command=shlex.join(["tierctl", *settings.args])
        )


def _code_of(error: BaseException) -> int:
    match error:
        case TierctlError() | typer.Exit() | typer.TyperException():
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
        case typer.TyperException() if not error.format_message():
            return None  # No command was given: the help is printed already.
        case typer.TyperException():
            message, hint = _usage_message(error), _usage_hint(error)
            return ErrorReport(code=code, kind="UsageError", message=message, hint=hint)
        case typer.Exit() | BrokenPipeError() | KeyboardInterrupt() | Signalled():
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
