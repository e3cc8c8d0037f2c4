"""Engines run side effects in parallel. They never publish metadata: only the driver does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from tierctl.apply.defaults import DELETE_WAVE_SIZE, WAVE_SIZE
from tierctl.apply.side_effects import SideEffectContext, SideEffectResult

P = TypeVar("P")
T = TypeVar("T")

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
        """Begin what `map` does, and return a function that waits for the results and returns them."""
        ...


class LocalEngine:
    """Runs side effects on a pool of `threads` threads in this process."""

    verify_on_driver = False
    wave_size = WAVE_SIZE
    delete_wave_size = DELETE_WAVE_SIZE

    def __init__(self, threads: int) -> None:
        self._threads = max(1, threads)

    def ready(self) -> None:
        """Implement `Engine.ready`: threads are always ready."""

    def map(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> list[SideEffectResult]:
        """Implement `Engine.map`."""
        if self._threads == 1 or len(inputs) == 1:
            return [side_effect(context, each) for each in inputs]
        with ThreadPoolExecutor(max_workers=min(self._threads, len(inputs)) or 1) as pool:
            return list(pool.map(lambda each: side_effect(context, each), inputs))

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        """Implement `Engine.begin`; an engine of one thread does everything at once."""
        if self._threads == 1:
            results = self.map(side_effect, inputs, context)
            return lambda: results
        return begun(partial(self.map, side_effect, inputs, context))


def begun(work: Callable[[], T]) -> Callable[[], T]:
    """Call `work` in a thread of its own; return a function that waits for the result or raises the error."""
    with_thread = ThreadPoolExecutor(1)
    future = with_thread.submit(work)
    with_thread.shutdown(wait=False)
    return future.result
