"""The outcome of each step of a plan, and the exit code of the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tierctl.errors import ExitCode, TierctlError, combined_exit_code
from tierctl.model import Uuid
from tierctl.plan.steps import Step

STOPPED = "the run was told to stop"


class Status(StrEnum):
    """How a step ended."""

    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"
    """Not begun: a precondition of the step no longer holds, or an earlier step of its partition failed."""
    PENDING = "pending"
    """Not finished: the run was told to stop. The next run continues with this step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of `step`.

    `segment_id` is the id that a copy was stored under. `reason` states why a step was dropped
    or is pending.
    """

    step: Step
    status: Status
    segment_id: Uuid | None = None
    error: TierctlError | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return one flat JSON object: the fields of the step, then those of its outcome."""
        error = None if self.error is None else self.error.message
        return self.step.to_json() | {
            "segment_id": self.segment_id or self.step.segment_id,
            "status": str(self.status),
            "error": error,
            "why": self.reason,
        }


def exit_code(outcomes: Sequence[Outcome], *, quarantined: bool = False) -> int:
    """Return the run's exit code.

    That of the failed steps, as `combined_exit_code` says, with CORRUPT if some input was `quarantined`; if
    no step failed, PARTIAL if one was dropped or is pending.
    """
    statuses = {outcome.status for outcome in outcomes}
    codes = {
        ExitCode.INTERNAL if each.error is None else each.error.exit_code
        for each in outcomes
        if each.status is Status.FAILED
    }
    if quarantined:
        codes.add(ExitCode.CORRUPT)
    if not codes and not statuses <= {Status.DONE}:
        codes.add(ExitCode.PARTIAL)
    return combined_exit_code(codes, is_partly_done=Status.DONE in statuses)
