"""Print results on stdout in the format of --output, and choose the exit code."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import click

from tierctl.cli.options import OutputFormat
from tierctl.cli.request import request_of
from tierctl.errors import ExitCode
from tierctl.report.columns import Columns
from tierctl.report.console import Console
from tierctl.report.plans import check_view, show_outcomes, show_plan
from tierctl.report.render import Shown
from tierctl.report.rows import show_rows, show_texts
from tierctl.report.view import View

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Printer:
    """Prints rows as a command line asks for; made before a command begins, so that wrong names end it."""

    columns: Columns
    output: OutputFormat
    view: View

    @classmethod
    def of(cls, ctx: click.Context, columns: Columns, output: OutputFormat | None = None) -> Self:
        """Return the printer of rows with `columns`; `output` replaces the format of the command line.

        Raise UsageError for unknown columns.
        """
        view = view_of(ctx)
        view.check(columns)
        return cls(columns=columns, output=output or display_of(ctx).output, view=view)

    def show(self, items: Iterable[Any]) -> Shown:
        """Print one row per item on stdout."""
        return show_rows(items, self.output, self.columns, self.view)

    def show_texts(self, texts: Iterable[str]) -> Shown:
        """Print rows that executors have rendered."""
        return show_texts(texts, self.output, self.columns, self.view)


def view_of(ctx: click.Context) -> View:
    """Return which rows and columns a command line asks for."""
    return request_of(View, ctx)


def show_mutation(ctx: click.Context, mutate: "Callable[[], MutationResult]") -> int:
    """Call `mutate` and print its result; return the exit code.

    Raise UsageError, and change nothing, if the options about output contradict each other.
    """
    check_view(display_of(ctx).output, view_of(ctx))
    return print_mutation(ctx, mutate())


def print_mutation(ctx: click.Context, result: "MutationResult") -> int:
    """Print the plan or the outcomes on stdout, failures also on stderr; return the exit code."""
    display, view = display_of(ctx), view_of(ctx)
    if result.outcomes is None:
        show_plan(result.saved, display.output, view)
    else:
        rows = [outcome.to_json() for outcome in result.outcomes]
        show_outcomes(result.saved, rows, display.output, view)
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
