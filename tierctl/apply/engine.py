"""Engines run side effects in parallel. They never publish metadata: only the driver does."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from tierctl.apply.defaults import WAVE_SIZE
from tierctl.apply.side_effects import SideEffectContext, SideEffectInput, SideEffectResult

P = TypeVar("P", bound=SideEffectInput)

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
        """Return the number of segments per wave to use when the operator gave none."""
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


class LocalEngine:
    """Runs side effects on a pool of `threads` threads in this process."""

    verify_on_driver = False
    wave_size = WAVE_SIZE

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
