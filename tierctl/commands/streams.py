"""Results that a use case produces while its caller consumes them."""

import json
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import Generic, Self, TypeVar

from tierctl.errors import ExitCode, UsageError
from tierctl.report.arrow.result import TableResult, TableRows
from tierctl.report.columns import Columns

T_co = TypeVar("T_co", covariant=True)


class Stream(Generic[T_co]):
    """Items in their order, to be consumed once; the use case keeps its files and connections open.

    Nothing is opened before the first item is requested. A caller that stops before the last item must close
    the stream, with `close` or by using it as a context manager.
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


class RowLines(Stream[T_co], TableResult):
    """Rows of `columns` as text; `lines_of` returns the lines of an item.

    `form` is the form of the lines. Only `json`, one object per line, can be read back as a table.
    """

    def __init__(
        self,
        items: Generator[T_co, None, ExitCode],
        columns: Columns,
        lines_of: Callable[[T_co], Iterable[str | bytes]],
        form: str,
        topic_ids: Collection[str] = (),
    ) -> None:
        super().__init__(items)
        self.topic_ids = topic_ids
        """The topic ids of the rows of all items so far, if the use case knows them."""
        self._columns = columns
        self._lines_of = lines_of
        self._form = form

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`; all items are consumed. UsageError if they are not JSON."""
        if self._form != "json":
            raise UsageError(
                f"lines of the form {self._form} are no table", hint="ask for lines of JSON, the form `json`"
            )
        return self._columns, (json.loads(line) for item in self for line in self._lines_of(item))
