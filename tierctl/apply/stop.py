"""SIGINT and SIGTERM ask a run to stop before its next side effect."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether somebody asked to stop, and by which signal."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._guards: list[Callable[[], bool]] = []
        self.signal_number: int | None = None

    def asked(self) -> bool:
        """Whether no further side effect may begin."""
        return self._event.is_set() or any(guard() for guard in self._guards)

    def guard(self, is_over: Callable[[], bool]) -> None:
        """From now on also stop when `is_over` says so; any thread calls it before each side effect."""
        self._guards.append(is_over)

    def ask(self, signal_number: int | None = None) -> None:
        """Ask the run to stop before its next side effect."""
        self.signal_number = self.signal_number or signal_number
        self._event.set()

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep, but no longer than until somebody asks to stop; returns whether somebody did."""
        return self._event.wait(timeout_seconds)

    @property
    def exit_code(self) -> int | None:
        """128 + the signal's number; None when no signal came."""
        return None if self.signal_number is None else 128 + self.signal_number


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[Stop]:
    """Ask `stop` on the first SIGINT or SIGTERM; a second one acts as it did before.

    The old handlers are back afterwards. Main thread only.
    """
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.ask(number)
        restore()

    for number in STOP_SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        restore()
