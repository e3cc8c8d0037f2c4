"""Print results on stdout as --output says, choose the exit code, and ask before a plan that deletes."""

import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, Self, TypeVar

import typer

from tierctl.cli.app import Command, named_command, parsed
from tierctl.cli.options import DetailedExitcode, is_typed, request_of
from tierctl.cli.profiles import CHOOSE_PROFILE, RunSettings, option_key
from tierctl.commands.request import APPLY, DECIDE, FROM_TIER, HOW, WHERE
from tierctl.errors import ExitCode, SafetyRefusal, TierctlError
from tierctl.model.selection import counted
from tierctl.model.times import iso_utc
from tierctl.report.columns import Columns
from tierctl.report.console import Console
from tierctl.report.plans import (
    STEPS,
    apply_command,
    check_view,
    outcomes_summary,
    plan_summary,
    show_outcomes,
    show_plan,
    skipped_text,
)
from tierctl.report.render import SHOW, OutputFormat, View, show_rows, show_texts
from tierctl.report.table import Tally, printable

if TYPE_CHECKING:
    from tierctl.apply.run_context import Outcome
    from tierctl.commands import MutationResult
    from tierctl.plan.steps import Plan

Kind = TypeVar("Kind")

_THROTTLED_FROM_S = 0.5
"""Waits for a limit of bytes per second from which on they are in the line that ends a run."""
_PROGRAM = "tierctl"
_PANELS = (WHERE, FROM_TIER)
_OF_PLAN = (*_PANELS, DECIDE, HOW, APPLY)
_NOT_OF_PLAN = {"apply", "detailed_exitcode", "plan_out", "yes"}
_NOW = "now_ms"
_OVERRIDE = "override"
_TARGET = "to_"
"""Begins the keys of options of copy about its target, which other commands have without it."""


class Again(Enum):
    """This command line as the next command; the value has the options that are added to it."""

    SAME = ()
    APPLY = ("--apply",)


