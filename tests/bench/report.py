"""bench.json and the tables that are made from it."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.process import REPOSITORY

BENCH_JSON = REPOSITORY / "bench.json"

_COLUMNS = ("work", "shape", "tierctl", "baseline", "ratio", "memory", "required", "met")


def merge(rows: Iterable[dict[str, Any]], order: Iterable[str], path: Path = BENCH_JSON) -> dict[str, Any]:
    """Write rows into bench.json, each in the place of the older row with its key; return the whole.

    Rows stand in `order`; rows whose key is not in it are dropped.
    """
    known = json.loads(path.read_text())["rows"] if path.is_file() else []
    by_key = {each["key"]: each for each in [*known, *rows]}
    found = {"machine": machine.facts(), "rows": [by_key[key] for key in order if key in by_key]}
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return found


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return the rows as a table in Markdown, and below it a line for each row that misses a requirement."""
    rows = list(rows)
    cells = [[*_COLUMNS], *([_cell(each, column) for column in _COLUMNS] for each in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(_COLUMNS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    notes = [
        f"- {each['work']}, {each['shape']}: {_note(each)}"
        for each in rows
        if each["missed"] or each["missing"]
    ]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _cell(row: dict[str, Any], column: str) -> str:
    other_s, other_mb, ratio = row["baseline_s"], row["baseline_peak_mb"], row["ratio"]
    cells = {
        "tierctl": _seconds(row["tierctl_s"]),
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


def _note(row: dict[str, Any]) -> str:
    if row["missing"]:
        return f"baseline missing: {row['missing']}"
    missed = f"reaches {' and '.join(row['missed'])}"
    return f"{missed}. {row['limit']}" if row["limit"] else missed
