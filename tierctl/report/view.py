"""The options of one run about rows: which columns and rows are printed, in which order and how."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any

import typer

from tierctl.errors import UsageError
from tierctl.model.times import TimeForm, system_clock_ms
from tierctl.report.columns import Columns

Row = Mapping[str, Any]
SHOW = "Output"
"""The title of the options about rows in the help of a command."""


def _names(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _complete_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the columns of the rows of a command that fit after the last comma."""
    from tierctl.report.tables import ALL

    command = ctx.command_path.partition(" ")[2]
    before, comma, last = incomplete.rpartition(",")
    tables = [each for each in ALL if command in re.split(r"[^a-z -]+| --\S+", each.commands)]
    names = dict.fromkeys(column.name for table in tables for column in table.all)
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
            "--columns",
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
            "--sort",
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
            "--limit",
            metavar="N",
            min=1,
            help="Print only the first N rows. The run and its exit code stay the same.",
            rich_help_panel=SHOW,
        ),
    ] = None
    no_header: Annotated[
        bool, typer.Option("--no-header", help="Print tables and csv without a header.", rich_help_panel=SHOW)
    ] = False
    times: Annotated[
        TimeForm | None,
        typer.Option(
            "--times",
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
    return lambda row: row[name]


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
