"""Call functions on other threads: for many items, whose results are in their order, or once."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    do: Callable[[Item], Result], items: Iterable[Item], *, threads: int, ahead: int
) -> Generator[Result, None, None]:
    """Yield `do(item)` for each of `items`, in their order; raise an exception of `do` at its position.

    An exception of `items` is raised after the results of the items before it.
    At most `ahead` items after the one whose result is yielded are read. One of the threads is the caller's.
    Closing the generator waits for running calls.
    """
    yield from map(do, items) if threads <= 1 else _submitted(do, items, threads=threads, ahead=ahead)


def one_ahead(do: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
    """Yield `do(item)` for each of `items`, in their order; the next one runs while a result is used.

    It runs on the same other thread as the one before, so that no two calls run side by side. Raises and
    closes as `in_order`.
    """
    return _submitted(do, items, threads=1, ahead=1)


def _submitted(
    do: Callable[[Item], Result], items: Iterable[Item], *, threads: int, ahead: int
) -> Generator[Result, None, None]:
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[Result]] = deque()
        for call in _calls(pool, do, items):
            running.append(call)
            if len(running) > ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _calls(
    pool: ThreadPoolExecutor, do: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Future[Result]]:
    """Yield the calls in the order of `items`; the last may be an exception of `items`, as its result."""
    try:
        for item in items:
            yield pool.submit(do, item)
    except Exception as e:
        failed: Future[Result] = Future()
        failed.set_exception(e)
        yield failed


def in_background(call: Callable[[], Result], name: str) -> Future[Result]:
    """Return the result to come of `call`; the process may end before its thread, which is called `name`."""
    found: Future[Result] = Future()

    def run() -> None:
        try:
            found.set_result(call())
        except BaseException as e:
            found.set_exception(e)

    Thread(target=run, name=name, daemon=True).start()
    return found
