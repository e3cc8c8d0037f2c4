"""Decisions: functions that take data and return a Plan; they open, change and print nothing.

Exports the parts of a plan: `Plan`, `Step`, `Skip` and `Action`.
"""

from tierctl.plan.steps import Action, Plan, Skip, Step
