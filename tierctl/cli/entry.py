"""The entry point: run the command line of the process."""

import atexit
import gc
import os
import sys
import threading
from contextlib import suppress
from typing import Never

from tierctl.cli.signals import PIPE_CLOSED, raise_on_signals

_GARBAGE_AFTER = 200_000
"""Number of new objects after which Python looks for cycles of garbage; its default is 700."""


def main() -> Never:
    """Run the command line of the process and end the process with its code."""
    _end(answer(sys.argv[1:]) if _has_streams() else PIPE_CLOSED)


def _has_streams() -> bool:
    """Replace a closed stdin and a closed stderr by the null device; return whether stdout is open.

    Python has None in the place of a stream that was closed before it began, as by `>&-`. A file that is
    opened later would get the number of such a stream.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
    has_stdout = sys.stdout is not None
    if not has_stdout:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    return has_stdout


def answer(args: list[str]) -> int:
    """Run a command line with the process's streams and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the locale can't encode must not end a run.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        # NumPy's OpenBLAS starts its threads when it is imported, which takes 15 ms; tierctl calls no BLAS.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Imports make 100,000 objects that stay: a twentieth of the start would look for garbage among them.
        gc.set_threshold(_GARBAGE_AFTER)
        from tierctl.cli.main import run

        raise_on_signals()
        code = run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        return PIPE_CLOSED
    return code


def _end(code: int) -> Never:
    """End the process: wait for its threads and run the exit handlers, but do not dismantle the interpreter.

    Dismantling takes 50 ms, and a thread of Arrow that frees a buffer meanwhile aborts the process.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)
