"""Run doctor and find the results of one check."""

from collections.abc import Iterable
from typing import Any

from tierctl.checks.check import Result
from tierctl.checks.registry import DoctorCheck
from tierctl.commands import DoctorRequest, doctor
from tierctl.model.choices import Severity

OK, WARNING, PROBLEM, NOT_CHECKED = Severity.OK, Severity.WARNING, Severity.ERROR, Severity.NOT_CHECKED


def worst(results: Iterable[Result], check: DoctorCheck) -> Result:
    """Return the worst result of a check."""
    order = list(Severity)
    return min((each for each in results if each.check is check), key=lambda each: order.index(each.severity))


def examined(check: DoctorCheck, **request: Any) -> Result:
    """Return the worst result of one check of a request."""
    found = worst(doctor(DoctorRequest(**request)).results, check)
    if found.severity in {PROBLEM, WARNING}:
        assert found.found, check
        assert found.why, check
        assert found.fix, check
    return found
