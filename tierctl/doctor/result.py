"""Results of checks, and the facts about one kind of check."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a check ended, the worst first; a check that could not be made is never OK."""

    PROBLEM = "problem"
    """A fault will occur, or has occurred."""
    WARNING = "warning"
    """A fault occurs under further conditions, or it costs money or disk space."""
    NOT_CHECKED = "not_checked"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Row:
    """The facts about one check.

    `worst` is the outcome in the worst case. `needs` names the options without which it is not checked; `why`
    is what happens if the condition is not met, and `fix` what an operator can do.
    """

    name: str
    worst: Outcome
    needs: str
    why: str
    fix: str
