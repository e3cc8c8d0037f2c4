"""The method `to_arrow` of results that are tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tierctl.report.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tierctl.report.columns import Column, Kind
from tierctl.report.rows import row_of

_PAIRS: Final = pa.list_(pa.struct([("leader_epoch", pa.int32()), ("offset", pa.int64())]))
_TYPES: Final = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


def arrow_table(items: Iterable[Any], columns: Columns) -> pa.Table:
    """Return a table with one row per item, and all columns; `TableResult.to_arrow` lists their types."""
    rows = [row_of(item) for item in items]
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
"""The columns of rows, and the rows in the form that `report.rows` accepts."""


class TableResult(ABC):
    """A result with rows of one kind; subclasses implement `table_rows`."""

    __slots__ = ()

    @abstractmethod
    def table_rows(self) -> TableRows:
        """Return the columns of the rows, and the rows."""

    def to_arrow(self) -> pa.Table:
        """Return the rows as a table with the columns of the command's JSON output; consumes a stream.

        Numbers, sizes and times in milliseconds are int64, decimals float64, flags bool, everything else
        strings. Lists of [leader epoch, offset] are lists of structs with these two fields, and other lists
        are JSON. A value that a row does not have is null. The metadata of each field has its `meaning`.
        """
        # Commands that print need no pyarrow for that.

        columns, rows = self.table_rows()
        return arrow_table(rows, columns)
