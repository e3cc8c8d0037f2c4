"""The entry point: build the command tree, run one command line, and end the process with its exit code."""

import atexit
import errno
import os
import re
import shlex
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from traceback import format_exc, walk_tb
from types import FrameType
from typing import Any, Never

import typer
from typer.main import get_command

from tierctl import __version__
from tierctl.cli.app import HELP_NAMES, Root, in_our_words, leaves, source_of
from tierctl.cli.options import HELP_OPTION, OPTIONS, eager_option, set_parameters
from tierctl.cli.profiles import OptionKeys, RunSettings, require_no_credentials_in
from tierctl.commands.completion import store_topics
from tierctl.commands.request import TYPED_ONLY
from tierctl.errors import ExitCode, LockedError, TierctlError, UsageError, hint_of, is_wrong_path
from tierctl.model.location import masked
from tierctl.model.times import duration_text
from tierctl.report.console import Console, ErrorReport, print_line
from tierctl.report.table import printable
from tierctl.wire.primitives import use_limit_factor

PIPE_CLOSED = 128 + signal.SIGPIPE
_COMPLETE = "_TIERCTL_COMPLETE"
_ONLY_LOOK = frozenset({"status", "explain", "doctor", "cache show", "offsets show"})
"""Commands whose user may have no right to write into the state directory."""
_FIRST_PAUSE_S = 0.5
_PAUSE_S_MAX = 30.0


class Signalled(BaseException):
    """A signal asks the process to end; an exception, so that locks and temporary files are released."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _raise_on_signals() -> None:
    """Raise `Signalled` on SIGTERM and SIGHUP, of which a second one ends the process at once.

    Raise KeyboardInterrupt on SIGINT again, as before the imports.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup starts the process with SIGHUP ignored; keep it ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def _on_signal(number: int, _frame: FrameType | None) -> Never:
    signal.signal(number, signal.SIG_DFL)
    raise Signalled(number)


def main() -> Never:
    """Run the command line of the process and end the process with its code."""
    if not _has_streams():
        _end(PIPE_CLOSED)
    for stream in (sys.stdout, sys.stderr):
        # A character that the locale can't encode must not end a run.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    _raise_on_signals()
    try:
        code = run(sys.argv[1:])
        try:
            sys.stdout.flush()
        except OSError as e:
            # `run` has reported a full disk, and whether a pipe was closed only shows here.
            if isinstance(e, BrokenPipeError):
                raise
    except (BrokenPipeError, KeyboardInterrupt, Signalled) as e:
        code = _code_of(e)  # Before a run begins, or after its end: there is nothing to say.
    _end(code)


def _has_streams() -> bool:
    """Replace a closed stderr by the null device; return whether stdout is open.

    Python has None in the place of a stream that was closed before it began, as by `>&-`. A file that is
    opened later would get the number of such a stream. A closed stdin stays None: what reads it must not find
    that it is empty.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
    has_stdout = sys.stdout is not None
    if not has_stdout:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    return has_stdout


def _end(code: int) -> Never:
    """End the process: wait for its threads and run the exit handlers, but do not dismantle the interpreter.

    Dismantling takes 50 ms, and a thread of Arrow that frees a buffer meanwhile aborts the process.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    except (KeyboardInterrupt, Signalled) as e:
        code = _code_of(e)  # Interrupted once more: threads, which may store a segment, are not waited for.
    atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


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
        # Its last line is the message, which may have names and addresses from anywhere.
        for line in masked(format_exc().rstrip("\n")).split("\n"):
            print_line(printable(line))
    settings.console.error(report)


_NOT_ONE_OF = re.compile(r"'(.*)' is not one of '(.*)'")


def _usage_message(error: Any) -> str:
    if hasattr(error, "possibilities"):
        return str(error.message)  # The possibilities are in the hint.
    source = _source(error)
    return in_our_words(error, error.format_message() if source is None else f"{source}: {error.message}")


def _usage_hint(error: Any) -> str:
    possibilities = sorted(getattr(error, "possibilities", None) or _nearest_choice(str(error.message)))
    if possibilities:
        return f"did you mean {' or '.join(possibilities)}?"
    ctx = getattr(error, "ctx", None)
    if _source(error) is not None:
        return f"see {max(error.param.opts, key=len)} in '{_path(ctx)} --help-all'"
    return f"see '{_path(ctx) if ctx else 'tierctl'} --help'"


def _nearest_choice(text: str) -> list[str]:
    """Return the nearest of the values that an error of an option states instead of a wrong one; or none."""
    wrong = _NOT_ONE_OF.search(text)
    return [] if wrong is None else get_close_matches(wrong[1], wrong[2].split("', '"), n=1)


def _source(error: Any) -> str | None:
    """Return where the value that Typer refuses was stated; None if it was typed, and for other errors."""
    if not error.message:  # A value is missing.
        return None
    return source_of(getattr(error, "ctx", None), getattr(error, "param", None))


