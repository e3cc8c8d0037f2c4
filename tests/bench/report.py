"""Read and write bench.json, and make tables from it."""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tierctl.pipeline.predictions import Cluster, predictions

from tests.bench import machine
from tests.bench.process import REPOSITORY

BENCH_JSON: Final = Path(__file__).with_name("bench.json")
README: Final = REPOSITORY / "README.md"
BEGIN: Final = "<!-- The figures to the next mark are written by `make bench`. -->"
END: Final = "<!-- The end of the figures. -->"

_COLUMNS = ("work", "shape", "tierctl", "baseline", "ratio", "memory", "required", "met")
_WIDTH = 118
_REFERENCE_SEGMENTS = 500_000
"""A curve is linear if the cost per segment is equal at each larger size; below it the start-up counts."""
_LINEAR = 1.3
_STEEP = "more than linear"

Row = Mapping[str, Any]


def merge(rows: Iterable[Row], limits: Mapping[str, str], path: Path = BENCH_JSON) -> dict[str, Any]:
    """Merge rows into bench.json, replacing older rows with the same key; return all rows.

    `limits` has the known keys in their order, with the sentence that states what limits the row; rows with
    another key are dropped. Points of curves keep the sentence, which states why a curve is not linear.
    """
    known = json.loads(path.read_text())["rows"] if path.is_file() else []
    by_key = {each["key"]: each for each in [*known, *rows]}
    kept = [
        dict(by_key[key]) | {"limit": limit if by_key[key]["missed"] or by_key[key].get("amount") else ""}
        for key, limit in limits.items()
        if key in by_key
    ]
    found = {"machine": machine.facts(), "rows": kept}
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return found


def summary(rows: Iterable[Row]) -> str:
    """Return the table of the rows, and that of those that are points of a cost curve."""
    rows = list(rows)
    points = [each for each in rows if each["amount"] is not None]
    found = table(each for each in rows if each["amount"] is None)
    return found if not points else f"{found}\n\nCost curves, 50 metadata partitions:\n\n{curves(points)}"


def table(rows: Iterable[Row]) -> str:
    """Return the rows as a table in Markdown, and below it why rows miss a requirement or a baseline."""
    rows = list(rows)
    notes = list(_notes(each for each in rows if each["missed"] or each["missing"]))
    lines = _markdown([_COLUMNS, *([_cell(each, column) for column in _COLUMNS] for each in rows)])
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def curves(rows: Iterable[Row]) -> str:
    """Return the points of cost curves as a table: a line for each work, a column for each size.

    Below it is a line for each work whose cost grows more than linearly.
    """
    rows = list(rows)
    amounts = sorted({each["amount"] for each in rows})
    points = {(each["work"], each["amount"]): each for each in rows}
    head = ["work", *(f"{amount / 1e6:g} M segments" for amount in amounts), "cost of a segment"]
    lines, notes = [], []
    for work in dict.fromkeys(each["work"] for each in rows):
        own = {amount: points[work, amount] for amount in amounts if (work, amount) in points}
        cells = [_point(own.get(amount)) for amount in amounts]
        lines.append([work, *cells, _growth(own)])
        if _growth(own).endswith(_STEEP):
            notes.append(f"- {work}: {_STEEP}. {own[max(own)]['limit'] or 'Not profiled yet.'}")
    return "\n".join([*_markdown([head, *lines]), *(["", *notes] if notes else [])])


def _point(row: Row | None) -> str:
    return "–" if row is None else f"{_seconds(row['tierctl_s'])}, {row['peak_mb']} MB"


def _growth(points: Mapping[int, Row]) -> str:
    """Return whether a segment costs the same from the reference on, up to the largest point."""
    last = max(points)
    if _REFERENCE_SEGMENTS not in points or last <= _REFERENCE_SEGMENTS:
        return "–"
    first_us, last_us = (1e6 * points[each]["tierctl_s"] / each for each in (_REFERENCE_SEGMENTS, last))
    verdict = "linear" if last_us <= _LINEAR * first_us else _STEEP
    return f"{first_us:.2g} → {last_us:.2g} µs, {verdict}"


def readme_section(found: Mapping[str, Any]) -> str:
    """Return the text between the marks of the README."""
    facts, rows = found["machine"], found["rows"]
    dates = sorted({each["date"] for each in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    system = f"{facts['cores']} cores ({facts['cpu']}), {facts['memory_mb'] / 1000:.0f} GB, {facts['system']}"
    head = f"Medians on {system}, Python {facts['python']}, {when}. The ratio is tierctl's speed relative "
    head += "to the baseline's in the same run; memory is tierctl's peak and the baseline's."
    texts = [textwrap.fill(head, _WIDTH), summary(rows), textwrap.fill(forecast(), _WIDTH)]
    return "\n\n".join([BEGIN, *texts, END])


def forecast() -> str:
    """Return what `pipeline plan` predicts for a large cluster, from measured costs."""
    cluster = Cluster(segments=100_000_000, executors=10)
    found = {each["what"]: each["value"] for each in predictions(cluster)}
    fold, first_run = _seconds(found["fold on executors"]), _seconds(found["first pipeline run"])
    command = f"tierctl pipeline plan --segments {cluster.segments} --executors {cluster.executors}"
    return (
        f"`{command}` predicts {fold} for the fold, {first_run} for a first pipeline run, "
        f"{found['memory of a task'] / 1e6:.0f} MB for a task, "
        f"and {found['warehouse'] / 1e9:.1f} GB of tables."
    )


def write_readme(found: Mapping[str, Any], path: Path = README) -> None:
    """Replace the text between the marks."""
    text = path.read_text()
    between = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    if not between.search(text):
        raise RuntimeError(f"{path} lacks the marks between which the figures stand:\n{BEGIN}\n{END}")
    path.write_text(between.sub(lambda _: readme_section(found), text))


def _markdown(lines: Iterable[Iterable[str]]) -> list[str]:
    cells = [list(line) for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    found = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    return [found[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *found[1:]]


def _cell(row: Row, column: str) -> str:
    other_s, other_mb, ratio = row["baseline_s"], row["baseline_peak_mb"], row["ratio"]
    cells = {
        "tierctl": _seconds(row["tierctl_s"]) + (" (one run)" if row["rounds"] == 1 else ""),
        "baseline": "–" if other_s is None else f"{row['baseline']}: {_seconds(other_s)}",
        "ratio": "–" if ratio is None else f"{ratio:.2f}×",
        "memory": f"{row['peak_mb']} MB" + ("" if other_mb is None else f" : {other_mb} MB"),
        "required": row["required"] or "–",
        "met": {True: "yes", False: "no", None: "–"}[row["met"]],
    }
    return cells.get(column) or str(row[column])


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def _notes(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a list item for each row; rows in sequence with the same limit share one."""
    for limit, group in groupby(rows, key=lambda row: row["limit"] if row["missed"] else None):
        results = [_result(row) for row in group]
        if limit:
            yield f"- {'; '.join(results)}. {limit}"
        else:
            yield from (f"- {result}" for result in results)


def _result(row: Row) -> str:
    if row["missing"]:
        result = f"baseline missing: {row['missing']}"
    else:
        result = f"reaches {' and '.join(row['missed'])}"
        result += f" ({row['baseline']})" if row["baseline"] else ""
    return f"{row['work']}, {row['shape']}: {result}"
