"""Print rows as table, json, jsonl or csv, one by one."""

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Final, TextIO, assert_never

import typer

from tierctl.errors import TierctlError, UsageError
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.model.times import TimeForm, system_clock_ms, time_text
from tierctl.report.columns import Column, Columns, Kind
from tierctl.report.table import (
    PIECE_CHARS,
    Cells,
    TerminalTable,
    bytes_text,
    printable,
    printable_pieces,
    shortened,
    write_blocks,
    write_table,
)
from tierctl.wire.metadata.schema import json_fields

Row = Mapping[str, Any]
SHOW = "Output"
"""The title of the options about rows in the help of a command."""


class OutputFormat(StrEnum):
    """The format of the rows on stdout."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


def _names(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list; raise UsageError for a list without names."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UsageError(f"expected names of columns, found {text!r}", hint="name one, or leave it out")
    return names


def _complete_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the columns of the rows of a command that fit after the last comma."""
    before, comma, last = incomplete.rpartition(",")
    kinds: Iterable[Columns] = getattr(ctx.command.callback, "rows", ())
    names = dict.fromkeys(column.name for kind in kinds for column in kind.all)
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Which rows and columns are printed, and how.

    `columns` and `sort` have names of columns, or their headings at a terminal; a `-` before a name of `sort`
    sorts in descending order. `limit` is the number of rows to print. `times` is the form of times in tables;
    None means ages at a terminal and milliseconds elsewhere. `now_ms` is the time from which ages are
    computed.
    """

    columns: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="NAME,...",
            autocompletion=_complete_columns,
            parser=_names,
            help="Print these columns, in this order, in every format. Without this option a terminal shows "
            "as many columns as fit, the most important first.",
            rich_help_panel=SHOW,
        ),
    ] = ()
    sort: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="[-]NAME,...",
            autocompletion=_complete_columns,
            parser=_names,
            help="Sort the rows by these columns; - before a name sorts in descending order.",
            rich_help_panel=SHOW,
        ),
    ] = ()
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Print only the first N rows. The run and its exit code stay the same.",
            rich_help_panel=SHOW,
        ),
    ] = None
    no_header: Annotated[
        bool, typer.Option(help="Print tables and csv without a header.", rich_help_panel=SHOW)
    ] = False
    times: Annotated[
        TimeForm | None,
        typer.Option(
            help="Times in a table: ages, ISO 8601, or milliseconds since 1970. Default: relative at a "
            "terminal, otherwise ms. json, jsonl and csv have ms.",
            rich_help_panel=SHOW,
        ),
    ] = None
    now_ms: int = field(default_factory=system_clock_ms)

    @property
    def is_plain(self) -> bool:
        """Whether every row is printed unchanged and in the original order."""
        return not (self.columns or self.sort) and self.limit is None and not self.no_header

    def chosen(self, columns: Columns) -> tuple[str, ...]:
        """Return the names of --columns, or () without the option; raise UsageError for an unknown name."""
        return tuple(_name(columns, text, "--columns") for text in self.columns)

    def arranged(self, rows: Iterable[Row], columns: Columns) -> Iterable[Row]:
        """Return the rows in the order of --sort; without the option, rows are read one by one.

        Null comes last in both directions. Raise UsageError for an unknown column.
        """
        if not self.sort:
            return rows
        ordered = list(rows)
        for text, name in reversed([*zip(self.sort, self._sort_names(columns), strict=True)]):
            known = [row for row in ordered if row.get(name) is not None]
            known.sort(key=_key(name), reverse=text.startswith("-"))
            ordered = known + [row for row in ordered if row.get(name) is None]
        return ordered

    def check(self, columns: Columns) -> None:
        """Raise UsageError for names that `columns` do not have."""
        self.chosen(columns)
        self._sort_names(columns)

    def fits(self, columns: Columns) -> bool:
        """Return whether `columns` have all names of --columns and --sort."""
        names = (*self.columns, *(text.removeprefix("-") for text in self.sort))
        return all(columns.find(name) is not None for name in names)

    def _sort_names(self, columns: Columns) -> list[str]:
        return [_name(columns, text.removeprefix("-"), "--sort") for text in self.sort]


def _key(name: str) -> Callable[[Row], Any]:
    return lambda row: _ordered(row[name])


def _ordered(value: Any) -> tuple[int, Any]:
    """Return a key that can be compared with that of any other value: numbers come first, then texts.

    Lists are compared item by item, and other values by their JSON.
    """
    if isinstance(value, str):
        return 1, value
    if isinstance(value, list | tuple):
        return 2, tuple(map(_ordered, value))
    if hasattr(value, "item"):
        value = value.item()
    return (0, value) if isinstance(value, int | float) else (3, to_json(value))


def _name(columns: Columns, text: str, option: str) -> str:
    found = columns.find(text)
    if found is None:
        names = ", ".join(column.name for column in columns.all)
        raise UsageError(f"{option}: no column {text!r}", hint=f"one of {names}")
    return found.name


@dataclass(slots=True)
class Counted:
    """Rows that are counted while they are read; at most `limit` of them are passed on.

    All rows are read: the exit code of a run may depend on the last one.
    """

    rows: Iterable[Row]
    limit: int | None = None
    count: int = 0

    def __iter__(self) -> Iterator[Row]:
        remaining = iter(self._all())
        yield from islice(remaining, self.limit)
        for _ in remaining:
            pass

    def _all(self) -> Iterator[Row]:
        for row in self.rows:
            self.count += 1
            yield row


# The widths of columns follow from the first rows; a wider cell of a later row is not cut off.
_SAMPLE_ROWS = 1000
_SAMPLE_CHARS = 1 << 22
"""The sample ends with the row that reaches this size, as it is in memory before the first row is printed."""
_CONTENT_CHARS = 2000
"""A terminal shows no more of a record's key, value or headers; what is cut is not escaped."""
_FORMULA_START = ("=", "+", "-", "@")
_NAME = re.compile(r"[\w.-]*")
_PLAIN = View()


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """The number of all rows, the number to print, and the columns that did not fit at a terminal."""

    rows: int
    limit: int | None = None
    dropped: tuple[str, ...] = ()

    @property
    def cut_text(self) -> str:
        """What the line that ends a run says about rows that --limit leaves out; empty if there are none."""
        is_cut = self.limit is not None and self.limit < self.rows
        return f"; {self.limit} of {self.rows} rows printed (--limit)" if is_cut else ""


