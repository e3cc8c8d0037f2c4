"""Runs whole processes as a user does, and measures their time and memory."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 1800
SAMPLE_S = 0.1
_LAUNCHER = Path(__file__).with_name("launch.py")
_STDERR_SHOWN = 3000
_SETTINGS = ("TIERCTL_", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True, slots=True)
class Measured:
    """The cost of one run. `peak_bytes` is the peak of resident memory of the process and its descendants."""

    seconds: float
    peak_bytes: int


def tierctl(*words: str) -> list[str]:
    """Return the command line that runs this working tree's tierctl through its installed script."""
    return [str(Path(sys.executable).with_name("tierctl")), *words]


def run(
    *words: str,
    env: Mapping[str, str] = MappingProxyType({}),
    cwd: Path | None = None,
    stdin: Path | None = None,
    stdout: Path | None = None,
    codes: Sequence[int] = (0,),
    is_self_timed: bool = False,
) -> Measured:
    """Run a command to its end; its output goes to `stdout`, or nowhere.

    With `is_self_timed` the last line that the command prints is {"seconds": ...}, the time without its
    start-up. Raise RuntimeError with the end of its stderr if the exit code is not one of `codes`.
    """
    # The user's own settings are ignored, and modules are compiled as in an installed program.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    environment = inherited | {"PYTHONPATH": str(REPOSITORY)} | dict(env)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        cost = Path(folder) / "cost.json"
        target = stdout or (Path(folder) / "printed" if is_self_timed else Path(os.devnull))
        command = [sys.executable, "-IS", str(_LAUNCHER), str(cost), *words]
        with Path(stdin or os.devnull).open("rb") as given, target.open("wb") as out:
            child = subprocess.Popen(
                command, env=environment, cwd=cwd or folder, stdin=given, stdout=out, stderr=errors
            )
            tree_peak_bytes = _wait(child)
        if child.returncode not in codes or not cost.is_file():
            errors.seek(0)
            text = errors.read().decode(errors="replace")[-_STDERR_SHOWN:]
            raise RuntimeError(f"{' '.join(words)} ended with {child.returncode}:\n{text}")
        found = json.loads(cost.read_text())
        if is_self_timed:
            found["seconds"] = json.loads(target.read_text().splitlines()[-1])["seconds"]
    return Measured(found["seconds"], max(found["peak_bytes"], tree_peak_bytes))


def _wait(launcher: subprocess.Popen[bytes]) -> int:
    """Wait for the launcher; return the peak memory of the command and its children, 0 if it has none.

    The command and its children are killed if they take too long, and if this process is ended.
    """
    deadline_s, peak_bytes = time.monotonic() + TIMEOUT_S, 0
    try:
        while time.monotonic() < deadline_s:
            with suppress(subprocess.TimeoutExpired):
                launcher.wait(SAMPLE_S)
                return peak_bytes
            tree = descendants(launcher.pid)[1:]
            # The kernel records the peak of a single process.
            if len(tree) > 1:
                peak_bytes = max(peak_bytes, sum(map(_proportional_bytes, tree)))
        raise RuntimeError(f"{launcher.args!r} did not end in {TIMEOUT_S} s")
    finally:
        # The launcher waits for the command, and then ends.
        while launcher.poll() is None:
            for pid in descendants(launcher.pid)[1:]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def descendants(pid: int) -> list[int]:
    """Return the process and all running processes that it started."""
    found = [pid]
    for each in found:
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def _proportional_bytes(pid: int) -> int:
    """Return the resident memory of a process; shared pages count proportionally."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
