"""The method `to_arrow` of results that are tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tierctl.report.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa

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
        from tierctl.report.arrow.table import arrow_table

        columns, rows = self.table_rows()
        return arrow_table(rows, columns)
