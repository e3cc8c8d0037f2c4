"""Replacements of `threading` and `ThreadPoolExecutor` where tierctl starts threads.

In a simulated process a thread would only wait: the process's steps renew the lease, and the clock stands
still between them. Starting and joining threads, and the locks of an Event, took a quarter of a seed's time.
In a thread pool, calls would have another order each time, and a seed would not repeat.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeVar

from tierctl.apply.run_context import LocalEngine, SideEffect, SideEffectContext, SideEffectResult

from tests.simulation.scheduler import Process

P = TypeVar("P")


class Flag:
    """A threading.Event that only the current process sets and reads."""

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


class InterleavedEngine(LocalEngine):
    """A LocalEngine whose background calls run between the steps of the process that began them.

    `process` returns the current process.
    """

    def __init__(self, process: Callable[[], Process | None]) -> None:
        super().__init__(1)
        self._process = process

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        """Implement `Engine.begin`."""
        process = self._process()
        assert process is not None
        results: list[SideEffectResult] = []
        process.background += [
            lambda each=each: results.append(side_effect(context, each)) for each in inputs
        ]

        def wait() -> list[SideEffectResult]:
            # Calls that were begun before are made first. One in which the process crashed has no result.
            while len(results) < len(inputs) and process.background:
                process.run_background()
            return results

        return wait


class Threading:
    """The module `threading` with Flag for Event and Unstarted for Thread."""

    Event = Flag
    Thread = Unstarted

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)
