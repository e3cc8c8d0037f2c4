"""Plans and outcomes on stdout: one object in JSON, otherwise rows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tierctl.errors import UsageError
from tierctl.report.render import Shown, render, render_object
from tierctl.report.tables import OUTCOMES, STEPS
from tierctl.report.view import View

if TYPE_CHECKING:
    from tierctl.plan.saved import SavedPlan

_FIXED = STEPS.names[:8]
_OUTCOME = ("status", "error", "why")


def show_plan(saved: "SavedPlan", output: str, view: View) -> Shown:
    """Print the plan: as one object in JSON, otherwise one row per step."""
    if output == "json":
        render_object(saved.to_json(), output)
        return Shown(rows=len(saved.plan.steps))
    rows = [step.to_json() for step in saved.plan.steps]
    return render(rows, output, STEPS, view, names=_columns(rows))


def show_outcomes(
    saved: "SavedPlan", outcomes: Sequence[Mapping[str, Any]], output: str, view: View
) -> Shown:
    """Print the outcome of each step: beside the plan in JSON, otherwise one row per outcome."""
    if output == "json":
        render_object(saved.to_json() | {"outcomes": list(outcomes)}, output)
        return Shown(rows=len(outcomes))
    return render(outcomes, output, OUTCOMES, view, names=[*_columns(outcomes), *_OUTCOME])


def check_view(output: str, view: View) -> None:
    """Raise UsageError for a view in which a plan can't be printed; called before anything is changed."""
    view.check(OUTCOMES)
    if output == "json" and not view.is_plain:
        raise UsageError(
            "--columns, --sort, --limit and --no-header are for rows, and with --output json a plan is one "
            "object",
            hint="use --output jsonl",
        )


def _columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the fixed columns and then every further field of the rows, in order of appearance."""
    found = dict.fromkeys(_FIXED) | {key: None for row in rows for key in row}
    return [name for name in found if name not in _OUTCOME]