def render(
    rows: Iterable[Row],
    fmt: OutputFormat,
    columns: Columns,
    view: View = _PLAIN,
    *,
    names: Sequence[str] | None = None,
    stream: TextIO | None = None,
) -> Printed:
    """Print `rows` on `stream` (default: stdout) as `table`, `json` (one array), `jsonl` or `csv`.

    json and jsonl have every key of every row, csv has the columns of `columns` (or `names`), and a table
    those that `columns` states for it; `view.columns` replaces them all. Without rows, csv and a table have
    a header, and a table at a terminal has nothing; there the worst rows of a kind come last. Only a table
    reads more than one row before it prints the first, except for `view.sort`.
    Raise UsageError for an unknown column.
    """
    out = stream or sys.stdout
    chosen = view.chosen(columns)
    counted = Counted(view.arranged(rows, columns), view.limit)
    dropped: tuple[str, ...] = ()
    match fmt:
        case OutputFormat.JSON:
            _json_array(_narrowed(counted, chosen), out)
        case OutputFormat.JSONL:
            for row in _narrowed(counted, chosen):
                out.writelines((to_json(row), "\n"))
        case OutputFormat.CSV:
            _csv(counted, chosen or names or columns.names, out, header=not view.no_header)
        case OutputFormat.TABLE if out.isatty():
            dropped = _terminal(counted, columns, view, chosen, out)
        case OutputFormat.TABLE:
            _table(counted, columns, view, chosen or columns.in_table or columns.names, out)
        case _:
            assert_never(fmt)
    return Printed(rows=counted.count, limit=view.limit, dropped=dropped)


