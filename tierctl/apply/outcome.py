"""What became of each step, and the exit code that says it in one number."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tierctl.errors import ExitCode, TierctlError
from tierctl.model import Uuid
from tierctl.plan.plan import Step

STOPPED = "the run was told to stop"


class Status(StrEnum):
    """How a step ended."""

    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"
    """Not begun: what the step was decided from is no longer so, or an earlier step of it failed."""
    PENDING = "pending"
    """Not finished: the run was told to stop; a second run goes on from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of `step`.

    `segment_id` is the id a copy went under. `reason` says why a step was dropped or is pending.
    """

    step: Step
    status: Status
    segment_id: Uuid | None = None
    error: TierctlError | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The outcome as one flat JSON object: the step's fields, then what became of it."""
        error = None if self.error is None else self.error.message
        return self.step.to_json() | {
            "segment_id": self.segment_id or self.step.segment_id,
            "status": str(self.status),
            "error": error,
            "why": self.reason,
        }


def exit_code(outcomes: Sequence[Outcome], *, quarantined: bool = False) -> int:
    """The run's exit code.

    Every step failed with the same exit code: that one; some failed: 3. None failed and some input was
    quarantined: 7. Something was dropped or is pending: 3. Else 0.
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
