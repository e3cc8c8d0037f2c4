"""Collect the results of the checks, and derive the exit code of the run."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from tierctl.commands.recovery.check.checks import RestoreCheck
from tierctl.errors import ExitCode, TierctlError, combined_exit_code
from tierctl.model import TopicPartition
from tierctl.report import fields as f
from tierctl.report.columns import Columns, Field, Kind, Shown


class Verdict(StrEnum):
    """The result of a check, the worst first; a check that could not be made is never OK."""

    FAILED = "failed"
    NOT_CHECKED = "not_checked"
    OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The verdict of one check of one partition, or of the whole cluster if `topic` is None.

    `found` states the facts, or why nothing was checked. `error` is the exit code of the error that prevented
    a requested check, and CORRUPT if a check found what is not understood.
    """

    verdict: Annotated[Verdict, Field(Kind.WORD, "outcome of the check: failed, not_checked or ok"), Shown(0)]
    check: Annotated[RestoreCheck, f.CHECK, Shown(0)]
    topic: Annotated[str | None, f.TOPIC, Shown(0)]
    partition: Annotated[int | None, f.PARTITION, Shown(0)]
    found: Annotated[str, f.FOUND, Shown(0)]
    why: Annotated[str | None, f.WHY, Shown(0)] = None
    fix: Annotated[str | None, f.FIX, Shown(0)] = None
    error: ExitCode | None = None


RESTORE_CHECKS = Columns(
    CheckResult,
    name="restore-checks",
    title="Results of the checks after a restore",
    commands="restore check",
    noun="result",
    word="verdict",
    below=("found", "why", "fix"),
    is_worst_first=True,
)


@dataclass(slots=True)
class Results:
    """Collect the results of the checks in the order in which they are made."""

    results: list[CheckResult] = field(default_factory=list)

    def failed(
        self,
        check: RestoreCheck,
        partition: TopicPartition | None,
        found: str,
        *,
        fix: str | None = None,
        is_understood: bool = True,
    ) -> None:
        """Add the result of a check that found a fault; `fix` replaces the fix in the table of checks."""
        error = None if is_understood else ExitCode.CORRUPT
        fix = fix or check.row.fix
        self._add(Verdict.FAILED, check, partition, found, why=check.row.why, fix=fix, error=error)

    def not_checked(self, check: RestoreCheck, partition: TopicPartition | None, reason: str) -> None:
        """Add the result of a check that does not apply yet, or that was not requested."""
        self._add(Verdict.NOT_CHECKED, check, partition, reason)

    def not_understood(self, check: RestoreCheck, partition: TopicPartition | None, reason: str) -> None:
        """Add the result of a check that leaves out what is not understood."""
        self._add(Verdict.NOT_CHECKED, check, partition, reason, error=ExitCode.CORRUPT)

    def prevented(self, check: RestoreCheck, partition: TopicPartition | None, error: TierctlError) -> None:
        """Add the result of a requested check that could not be made because of `error`."""
        self._add(
            Verdict.NOT_CHECKED,
            check,
            partition,
            error.message,
            fix=error.hint,
            error=ExitCode(error.exit_code),
        )

    def decided(
        self,
        check: RestoreCheck,
        partition: TopicPartition | None,
        faults: Iterable[str],
        found: str,
        *,
        is_understood: bool = True,
    ) -> None:
        """Add a failed result that states all `faults`; without faults, an OK result that states `found`."""
        stated = list(faults)
        if stated:
            self.failed(check, partition, "; ".join(stated), is_understood=is_understood)
        else:
            self._add(Verdict.OK, check, partition, found)

    @contextmanager
    def making(self, check: RestoreCheck, partition: TopicPartition | None) -> Iterator[None]:
        """Run the body, which adds a result; if it raises a TierctlError, add a prevented result."""
        try:
            yield
        except TierctlError as e:
            self.prevented(check, partition, e)

    def _add(
        self,
        verdict: Verdict,
        check: RestoreCheck,
        partition: TopicPartition | None,
        found: str,
        *,
        why: str | None = None,
        fix: str | None = None,
        error: ExitCode | None = None,
    ) -> None:
        self.results.append(
            CheckResult(
                verdict=verdict,
                check=check,
                topic=None if partition is None else partition.topic,
                partition=None if partition is None else partition.partition,
                found=found,
                why=why,
                fix=fix,
                error=error,
            )
        )

    def complete(self) -> tuple[CheckResult, ...]:
        """Return all results, the worst first, including one for each check that was not made."""
        made = {result.check for result in self.results}
        for check in RestoreCheck:
            if check not in made:
                self.not_checked(check, None, f"needs {check.row.needs}")
        verdicts, checks = list(Verdict), list(RestoreCheck)
        return tuple(
            sorted(
                self.results,
                key=lambda each: (
                    verdicts.index(each.verdict),
                    each.error is None,
                    checks.index(each.check),
                    each.topic or "",
                    each.partition or 0,
                ),
            )
        )


def exit_code_of(results: Sequence[CheckResult]) -> ExitCode:
    """Return the exit code of a run with these results.

    Return PARTIAL if a check failed, or if a requested check could not be made; then CORRUPT if an object or
    a record is not understood. If no check at all could be made, and all for the same kind of error, return
    that error's code.
    """
    codes = [result.error for result in results if result.error is not None]
    verdicts = {result.verdict for result in results}
    if Verdict.FAILED in verdicts:
        codes.append(ExitCode.PARTIAL)
    return combined_exit_code(codes, is_partly_done=verdicts != {Verdict.NOT_CHECKED})