def render_object(obj: Row, fmt: OutputFormat, *, stream: TextIO | None = None) -> None:
    """Print `obj` as a json object, one line of jsonl or csv, or a table of its fields and values."""
    out = stream or sys.stdout
    match fmt:
        case OutputFormat.JSON:
            out.write(f"{json.dumps(obj, default=_plain, indent=2)}\n")
        case OutputFormat.JSONL:
            out.write(f"{to_json(obj)}\n")
        case OutputFormat.CSV:
            _csv([obj], list(obj), out, header=True)
        case OutputFormat.TABLE:
            cells = [(key, _text(value)) for key, value in obj.items()]
            write_table(_FIELD_AND_VALUE, cells, (), out, header=True)
        case _:
            assert_never(fmt)


_FIELD_AND_VALUE = tuple(
    Column(name=name, kind=Kind.TEXT, meaning="", heading=name) for name in ("field", "value")
)


def to_json(value: Any) -> str:
    """Return `value` as one line of JSON in ASCII, with bytes as hex."""
    return _LINE_ENCODER.encode(value)


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


_LINE_ENCODER: Final = json.JSONEncoder(default=_plain)
_CELL_ENCODER: Final = json.JSONEncoder(default=_plain, separators=(",", ":"))


def _text(value: Any) -> str:
    """Return the text of a cell before it is escaped: None as empty, text as it is, other values as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if type(value) is int:
        return str(value)
    return _CELL_ENCODER.encode(value).strip('"')


def _human(row: Row, column: Column, view: View) -> str:
    """Return the text of a cell at a terminal: sizes and times in units that a person reads."""
    value, kind = row.get(column.name), column.kind
    if isinstance(value, int):
        if kind is Kind.BYTES:
            return bytes_text(value)
        if kind is Kind.TIME:
            return time_text(value, view.times or TimeForm.RELATIVE, now_ms=view.now_ms)
    if kind is Kind.COST and value is not None:
        return "< 0.01" if 0 < value < 0.01 else f"{value:,.2f}"
    text = _text(value)
    return printable(shortened(text, _CONTENT_CHARS) if kind in {Kind.CONTENT, Kind.LIST} else text)


def _exact(value: Any, kind: Kind, view: View) -> str:
    """Return the text of a cell in a pipe, not escaped: exact, but times in the form of `view.times`."""
    if view.times is not None and kind is Kind.TIME and isinstance(value, int):
        return time_text(value, view.times, now_ms=view.now_ms)
    return _text(value)


def _narrowed(rows: Iterable[Row], names: Sequence[str]) -> Iterable[Row]:
    return ({name: row.get(name) for name in names} for row in rows) if names else rows


def _substituted(rows: Iterable[Row], substitutes: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows; where a column of `substitutes` is null, it has the value of the column named there."""
    for row in rows:
        yield {**row, **{name: row.get(name) or row.get(other) for name, other in substitutes.items()}}


def _json_array(rows: Iterable[Row], out: TextIO) -> None:
    """Print one array; if an error ends the rows, the array ends after the last one."""
    separator = "["
    try:
        for row in rows:
            out.writelines((separator, "\n", to_json(row)))
            separator = ","
    except (TierctlError, OSError):
        if separator == ",":
            out.write("\n]\n")
        raise
    out.write("[]\n" if separator == "[" else "\n]\n")


def _csv_text(value: Any) -> str:
    """Return the text of a csv cell, not escaped; a text that a spreadsheet would run as a formula is quoted.

    Names and ids, which may begin with `-`, stay as they are.
    """
    text = _text(value)
    is_formula = isinstance(value, str) and text.startswith(_FORMULA_START) and not _NAME.fullmatch(text)
    return f"'{text}" if is_formula else text


