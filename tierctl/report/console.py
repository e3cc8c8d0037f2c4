"""Messages on stderr, as text or for --output json as JSON, and progress bars at a terminal."""

import errno
import json
import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tierctl.errors import CorruptInputError, ExitCode, TierctlError
from tierctl.files import why_foreign
from tierctl.model.location import masked
from tierctl.model.progress import FIRST_S, Advance, Unit, no_op
from tierctl.report.table import printable

_MODE = 0o640
_HEAD_BYTES = 16
_MESSAGE = re.compile(rb'[0-9]{4}-[0-9]{2}-[0-9]{2}T|\{"time": ')
"""The begin of a line in a log file, as text and as JSON."""


class LogFormat(StrEnum):
    """The form of one message."""

    TEXT = "text"
    JSON = "json"


@dataclass(slots=True)
class LogFile:
    """Append messages to the file at `path`, one line each.

    The file is opened for each message, so that after a rename, by logrotate or by hand, the next message is
    in a new file. One write per line keeps the lines of several runs apart. A message that can't be written
    is lost, and the error is in `error`: a full disk must not end a run. Only a regular file of this user is
    appended to, if nobody else may write it, and not through a link: an error text may contain a command. A
    file that begins with something else than a message is not appended to: it may be one of Kafka's logs.
    """

    path: Path
    form: LogFormat = LogFormat.TEXT
    command: str = ""
    """The words of the command that runs."""
    error: OSError | None = field(default=None, init=False)

    def open(self) -> None:
        """Make the file if it is not there; raise OSError if it can't be written."""
        os.close(self._opened())

    def write(self, level: str, message: str, **facts: Any) -> None:
        """Append a message of a level (debug, info, warning or error), with further facts about it."""
        data = f"{self._line(level, message, facts)}\n".encode()
        try:
            fd = self._opened()
            try:
                if os.write(fd, data) < len(data):
                    raise OSError(f"the end of a line of {len(data)} bytes was not written")
            finally:
                os.close(fd)
        except OSError as e:
            self.error = e

    def _opened(self) -> int:
        # A pipe without a reader must not stop the run, and a link may lead to any file of this user.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(self.path, flags, _MODE)
        except OSError as e:
            why = {errno.ELOOP: "is a link", errno.ENXIO: "is no regular file"}.get(e.errno or 0)
            raise e if why is None else OSError(e.errno, f"it {why}") from e
        why = why_foreign(fd)
        head = b"" if why is not None else os.pread(fd, _HEAD_BYTES, 0)
        if head and not _MESSAGE.match(head):
            why = "does not begin with a message of tierctl"
        if why is not None:
            os.close(fd)
            raise OSError(errno.EPERM, f"it {why}")
        return fd

    def _line(self, level: str, message: str, facts: dict[str, Any]) -> str:
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        known = {name: value for name, value in facts.items() if value is not None}
        if self.form is LogFormat.JSON:
            entry = {"time": time, "level": level, "command": self.command, "pid": os.getpid()}
            return json.dumps(entry | {"message": message} | known, default=str)
        more = "".join(f" {name}={json.dumps(value, default=str)}" for name, value in known.items())
        return f"{time} {level.upper()} {self.command}[{os.getpid()}]: {printable(message)}{more}"


DELAY_S = 0.5
"""Importing and drawing the bar takes another 0.1 s: the operator sees it within a second."""


