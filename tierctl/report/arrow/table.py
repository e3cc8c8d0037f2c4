"""Convert rows of a kind to a table of Arrow."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from tierctl.report.columns import Column, Columns, Kind
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
