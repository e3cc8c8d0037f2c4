"""The outcome of each step of a plan, and the exit code of the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tierctl.errors import ExitCode, TierctlError
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

    All steps failed with the same exit code: that code. Some steps failed: 3. No step failed and some input
    was quarantined: 7. Some step was dropped or is pending: 3. Otherwise 0.
    """
    statuses = {outcome.status for outcome in outcomes}
    if Status.FAILED in statuses:
        codes = {
            o.error.exit_code if o.error else ExitCode.INTERNAL for o in outcomes if o.status is Status.FAILED
        }
        return ExitCode.PARTIAL if len(codes) > 1 or Status.DONE in statuses else codes.pop()
    if quarantined:
        return ExitCode.CORRUPT
    return ExitCode.OK if statuses <= {Status.DONE} else ExitCode.PARTIAL
