"""The framework of all checks: the facts about a check, its results, the examination, and the exit code.

A registry (`checks.registry`) has one member per check. `Examination.make` runs the code of checks, so that
an error of one does not keep the others from being made. One run often serves several checks, because they
need the same answer of a cluster or a store.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from tierctl.errors import ExitCode, RemoteStorageError, TierctlError, combined_exit_code
from tierctl.model.choices import RowEnum, Severity
from tierctl.report import columns as f
from tierctl.report.columns import Columns, Shown
from tierctl.report.results import TableResult


@dataclass(frozen=True, slots=True)
class Check:
    """The facts about one check.

    `severity` is that of the worst case. `why` is what happens if the condition is not met, and `fix` what an
    operator can do; `needs` names the options without which it is not made.
    """

    name: str
    severity: Severity
    why: str
    fix: str
    needs: str


class CheckTable(RowEnum):
    """Base of the registries: one member per check, which is equal to its name in the output."""

    row: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one check for one subject: a broker, a topic, a partition, a file, a store.

    `found` states the facts, or why no check was made. `why` and `fix` are None if no action is needed.
    `error` is the exit code of the error that prevented a requested check, PARTIAL if it leaves something
    out, and CORRUPT if a check found what is not understood.
    """

    severity: Annotated[Severity, f.SEVERITY, Shown(0)]
    check: Annotated[CheckTable, f.CHECK, Shown(0)]
    subject: Annotated[str, f.SUBJECT, Shown(0)]
    found: Annotated[str, f.FOUND, Shown(0)]
    why: Annotated[str | None, f.WHY, Shown(0)] = None
    fix: Annotated[str | None, f.FIX, Shown(0)] = None
    error: ExitCode | None = None

    @property
    def is_left_out(self) -> bool:
        """Whether no check was made that counts: none was asked for, or it does not apply."""
        return self.severity is Severity.NOT_CHECKED and self.error is None


CHECKS = Columns(
    Result,
    name="checks",
    title="Results of checks",
    commands="doctor, restore check",
    noun="result",
    word="severity",
    below=("found", "why", "fix"),
)


def ok(check: CheckTable, subject: str, found: str) -> Result:
    """Return the result of a check that found no fault."""
    return Result(severity=Severity.OK, check=check, subject=subject, found=found)


def fault(
    check: CheckTable,
    subject: str,
    found: str,
    *,
    severity: Severity | None = None,
    why: str | None = None,
    fix: str | None = None,
    is_understood: bool = True,
) -> Result:
    """Return the result of a check that found a fault; the defaults are those of the registry."""
    row = check.row
    return Result(
        severity=row.severity if severity is None else severity,
        check=check,
        subject=subject,
        found=found,
        why=row.why if why is None else why,
        fix=row.fix if fix is None else fix,
        error=None if is_understood else ExitCode.CORRUPT,
    )


def decided(
    check: CheckTable, subject: str, faults: Iterable[str], found: str, *, is_understood: bool = True
) -> Result:
    """Return a fault that states all of `faults`; without faults, the result that states `found`."""
    stated = "; ".join(faults)
    return fault(check, subject, stated, is_understood=is_understood) if stated else ok(check, subject, found)


def not_checked(check: CheckTable, subject: str, reason: str) -> Result:
    """Return the result of a check that does not apply, or was not requested; the exit code ignores it."""
    return Result(severity=Severity.NOT_CHECKED, check=check, subject=subject, found=reason)


def incomplete(
    check: CheckTable, subject: str, reason: str, *, fix: str | None = None, is_understood: bool = True
) -> Result:
    """Return the result of a requested check that leaves out what an operator expects it to contain."""
    return Result(
        severity=Severity.NOT_CHECKED,
        check=check,
        subject=subject,
        found=reason,
        fix=fix,
        error=ExitCode.PARTIAL if is_understood else ExitCode.CORRUPT,
    )


def prevented(check: CheckTable, subject: str, error: TierctlError | OSError) -> Result:
    """Return the result of a check that was asked for and could not be made."""
    if isinstance(error, OSError):
        where = error.filename or subject
        error = RemoteStorageError(f"{where}: {error.strerror or error}")
    return Result(
        severity=Severity.NOT_CHECKED,
        check=check,
        subject=subject,
        found=error.message,
        why=check.row.why,
        fix=error.hint,
        error=ExitCode(error.exit_code),
    )


def made(
    checks: Sequence[CheckTable],
    subject: str,
    run: Callable[[], Iterable[Result]],
    others: Callable[[], Iterable[Result]] = tuple,
) -> Iterator[Result]:
    """Yield the results of `run`, which makes `checks` of one subject.

    If it raises a TierctlError or OSError, those of `checks` without a result become prevented: `checks` may
    name some that `run` has made before the error. `others` returns results that `run` did not yield.
    """
    seen = set()
    try:
        for result in run():
            seen.add(result.check)
            yield result
    except (TierctlError, OSError) as e:
        seen |= {result.check for result in others()}
        for check in checks:
            if check not in seen:
                yield prevented(check, subject, e)


@dataclass(slots=True)
class Examination:
    """The results so far of the checks of a registry; checks in `skipped` are not made."""

    registry: type[CheckTable]
    skipped: Collection[CheckTable] = ()
    results: list[Result] = field(default_factory=list)

    def make(self, checks: Sequence[CheckTable], subject: str, run: Callable[[], Iterable[Result]]) -> None:
        """Add the results of `run`, as `made` yields them, unless all of `checks` are skipped.

        `run` may itself make some of `checks` by this method: an error after that prevents the others only.
        """
        if set(checks) <= set(self.skipped):
            return
        before = len(self.results)
        for result in made(checks, subject, run, lambda: self.results[before:]):
            self.add(result)

    def add(self, result: Result) -> None:
        """Add one result, unless its check is skipped."""
        if result.check not in self.skipped:
            self.results.append(result)

    def complete(self) -> "CheckResults":
        """Return the results, the worst first, with one of each check that was not made.

        A check that was asked for and could not be made is among the problems; the others come last.
        """
        there = {result.check for result in self.results}
        missing = [
            not_checked(
                check, "", "skipped (--skip)" if check in self.skipped else f"needs {check.row.needs}"
            )
            for check in self.registry
            if check not in there
        ]
        severities, checks = list(Severity), list(self.registry)
        results = sorted(
            [*self.results, *missing],
            key=lambda each: (
                each.is_left_out,
                severities.index(each.severity),
                each.error is None,
                checks.index(each.check),
            ),
        )
        return CheckResults(results=tuple(results))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResults(TableResult):
    """The results of all checks of a registry, the worst first."""

    table = CHECKS, "results"

    results: tuple[Result, ...]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code; PARTIAL if an operator must act."""
        return exit_code_of(self.results)

    @property
    def missing(self) -> list[str]:
        """The names of the checks that were not made, or not completely, each once."""
        found = (each.check for each in self.results if each.severity is Severity.NOT_CHECKED)
        return list(dict.fromkeys(found))


def exit_code_of(results: Sequence[Result]) -> ExitCode:
    """Return the exit code of a run with these results.

    PARTIAL if an operator must act: on a fault, or because a check that was asked for could not be made, or
    not completely; then CORRUPT if what it reads is not understood. If no check at all could be made, and all
    for the same kind of error, that error's code.
    """
    codes = [result.error for result in results if result.error is not None]
    found = {result.severity for result in results}
    if not found.isdisjoint({Severity.ERROR, Severity.WARNING}):
        codes.append(ExitCode.PARTIAL)
    return combined_exit_code(codes, is_partly_done=found != {Severity.NOT_CHECKED})
