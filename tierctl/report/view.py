"""The options of one run about rows: which columns and rows are printed, in which order and how."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tierctl.errors import UsageError
from tierctl.model.times import TimeForm, system_clock_ms
from tierctl.report.columns import Columns

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Which rows and columns are printed, and how.

    `columns` and `sort` have names of columns, or their headings at a terminal; a `-` before a name of `sort`
    sorts in descending order. `limit` is the number of rows to print. `times` is the form of times in tables;
    None means ages at a terminal and milliseconds elsewhere. `now_ms` is the time from which ages are
    computed.
    """

    columns: Sequence[str] = ()
    sort: Sequence[str] = ()
    limit: int | None = None
    no_header: bool = False
    times: TimeForm | None = None
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
