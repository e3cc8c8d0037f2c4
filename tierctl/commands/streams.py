"""Results that a use case produces while its caller consumes them."""

from collections.abc import Generator, Iterator
from typing import Generic, Self, TypeVar

from tierctl.errors import ExitCode

T_co = TypeVar("T_co", covariant=True)


class Stream(Generic[T_co]):
    """Items in their order, to be consumed once; the use case keeps its files and connections open meanwhile.

    Nothing is opened before the first item is asked for. A caller that stops before the last item closes
    the stream, with `close` or by using it as a context.
    """

    def __init__(self, items: Generator[T_co, None, ExitCode]) -> None:
        self._items = items
        self.exit_code = ExitCode.OK
        """The exit code of the run; final once all items are consumed."""

    def __iter__(self) -> Iterator[T_co]:
        self.exit_code = yield from self._items

    def close(self) -> None:
        """Close the files and connections of the use case; later calls do nothing."""
        self._items.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
