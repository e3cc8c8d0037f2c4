"""Make checks one after the other, so that an error of one does not keep the others from being made."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from tierctl.doctor.checks import Check
from tierctl.doctor.result import Outcome
from tierctl.errors import ExitCode, RemoteStorageError, TierctlError, combined_exit_code
from tierctl.report import fields as f
from tierctl.report.columns import Columns, Field, Kind, Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of one check for one subject: a broker, a topic, a file, a store.

    `found` states the facts, or why no check was made. `why` and `fix` are None if no action is needed.
    `error` is the exit code of the error that prevented a requested check.
    """

    outcome: Annotated[
        Outcome, Field(Kind.WORD, "outcome of the check: problem, warning, not_checked or ok"), Shown(0)
    ]
    check: Annotated[Check, f.CHECK, Shown(0)]
    subject: Annotated[
        str,
        Field(Kind.NAME, "the broker, topic, store or file that was checked; empty for all of them"),
        Shown(0),
    ]
    found: Annotated[str, f.FOUND, Shown(0)]
    why: Annotated[str | None, f.WHY, Shown(0)] = None
    fix: Annotated[str | None, f.FIX, Shown(0)] = None
    error: ExitCode | None = None


CHECKS = Columns(
    Result,
    name="checks",
    title="Results of doctor",
    commands="doctor",
    noun="result",
    word="outcome",
    below=("found", "why", "fix"),
    is_worst_first=True,
)


def ok(check: Check, subject: str, found: str) -> Result:
    """Return the result of a check that found no fault."""
    return Result(outcome=Outcome.OK, check=check, subject=subject, found=found)


def fault(
    check: Check,
    subject: str,
    found: str,
    *,
    outcome: Outcome | None = None,
    why: str | None = None,
    fix: str | None = None,
) -> Result:
    """Return the result of a check that found a fault; the defaults are those of the table."""
    row = check.row
    return Result(
        outcome=row.worst if outcome is None else outcome,
        check=check,
        subject=subject,
        found=found,
        why=row.why if why is None else why,
        fix=row.fix if fix is None else fix,
    )


def not_checked(check: Check, subject: str, reason: str) -> Result:
    """Return the result of a check that does not apply, or was not requested."""
    return Result(outcome=Outcome.NOT_CHECKED, check=check, subject=subject, found=reason)


def prevented(check: Check, subject: str, error: TierctlError | OSError) -> Result:
    """Return the result of a check that was asked for and could not be made."""
    if isinstance(error, OSError):
        where = error.filename or subject
        error = RemoteStorageError(f"{where}: {error.strerror or error}")
    return Result(
        outcome=Outcome.NOT_CHECKED,
        check=check,
        subject=subject,
        found=error.message,
        why=check.row.why,
        fix=error.hint,
        error=ExitCode(error.exit_code),
    )


@dataclass(slots=True)
class Examination:
    """The results of the checks made so far; checks in `skipped` are not made."""

    skipped: Collection[Check] = ()
    results: list[Result] = field(default_factory=list)

    def make(self, checks: Sequence[Check], subject: str, examine: Callable[[], Iterable[Result]]) -> None:
        """Add the results of `examine`, which makes `checks` of one subject.

        If it raises a TierctlError or OSError, those of `checks` without a result become prevented.
        """
        if set(checks) <= set(self.skipped):
            return
        first = len(self.results)
        try:
            for result in examine():
                self._add(result)
        except (TierctlError, OSError) as e:
            # `checks` may name checks that `examine` has made before the error.
            made = {result.check for result in self.results[first:]}
            for check in checks:
                if check not in made:
                    self._add(prevented(check, subject, e))

    def _add(self, result: Result) -> None:
        if result.check not in self.skipped:
            self.results.append(result)

    def complete(self) -> tuple[Result, ...]:
        """Return the results, the worst first, with one of each check that was not made."""
        made = {result.check for result in self.results}
        missing = [
            not_checked(
                check, "", "skipped (--skip)" if check in self.skipped else f"needs {check.row.needs}"
            )
            for check in Check
            if check not in made
        ]
        outcomes, checks = list(Outcome), list(Check)
        return tuple(
            sorted(
                [*self.results, *missing],
                key=lambda each: (outcomes.index(each.outcome), each.error is None, checks.index(each.check)),
            )
        )


def exit_code_of(results: Sequence[Result]) -> ExitCode:
    """Return the exit code of a run with these results.

    PARTIAL if an operator must act: on a fault, or because a check that was asked for could not be made; then
    CORRUPT if what it reads is not understood. If no check at all could be made, and all for the same kind of
    error, that error's code.
    """
    codes = [result.error for result in results if result.error is not None]
    outcomes = {result.outcome for result in results}
    if not outcomes.isdisjoint({Outcome.PROBLEM, Outcome.WARNING}):
        codes.append(ExitCode.PARTIAL)
    return combined_exit_code(codes, is_partly_done=outcomes != {Outcome.NOT_CHECKED})
