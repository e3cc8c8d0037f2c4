"""Where side effects run; only the driver publishes metadata, so order and fencing live in one place."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from tierctl.apply.defaults import WAVE_SIZE
from tierctl.apply.side_effect_context import Answer, Bench, Piece

P = TypeVar("P", bound=Piece)

Do = Callable[[Bench, P], Answer]
"""One side effect; a function of a module, or `partial` of one, so that another process can have it."""


class Engine(Protocol):
    """Runs independent pieces of work, in parallel if it can."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether what was done has to be seen from here, too: the same folder may be another one there."""
        ...

    @property
    def wave_size(self) -> int:
        """How many segments a wave should have when nobody says."""
        ...

    def ready(self) -> None:
        """Raises TierctlError when no more work can be taken; asked before a wave is published."""
        ...

    def map(self, do: Do[P], work: Sequence[P], bench: Bench) -> list[Answer]:
        """`do` with each piece, answers in the order of `work`.

        `do` reports failure in its answer. `bench` is this process's; where the work is done there is one
        like it. A piece of which nothing is heard was StoreWriteUnknown, or `stopped` when that was asked.
        """
        ...


class LocalEngine:
    """A pool of `threads` threads in this process."""

    is_elsewhere = False
    wave_size = WAVE_SIZE

    def __init__(self, threads: int) -> None:
        self._threads = max(1, threads)

    def ready(self) -> None:
        """Engine.ready."""

    def map(self, do: Do[P], work: Sequence[P], bench: Bench) -> list[Answer]:
        """Engine.map."""
        if self._threads == 1 or len(work) == 1:
            return [do(bench, piece) for piece in work]
        with ThreadPoolExecutor(max_workers=min(self._threads, len(work)) or 1) as pool:
            return list(pool.map(lambda piece: do(bench, piece), work))
