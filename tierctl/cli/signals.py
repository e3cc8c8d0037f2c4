"""How a signal or a closed pipe ends the process."""

import signal
from types import FrameType
from typing import Never

PIPE_CLOSED = 128 + signal.SIGPIPE


class Signalled(BaseException):
    """A signal asks the process to end; an exception, so that locks and temporary files are released."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def raise_on_signals() -> None:
    """Raise `Signalled` on SIGTERM and SIGHUP; a second signal ends the process at once."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup starts the process with SIGHUP ignored; keep it ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def _on_signal(number: int, _frame: FrameType | None) -> Never:
    signal.signal(number, signal.SIG_DFL)
    raise Signalled(number)
