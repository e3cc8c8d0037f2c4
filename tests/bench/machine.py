"""Facts about the machine and the working tree, which are published with the figures."""

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.process import REPOSITORY


def facts() -> dict[str, str | int]:
    """Return the facts that a reader needs to compare figures."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": int((_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) // 1000,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
    }


def today() -> str:
    """Return the date in UTC."""
    return datetime.now(UTC).date().isoformat()


def commit() -> str:
    """Return the measured commit; `+` marks uncommitted changes of tierctl/."""
    found = _output("git", "-C", str(REPOSITORY), "rev-parse", "--short=10", "HEAD")
    changes = _output("git", "-C", str(REPOSITORY), "status", "--porcelain", "--", "tierctl")
    return found + ("+" if changes else "")


def _field(file: str, name: str) -> str | None:
    for line in Path(file).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return None


def _java() -> str:
    if shutil.which("java") is None:
        return "none"
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()[0]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
