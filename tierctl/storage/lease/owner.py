"""The holder of a lease, and whether its process on this machine still runs."""

import os
import socket
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

_PROC = Path("/proc")
_START_TIME_FIELD = 19
"""Position of the start time in /proc/<pid>/stat after the process name: field 22 of proc(5)."""

_held: set[str] = set()
"""Ids of the runs of this process that hold a lease or try to acquire one."""

WITHOUT_LEASE = (
    "make sure that no other tierctl changes this tier, then add --no-lease to copy, sweep, delete or apply"
)
"""The hint where a store has no lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One run; `pid` and `started` identify its process within `place`, a boot and a PID namespace."""

    host: str
    place: str
    pid: int
    started: str
    run: str

    @classmethod
    def of_this_run(cls) -> Self:
        """Return a new run of this process."""
        pid = os.getpid()
        return cls(
            host=socket.gethostname(), place=_place(), pid=pid, started=_started(pid), run=uuid.uuid4().hex
        )

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def begin(self) -> None:
        """Record that the run may hold a lease from now on."""
        _held.add(self.run)

    def end(self) -> None:
        """Record that the run holds no lease now."""
        _held.discard(self.run)

    def facts(self) -> dict[str, Any]:
        """Return the fields as a lease contains them."""
        return asdict(self)


def has_ended(facts: Mapping[str, Any]) -> bool:
    """Return whether the run that wrote `facts` has certainly ended: its process ran on this machine."""
    place, pid, started = facts.get("place"), facts.get("pid"), facts.get("started")
    if not place or place != _place() or not isinstance(pid, int) or pid <= 0 or not started:
        return False
    if pid == os.getpid() and started == _started(pid):
        return facts.get("run") not in _held
    seen = _started(pid)
    return seen != str(started) if seen else not _exists(pid)


def _exists(pid: int) -> bool:
    """Return whether there is such a process, also one of another user that /proc hides (hidepid)."""
    try:
        os.kill(pid, 0)
    # The number in a lease may be no valid process id.
    except (OSError, OverflowError) as e:
        return not isinstance(e, ProcessLookupError)
    return True


def _place() -> str:
    """Return the boot and the PID namespace of this process; "" if /proc is not available."""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    return ""


def _started(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; "" if it does not exist or is hidden."""
    with suppress(OSError, IndexError):
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[_START_TIME_FIELD]
    return ""
