"""How a run ends: requests to stop it, and the outcome of each step of its plan.

A run stops before its next side effect on SIGINT, SIGTERM or SIGHUP, or when its lease is lost.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import Any

from tierctl.errors import ExitCode, TierctlError, combined_exit_code
from tierctl.model import Uuid
from tierctl.plan.steps import Step

STOPPED = "the run was told to stop"


class Status(StrEnum):
    """How a step ended."""

    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"
    """Not begun: a precondition of the step no longer holds, or an earlier step of its partition failed."""
    PENDING = "pending"
    """Not finished: the run was told to stop. The next run continues with this step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of `step`.

    `segment_id` is the id that a copy was stored under. `reason` states why a step was dropped
    or is pending.
    """

    step: Step
    status: Status
    segment_id: Uuid | None = None
    error: TierctlError | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return one flat JSON object: the fields of the step, then those of its outcome."""
        error = None if self.error is None else self.error.message
        return self.step.to_json() | {
            "segment_id": self.segment_id or self.step.segment_id,
            "status": str(self.status),
            "error": error,
            "why": self.reason,
        }


def exit_code(outcomes: Sequence[Outcome], *, quarantined: bool = False) -> int:
    """Return the run's exit code.

    That of the failed steps, as `combined_exit_code` says, with CORRUPT if some input was `quarantined`; if
    no step failed, PARTIAL if one was dropped or is pending.
    """
    statuses = {outcome.status for outcome in outcomes}
    codes = {
        ExitCode.INTERNAL if each.error is None else each.error.exit_code
        for each in outcomes
        if each.status is Status.FAILED
    }
    if quarantined:
        codes.add(ExitCode.CORRUPT)
    if not codes and not statuses <= {Status.DONE}:
        codes.add(ExitCode.PARTIAL)
    return combined_exit_code(codes, is_partly_done=Status.DONE in statuses)


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """A request to stop the run, and the signal that made the request."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._guards: list[Callable[[], bool]] = []
        self._is_over = False
        self.signal_number: int | None = None

    def asked(self) -> bool:
        """Return True if no further side effect may begin."""
        return self._event.is_set() or self.is_over()

    def is_over(self) -> bool:
        """Return True if a guard ended the run: the tier may be another run's now.

        A run that is over stays over, even if its lease is renewed later: some of its work has stopped.
        """
        self._is_over = self._is_over or any(guard() for guard in self._guards)
        return self._is_over

    def guard(self, is_over: Callable[[], bool]) -> None:
        """Also stop the run once `is_over()` is True; every thread calls it before each side effect."""
        self._guards.append(is_over)

    def ask(self, signal_number: int | None = None) -> None:
        """Ask the run to stop before its next side effect."""
        self.signal_number = self.signal_number or signal_number
        self._event.set()

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until the timeout or a request to stop; return True if there is such a request."""
        return self._event.wait(timeout_seconds)

    @property
    def exit_code(self) -> int | None:
        """Return 128 + the number of the signal received, or None without a signal."""
        return None if self.signal_number is None else 128 + self.signal_number


@contextmanager
def calling_on_signals(do: Callable[[], None]) -> Iterator[None]:
    """Call `do` on the first of STOP_SIGNALS, before the handler of the signal that was set before.

    `do` ends the waits of other threads, for which the main thread waits when it ends. Outside the main
    thread nothing is called.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    before = {number: handler for number, handler in before.items() if callable(handler)}

    def on_signal(number: int, frame: FrameType | None) -> None:
        do()
        handler = before[signal.Signals(number)]
        assert callable(handler)
        handler(number, frame)

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is on_signal:
                signal.signal(number, handler)


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[Stop]:
    """Set `stop` on the first of STOP_SIGNALS; a second signal is passed to the previous handlers.

    The previous handlers are restored after the block. A signal that the process ignores (SIGHUP under nohup)
    stays ignored. Outside the main thread, where Python allows no signal handlers, signals have no effect on
    `stop`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.ask(number)
        restore()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        restore()