Following = str | Sequence[str] | Again | None
"""The next command: of several command lines of tierctl the first one whose options are all known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(View):
    """The options about the rows that a command prints."""

    output: Annotated[
        OutputFormat,
        typer.Option("--output", "-o", help="Format of the rows on stdout.", rich_help_panel=SHOW),
    ] = OutputFormat.TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """The options about output."""

    output: OutputFormat = OutputFormat.TABLE
    detailed_exitcode: DetailedExitcode = False
    plan_out: Path | None = None

    def exit_code(self, code: int, *, is_pending: bool) -> int:
        """Return 9 instead of 0 for a plan with something to do, if `--detailed-exitcode` asks for that."""
        pending = is_pending and self.detailed_exitcode and code == ExitCode.OK
        return ExitCode.PLAN_PENDING if pending else code


def display_of(ctx: typer.Context) -> Display:
    """Return the display options of a command line."""
    return request_of(Display, ctx)


@dataclass(slots=True, kw_only=True)
class Printer:
    """Prints rows as a command line asks for; made before a command begins, so that wrong names end it."""

    ctx: typer.Context
    columns: Columns
    output: OutputFormat
    view: View
    tally: Tally
    cut_text: str = ""
    """What --limit leaves out of the rows that were shown."""

    @classmethod
    def of(
        cls, ctx: typer.Context, columns: Columns | None = None, output: OutputFormat | None = None
    ) -> Self:
        """Return the printer of rows with `columns`, by default those of the command's first kind of rows.

        `output` replaces the format of the command line. Raise UsageError for unknown columns.
        """
        columns, view = columns or rows_of(ctx)[0], view_of(ctx)
        view.check(columns)
        output = output or display_of(ctx).output
        return cls(ctx=ctx, columns=columns, output=output, view=view, tally=Tally(columns))

    @property
    def may_group(self) -> bool:
        """Whether rows of the same kind may be one row: in a table at a terminal, in the order of the run."""
        is_plain = not (self.view.columns or self.view.sort)
        return self.output is OutputFormat.TABLE and sys.stdout.isatty() and is_plain

    def show(
        self, items: Iterable[Any], grouped: Callable[[Iterable[Any]], Iterable[Any]] | None = None
    ) -> None:
        """Print one row per item on stdout, or one per group that `grouped` makes of them."""
        counted = self.tally.of(items)
        rows = counted if grouped is None else grouped(counted)
        shown = show_rows(rows, self.output, self.columns, self.view)
        self.cut_text = shown.cut_text
        if shown.dropped:
            names = ", ".join(shown.dropped)
            console_of(self.ctx).note(f"this terminal is too narrow for {names}; see --columns")

    def show_texts(self, texts: Iterable[str]) -> None:
        """Print rows that executors have rendered."""
        shown = show_texts(texts, self.output, self.columns, self.view)
        self.cut_text = shown.cut_text
        self.tally.rows += shown.rows

    @property
    def text(self) -> str:
        """What was counted, and how many rows of it --limit let through."""
        return self.tally.text + self.cut_text

    def finish(self, *, also: str | None = None, following: Following = None) -> None:
        """Print the line that ends the run: what the rows were, `also`, and the next command `following`."""
        text = self.text if also is None else f"{self.text}; {also}"
        summarize(self.ctx, text, following=following)


@dataclass(slots=True)
class TablesPrinter(Generic[Kind]):
    """Prints the kinds of rows that `--show` asks for; the first one is in the line that ends the run."""

    printers: Mapping[Kind, Printer]

    @classmethod
    def of(cls, ctx: typer.Context, columns: Mapping[Kind, Columns], show: Kind | None) -> Self:
        """Return the printer of the rows of kind `show`.

        If `show` is None, tables have all kinds in `columns`, and the other formats the first one. Columns
        that the command line names choose the first kind that has all of them. Raise UsageError for unknown
        columns.
        """
        kinds = list(columns) if show is None else [show]
        if display_of(ctx).output is not OutputFormat.TABLE:
            kinds = kinds[:1]
        view = view_of(ctx)
        if len(kinds) > 1 and (view.columns or view.sort):
            kinds = [kind for kind in kinds if view.fits(columns[kind])][:1] or kinds[:1]
        return cls({kind: Printer.of(ctx, columns[kind]) for kind in kinds})

    def show(self, rows: Mapping[Kind, Sequence[object]]) -> None:
        """Print the rows of each kind; tables without rows are left out, but for the first."""
        for number, (kind, printer) in enumerate(self.printers.items()):
            if number and rows[kind]:
                sys.stdout.write("\n")
            if rows[kind] or not number:
                printer.show(rows[kind])

    @property
    def cut_text(self) -> str:
        """What --limit leaves out of each kind that was printed; of the first kind without its name."""
        first = next(iter(self.printers.values()))
        return "".join([first.cut_text, *(f"; {text}" for text in self._cut_of_others())])

    def _cut_of_others(self) -> list[str]:
        _, *others = self.printers.items()
        cut = ((kind, printer.cut_text.removeprefix("; ")) for kind, printer in others)
        return [f"{kind}: {text}" for kind, text in cut if text]

    def finish(self, *, also: str | None = None, following: Following = None) -> None:
        """Print the line that ends the run, as `Printer.finish` of the first kind."""
        first = next(iter(self.printers.values()))
        texts = [*self._cut_of_others(), *([also] if also else [])]
        first.finish(also="; ".join(texts) or None, following=following)


class _Rows(Protocol):
    """A result that has rows of one kind, and an exit code."""

    @property
    def rows(self) -> Iterable[Any]: ...

    @property
    def exit_code(self) -> int: ...


def rows_of(ctx: typer.Context) -> Sequence[Columns]:
    """Return the kinds of rows that a command prints."""
    callback: Any = ctx.command.callback
    kinds: Sequence[Columns] = callback.rows
    return kinds


def print_result(
    ctx: typer.Context,
    use_case: Callable[[Kind, Console], _Rows],
    request: Kind,
    *,
    prints_meanwhile: bool = False,
) -> int:
    """Call a use case, print the rows of its result and the line that ends the run; return the exit code."""
    printer = Printer.of(ctx)
    result = use_case(request, console_of(ctx, prints_meanwhile=prints_meanwhile))
    printer.show(result.rows)
    printer.finish()
    return result.exit_code


def console_of(ctx: typer.Context, *, prints_meanwhile: bool = False) -> Console:
    """Return the receiver of a run's messages, according to -v, --quiet and --output.

    `prints_meanwhile` states whether rows are printed before the run ends.
    """
    settings: RunSettings = ctx.obj
    return Console(
        verbosity=settings.verbosity,
        is_quiet=settings.is_quiet,
        is_json=settings.wants_json(),
        prints_meanwhile=prints_meanwhile,
        log=settings.log,
        errors=settings.errors,
    )


def summarize(ctx: typer.Context, text: str, *, following: Following = None) -> None:
    """Print the line that ends a run; `following` is the command that can be run next.

    It is printed with the places and the --now that the command line names, so that it can be run as it is
    printed; it is left out if it lacks an option.
    """
    settings: RunSettings = ctx.obj
    seconds = time.monotonic() - settings.started_s
    if settings.errors:
        text += f"; {counted(len(settings.errors), 'error')} printed above"
        settings.errors.clear()
    waited_s = settings.throttle.elapsed_s
    if waited_s >= _THROTTLED_FROM_S:
        text += f", throttled {waited_s:.0f} s"
    console_of(ctx).summary(_command(ctx), text, seconds=seconds, next_command=_next(following, ctx))


def _next(following: Following, ctx: typer.Context) -> str | None:
    """Return the next command as a shell reads it; None if there is none that runs."""
    if isinstance(following, Again):
        words = [*ctx.obj.args]
        end = words.index("--") if "--" in words else len(words)
        return shlex.join([_PROGRAM, *words[:end], *following.value, *words[end:]])
    lines = [following] if isinstance(following, str) else following or ()
    return next(filter(None, (with_places(line, ctx) for line in lines)), None)


def with_places(line: str, ctx: typer.Context) -> str | None:
    """Return `line`, a command line of tierctl, with the places that the command line of `ctx` has.

    The places are the options in `_PANELS` that its command accepts and does not name itself, and the
    profile; --now and --override are added, too, and for `apply` the options that decide the plan and how it
    is carried out. Values of the environment and of the profile are not added, as they apply to the next run.
    Return None if the request of the command lacks an option, and if the command has no --override: a setting
    such as key.prefix says where the objects are.
    """
    words = shlex.split(line)[1:]
    command, arguments = named_command(words)
    assert isinstance(command, Command)
    accepted = {option_key(each.opts): max(each.opts, key=len) for each in command.options}
    given: dict[str, str] = {}
    for key, values in _typed(ctx, _OF_PLAN if words[0] == "apply" else _PANELS):
        name = accepted.get(key) or accepted.get(key.removeprefix(_TARGET))
        if name is None and key == _OVERRIDE:
            return None
        if name is not None and name not in words:
            given[name] = " ".join(f"{name} {shlex.quote(value)}" for value in values) or name
    line = " ".join([line, *(given[name] for name in accepted.values() if name in given)])
    path = words[: len(words) - len(arguments)]
    return line if _is_complete(command, path, shlex.split(line)[1 + len(path) :], ctx) else None


def _is_complete(command: Command, path: Sequence[str], arguments: Sequence[str], ctx: typer.Context) -> bool:
    """Return whether the arguments, the environment and the profile have all that a command needs."""
    callback: Any = command.callback
    try:
        request_of(callback.request, parsed(ctx, path, command, arguments)).require_complete()
    except (TierctlError, typer.TyperException):
        return False
    return True


def _typed(ctx: typer.Context, panels: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield key and values of each option in `panels`, of --now and --override that the command line has.

    A flag has no values.
    """
    for part in (ctx.find_root(), ctx):
        for param in part.command.get_params(part):
            name = param.name or ""
            is_named = getattr(param, "rich_help_panel", None) in panels or name in CHOOSE_PROFILE
            is_named &= name not in _NOT_OF_PLAN
            if (is_named or name in {_NOW, _OVERRIDE}) and is_typed(part, name):
                # The values of options with a callback are in the settings of the run.
                value = part.params.get(name, getattr(ctx.obj, name, None))
                if name == _NOW and isinstance(value, int) and value % 1000 == 0:
                    value = iso_utc(value)
                values = value if isinstance(value, list | tuple) else [] if value is True else [value]
                yield option_key(param.opts), [str(each) for each in values]


