"""The section of the page about days: a chart of copies, deletions and expirations, and its table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from tierctl.report.html.elements import bytes_cell, table, text
from tierctl.report.units import bytes_text
from tierctl.report.view import Row

_PAST_DAYS, _FUTURE_DAYS = 60, 30
_WIDTH, _HEIGHT, _MIDDLE, _MARGIN = 900, 236, 120, 16
_DATES = 16
"""The height of the line below the chart that has its first and its last day."""


@dataclass(slots=True)
class _Day:
    """The sums of all topics on one day, in bytes, and the number of segments that expire."""

    copied: int = 0
    deleted: int = 0
    expiring: int = 0
    segments: int = 0

    def add(self, row: Row) -> None:
        self.copied += row["copied_bytes"]
        self.deleted += row["deleted_bytes"]
        self.expiring += row["expiring_bytes"]
        self.segments += row["copied_segments"] + row["deleted_segments"] + row["expiring_segments"]


def growth_section(rows: Iterable[Row], now_ms: int) -> str:
    """Return the chart and the table of the days around the time of the report, all topics together."""
    sums: dict[str, _Day] = {}
    for row in rows:
        sums.setdefault(row["day"], _Day()).add(row)
    if not sums:
        return "<p>No segment was copied or deleted, and none expires.</p>\n"
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    days = _shown_days(sorted(sums), today)
    shown = [(day, sums.get(day.isoformat(), _Day())) for day in days]
    left_out = [day for day in sums if not days[0].isoformat() <= day <= days[-1].isoformat()]
    note = ""
    if left_out:
        listed = f"{len(left_out)} earlier or later days with changes are"
        note = f"<p>{listed} not shown; tierctl report --show growth lists them.</p>\n"
    body = (_table_row(day, sums) for day, sums in reversed(shown) if sums.segments)
    head = ("day", "copied", "deleted", "net", "expiring")
    return _chart(shown, today) + note + table("growth-days", "Bytes by day (UTC), all topics", head, body)


def _shown_days(known: Sequence[str], today: date) -> list[date]:
    """Return the days of the chart: those with changes and all between, at most 60 before and 30 after."""
    first = max(date.fromisoformat(known[0]), today - timedelta(days=_PAST_DAYS - 1))
    last = min(max(date.fromisoformat(known[-1]), today), today + timedelta(days=_FUTURE_DAYS))
    first = min(first, today)
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def _table_row(day: date, sums: _Day) -> str:
    net = sums.copied - sums.deleted
    cells = (bytes_cell(sums.copied), bytes_cell(sums.deleted), bytes_cell(net), bytes_cell(sums.expiring))
    values = "".join(f'<td class="number">{each}</td>' for each in cells)
    return f'<tr><th scope="row">{day.isoformat()}</th>{values}</tr>\n'


def _chart(days: Sequence[tuple[date, _Day]], today: date) -> str:
    """Return bars: copies upwards, deletions and expirations downwards; the latter have an outline only."""
    highest = max(max(sums.copied, sums.deleted, sums.expiring) for _, sums in days) or 1
    step = _WIDTH / len(days)
    bars = "".join(_bars(number * step, step, sums, highest) for number, (_, sums) in enumerate(days))
    at = (today - days[0][0]).days * step
    copied, deleted, expiring = (
        bytes_text(sum(getattr(sums, each) for _, sums in days)) for each in ("copied", "deleted", "expiring")
    )
    label = (
        f"Bars by day from {days[0][0]} to {days[-1][0]}: copied {copied}, deleted {deleted}, "
        f"expiring {expiring}. The table below has the numbers."
    )
    # The labels of the axis are at the side that has no label of today.
    left, right = 'x="0"', f'x="{_WIDTH}" text-anchor="end"'
    side = right if at < _WIDTH / 2 else left
    labels = (
        f'<text {side} y="12">{bytes_text(highest)} copied</text>'
        f'<text {side} y="{_HEIGHT - _DATES - 4}">{bytes_text(highest)} deleted or expiring</text>'
        f'<text x="{min(at + 4, _WIDTH - 110):.1f}" y="12">today {today}</text>'
        f'<text {left} y="{_HEIGHT - 4}">{days[0][0]}</text>'
    )
    if len(days) > 1:
        labels += f'<text {right} y="{_HEIGHT - 4}">{days[-1][0]}</text>'
    return (
        '<p class="key"><span class="swatch copied-bar"></span> copied '
        '<span class="swatch deleted-bar"></span> deleted '
        '<span class="swatch expiring-bar"></span> expiring (outlined)</p>\n'
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text(label)}">'
        f'{bars}<path class="axis" d="M0 {_MIDDLE}H{_WIDTH}"/>'
        f'<path class="today" d="M{at:.1f} {_MARGIN}V{_HEIGHT - _DATES - _MARGIN}"/>{labels}</svg>\n'
    )


def _bars(x: float, step: float, sums: _Day, highest: int) -> str:
    up, down = _MIDDLE - _MARGIN, _HEIGHT - _DATES - _MIDDLE - _MARGIN
    copied, deleted, expiring = (
        room * value / highest
        for room, value in ((up, sums.copied), (down, sums.deleted), (down, sums.expiring))
    )
    shown = (
        ("copied-bar", _MIDDLE - copied, copied),
        ("deleted-bar", _MIDDLE, deleted),
        ("expiring-bar", _MIDDLE + deleted, min(expiring, down - deleted)),
    )
    width = max(step * 0.8, 1)
    return "".join(
        f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
        for name, y, height in shown
        if height > 0
    )
