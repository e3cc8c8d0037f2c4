"""Rows to table, json, jsonl and csv: data on stdout, streamed, never silently nothing."""

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

# Column widths are decided by this many rows; later ones are as wide as they are.
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
    """Print rows as `table`, `json` (one array), `jsonl` or `csv`.

    `columns` are the names and order of table and csv, which print them even when there is no row
    (default: the keys of the first row); `table_columns` is a narrower choice for table only. json and
    jsonl print every key of every row. Only table looks at more than one row at a time.
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
    """Print one object: a json object, one jsonl or csv line, or a table of field and value."""
    out = stream or sys.stdout
    match fmt:
        case "json":
            out.write(f"{json.dumps(obj, default=_plain, indent=2)}\n")
        case "table":
            _table(({"field": key, "value": value} for key, value in obj.items()), ("field", "value"), out)
        case _:
            render([obj], fmt, stream=out)


def to_json(value: Any) -> str:
    """One line of JSON in ASCII; bytes as hex, ids and states as their names."""
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    """What json doesn't know: bytes as hex, NumPy scalars as Python's, mappings and sets as they are."""
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
    """A value in a table or a csv cell: what JSON would say, without quotes around text."""
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
    """A leading quote keeps a spreadsheet from running text as a formula; names and ids stay as they are."""
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