class LateBar:
    """Count amounts of work, and after DELAY_S show them at the terminal until the block ends."""

    def __init__(self, title: str, *, unit: Unit, total: int | None) -> None:
        self._title, self._unit, self._total = title, unit, total
        self._lock = threading.Lock()
        self._done = 0
        self._is_over = False
        self._advance: Advance | None = None
        self._open = ExitStack()
        self._timer = threading.Timer(DELAY_S, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            self._open.close()

    def advance(self, amount: int) -> None:
        """Add to the amount done."""
        with self._lock:
            self._done += amount
            if self._advance is not None:
                self._advance(amount)

    def _show(self) -> None:
        from tierctl.report.bars import amount_bar

        with self._lock:
            if self._is_over:
                return
            bar = amount_bar(self._title, unit=self._unit, total=self._total)
            self._advance = self._open.enter_context(bar)
            self._advance(self._done)


_LEVELS = {"detail": "debug", "warning": "warning"}
"""The levels in a log file of messages that are not just information."""
_TERMINAL_FIRST_S = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """An error as it is printed; `code` is its exit code and `where` the file, partition or object."""

    code: int
    kind: str
    message: str
    hint: str | None = None
    where: str | None = None

    @classmethod
    def of(cls, error: TierctlError) -> "ErrorReport":
        """Return the report of `error`."""
        return cls(
            code=int(error.exit_code),
            kind=type(error).__name__,
            message=error.message,
            hint=error.hint,
            where=error.source if isinstance(error, CorruptInputError) else None,
        )


@dataclass(slots=True)
class Console:
    """Implement `model.Progress`: print messages on stderr, and show bars if stderr is a terminal.

    `verbosity` is the number of -v. Errors and warnings are printed even if `is_quiet`. If `is_json`, each
    message is one line with a JSON object.
    """

    verbosity: int = 0
    is_quiet: bool = False
    is_json: bool = False
    prints_meanwhile: bool = False
    """Whether rows are printed while bars are shown: at a terminal, the rows are the progress then."""
    log: LogFile | None = None
    """The file that also receives every message, whatever is printed."""
    errors: list[ExitCode] = field(default_factory=list)
    """The exit codes of the errors that did not end the run."""
    _noted: set[str] = field(default_factory=set)
    _has_bar: bool = False

    def note(self, text: str) -> None:
        """Implement `Progress.note`."""
        if text not in self._noted:
            self._noted.add(text)
            self._print("note", text, prefix="note: ")

    def say(self, text: str) -> None:
        """Implement `Progress.say`."""
        self._print("message", text, prefix="note: ")

    def command(self, text: str) -> None:
        """Implement `Progress.command`."""
        self._print("message", text, is_command=True)

    def detail(self, text: str) -> None:
        """Implement `Progress.detail`."""
        self._print("detail", text, is_shown=bool(self.verbosity))

    def warn(self, text: str) -> None:
        """Implement `Progress.warn`."""
        self._print("warning", text, prefix="warning: ", is_urgent=True)

    def problem(self, error: TierctlError) -> None:
        """Implement `Progress.problem`: print message and hint as for an error that ends the run."""
        self.errors.append(error.exit_code)
        self.error(ErrorReport.of(error))

    def error(self, report: ErrorReport) -> None:
        """Print an error: its message and its hint, or one JSON object."""
        report = replace(
            report,
            message=masked(report.message),
            hint=report.hint and masked(report.hint),
            where=report.where and masked(report.where),
        )
        if self.log is not None:
            facts = asdict(report)
            self.log.write("error", facts.pop("message"), **facts)
        if self.is_json:
            self._write({"error": asdict(report)})
            return
        _print_text(f"error: {report.message}")
        if report.hint:
            _print_text(f"hint: {report.hint}")

    def summary(self, command: str, text: str, *, seconds: float, next_command: str | None) -> None:
        """Print the last line of a run: the work done, the time it took, and the next command."""
        if self.is_json and not self.is_quiet:
            facts = {"command": command, "message": text, "seconds": round(seconds, 3), "next": next_command}
            self._write({"summary": facts})
        line, following = f"{command}: {text} ({seconds:.1f} s)", next_command
        self._print("summary", line, following=following, is_shown=not self.is_json)

    def _print(
        self,
        key: str,
        text: str,
        *,
        prefix: str = "",
        following: str | None = None,
        is_urgent: bool = False,
        is_shown: bool = True,
        is_command: bool = False,
    ) -> None:
        text = masked(text)
        if self.log is not None:
            self.log.write(_LEVELS.get(key, "info"), _with_next(text, following))
        if not is_shown or (self.is_quiet and not is_urgent):
            return
        if self.is_json:
            self._write({key: {"message": text}})
        else:
            _print_text(f"{prefix}{text}", following=following, is_command=is_command)

    def _write(self, message: dict[str, Any]) -> None:
        print_line(json.dumps(message))

    @property
    def waits_from_s(self) -> float:
        """Implement `Progress.waits_from_s`: a terminal without a bar shows a wait within a second."""
        return FIRST_S if self._has_bar or not sys.stderr.isatty() else _TERMINAL_FIRST_S

    @contextmanager
    def bar(self, title: str, *, unit: Unit, total: int | None = None) -> Iterator[Advance]:
        """Implement `Progress.bar`; without a terminal nothing is shown."""
        is_hidden = self.prints_meanwhile and sys.stdout.isatty()
        if self._has_bar or is_hidden or self.is_quiet or self.is_json or not sys.stderr.isatty():
            yield no_op
            return

        self._has_bar = True
        try:
            with LateBar(title, unit=unit, total=total) as bar:
                yield bar.advance
        finally:
            self._has_bar = False


def _with_next(text: str, following: str | None) -> str:
    """Return `text` with the command `following` that can be run next, if there is one."""
    return f"{text}; next: {following}" if following else text


def _print_text(text: str, *, following: str | None = None, is_command: bool = False) -> None:
    """Print one message on stderr: on one line, which a terminal gets wrapped at blanks.

    A message that is a command is not wrapped, and at a terminal a command `following` that does not fit has
    its own line, which is not wrapped either: a wrapped command can't be copied and run.
    """
    lines = [printable(_with_next(text, following))]
    if sys.stderr.isatty() and not is_command:
        width = shutil.get_terminal_size().columns
        alone = [printable(f"next: {following}")] if following and len(lines[0]) > width else []
        wrapped = printable(text) if alone else lines[0]
        lines = [*textwrap.wrap(wrapped, width, break_long_words=False, break_on_hyphens=False), *alone]
    print_line("\n".join(lines))


def print_line(text: str) -> None:
    """Print a message on stderr as it is; a full disk, or a terminal that is gone, must not end a run.

    Raise BrokenPipeError if stderr is a pipe that nobody reads any more.
    """
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        pass  # Nothing is left to say it on; the log file and the exit code have it.
