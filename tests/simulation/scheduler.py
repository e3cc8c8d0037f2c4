"""Processes of tierctl as threads, of which one runs at a time; a seeded choice at each step decides which.

A process that crashes gets `Crash` at its next side effect and at every one after it, so that nothing that
unwinds can change the tier, the metadata topic or a file: as after kill -9.
"""

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tierctl.storage.lease import Owner

STUCK_WAITS = 24
WAIT_S = 5
"""Short waits, of which one ends too early when the simulation was suspended: it counts as one."""


class Crash(BaseException):
    """The process was killed. Not an Exception: no code under test may handle it."""


class InvariantViolation(BaseException):
    """A rule of SAFETY.md does not hold. Not an Exception, so that no process handles it as its own."""


def taken() -> threading.Lock:
    """Return a lock that is held: as a semaphore of 0, which in Python is five times slower."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class Process:
    """One simulated process; `body` runs the commands of its life."""

    name: str
    body: Callable[["Process"], None]
    is_dead: bool = False
    is_done: bool = False
    owner: Owner | None = None
    renew_lease: Callable[[], None] | None = None
    """Renews the lease that the process holds: what its renewing thread does."""
    background: deque[Callable[[], None]] = field(default_factory=deque)
    """Calls that another thread of the process makes at some time, at the latest when they are waited for."""
    is_in_background: bool = False
    baton: threading.Lock = field(default_factory=taken)
    """Released by the process that gives its turn to this one."""

    def run_background(self) -> None:
        """Make the next call of the other thread."""
        self.is_in_background = True
        try:
            self.background.popleft()()
        finally:
            self.is_in_background = False


class Scheduler:
    """Runs processes one at a time; `rng` decides, so that a seed repeats a run."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._processes: list[Process] = []
        self._current: Process | None = None
        self._all_ended = taken()
        self.violation: BaseException | None = None

    @property
    def current(self) -> Process | None:
        """The process that runs now; None while the environment alone does."""
        return self._current

    def run(self, processes: list[Process]) -> None:
        """Run `processes` until all have ended; raise the first violation of an invariant."""
        self._processes = processes
        threads = [threading.Thread(target=self._live, args=(p,), daemon=True) for p in processes]
        for thread in threads:
            thread.start()
        self._wake(self._rng.choice(processes))
        if not any(self._all_ended.acquire(timeout=WAIT_S) for _ in range(STUCK_WAITS)):
            for process in processes:
                # It must not go on in the world of the next seed.
                process.is_dead = True
            raise InvariantViolation(f"a seed takes more than {STUCK_WAITS * WAIT_S} s")
        for thread in threads:
            thread.join()
        self._current = None
        if self.violation is not None:
            raise self.violation

    def _live(self, process: Process) -> None:
        process.baton.acquire()
        try:
            if self.violation is None:
                process.body(process)
        except BaseException as e:
            self.violation = self.violation or e
        process.is_done = True
        alive = [p for p in self._processes if not p.is_done]
        if alive:
            self._wake(self._rng.choice(alive))
        else:
            self._all_ended.release()

    def _wake(self, process: Process) -> None:
        self._current = process
        process.baton.release()

    def switch(self) -> None:
        """Let another process run, until one of them gives the turn back."""
        here = self._current
        others = [p for p in self._processes if not p.is_done and p is not here]
        if here is None or not others:
            return
        self._wake(self._rng.choice(others))
        here.baton.acquire()
        if self.violation is not None:
            here.is_dead = True
            raise Crash