def _csv(rows: Iterable[Row], names: Sequence[str], out: TextIO, *, header: bool) -> None:
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow([printable(_csv_text(name)) for name in names])
    for row in rows:
        cells = [_csv_text(row.get(name)) for name in names]
        if sum(map(len, cells)) <= PIECE_CHARS:
            writer.writerow(map(printable, cells))
        else:
            _write_long_csv(cells, out)


def _write_long_csv(cells: Cells, out: TextIO) -> None:
    """Write a row in pieces, with every cell in quotes: csv.writer copies it to four bytes per character."""
    separator = '"'
    for text in cells:
        out.write(separator)
        out.writelines(piece.replace('"', '""') for piece in printable_pieces(text))
        separator = '","'
    out.write('"\n')


def _split(rows: Iterable[Cells]) -> tuple[list[Cells], Iterator[Cells], bool]:
    """Return the sample, the rows after it, and whether the sample has all rows."""
    remaining = iter(rows)
    sample: list[Cells] = []
    chars = 0
    for row in remaining:
        sample.append(row)
        chars += sum(map(len, row))
        if len(sample) == _SAMPLE_ROWS or chars >= _SAMPLE_CHARS:
            return sample, remaining, False
    return sample, remaining, True


def _table(rows: Iterable[Row], columns: Columns, view: View, names: Sequence[str], out: TextIO) -> None:
    shown = [columns.by_name[name] for name in names]
    cells = ([_exact(row.get(each.name), each.kind, view) for each in shown] for row in rows)
    sample, more, _ = _split(cells)
    write_table(shown, sample, more, out, header=not view.no_header)


def _terminal(
    rows: Iterable[Row], columns: Columns, view: View, names: Sequence[str], out: TextIO
) -> tuple[str, ...]:
    """Print a table at a terminal; return the names of the columns that do not fit.

    Columns that were asked for are all shown; of the others, those that are empty in every row are not.
    """
    ranks = dict.fromkeys(names, 0) if names else columns.at_terminal
    shown = [columns.by_name[name] for name in ranks]
    if columns.substitutes and not names:
        rows = _substituted(rows, columns.substitutes)
    cells = ([_human(row, each, view) for each in shown] for row in rows)
    sample, more, has_all = _split(cells)
    if not sample:
        return ()
    if columns.below and not names:
        write_blocks(shown, columns.below, chain(sample, more), out)
        return ()
    may_hide = has_all and not names
    kept = [i for i in range(len(shown)) if not may_hide or any(row[i] for row in sample)]
    table = TerminalTable(
        columns=[shown[i] for i in kept],
        ranks=[ranks[shown[i].name] for i in kept],
        sample=[[row[i] for i in kept] for row in sample],
        has_header=not view.no_header,
        notes=() if names else columns.notes,
        subjects={} if names else columns.subjects,
    )
    return table.write(([row[i] for i in kept] for row in more), out)


def show_rows(items: Iterable[Any], output: OutputFormat, columns: Columns, view: View) -> Printed:
    """Print one row per item, as `row_of` makes it."""
    return render((row_of(item, columns) for item in items), output, columns, view)


def row_of(item: Any, columns: Columns) -> Row:
    """Return the row of an item: a mapping as it is, and of an object the attributes named as `columns`.

    A field that the dialect of a segment's metadata does not have is None.
    """
    if isinstance(item, Mapping):
        return item
    if isinstance(item, RemoteLogSegmentMetadata):
        shown = json_fields(item)
        return {name: shown.get(name) for name in columns.by_name}
    return {name: getattr(item, name) for name in columns.by_name}


def show_texts(texts: Iterable[str], output: OutputFormat, columns: Columns, view: View) -> Printed:
    """Print rows that executors have rendered as jsonl.

    What is printed equals `show_rows` of the same rows, byte for byte.
    """
    if output != OutputFormat.JSONL or not view.is_plain:
        lines = (line for text in texts for line in io.StringIO(text))
        return show_rows(map(json.loads, lines), output, columns, view)
    count = 0
    for text in texts:
        sys.stdout.write(text)
        count += text.count("\n")
    return Printed(rows=count)
