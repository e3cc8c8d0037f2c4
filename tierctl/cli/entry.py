"""The entry point: answer version, help and completion at once; otherwise run the command line.

Version, help and completion come from generated data, so that they import neither typer nor a command.
"""

import os
import signal
import sys
from types import FrameType
from typing import Never

from tierctl import __version__

_COMPLETE = "_TIERCTL_COMPLETE"
_HELP = frozenset({"--help", "-h"})
PIPE_CLOSED = 128 + signal.SIGPIPE


class Signalled(BaseException):
    """A signal asks the process to end; an exception, so that locks and temporary files are released."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> Never:
    """Run the command line of the process and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the locale can't encode must not end a run.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _answer(sys.argv[1:])
        if code is None:
            code = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        code = PIPE_CLOSED
    if code == PIPE_CLOSED:
        # The interpreter flushes again at exit: without a reader that would fail, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _run(args: list[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup starts the process with SIGHUP ignored, and so it stays.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    from tierctl.cli.main import run

    return run(args)


def _answer(args: list[str]) -> int | None:
    """Print version, help or completions; return None if the command line asks for none of them."""
    if _COMPLETE in os.environ:
        from tierctl.cli.docs.completion import complete

        return complete(os.environ[_COMPLETE])
    if args == ["--version"]:
        print(f"tierctl {__version__}")
        return 0
    if args and args[-1] in _HELP and not any(word.startswith("-") for word in args[:-1]):
        return _print_help(args[:-1])
    return None


def _print_help(path: list[str]) -> int | None:
    from tierctl.cli.docs.help import help_text
    from tierctl.cli.docs.node import load_commands

    try:
        sys.stdout.write(help_text(load_commands(), path))
    except KeyError:
        return None
    return 0


def _on_signal(number: int, _frame: FrameType | None) -> Never:
    # A second signal ends the process at once.
    signal.signal(number, signal.SIG_DFL)
    raise Signalled(number)


if __name__ == "__main__":
    main()
