"""Stands in for `threading` and for `ThreadPoolExecutor` where tierctl starts threads.

In a simulated process a thread of its own would only wait: its steps renew the lease, and the clock stands
still between them. Starting and joining it, and the locks of an Event, took a quarter of a seed's time. In a
pool of threads, calls would come in another order each time, and a seed would not repeat.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Self


class Flag:
    """A threading.Event that only the running process sets and reads."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, _timeout_s: float | None = None) -> bool:
        return self._is_set


class Unstarted:
    """A threading.Thread that does nothing."""

    def __init__(self, **_: object) -> None:
        pass

    def start(self) -> None:
        pass

    def join(self) -> None:
        pass


class SerialPool:
    """A ThreadPoolExecutor that runs each call at once."""

    def __init__(self, _threads: int = 1) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[..., Any], *inputs: Any) -> Iterator[Any]:
        return map(function, *inputs)


class Threading:
    """The module `threading` with Flag for Event and Unstarted for Thread."""

    Event = Flag
    Thread = Unstarted

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)
