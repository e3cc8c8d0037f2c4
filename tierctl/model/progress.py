"""How a use case reports to its caller while it runs, without printing; also long waits for other programs.

Code that waits for an answer, a lease or a start does it inside `WAITS.waiting`; `WAITS.reported` sets where
reports go.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tierctl.errors import TierctlError

Advance = Callable[[int], None]
"""Adds to the amount done; called from the thread that opened the bar."""

FIRST_S = 2.0
"""Waits of this length are reported; later reports come each time the length has doubled."""

Unit = Literal["bytes", "objects", "segments", "tasks", "events", "records", "offsets", "files", "partitions"]

Reading = Callable[[int], AbstractContextManager[Advance]]
"""Shows the progress of reading this number of items while the context is open."""


class Progress(Protocol):
    """Receives the messages and the amount of work done of one run.

    The command line prints them on stderr; callers of the Python API may keep or discard them.
    """

    def note(self, text: str) -> None:
        """Report a fact that the operator should know and that is no error; a repeated text is shown once."""

    def say(self, text: str) -> None:
        """Report one line of text; a repeated text is shown each time."""

    def command(self, text: str) -> None:
        """Report a command on a line of its own, which is not wrapped, so that it can be copied and run."""

    def detail(self, text: str) -> None:
        """Report a fact that only matters to an operator who examines a run (-v)."""

    def warn(self, text: str) -> None:
        """Report, in one line, a failure that does not end the run."""

    def problem(self, error: TierctlError) -> None:
        """Report an error that does not end the run."""

    @property
    def waits_from_s(self) -> float:
        """The minimum length of a wait that is reported, in seconds."""
        ...

    def bar(self, title: str, *, unit: Unit, total: int | None = None) -> AbstractContextManager[Advance]:
        """Show a bar of `total` units (None: unknown) while the context is open; it yields `advance`.

        A bar inside another one is not shown.
        """
        ...


@dataclass(slots=True)
class SilentProgress:
    """Keep every message in a list and print nothing."""

    notes: list[str] = field(default_factory=list)
    """Without repetitions, in the order of their first report."""
    lines: list[str] = field(default_factory=list)
    problems: list[TierctlError] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Implement `Progress.note`."""
        if text not in self.notes:
            self.notes.append(text)

    def say(self, text: str) -> None:
        """Implement `Progress.say`."""
        self.lines.append(text)

    def command(self, text: str) -> None:
        """Implement `Progress.command`."""
        self.lines.append(text)

    def detail(self, text: str) -> None:
        """Implement `Progress.detail`: details are discarded."""

    def warn(self, text: str) -> None:
        """Implement `Progress.warn`."""
        self.lines.append(text)

    def problem(self, error: TierctlError) -> None:
        """Implement `Progress.problem`."""
        self.problems.append(error)

    @property
    def waits_from_s(self) -> float:
        """Implement `Progress.waits_from_s`."""
        return FIRST_S

    @contextmanager
    def bar(self, title: str, *, unit: Unit, total: int | None = None) -> Iterator[Advance]:  # noqa: ARG002
        """Implement `Progress.bar`: the amounts are discarded."""
        yield no_op


def no_op(_amount: int) -> None:
    """Discard the amount."""


@contextmanager
def unwatched(_total: int) -> Iterator[Advance]:
    """Show no progress: a `Reading`."""
    yield no_op


_EVERY_S_MAX = 60.0
_POLL_S = 0.25


def _first_s() -> float:
    return FIRST_S


@dataclass(slots=True)
class _Wait:
    what: str
    since_s: float
    reported_s: float = 0.0
    """The length of the wait at its last report; 0 if it was not reported."""

    def is_due(self, now_s: float, first_s: float) -> bool:
        """Return whether to report the wait now; `first_s` is the length from which waits are reported."""
        length_s, last_s = now_s - self.since_s, self.reported_s
        return length_s >= (last_s + min(last_s, _EVERY_S_MAX) if last_s else first_s)


@dataclass(slots=True)
class Waits:
    """The waits of a process, by thread; of waits inside each other the outer one is reported."""

    clock_s: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waits: dict[int, _Wait] = field(default_factory=dict)
    _say: Callable[[str], None] | None = None
    _from_s: Callable[[], float] = _first_s

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Register the block as a wait for `what`, as "asking host:9092 for its topics"."""
        thread, now_s = threading.get_ident(), self.clock_s()
        with self._lock:
            is_outer = thread not in self._waits
            if is_outer:
                self._waits[thread] = _Wait(what, now_s)
        try:
            yield
        finally:
            if is_outer:
                with self._lock:
                    del self._waits[thread]

    @contextmanager
    def reported(
        self, say: Callable[[str], None], *, from_s: Callable[[], float] = _first_s
    ) -> Iterator[None]:
        """Report waits of `from_s()` or longer to `say`, from a thread, during the block.

        Do nothing inside another such block.
        """
        with self._lock:
            is_first = self._say is None
            if is_first:
                self._say, self._from_s = say, from_s
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
        now_s, first_s = self.clock_s(), self._from_s()
        with self._lock:
            say = self._say
            due = [wait for wait in self._waits.values() if wait.is_due(now_s, first_s)]
            for wait in due:
                wait.reported_s = now_s - wait.since_s
        for wait in due if say is not None else ():
            assert say is not None
            say(f"waiting for {max(now_s - wait.since_s, 1):.0f} s: {wait.what}")


WAITS = Waits()
"""The waits of this process."""
