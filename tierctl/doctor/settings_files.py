"""Check files of settings, with the checks of `config check`."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tierctl.doctor.brokers import OUTCOMES
from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result, fault, ok
from tierctl.doctor.result import Outcome
from tierctl.model.settings.problems import ProblemKind, SettingProblem


def check_file(check: Check, file: Path, problems: Iterable[SettingProblem]) -> Iterator[Result]:
    """Yield the results about one file: its problems without those that are only information.

    Files that other users can read are left to the check of secrets.
    """
    is_good = True
    for problem in problems:
        outcome = OUTCOMES[problem.severity]
        if outcome is Outcome.OK or problem.kind is ProblemKind.OPEN_PERMISSIONS:
            continue
        is_good = False
        where = f"{file}" if problem.line is None else f"{file}, line {problem.line}"
        yield fault(check, where, _found(problem), outcome=outcome, why=_why(problem), fix=problem.hint)
    if is_good:
        yield ok(check, str(file), "its settings are known, valid and free of contradictions")


def _found(problem: SettingProblem) -> str:
    """Return the facts: the part of a contradiction's message before its meaning."""
    return (
        problem.message.partition(f"{problem.found}: ")[0] + problem.found
        if _why(problem)
        else problem.message
    )


def _why(problem: SettingProblem) -> str | None:
    """Return the meaning that ends the message of a contradiction; None for the meaning of the check."""
    if problem.kind is not ProblemKind.CONTRADICTION:
        return None
    return problem.message.partition(f"{problem.found}: ")[2] or None
