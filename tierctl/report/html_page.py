"""The page of `report --html`: its content, and its text, made of a template, a style sheet and a script.

The page needs nothing but itself. Its policy allows only this script and this style sheet, by their hashes.
"""

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from tierctl.errors import UsageError, output_error
from tierctl.files import exclusive_replacement, is_dir, is_link, write_durably
from tierctl.model.checked_values import require_output
from tierctl.model.selection import counted
from tierctl.model.times import TIME_MS_MAX, iso_utc
from tierctl.report.columns import Column, Columns, Kind
from tierctl.report.html_lanes import Lanes, SegmentKind
from tierctl.report.render import Row
from tierctl.report.table import bytes_text, not_understood_text, printable

AGES = ("under 1h", "1h to 1d", "1d to 7d", "7d to 30d", "30d to 90d", "90d to 1y", "over 1y", "unknown")
"""Ages of a segment's newest record; unknown without a timestamp, and for a time after that of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContent:
    """The content of the page; times are in milliseconds since 1970.

    `columns` describes the rows of `topics`, `expirations` and `findings`, by these names.

    `sources` are names and values of the sources; `examined` describes the objects that `verify` compared.
    `findings` are the listed ones, and `finding_counts` has the number of all of them by kind and severity.
    `undecided` has one line per reason for undecided partitions, of which `not_understood` are damaged or
    incomplete, and `stopped` one per kind of reason for copies that continue only after an operator acted.
    `unknown_segments` is the number of events whose segment has an unknown size, so that they are missing in
    the growth by day. `lane_findings` are the columns for the marks in lanes.
    """

    version: str
    now_ms: int
    sources: Sequence[tuple[str, str]]
    examined: str
    checks_objects: bool
    columns: Mapping[str, Columns]
    topics: Sequence[Row]
    sizes: Sequence[Row]
    growth: Sequence[Row]
    expirations: Sequence[Row]
    are_all_expirations: bool
    findings: Sequence[Row]
    finding_counts: Mapping[tuple[str, str], int]
    undecided: Sequence[str]
    not_understood: int
    stopped: Sequence[str]
    unknown_segments: int
    lanes: Lanes
    lane_findings: Mapping[str, Any]


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
    if not 0 <= at_ms <= TIME_MS_MAX:
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


_TOPICS_MAX = 1000
_EXPIRATIONS_MAX = 100
_SEVERITIES = ("error", "warning", "info")


def facts_section(content: PageContent) -> str:
    """Return the sources, and the numbers of the whole tier."""
    topics, lanes = content.topics, content.lanes
    tier_bytes = sum(row["log_bytes"] for row in topics)
    local_bytes = [row["log_bytes"] for row in content.sizes if row["location"] == "local"]
    counts = {level: _count(content, level) for level in _SEVERITIES}
    problems = [counted(counts[level], level) for level in _SEVERITIES[:2] if counts[level]]
    problems += ["copies that wait for an operator"] if content.stopped else []
    problems += [not_understood_text(content.not_understood)] if content.not_understood else []
    serious = ", ".join(problems)
    numbers = [
        # A topic without partitions is enabled, and the tier has nothing of it yet.
        ("Topics in the tier", f"{len({row['topic_id'] for row in topics if row['partitions']}):,}"),
        ("Partitions", f"{len(lanes):,}"),
        ("Finished segments", f"{sum(row['segments'] for row in topics):,}"),
        ("Size in the tier", bytes_cell(tier_bytes)),
        ("Size of the logs", bytes_cell(sum(local_bytes)) if local_bytes else "not read"),
        ("Problems", text(serious) if serious else "none"),
    ]
    if content.expirations:
        numbers.append(("Next expiration", time_cell(content.expirations[0]["due_ms"])))
    facts = "".join(f"<div><dt>{text(key)}</dt><dd>{value}</dd></div>" for key, value in numbers)
    sources = "".join(
        f"<div><dt>{text(key)}</dt><dd>{name(value)}</dd></div>" for key, value in content.sources
    )
    return f'<dl class="numbers">{facts}</dl>\n<dl class="sources">{sources}</dl>\n'


def _count(content: PageContent, severity: str) -> int:
    return sum(count for (_, level), count in content.finding_counts.items() if level == severity)


def limits_section(content: PageContent) -> str:
    """Return the limits of the page, and the parts that were not examined."""
    lines = [f"Examined: {content.examined}."]
    if not content.checks_objects:
        lines.append("Objects of the tier were not examined: without --remote only metadata and logs were.")
    if content.lanes.joined_segments:
        lines.append(
            f"Lanes join {content.lanes.joined_segments:,} segments to bins of several, at most "
            f"{content.lanes.limit} per lane; sums and numbers are exact. tierctl segments lists all of them."
        )
    if len(content.findings) < sum(content.finding_counts.values()):
        lines.append(
            "Of the findings that are not listed, lanes mark a few of each partition; the numbers are exact."
        )
    if content.unknown_segments:
        lines.append(
            f"Growth by day lacks {counted(content.unknown_segments, 'event')} whose segment the metadata "
            "topic does not have any more."
        )
    lines += content.undecided
    return f"<ul>{''.join(f'<li>{text(line)}</li>' for line in lines)}</ul>\n"


def findings_section(content: PageContent) -> str:
    """Return the partitions whose copies stopped, the findings by kind, and the most serious ones."""
    stopped = "".join(f"<p>Copies wait for an operator: {text(line)}</p>\n" for line in content.stopped)
    if content.not_understood:
        left_out = not_understood_text(content.not_understood)
        stopped += f"<p>{left_out}: the limits of this page name the reasons.</p>\n"
    if not content.finding_counts:
        return stopped or f"<p>No problems: {text(content.examined)}.</p>\n"
    order = {level: at for at, level in enumerate(_SEVERITIES)}
    counts = sorted(content.finding_counts.items(), key=lambda item: (order[item[0][1]], item[0][0]))
    by_kind = (
        f'<tr><th scope="row">{_severity(level)}</th><td>{text(kind)}</td>'
        f'<td class="number">{count:,}</td></tr>\n'
        for (kind, level), count in counts
    )
    total, shown = sum(content.finding_counts.values()), len(content.findings)
    caption = counted(total, "finding")
    if shown < total:
        caption = f"{shown:,} of {total:,} findings, the most serious; tierctl verify lists all"
    columns = (
        "severity",
        "check",
        "topic",
        "partition",
        "start_offset",
        "end_offset",
        "key",
        "found",
        "fix",
    )
    listed = rows_table("findings-list", caption, content.columns["findings"], content.findings, *columns)
    kinds = table("finding-kinds", "Findings by kind", ("severity", "kind", "findings"), by_kind)
    return f"{stopped}{kinds}<details><summary>{caption}</summary>\n{listed}</details>\n"


def _severity(level: str) -> str:
    return f'<span class="severity {text(level)}">{text(level)}</span>'


def topics_section(content: PageContent) -> str:
    """Return the status of each topic, the largest first."""
    rows = sorted(content.topics, key=lambda row: -row["log_bytes"])
    columns = (
        *("topic", "log_bytes", "segments", "partitions", "first_record_ms", "last_record_ms"),
        *("lag_segments", "lag_bytes", "lag_since_ms", "local_delete_segments", "local_delete_bytes"),
        *("failing_copies", "dangling_copies", "stuck_deletes", "problems"),
    )
    caption = _caption("Topics in the tier", rows)
    return rows_table("topics", caption, content.columns["topics"], rows[:_TOPICS_MAX], *columns)


def _caption(title: str, rows: Sequence[object]) -> str:
    if len(rows) <= _TOPICS_MAX:
        return title
    return f"{title}: the {_TOPICS_MAX:,} largest of {len(rows):,}"


def ages_section(content: PageContent) -> str:
    """Return the sizes by topic and age: one row per topic and location, the largest topics first."""
    by_key = itemgetter("topic", "topic_id", "location")
    groups = [(key, list(rows)) for key, rows in groupby(sorted(content.sizes, key=by_key), by_key)]
    totals = {key: sum(row["log_bytes"] for row in rows) for key, rows in groups}
    groups.sort(key=lambda group: (-totals[group[0]], group[0]))
    ages = [age for age in AGES if any(row["age"] == age for row in content.sizes)]
    caption = _caption("Size by age of a segment's newest record", groups)
    body = (_age_row(key, rows, ages, totals[key]) for key, rows in groups[:_TOPICS_MAX])
    return table("ages", caption, ("topic", "where", "size", *ages), body)


def _age_row(key: tuple[str, str, str], rows: Sequence[Row], ages: Sequence[str], total: int) -> str:
    sizes = {row["age"]: row["log_bytes"] for row in rows}
    cells = "".join(
        f'<td class="number">{bytes_cell(sizes[age]) if age in sizes else ""}</td>' for age in ages
    )
    return (
        f'<tr><th scope="row">{name(key[0])}</th><td>{text(key[2])}</td>'
        f'<td class="number">{bytes_cell(total)}</td>{cells}</tr>\n'
    )


def expirations_section(content: PageContent) -> str:
    """Return the segments that brokers delete next."""
    if not content.expirations:
        return "<p>No segment has a time at which retention.ms deletes it, and none may be deleted now.</p>\n"
    shown = content.expirations[:_EXPIRATIONS_MAX]
    size = bytes_text(sum(row["segment_size_in_bytes"] for row in shown))
    caption = f"The next {counted(len(shown), 'segment')}, {size}"
    if len(content.expirations) > len(shown) or not content.are_all_expirations:
        caption += "; tierctl report --show expirations lists more"
    columns = (
        *("due_ms", "topic", "partition", "start_offset", "end_offset", "segment_size_in_bytes"),
        *("max_timestamp_ms", "segment_id"),
    )
    return rows_table("expirations", caption, content.columns["expirations"], shown, *columns)


def legend() -> str:
    """Return what the colours, patterns and letters of lanes mean, in the order of the kinds."""
    return f'<ul class="legend">{"".join(_legend_items())}</ul>\n'


def _legend_items() -> Iterator[str]:
    for kind in SegmentKind:
        row = kind.row
        place = "log" if row.is_local else "tier"
        yield (
            f'<li><svg class="sample" aria-hidden="true">{_sample(row.name, row.letter)}</svg>'
            f"<span>{place}: {text(row.meaning)}</span></li>\n"
        )


def _sample(style: str, letter: str) -> str:
    boxes = (f'<rect class="{layer} {style}" width="100%" height="16"/>' for layer in ("item", "pattern"))
    return f'{"".join(boxes)}<text class="letter {style}" x="50%" y="12">{text(letter)}</text>'


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
        noun = "earlier or later day with changes is/earlier or later days with changes are"
        listed = counted(len(left_out), noun)
        note = f"<p>{listed} not shown; tierctl report --show growth lists them.</p>\n"
    body = (_table_row(day, sums) for day, sums in reversed(shown) if sums.segments)
    head = ("day", "copied", "deleted", "net", "expiring")
    return _chart(shown, today) + note + table("growth-days", "Bytes by day (UTC), all topics", head, body)


def _shown_days(known: Sequence[str], today: date) -> list[date]:
    """Return the days of the chart: those with changes and all between, at most 60 before and 30 after."""
    first = max(date.fromisoformat(known[0]), today - timedelta(days=_PAST_DAYS - 1))
    # The days are counted before they are added: no date is after the year 9999.
    future = (date.fromisoformat(known[-1]) - today).days
    last = today + timedelta(days=max(0, min(future, _FUTURE_DAYS)))
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


GENERATOR = '<meta name="generator" content="tierctl report">'
"""The line by which a file is known as a page that may be replaced."""
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_IN_SCRIPT = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def page_chunks(content: PageContent) -> Iterator[str]:
    """Yield the parts of the page."""
    style, script = _asset("style.css"), _asset("lanes.js")
    at = iso_utc(content.now_ms)
    values = {
        "generator": GENERATOR,
        "policy": _policy(style, script),
        "title": f"Tier report, {at[:10]} {at[11:16]} UTC",
        "style": style,
        "script": script,
        "version": text(content.version),
        "time": at,
        "facts": facts_section(content),
        "findings": findings_section(content),
        "topics": topics_section(content),
        "ages": ages_section(content),
        "growth": growth_section(content.growth, content.now_ms),
        "expirations": expirations_section(content),
        "limits": limits_section(content),
        "legend": legend(),
        "data": _data(content),
    }
    # Values are inserted once: a placeholder inside a value is not replaced.
    for number, part in enumerate(_PLACE.split(_asset("page.html"))):
        yield values[part] if number % 2 else part


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: no network, and only this style sheet and this script."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'"
    )


def _hash(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


def _data(content: PageContent) -> str:
    """Return the columns of the lanes as JSON in ASCII, in which nothing ends a script element."""
    kinds: list[Any] = [
        [kind.row.name, kind.row.letter, kind.row.meaning, kind.row.is_local] for kind in SegmentKind
    ]
    data = content.lanes.to_json() | {
        "kinds": kinds,
        "findings": content.lane_findings,
        "now": content.now_ms // 1000,
    }
    return json.dumps(data, separators=(",", ":")).translate(_IN_SCRIPT)


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def require_page_file(path: Path) -> None:
    """Raise UsageError for a folder and for a link of another user, else the errors of `require_output`.

    It is called before the work, so that a typing error neither wastes a run nor replaces another file.
    """
    try:
        if is_dir(path):
            raise UsageError(f"--html {path} is a folder", hint=f"name a file in it, as {path / 'tier.html'}")
        if is_link(path) and path.lstat().st_uid not in {os.geteuid(), 0}:
            raise UsageError(f"--html {path} is a link of another user", hint="name a file, or make the link")
    except OSError as e:
        raise output_error(f"--html {path}", e) from e
    # A name in a web server's folder may be a link to the file. `resolve` has no OSError for a loop of links.
    target = Path(os.path.realpath(path))
    require_output("--html", target, "report", lambda head: GENERATOR.encode() in head)


def write_page(path: Path, content: PageContent) -> int:
    """Replace `path` by the page, atomically and durably; return its size in bytes.

    Raise the errors of `require_page_file`, OutputError if the disk is full or fails, and LockedError if
    another run writes it for more than ten seconds.
    """
    chunks = [chunk.encode("utf-8", "backslashreplace") for chunk in page_chunks(content)]
    target = Path(os.path.realpath(path))
    try:
        with exclusive_replacement(target):
            require_page_file(target)
            write_durably(target, chunks, mode=0o666)
    except OSError as e:
        raise output_error(f"--html {path}", e) from e
    return sum(map(len, chunks))
