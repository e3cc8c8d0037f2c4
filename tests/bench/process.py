"""Run whole processes as a user does."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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

    The peak of several processes is that of the largest one; the processor time is that of all. If the
    command has executors of a cluster that this process started, `executor_mb` is the peak of one of them
    with its Python workers, and `executor_cpu_s` the processor time of all.
    """
    done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(_executors, done)
        try:
            peak_kib, cpu_s = run([sys.executable, "-ISc", _LAUNCH, *words], **how).split()[-2:]
        finally:
            done.set()
    own = {"peak_mb": round(int(peak_kib) * 1024 / 1e6), "cpu_s": round(float(cpu_s), 2)}
    return own | watching.result()


_TICKS, _PAGE_BYTES = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def _executors(done: threading.Event) -> dict[str, float]:
    """Watch the executors below this process until `done`; a page that processes share counts for each."""
    peak_bytes, ticks = 0, dict[int, int]()
    while not done.wait(0.1):
        found = processes()
        for executor in executors_below(os.getpid(), found):
            own = [executor, *_below(executor, found)]
            ticks |= {each: found[each][10] + found[each][11] for each in own}
            peak_bytes = max(peak_bytes, sum(found[each][20] for each in own) * _PAGE_BYTES)
    if not ticks:
        return {}
    return {"executor_mb": round(peak_bytes / 1e6), "executor_cpu_s": round(sum(ticks.values()) / _TICKS, 2)}


def processes() -> dict[int, list[int]]:
    """Return the numbers that /proc/PID/stat has of each process; the first one is its parent."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = stat.read_text().partition(" ")
            found[int(number)] = [*map(int, rest.rpartition(") ")[2].split()[1:])]
    return found


def _below(process: int, found: Mapping[int, list[int]]) -> Iterator[int]:
    for child in [number for number, facts in found.items() if facts[0] == process]:
        yield child
        yield from _below(child, found)


def executors_below(process: int, found: Mapping[int, list[int]]) -> list[int]:
    """Return the executors of a cluster that a process has started, of the processes `found`."""
    return [each for each in _below(process, found) if _is_executor(each)]


def _is_executor(process: int) -> bool:
    with suppress(OSError):
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False
