"""Results with rows: streamed, or as a table of Arrow."""

import json
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import pyarrow as pa

from tierctl.errors import ExitCode, UsageError
from tierctl.report.columns import Column, Columns, Kind
from tierctl.report.render import row_of

_PAIRS: Final = pa.list_(pa.struct([("leader_epoch", pa.int32()), ("offset", pa.int64())]))
_TYPES: Final = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


def arrow_table(items: Iterable[Any], columns: Columns) -> pa.Table:
    """Return a table with one row per item, and all columns; `TableResult.to_arrow` lists their types."""
    rows = [row_of(item, columns) for item in items]
    arrays = [_array(each, [row.get(each.name) for row in rows]) for each in columns.all]
    fields = [
        pa.field(each.name, array.type, metadata={"meaning": each.meaning})
        for each, array in zip(columns.all, arrays, strict=True)
    ]
    return pa.table(arrays, schema=pa.schema(fields))


def _array(column: Column, values: Sequence[Any]) -> pa.Array:
    if column.kind is Kind.PAIRS:
        pairs = [None if each is None else [tuple(pair) for pair in each] for each in values]
        return pa.array(pairs, _PAIRS)
    kind = _TYPES.get(column.kind.json_type, pa.string())
    if column.kind is Kind.LIST:
        values = [None if each is None else json.dumps(each, default=str) for each in values]
    elif kind == pa.string():
        values = [None if each is None else str(each) for each in values]
    return pa.array(values, kind)


TableRows = tuple[Columns, Iterable[Any]]
"""The columns of rows, and the rows in the form that `row_of` accepts."""


class TableResult:
    """A result with rows of one kind; subclasses set `table`, or implement `table_rows`."""

    __slots__ = ()

    table: ClassVar[tuple[Columns, str | None]]
    """The columns of the rows, and the attribute with the rows; None if the result itself yields them."""

    def table_rows(self) -> TableRows:
        """Return the columns of the rows, and the rows, which read a stream to its end."""
        columns, attribute = self.table
        rows: Any = self if attribute is None else getattr(self, attribute)
        return columns, rows

    def to_arrow(self) -> pa.Table:
        """Return the rows as a table with the columns of the command's JSON output; consumes a stream.

        Numbers, sizes and times in milliseconds are int64, decimals float64, flags bool, everything else
        strings. Lists of [leader epoch, offset] are lists of structs with these two fields, and other lists
        are JSON. A value that a row does not have is null. The metadata of each field has its `meaning`.
        """
        columns, rows = self.table_rows()
        return arrow_table(rows, columns)


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