def _command(ctx: typer.Context) -> str:
    return ctx.command_path.partition(" ")[2]


def view_of(ctx: typer.Context) -> View:
    """Return which rows and columns a command line asks for."""
    return request_of(View, ctx)


def plan_console(ctx: typer.Context) -> Console:
    """Return the receiver of the messages of a run that makes a plan.

    Raise UsageError, and change nothing, if the options about output contradict each other.
    """
    check_view(display_of(ctx).output, view_of(ctx))
    return console_of(ctx)


def print_mutation(ctx: typer.Context, result: "MutationResult", *, if_empty: str | None = None) -> int:
    """Print the plan or the outcomes on stdout, failures also on stderr; return the exit code.

    `if_empty` is the command that can be run next if there is nothing to do.
    """
    display, view = display_of(ctx), view_of(ctx)
    if result.outcomes is None:
        printed = show_plan(result.saved, display.output, view)
        text = plan_summary(result.plan.steps, len(result.raised)) + printed.cut_text
        following: Following = Again.APPLY if display.plan_out is None else apply_command(display.plan_out)
        following = None if result.is_refused else following
    else:
        rows = [outcome.to_json() for outcome in result.outcomes]
        printed = show_outcomes(result.saved, rows, display.output, view, conclusion=result.conclusion)
        for outcome in result.outcomes:
            _warn_of_failure(console_of(ctx), outcome)
        text, following = outcomes_summary(rows, len(result.raised))
        text += printed.cut_text
        if any(row["status"] == "pending" for row in rows):
            following = Again.SAME
    following = following if result.plan.steps or result.raised else if_empty
    also = "" if result.conclusion is None else f"; {result.conclusion}"
    summarize(ctx, text + skipped_text(result.plan) + also, following=following)
    return display.exit_code(result.exit_code, is_pending=result.is_pending)


