"""The sections of the page that are text and tables, and work without a script."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from tierctl.report.html.content import AGES, PageContent
from tierctl.report.html.elements import bytes_cell, name, rows_table, table, text, time_cell
from tierctl.report.html.kinds import SegmentKind
from tierctl.report.summary import counted
from tierctl.report.tables import FINDINGS, STATUS
from tierctl.report.tier_tables import REPORT_EXPIRATIONS
from tierctl.report.units import bytes_text
from tierctl.report.view import Row

_TOPICS_MAX = 1000
_EXPIRATIONS_MAX = 100
_SEVERITIES = ("error", "warning", "info")


def facts_section(content: PageContent) -> str:
    """Return the sources, and the numbers of the whole tier."""
    topics, lanes = content.topics, content.lanes
    tier_bytes = sum(row["log_bytes"] for row in topics)
    local_bytes = sum(row["log_bytes"] for row in content.sizes if row["location"] == "local")
    counts = {level: _count(content, level) for level in _SEVERITIES}
    serious = ", ".join(counted(counts[level], level) for level in _SEVERITIES[:2] if counts[level])
    numbers = [
        ("Topics in the tier", f"{len({row['topic_id'] for row in topics}):,}"),
        ("Partitions", f"{len(lanes):,}"),
        ("Finished segments", f"{sum(row['segments'] for row in topics):,}"),
        ("Size in the tier", bytes_cell(tier_bytes)),
        ("Size of the logs", bytes_cell(local_bytes) if local_bytes else "not read"),
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
    """Return the findings by kind, and a list of the most serious ones."""
    if not content.finding_counts:
        return f"<p>No problems: {text(content.examined)}.</p>\n"
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
        "kind",
        "topic",
        "partition",
        "start_offset",
        "end_offset",
        "key",
        "message",
        "hint",
    )
    listed = rows_table("findings-list", caption, FINDINGS, content.findings, *columns)
    kinds = table("finding-kinds", "Findings by kind", ("severity", "kind", "findings"), by_kind)
    return f"{kinds}<details><summary>{caption}</summary>\n{listed}</details>\n"


def _severity(level: str) -> str:
    return f'<span class="severity {text(level)}">{text(level)}</span>'


def topics_section(content: PageContent) -> str:
    """Return the status of each topic, the largest first."""
    rows = sorted(content.topics, key=lambda row: -row["log_bytes"])
    columns = (
        *("topic", "log_bytes", "segments", "partitions", "first_record_ms", "last_record_ms"),
        *("lag_segments", "lag_bytes", "lag_since_ms", "dangling_copies", "stuck_deletes", "problems"),
    )
    return rows_table("topics", _caption("Topics in the tier", rows), STATUS, rows[:_TOPICS_MAX], *columns)


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
    return rows_table("expirations", caption, REPORT_EXPIRATIONS, shown, *columns)


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
