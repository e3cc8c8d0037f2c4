"""Run whole processes as a user does."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
_SETTINGS = ("TIERCTL_", "PYTHONDONTWRITEBYTECODE")
_LAUNCH = """
import os, sys
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss, usage.ru_utime + usage.ru_stime, file=sys.stderr)
sys.exit(abs(os.waitstatus_to_exitcode(status)))
"""
"""A small program that runs a command and prints its peak memory in KiB and its processor time in seconds.

The kernel counts the memory of the process that starts a command as the command's own until its exec.
"""


def tierctl(*words: str) -> list[str]:
    """Return the command line that runs this working tree's tierctl through its installed script."""
    return [str(Path(sys.executable).with_name("tierctl")), *words]


def run(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdout: Path | None = None,
    codes: Sequence[int] = (0,),
) -> str:
    """Run a command to its end; its output goes to `stdout`, or nowhere. Return what it wrote to stderr.

    Raise RuntimeError if its exit code is not one of `codes`.
    """
    # The user's own settings are ignored, and modules are compiled as in an installed program.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    environment = {**inherited, "PYTHONPATH": str(REPOSITORY), **(env or {})}
    with Path(stdout or os.devnull).open("wb") as out:
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, check=False
        )
    text = done.stderr.decode(errors="replace")
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{text[-3000:]}")
    return text


def usage(words: Sequence[str], **how: Any) -> dict[str, float]:
    """Run a command as `run` does; return `peak_mb`, its resident memory in 10^6 bytes, and `cpu_s`.

    The peak of several processes is that of the largest one; the processor time is that of all.
    """
    peak_kib, cpu_s = run([sys.executable, "-ISc", _LAUNCH, *words], **how).split()[-2:]
    return {"peak_mb": round(int(peak_kib) * 1024 / 1e6), "cpu_s": round(float(cpu_s), 2)}
