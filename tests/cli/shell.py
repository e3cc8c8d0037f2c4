"""Runs tierctl as a shell would."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_CLEAN = ("PATH", "COVERAGE_PROCESS_START")


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def environment(**extra: str) -> dict[str, str]:
    """An environment that says nothing of the machine's user, terminal or locale."""
    return {name: os.environ[name] for name in _CLEAN if name in os.environ} | extra


def tierctl(
    *args: object,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 60,
) -> Ran:
    """One run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tierctl", *map(str, args)],
        input=stdin,
        capture_output=True,
        env=dict(environment() if env is None else env),
        cwd=cwd,
        timeout=timeout_s,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
