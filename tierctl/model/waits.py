"""Waits for other programs: what a run waits for and since when, so that the operator is told of long ones.

Code that waits for an answer, a lease or a start does it inside `waiting`; `reported` sets where reports go.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

FIRST_S = 2.0
"""Length of a wait from which it is reported; later reports come each time the length has doubled."""
_EVERY_S_MAX = 60.0
_POLL_S = 0.25


@dataclass(slots=True)
class _Wait:
    what: str
    since_s: float
    report_at_s: float


@dataclass(slots=True)
class Waits:
    """The waits of a process, by thread; of waits inside each other the outer one is reported."""

    clock_s: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waits: dict[int, _Wait] = field(default_factory=dict)
    _say: Callable[[str], None] | None = None

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Register the block as a wait for `what`, as "asking host:9092 for its topics"."""
        thread, now_s = threading.get_ident(), self.clock_s()
        with self._lock:
            is_outer = thread not in self._waits
            if is_outer:
                self._waits[thread] = _Wait(what, now_s, now_s + FIRST_S)
        try:
            yield
        finally:
            if is_outer:
                with self._lock:
                    del self._waits[thread]

    @contextmanager
    def reported(self, say: Callable[[str], None]) -> Iterator[None]:
        """Report long waits to `say`, from a thread, during the block; do nothing inside another one."""
        with self._lock:
            is_first = self._say is None
            if is_first:
                self._say = say
        if not is_first:
            yield
            return
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_POLL_S):
                self.report()

        thread = threading.Thread(target=watch, name="tierctl-waits", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            with self._lock:
                self._say = None

    def report(self) -> None:
        """Report each wait that is long enough now."""
        now_s = self.clock_s()
        with self._lock:
            say = self._say
            due = [wait for wait in self._waits.values() if now_s >= wait.report_at_s]
            for wait in due:
                wait.report_at_s = now_s + min(now_s - wait.since_s, _EVERY_S_MAX)
        for wait in due if say is not None else ():
            assert say is not None
            say(f"waiting for {now_s - wait.since_s:.0f} s: {wait.what}")


WAITS = Waits()
"""The waits of this process."""
