"""Who holds a lease: told from a process of this machine, whether it still runs."""

import os
import socket
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_START_TIME_FIELD = 19
"""Of /proc/<pid>/stat, counted from behind the name: field 22 of proc(5)."""

_held: set[str] = set()
"""Runs of this process that hold a lease, or try to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One run; `pid` and `started` name its process within `place`, a boot and a set of process ids."""

    host: str
    place: str
    pid: int
    started: str
    run: str

    @classmethod
    def of_this_run(cls) -> "Owner":
        """A run of this process, from now on."""
        pid = os.getpid()
        return cls(
            host=socket.gethostname(), place=_place(), pid=pid, started=_started(pid), run=uuid.uuid4().hex
        )

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def begin(self) -> None:
        """The run may hold a lease."""
        _held.add(self.run)

    def end(self) -> None:
        """The run holds none any more, whatever a lease says."""
        _held.discard(self.run)

    def facts(self) -> dict[str, Any]:
        """As a lease has them."""
        return asdict(self)


def has_ended(facts: Mapping[str, Any]) -> bool:
    """Whether it is certain that the run which wrote these is over: its process was here, and is gone."""
    place, pid, started = facts.get("place"), facts.get("pid"), facts.get("started")
    if not place or place != _place() or not isinstance(pid, int) or pid <= 0 or not started:
        return False
    if pid == os.getpid() and started == _started(pid):
        return facts.get("run") not in _held
    return _started(pid) != str(started)


def _place() -> str:
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    return ""


def _started(pid: int) -> str:
    """When a process began, in ticks since the machine did; "" when there is none."""
    with suppress(OSError, IndexError):
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[_START_TIME_FIELD]
    return ""
