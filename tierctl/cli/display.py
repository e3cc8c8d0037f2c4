"""Print results on stdout in the format of --output, and choose the exit code."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tierctl.cli.options import OutputFormat
from tierctl.cli.request import request_of
from tierctl.errors import ExitCode
from tierctl.report import render
from tierctl.report.console import Console
from tierctl.report.plans import show_outcomes, show_plan

if TYPE_CHECKING:
    from tierctl.apply.outcome import Outcome
    from tierctl.commands import MutationResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """The options about output."""

    output: OutputFormat = OutputFormat.TABLE
    detailed_exitcode: bool = False

    def exit_code(self, code: int, *, is_pending: bool) -> int:
        """Return 9 instead of 0 for a plan with something to do, if `--detailed-exitcode` asks for that."""
        pending = is_pending and self.detailed_exitcode and code == ExitCode.OK
        return ExitCode.PLAN_PENDING if pending else code


def display_of(ctx: click.Context) -> Display:
    """Return the display options of a command line."""
    return request_of(Display, ctx)


def show_rows(
    ctx: click.Context,
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    table_columns: Sequence[str] | None = None,
) -> None:
    """Print `rows` on stdout in the format of `--output`; `table_columns` are those of a table, if fewer."""
    render(rows, display_of(ctx).output, columns, table_columns=table_columns)


def show_mutation(ctx: click.Context, result: "MutationResult") -> int:
    """Print the plan or the outcomes on stdout, failures also on stderr; return the exit code."""
    display = display_of(ctx)
    if result.outcomes is None:
        show_plan(result.saved, display.output)
    else:
        show_outcomes(result.saved, [outcome.to_json() for outcome in result.outcomes], display.output)
        for outcome in result.outcomes:
            _say_failure(outcome)
    return display.exit_code(result.exit_code, is_pending=result.is_pending)


def _say_failure(outcome: "Outcome") -> None:
    if outcome.error is not None:
        step = outcome.step
        at = f" from {step.start_offset}" if step.start_offset is not None else ""
        hint = f" ({outcome.error.hint})" if outcome.error.hint else ""
        Console().say(
            f"{outcome.status} {step.action} {step.topic_id_partition}{at}: {outcome.error.message}{hint}"
        )
