"""What became of each step, and the exit code that says it in one number."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tierctl.errors import ExitCode, TierctlError
from tierctl.model import Uuid
from tierctl.plan.model import Step


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

    Every step done: 0, or 7 when some input was quarantined. Every step failed with the same exit code:
    that one. Anything between: 3.
    """
    failed = [outcome for outcome in outcomes if outcome.status is Status.FAILED]
    codes = {outcome.error.exit_code if outcome.error else ExitCode.INTERNAL for outcome in failed}
    if failed and len(codes) == 1 and len(failed) == len(outcomes):
        return codes.pop()
    if any(outcome.status is not Status.DONE for outcome in outcomes):
        return ExitCode.PARTIAL
    return ExitCode.CORRUPT if quarantined else ExitCode.OK
