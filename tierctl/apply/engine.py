"""Where side effects run; only the driver publishes metadata, so order and fencing live in one place."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")


class Engine(Protocol):
    """Runs independent pieces of work, in parallel if it can."""

    def map(self, do: Callable[[Work], Result], work: Sequence[Work]) -> list[Result]:
        """`do` applied to each piece, results in the order of `work`. `do` reports failure in its result."""
        ...


class LocalEngine:
    """A pool of `threads` threads in this process."""

    def __init__(self, threads: int) -> None:
        self._threads = max(1, threads)

    def map(self, do: Callable[[Work], Result], work: Sequence[Work]) -> list[Result]:
        """See Engine.map."""
        if self._threads == 1 or len(work) == 1:
            return [do(piece) for piece in work]
        with ThreadPoolExecutor(max_workers=min(self._threads, len(work)) or 1) as pool:
            return list(pool.map(do, work))