def _warn_of_failure(console: Console, outcome: "Outcome") -> None:
    if outcome.error is not None:
        step = outcome.step
        at = f" from {step.start_offset}" if step.start_offset is not None else ""
        hint = f" ({outcome.error.hint})" if outcome.error.hint else ""
        console.warn(
            f"{outcome.status} {step.action} {step.topic_id_partition}{at}: {outcome.error.message}{hint}"
        )


def confirmation(*, is_given: bool) -> Callable[["Plan"], None]:
    """Return the function that asks whether a plan of `delete` is carried out; SafetyRefusal for a no.

    It does not ask about plans of other commands, if the answer `is_given` by --yes, and if stdin is no
    terminal, where nobody could answer.
    """
    if is_given or sys.stdin is None or not sys.stdin.isatty():
        return lambda _plan: None
    return _ask


def _ask(plan: "Plan") -> None:
    if not plan.steps or plan.command != "delete":
        return
    if not sys.stderr.isatty():
        raise SafetyRefusal(
            "not confirmed: the question is asked on stderr, which is no terminal; nothing was changed",
            hint="--yes carries the plan out without the question; or do not redirect stderr",
        )
    tally = Tally(STEPS)
    for _ in tally.of(step.to_json() for step in plan.steps):
        pass
    names = sorted({step.topic for step in plan.steps})
    expected = names[0] if len(names) == 1 else counted(len(names), "topic")
    what = "the topic's name" if len(names) == 1 else f"'{expected}'"
    shown = ", ".join(printable(name) for name in names[:10]) + (", ..." if len(names) > 10 else "")
    print(f"about to carry out {tally.text}: {shown}", file=sys.stderr)
    print(f"type {what} to continue: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != expected:
        raise SafetyRefusal(
            f"not confirmed: expected {what}; nothing was changed",
            hint="--yes carries the plan out without this question",
        )
