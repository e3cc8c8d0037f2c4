"""Run tierctl as a shell does: in this process, or in a separate process if a test needs one."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from unittest import mock

from tierctl.cli.entry import run

from tests.support.spark_classes import USES_ARCHIVE

SUMMARY = re.compile(r"^[a-z]+(?: [a-z-]+)?: .* \([0-9]+\.[0-9] s\)(?:; next: .*)?\n\Z", re.MULTILINE)
"""The line on stderr that ends a run."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a run. `err` is stderr as text, also for JSON, without its last line `summary`."""

    code: int
    out: str
    err: str
    summary: str = field(default="", compare=False)
    raw_err: str = field(default="", compare=False)

    @classmethod
    def of(cls, code: int, out: str, raw_err: str) -> Self:
        text = "".join(map(_as_text, raw_err.splitlines(keepends=True)))
        found = SUMMARY.search(text)
        if found is None:
            return cls(code, out, text, raw_err=raw_err)
        return cls(code, out, text[: found.start()], found[0].rstrip(), raw_err)

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of a run with --output jsonl."""
        return [json.loads(line) for line in self.lines]

    def ok(self) -> Self:
        """Check that the run succeeded."""
        assert self.code == 0, self.err
        return self


def _as_text(line: str) -> str:
    """Return a line of stderr as it is printed without --output json."""
    if not line.startswith('{"'):
        return line
    ((kind, facts),) = json.loads(line).items()
    if kind == "error":
        hint = "" if facts["hint"] is None else f"hint: {facts['hint']}\n"
        return f"error: {facts['message']}\n{hint}"
    if kind == "summary":
        following = f"; next: {facts['next']}" if facts["next"] else ""
        return f"{facts['command']}: {facts['message']} ({facts['seconds']:.1f} s){following}\n"
    prefix = {"note": "note: ", "message": "note: ", "warning": "warning: "}.get(kind, "")
    return f"{prefix}{facts['message']}\n"


def environment(**extra: str) -> dict[str, str]:
    """Return an environment without the user's settings, terminal and locale, but with S3's address."""
    own = {"PATH": os.environ.get("PATH", os.defpath), "SPARK_SUBMIT_OPTS": " ".join(USES_ARCHIVE)}
    s3 = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return own | s3 | extra


class _Terminal(io.TextIOWrapper):
    """A stream of this process that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def tierctl(
    *args: object,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    is_at_terminal: bool = False,
) -> Ran:
    """Run one command line in this process; stdout may say that it is a terminal."""
    kinds = _Terminal if is_at_terminal else io.TextIOWrapper, io.TextIOWrapper
    out, err = (kind(io.BytesIO(), encoding="utf-8", write_through=True) for kind in kinds)
    with (
        _seen_environment(environment() if env is None else env),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
        _in_folder(cwd),
    ):
        code = run([str(arg) for arg in args])
    return Ran.of(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]


def tierctl_of_users(*args: object, **how: Any) -> Ran:
    """Run one command line, with Spark in a process of its own if this one has no session for it."""
    is_on_spark = "spark" in args or (args[0] == "pipeline" and not _has_session())
    return (tierctl_process if is_on_spark else tierctl)(*args, **how)


def _has_session() -> bool:
    pyspark = sys.modules.get("pyspark.sql")
    return pyspark is not None and pyspark.SparkSession.getActiveSession() is not None


def rows(*args: object, code: int | None = 0, **how: Any) -> list[dict[str, Any]]:
    """Run one command line, which ends with `code` (None: any); return its rows."""
    ran = tierctl(*args, "--output", "jsonl", **how)
    assert code is None or ran.code == code, ran.err
    return ran.rows


@contextlib.contextmanager
def _seen_environment(env: Mapping[str, str]) -> Iterator[None]:
    """Let Python see the variables `env` only.

    The process keeps its own: to remove and set them all for each command line was not safe beside threads of
    libraries, and ended a test process in one of several runs with a segmentation fault.
    """
    data = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    before = dict(os.environ)
    with mock.patch.object(os.environ, "_data", data):
        yield
        changed = {name for name, value in os.environ.items() if env.get(name) != value}
    for name in changed:
        if name in before:
            os.environ[name] = before[name]
        else:
            os.unsetenv(name)


@contextlib.contextmanager
def _in_folder(folder: Path | None) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder or before)
    try:
        yield
    finally:
        os.chdir(before)


def at_terminal(*args: object) -> Ran:
    """Run one command line in this process with a terminal of 80 columns as stdout."""
    return tierctl(*args, env=environment(TERM="dumb", COLUMNS="80"), is_at_terminal=True)


def answered(*args: object, typed: str, is_redirected: bool = False) -> Ran:
    """Run one command line in a separate process with a terminal that has this text as stdin and stderr.

    If `is_redirected`, stderr is that of stdout, as with 2>&1 and a pipe.
    """
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tierctl", *map(str, args)],
        env=environment(TERM="dumb", COLUMNS="80"),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if is_redirected else theirs,
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        # The terminal is closed when the process ends.
        with contextlib.suppress(OSError):
            while data := os.read(ours, 1 << 16):
                shown += data
        assert process.stdout is not None
        printed = process.stdout.read().decode()
    os.close(ours)
    return Ran.of(process.returncode, printed, shown.decode().replace("\r\n", "\n"))


def tierctl_process(
    *args: object,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 120,
    prefix: Sequence[str] = (),
) -> Ran:
    """Run one command line, after the words of `prefix`, in a separate process."""
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "tierctl", *map(str, args)],
        input=stdin,
        capture_output=True,
        env=dict(environment() if env is None else env),
        cwd=cwd,
        timeout=timeout_s,
        check=False,
    )
    return Ran.of(done.returncode, done.stdout.decode(), done.stderr.decode())
