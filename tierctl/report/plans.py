"""Plans and outcomes as rows on stdout."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tierctl.report.render import render, render_object

if TYPE_CHECKING:
    from tierctl.plan.saved import SavedPlan

TABLE_COLUMNS = ("action", "topic", "partition", "start_offset", "end_offset", "segment_id", "reason")
OUTCOME_COLUMNS = ("status", *TABLE_COLUMNS[:-1], "error", "why")
FIXED_COLUMNS = (
    "action",
    "reason",
    "topic",
    "topic_id",
    "partition",
    "segment_id",
    "start_offset",
    "end_offset",
)


def show_plan(saved: "SavedPlan", output: str) -> None:
    """Print the plan: as one object in JSON, otherwise one row per step."""
    if output == "json":
        render_object(saved.to_json(), output)
        return
    rows = [step.to_json() for step in saved.plan.steps]
    render(rows, output, _columns(rows), table_columns=TABLE_COLUMNS)
    if sys.stderr.isatty():
        count = len(saved.plan.steps)
        print(f"{count} steps; --apply carries them out" if count else "nothing to do", file=sys.stderr)


def show_outcomes(saved: "SavedPlan", outcomes: Sequence[Mapping[str, Any]], output: str) -> None:
    """Print the outcome of each step: beside the plan in JSON, otherwise one row per outcome."""
    if output == "json":
        render_object(saved.to_json() | {"outcomes": list(outcomes)}, output)
        return
    columns = [*_columns(outcomes), "status", "error", "why"]
    render(outcomes, output, columns, table_columns=OUTCOME_COLUMNS)


def _columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the fixed columns and then every further field of the rows, in order of appearance."""
    found = dict.fromkeys(FIXED_COLUMNS) | {key: None for row in rows for key in row}
    return [name for name in found if name not in {"status", "error", "why"}]
