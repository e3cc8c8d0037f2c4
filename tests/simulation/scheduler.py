"""Run processes of tierctl as threads, one at a time; a seeded choice at each step selects the next one.

A process that crashes gets `Crash` at its next side effect and at every later one, so that no cleanup code
can change the tier, the metadata topic or a file, as after kill -9.
"""

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tierctl.storage.lease import ObjectLease

STUCK_WAITS = 24
WAIT_S = 5
"""Short waits, so that a suspended simulation loses only one of them."""


class Crash(BaseException):
    """The process was killed. Not an Exception: no code under test may handle it."""


class InvariantViolation(BaseException):
    """A rule of SAFETY.md is violated. Not an Exception, so that no code under test handles it."""


def taken() -> threading.Lock:
    """Return a held lock; in Python it is five times faster than a semaphore of 0."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class Process:
    """One simulated process; `body` runs its commands."""

    name: str
    body: Callable[["Process"], None]
    is_dead: bool = False
    is_done: bool = False
    lease: ObjectLease | None = None
    renew_lease: Callable[[], None] | None = None
    """Renew the lease that the process holds, in place of its renewing thread."""
    background: deque[Callable[[], None]] = field(default_factory=deque)
    """Calls that another thread of the process makes later, at the latest when the process waits for them."""
    is_in_background: bool = False
    baton: threading.Lock = field(default_factory=taken)
    """Released by the process that lets this one run next."""

    def run_background(self) -> None:
        """Make the next call of the other thread."""
        self.is_in_background = True
        try:
            self.background.popleft()()
        finally:
            self.is_in_background = False


class Scheduler:
    """Run processes one at a time; `rng` selects the next one, so that a seed repeats a run."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._processes: list[Process] = []
        self._current: Process | None = None
        self._all_ended = taken()
        self.violation: BaseException | None = None

    @property
    def current(self) -> Process | None:
        """Return the process that runs now; None while the environment acts."""
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
                # The process must not continue in the world of the next seed.
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
        """Let another process run, until one of them lets this process continue."""
        here = self._current
        others = [p for p in self._processes if not p.is_done and p is not here]
        if here is None or not others:
            return
        self._wake(self._rng.choice(others))
        here.baton.acquire()
        if self.violation is not None:
            here.is_dead = True
            raise Crash
