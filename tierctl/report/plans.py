"""Plans and outcomes on stdout: one object in JSON, otherwise rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from tierctl.errors import UsageError
from tierctl.report.render import Shown, render, render_object
from tierctl.report.summary import Tally, counted
from tierctl.report.tables import OUTCOMES, STEPS
from tierctl.report.view import View

if TYPE_CHECKING:
    from tierctl.plan.saved import SavedPlan
    from tierctl.plan.steps import Plan, Step

_FIXED = STEPS.names[:8]
_RECOVERY = {"rebuild", "restore", "restore_new_ids", "materialise"}
_OUTCOME = ("status", "error", "why")


def show_plan(saved: SavedPlan, output: str, view: View) -> Shown:
    """Print the plan: as one object in JSON, otherwise one row per step."""
    if output == "json":
        render_object(saved.to_json(), output)
        return Shown(rows=len(saved.plan.steps))
    rows = [step.to_json() for step in saved.plan.steps]
    return render(rows, output, STEPS, view, names=_columns(rows))


def show_outcomes(
    saved: SavedPlan,
    outcomes: Sequence[Mapping[str, Any]],
    output: str,
    view: View,
    *,
    conclusion: str | None = None,
) -> Shown:
    """Print the outcome of each step: beside the plan in JSON, otherwise one row per outcome."""
    if output == "json":
        more = {} if conclusion is None else {"conclusion": conclusion}
        render_object(saved.to_json() | {"outcomes": list(outcomes)} | more, output)
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


def plan_summary(steps: Iterable[Step], plan_out: object) -> tuple[str, str | None]:
    """Return a summary of a plan for the last line of a run, and the command that carries it out."""
    tally = Tally(STEPS)
    for _ in tally.of(step.to_json() for step in steps):
        pass
    if not tally.rows:
        return "nothing to do", None
    following = "the same command with --apply"
    if plan_out is not None:
        following = apply_command(plan_out)
    return f"a plan, nothing changed: {tally.text}", following


def apply_command(file: object) -> str:
    """Return the command that carries out the plan in `file`, as a shell reads it."""
    return f"tierctl apply {quote(str(file))}"


def outcomes_summary(outcomes: Iterable[Mapping[str, Any]]) -> tuple[str, str | None]:
    """Return the counts of outcomes for the line that ends a run, and the command that can be run next.

    The command deletes the topics that the run marked, or otherwise checks the result.
    """
    tally, actions = Tally(OUTCOMES), set()
    for row in tally.of(outcomes):
        actions.add(row["action"])
    if not tally.rows:
        return "nothing to do", None
    return tally.text, "tierctl delete" if actions == {"mark_partition"} else "tierctl verify"


def skipped_text(plan: Plan) -> str:
    """Return how many partitions `plan` skips and has no step for, or an empty text if there are none.

    A plan of recovery also has the number of segments that it does not use.
    """
    skipped = {skip.topic_id_partition for skip in plan.skipped if skip.segment_id is None}
    skipped -= {step.topic_id_partition for step in plan.steps}
    unused = {
        (skip.topic_id_partition, skip.segment_id)
        for skip in plan.skipped
        if skip.segment_id is not None and plan.command in _RECOVERY
    }
    text = f"; {counted(len(skipped), 'partition')} skipped" if skipped else ""
    return text + (f"; {counted(len(unused), 'segment')} not used" if unused else "")


def _columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the fixed columns and then every further field of the rows, in order of appearance."""
    found = dict.fromkeys(_FIXED) | {key: None for row in rows for key in row}
    return [name for name in found if name not in _OUTCOME]
