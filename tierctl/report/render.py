"""Print rows as table, json, jsonl or csv, one by one; an empty result prints its header or `[]`."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

from tierctl.report.table import Table
from tierctl.report.terminal import printable

Row = Mapping[str, Any]

# The widths of columns follow from the first rows; a wider cell of a later row is not cut off.
_SAMPLE_ROWS = 1000
_FORMULA_START = ("=", "+", "-", "@")


def render(
    rows: Iterable[Row],
    fmt: str,
    columns: Sequence[str] | None = None,
    *,
    table_columns: Sequence[str] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Print `rows` on `stream` (default: stdout) as `table`, `json` (one array), `jsonl` or `csv`.

    `columns` are the columns of table and csv, in order, printed even without a row (default: the keys of
    the first row); `table_columns` replaces them in a table. json and jsonl print every key of every row.
    Only a table reads more than one row before it prints the first.
    """
    out = stream or sys.stdout
    match fmt:
        case "json":
            _json_array(rows, out)
        case "jsonl":
            for row in rows:
                out.write(f"{to_json(row)}\n")
        case "csv":
            _csv(rows, columns, out)
        case _:
            _table(rows, table_columns or columns, out)


def render_object(obj: Row, fmt: str, *, stream: TextIO | None = None) -> None:
    """Print `obj` as a json object, one line of jsonl or csv, or a table of its fields and values."""
    out = stream or sys.stdout
    match fmt:
        case "json":
            out.write(f"{json.dumps(obj, default=_plain, indent=2)}\n")
        case "table":
            _table(({"field": key, "value": value} for key, value in obj.items()), ("field", "value"), out)
        case _:
            render([obj], fmt, stream=out)


def to_json(value: Any) -> str:
    """Return `value` as one line of JSON in ASCII, with bytes as hex."""
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    """Return a type that `json` can encode: bytes as hex, NumPy scalars as Python's, sets sorted."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _cell(value: Any) -> str:
    """Return the text of a cell: printable text as it is, None as empty, any other value as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return printable(json.dumps(value, default=_plain, separators=(",", ":")).strip('"'))


def _json_array(rows: Iterable[Row], out: TextIO) -> None:
    separator = "["
    for row in rows:
        out.write(f"{separator}\n{to_json(row)}")
        separator = ","
    out.write("[]\n" if separator == "[" else "\n]\n")


def _with_columns(rows: Iterable[Row], columns: Sequence[str] | None) -> tuple[list[str], Iterator[Row]]:
    if columns is not None:
        return list(columns), iter(rows)
    remaining = iter(rows)
    first = list(islice(remaining, 1))
    return [key for row in first for key in row], chain(first, remaining)


def _csv_cell(value: Any) -> str:
    """Return the text of a csv cell, quoted if a spreadsheet would run it as a formula.

    Names and ids, which may begin with `-`, stay as they are.
    """
    text = _cell(value)
    if not isinstance(value, str) or not text.startswith(_FORMULA_START):
        return text
    if all(char.isalnum() or char in "._-" for char in text):
        return text
    return f"'{text}"


def _csv(rows: Iterable[Row], columns: Sequence[str] | None, out: TextIO) -> None:
    names, remaining = _with_columns(rows, columns)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_csv_cell(name) for name in names])
    for row in remaining:
        writer.writerow([_csv_cell(row.get(name)) for name in names])


def _table(rows: Iterable[Row], columns: Sequence[str] | None, out: TextIO) -> None:
    names, remaining = _with_columns(rows, columns)
    sample = list(islice(remaining, _SAMPLE_ROWS))
    cells = ([_cell(row.get(name)) for name in names] for row in chain(sample, remaining))
    table = Table(
        names=[printable(name) for name in names],
        right={printable(name) for name in names if _is_number_column(sample, name)},
        sample=list(islice(cells, len(sample))),
    )
    table.write(cells, out)


def _is_number_column(rows: Sequence[Row], name: str) -> bool:
    values = [row.get(name) for row in rows]
    return any(isinstance(v, int) and not isinstance(v, bool) for v in values) and not any(
        isinstance(v, str) for v in values
    )
