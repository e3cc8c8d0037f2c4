"""Run doctor and find the results of one check."""

from collections.abc import Iterable
from typing import Any

from tierctl.commands import DoctorRequest, doctor
from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result
from tierctl.doctor.result import Outcome

OK, WARNING, PROBLEM, NOT_CHECKED = Outcome.OK, Outcome.WARNING, Outcome.PROBLEM, Outcome.NOT_CHECKED


def worst(results: Iterable[Result], check: Check) -> Result:
    """Return the worst result of a check."""
    order = list(Outcome)
    return min((each for each in results if each.check is check), key=lambda each: order.index(each.outcome))


def examined(check: Check, **request: Any) -> Result:
    """Return the worst result of one check of a request."""
    found = worst(doctor(DoctorRequest(**request)).results, check)
    if found.outcome in {PROBLEM, WARNING}:
        assert found.found, check
        assert found.why, check
        assert found.fix, check
    return found
