"""Results of the checks, and the exit code of a run with them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from tierctl.commands.recovery.check.checks import RestoreCheck
from tierctl.errors import ExitCode, TierctlError
from tierctl.model import TopicPartition


class Verdict(StrEnum):
    """How a check ended, the worst first; a check that could not be made is never OK."""

    FAILED = "failed"
    NOT_CHECKED = "not_checked"
    OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The verdict of one check of one partition, or of everything if `topic` is None.

    `found` states the facts, or why nothing was checked. `error` is the exit code of the error that prevented
    a check which was asked for.
    """

    verdict: Verdict
    check: RestoreCheck
    topic: str | None
    partition: int | None
    found: str
    why: str | None = None
    fix: str | None = None
    error: ExitCode | None = None


@dataclass(slots=True)
class Results:
    """The results so far."""

    results: list[CheckResult] = field(default_factory=list)

    def failed(
        self, check: RestoreCheck, partition: TopicPartition | None, found: str, *, fix: str | None = None
    ) -> None:
        """Add the result of a check that found a fault; `fix` replaces that of the table."""
        self._add(Verdict.FAILED, check, partition, found, why=check.row.why, fix=fix or check.row.fix)

    def not_checked(self, check: RestoreCheck, partition: TopicPartition | None, reason: str) -> None:
        """Add the result of a check that does not apply yet, or that nobody asked for."""
        self._add(Verdict.NOT_CHECKED, check, partition, reason)

    def prevented(self, check: RestoreCheck, partition: TopicPartition | None, error: TierctlError) -> None:
        """Add the result of a check that was asked for and could not be made."""
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
    ) -> None:
        """Add a failed result that states all `faults`; without any the good one with `found`."""
        stated = list(faults)
        if stated:
            self.failed(check, partition, "; ".join(stated))
        else:
            self._add(Verdict.OK, check, partition, found)

    @contextmanager
    def making(self, check: RestoreCheck, partition: TopicPartition | None) -> Iterator[None]:
        """Add a prevented check if the body, which adds the result, raises a TierctlError."""
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
        """Return the results, the worst first, with one of each check that was not made."""
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

    PARTIAL if a check failed, or if one that was asked for could not be made; if none at all could be made,
    the code of the first error.
    """
    errors = [result.error for result in results if result.error is not None]
    verdicts = {result.verdict for result in results}
    if errors and verdicts == {Verdict.NOT_CHECKED}:
        return errors[0]
    return ExitCode.PARTIAL if errors or Verdict.FAILED in verdicts else ExitCode.OK
