"""Engines run side effects in parallel. They never publish metadata: only the driver does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, partial
from typing import Protocol, TypeVar

from tierctl.apply.defaults import DELETE_WAVE_SIZE, WAVE_SIZE
from tierctl.apply.side_effects import SideEffectContext, SideEffectResult

P = TypeVar("P")

SideEffect = Callable[[SideEffectContext, P], SideEffectResult]
"""A module-level function, or a `partial` of one, so that it can be sent to another process."""


class Engine(Protocol):
    """Runs the independent side effects of a wave, in parallel where possible."""

    @property
    def verify_on_driver(self) -> bool:
        """Return True if the driver must check each side effect on its own view of the tier.

        That is the case when `file:` may name another folder in the process that runs the side effect.
        """
        ...

    @property
    def wave_size(self) -> int:
        """Return the number of segments to copy per wave when the operator gave none."""
        ...

    @property
    def delete_wave_size(self) -> int:
        """Return the number of segments to delete per wave when the operator gave none."""
        ...

    def ready(self) -> None:
        """Raise TierctlError if the engine can take no work; called before a wave is published."""
        ...

    def map(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> list[SideEffectResult]:
        """Run `side_effect` on each input and return the results in the order of `inputs`.

        `side_effect` reports a failure in its result. `context` is that of this process; an engine that uses
        other processes opens an equal one there. An input without a result gets StoreWriteUnknown, or
        `stopped` if the run was told to stop.
        """
        ...

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        """Begin what `map` does, and return a function that waits for the results and returns them.

        The inputs follow those of earlier calls. An engine that does one thing at a time begins when the
        results are first requested.
        """
        ...


class LocalEngine:
    """Runs side effects on a pool of `threads` threads in this process."""

    verify_on_driver = False
    wave_size = WAVE_SIZE
    delete_wave_size = DELETE_WAVE_SIZE

    def __init__(self, threads: int) -> None:
        self._threads = max(1, threads)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="tierctl-side-effect")

    def ready(self) -> None:
        """Implement `Engine.ready`: threads are always ready."""

    def map(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> list[SideEffectResult]:
        """Implement `Engine.map`."""
        return self.begin(side_effect, inputs, context)()

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        """Implement `Engine.begin`; with one thread the thread that requests the results does the work."""
        if self._threads == 1:
            return cache(lambda: [side_effect(context, each) for each in inputs])
        return partial(_results, [self._pool.submit(side_effect, context, each) for each in inputs])


def _results(futures: Sequence[Future[SideEffectResult]]) -> list[SideEffectResult]:
    """Return the results; if one raises, wait until none is under way, and raise."""
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()
        wait(futures)
