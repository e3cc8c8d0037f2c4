"""Ask at a terminal, before a plan that deletes is carried out, for the name of what it deletes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from tierctl.errors import SafetyRefusal
from tierctl.report.plans import STEPS
from tierctl.report.texts import Tally, counted, printable

if TYPE_CHECKING:
    from tierctl.plan.steps import Plan


def confirmation(*, is_given: bool) -> Callable[[Plan], None]:
    """Return the function that asks whether a plan of `delete` is carried out; SafetyRefusal for a no.

    It does not ask about plans of other commands, if the answer `is_given` by --yes, and without a terminal,
    where nobody could answer.
    """
    if is_given or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return lambda _plan: None
    return _ask


def _ask(plan: Plan) -> None:
    if not plan.steps or plan.command != "delete":
        return
    tally = Tally(STEPS)
    for _ in tally.of(step.to_json() for step in plan.steps):
        pass
    names = sorted({step.topic for step in plan.steps})
    expected = names[0] if len(names) == 1 else counted(len(names), "topic")
    what = "the topic's name" if len(names) == 1 else f"'{expected}'"
    shown = ", ".join(printable(name) for name in names[:10]) + (", ..." if len(names) > 10 else "")
    print(f"about to carry out {tally.text}: {shown}", file=sys.stderr)
    print(f"type {what} to continue: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != expected:
        raise SafetyRefusal(
            f"not confirmed: expected {what}; nothing was changed",
            hint="--yes carries the plan out without this question",
        )