def _path(ctx: Any) -> str:
    return f"{_path(ctx.parent)} {ctx.info_name}" if ctx.parent else str(ctx.info_name)


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code; run it again while other runs hold a lock.

    No other function catches every exception.
    """
    use_limit_factor(1)
    settings = RunSettings(
        keys=OptionKeys(lambda: (command for _, command in leaves())), environ=os.environ, args=args
    )
    command = get_command(app)
    if os.environ.get(_COMPLETE):
        command.main(list(args), prog_name="tierctl", complete_var=_COMPLETE, obj=settings)
    error: BaseException | None = None
    try:
        require_no_credentials_in(args, os.environ)
        for pause_s in _pauses():
            # Each attempt decides again, because the other run may have changed the state.
            try:
                with command.make_context("tierctl", list(args), obj=settings) as ctx:
                    code = int(command.invoke(ctx) or ExitCode.OK)
                break
            except typer.Exit:
                # What was printed is a help text, whose errors are reported as those of rows.
                sys.stdout.flush()
                raise
            except LockedError as e:
                _wait_for_lock(settings, e, pause_s)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt, Signalled) as e:
        if settings.is_read:
            settings.announce()
        error, code = e, _exit_code(e, settings)
    _record_names(settings)
    _record_run(settings, code, error)
    if error is None:
        _record_success(settings, code)
    return code


def _pauses() -> Iterator[float]:
    """Yield the seconds to wait before each further attempt of a run that another one locks out."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def _wait_for_lock(settings: RunSettings, error: LockedError, pause_s: float) -> None:
    """Wait because another run holds a lock; raise `error` if the lock timeout would pass meanwhile."""
    # The option is known only after the command line was read.
    deadline_s = settings.started_s + settings.lock_timeout_ms / 1000
    if time.monotonic() + pause_s > deadline_s:
        raise error
    if pause_s == _FIRST_PAUSE_S:
        limit = duration_text(settings.lock_timeout_ms)
        settings.console.say(f"{error.message}; waiting for it, at most {limit}")
    time.sleep(pause_s)


def _record_success(settings: RunSettings, code: int) -> None:
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


def _record_names(settings: RunSettings) -> None:
    """Store the names of the topics that the run read, for completion by shells.

    If the home directory is missing, read-only or belongs to another user, store nothing and print no
    message.
    """
    if settings.topics:
        with suppress(OSError):
            store_topics(settings.profile_in_use, settings.topics, settings.environ)


def _record_run(settings: RunSettings, code: int, error: BaseException | None) -> None:
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
        write_metrics(settings.metrics_file, settings.meter)
    except (OSError, TierctlError) as e:
        console.warn(f"--metrics-file {settings.metrics_file} could not be written: {_why(e)}")


def _exit_code(error: BaseException, settings: RunSettings) -> int:
    """Print the message of the error that ended a run, and return the exit code."""
    code = _code_of(error)
    if isinstance(error, KeyboardInterrupt | Signalled):
        _say_what_was_changed(code - 128, settings)
    report = _report(error, code)
    if report is not None:
        if report.hint is None and isinstance(error, UsageError):
            words = shlex.join(["tierctl", *settings.command.split()])
            report = replace(report, hint=f"see '{words} --help'")
        _fail(settings, report)
    return code


_BEGUN = "a plan was begun: the next run finishes or withdraws what this one did not end"
_ENDLESS = frozenset({"--follow", "-f", "--watch"})
_WHAT_WAS_CHANGED: dict[str, str | None] = {
    "pipeline run": "the next run continues after the last commit",
    "cache build": "each file is the old or the new one",
    "cache compact": "each file is the old or the new one",
    "offsets repair": "each file is the old or the new one",
    # They may have made the metadata topic, and its folders, before the first step.
    **dict.fromkeys(("copy", "apply", "rebuild"), "no step of a plan was begun"),
    # They end with an interruption, or another process does the work.
    "format": None,
    "submit": None,
}


def _say_what_was_changed(number: int, settings: RunSettings) -> None:
    """End a run that a signal ended as other runs end: with what was changed, and the command to continue."""
    changed = _WHAT_WAS_CHANGED.get(settings.command, "nothing was changed")
    if changed is None or not settings.command or not _ENDLESS.isdisjoint(settings.args):
        return
    changed = _BEGUN if settings.begun.is_set() else changed
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


def _is_of_full_output(error: OSError) -> bool:
    """Return whether standard output had no room: the errors of all files that are opened have names.

    A pipe or a terminal needs no room.
    """
    if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return False
    mode = os.fstat(sys.stdout.fileno()).st_mode
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not sys.stdout.isatty())


_ADVICE: dict[type, str] = {
    IsADirectoryError: "it is a folder: name a file",
    NotADirectoryError: "a folder in this path is a file: check the path",
    FileExistsError: "name another path, or move away what is there",
}
"""The hints of errors of the operating system."""


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
            where, advice = error.filename, hint_of(error) or _ADVICE.get(type(error))
            if where is None and _is_without_folder():
                where, advice = "the current folder", "it was deleted: change to another one (cd)"
            elif where is None:
                where = "standard output" if _is_of_full_output(error) else "input/output"
            message = f"{where}: {error.strerror or error}"
            return ErrorReport(code=code, kind=kind, message=message, where=str(where), hint=advice)
    return ErrorReport(
        code=code,
        kind=kind,
        message=f"internal: {': '.join(filter(None, (kind, str(error))))} ({_place_of(error)})",
        hint="run it again with --verbose for the traceback",
    )


def _is_without_folder() -> bool:
    """Return whether the current folder was deleted: each relative path is an error then."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _place_of(error: BaseException) -> str:
    """Return the last lines of code, of tierctl and of all modules, before an internal error."""
    lines = [(str(frame.f_globals.get("__name__")), number) for frame, number in walk_tb(error.__traceback__)]
    own = [(module, number) for module, number in lines if module.startswith("tierctl.")]
    shown = dict.fromkeys([*own[-1:], *lines[-1:]])
    return ", ".join(f"{module} line {number}" for module, number in shown)


def _file_error_code(error: OSError) -> ExitCode:
    """Return the code of a wrong path or a missing right, which the operator must correct, or RETRYABLE."""
    match error:
        case PermissionError():
            return ExitCode.AUTHENTICATION
        case FileNotFoundError():
            return ExitCode.NOT_FOUND
        case _ if is_wrong_path(error):
            return ExitCode.USAGE
    return ExitCode.RETRYABLE
