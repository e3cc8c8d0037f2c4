"""Calls on other threads: results and exceptions come in the order of the items."""

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial

import pytest
from tierctl.in_order import in_order, one_ahead

Runner = Callable[[Callable[[int], int], Iterable[int]], Generator[int, None, None]]
RUNNERS: dict[str, Runner] = {
    "one thread": partial(in_order, threads=1, ahead=2),
    "threads": partial(in_order, threads=2, ahead=4),
    "one ahead": one_ahead,
}


def failing(count: int) -> Iterator[int]:
    """Yield `count` numbers, then raise."""
    yield from range(count)
    raise OSError("the disk failed")


def halved(number: int) -> int:
    if number % 2:
        raise ValueError(number)
    return number // 2


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
def test_an_exception_comes_after_the_results_before_it(run: Runner) -> None:
    assert list(run(halved, range(0, 20, 2))) == list(range(10))
    for items, error in ((failing(1), OSError), (iter([0, 2, 4, 5, 6]), ValueError)):
        found: list[int] = []
        with pytest.raises(error):
            found.extend(run(halved, items))
        assert found == ([0] if error is OSError else [0, 1, 2])
