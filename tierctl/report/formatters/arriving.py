"""Read a pipe as its bytes arrive, so that a signal always ends the wait for them."""

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase, UnsupportedOperation

_READ_BYTES_MAX = 1 << 18
_WAKEUPS_MAX = 1 << 12


def arriving_bytes(stream: BufferedIOBase) -> Iterator[bytes]:
    """Yield the bytes of `stream` as soon as they arrive, so that the values of a pipe are printed at once.

    Python would handle a signal only after more bytes if the signal came between its last look for signals
    and the read. So the wait is a `select` that also ends when the process receives a signal. Nothing else
    may read the stream: `select` does not see the bytes in its buffer.
    """
    with _signal_pipe() as signals:
        while True:
            _wait(stream, signals)
            data = stream.read1(_READ_BYTES_MAX)
            if not data:
                return
            yield data


def _wait(stream: BufferedIOBase, signals: int | None) -> None:
    """Return when `stream` has bytes or ended; Python runs the handler of a signal that comes before."""
    if signals is None:
        return
    with suppress(UnsupportedOperation, ValueError):
        # ValueError: more files are open than `select` supports, and the read waits instead.
        sources: list[BufferedIOBase | int] = [stream, signals]
        while signals in select.select(sources, [], [])[0]:
            with suppress(BlockingIOError):
                os.read(signals, _WAKEUPS_MAX)


@contextmanager
def _signal_pipe() -> Iterator[int | None]:
    """Return a descriptor that is readable after a signal; None outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    before = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(before)
        os.close(readable)
        os.close(writable)
