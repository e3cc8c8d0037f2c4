"""HTML of texts and tables: every text is escaped, and a name's direction does not change the page's."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from tierctl.model.times import iso_utc
from tierctl.report.columns import Column, Columns, Kind
from tierctl.report.terminal import printable
from tierctl.report.units import bytes_text
from tierctl.report.view import Row

_TIME_MS_MAX = 253_402_300_799_000
_NAMES = frozenset({Kind.NAME, Kind.TEXT})


def text(value: object) -> str:
    """Return `value` as HTML text, also for attributes; control and direction characters become visible."""
    return escape(printable(str(value)))


def name(value: object) -> str:
    """Return a name from outside as HTML, whose own direction does not change that of the text around it."""
    return f"<bdi>{text(value)}</bdi>"


def bytes_cell(size_bytes: int) -> str:
    """Return a size in human units; the exact number of bytes is its value."""
    return f'<data value="{int(size_bytes)}">{bytes_text(size_bytes)}</data>'


def time_cell(at_ms: int) -> str:
    """Return a time in UTC to the minute, or the number itself if it is not in the years 1970 to 9999."""
    if not 0 <= at_ms <= _TIME_MS_MAX:
        return text(at_ms)
    exact = iso_utc(at_ms)
    return f'<time datetime="{exact}">{exact[:10]} {exact[11:16]}</time>'


def cell(value: Any, kind: Kind) -> str:
    """Return the HTML of one value of a column."""
    if value is None:
        return ""
    if kind is Kind.BYTES and isinstance(value, int):
        return bytes_cell(value)
    if kind is Kind.TIME and isinstance(value, int):
        return time_cell(value)
    return name(value) if kind in _NAMES else text(value)


def table(identity: str, caption: str, head: Sequence[str], body: Iterable[str]) -> str:
    """Return a table that scrolls in its own region; `head` are cells, and `body` rows, of HTML."""
    heads = "".join(f'<th scope="col">{each}</th>' for each in head)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{identity}-caption">'
        f'<table id="{identity}"><caption id="{identity}-caption">{caption}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table></div>\n"
    )


def rows_table(identity: str, caption: str, columns: Columns, rows: Sequence[Row], *names: str) -> str:
    """Return the table of `rows` with the columns `names`; the first one is the head of its row.

    Columns that are empty in every row are left out.
    """
    shown = [columns.by_name[each] for each in names]
    shown = [column for column in shown if any(row.get(column.name) is not None for row in rows)]
    head = [text(column.heading.replace("_", " ")) for column in shown]
    return table(identity, caption, head, (_row(row, shown) for row in rows))


def _row(row: Row, columns: Sequence[Column]) -> str:
    cells = []
    for number, column in enumerate(columns):
        shown = cell(row.get(column.name), column.kind)
        style = ' class="number"' if column.kind.is_number and column.kind is not Kind.TIME else ""
        if number == 0:
            cells.append(f'<th scope="row"{style}>{shown}</th>')
        else:
            cells.append(f"<td{style}>{shown}</td>")
    return f"<tr>{''.join(cells)}</tr>\n"
