"""`tierctl report`: sizes, growth and expirations as tables, or everything about a tier as one page."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Rows, TablesPrinter, console_of, summarize
from tierctl.cli.options import (
    ENGINE,
    PRIVATE_KEYS,
    SELECTION,
    STATE,
    WHERE,
    Fields,
    is_typed,
    request_of,
    typed_option,
    with_options,
)
from tierctl.commands.insight.report import REPORT_EXPIRATIONS, REPORT_GROWTH, REPORT_SIZES
from tierctl.commands.insight.what_if import GROUP_LOSSES, WHAT_IF
from tierctl.errors import ExitCode, UsageError
from tierctl.report.render import SHOW
from tierctl.report.texts import bytes_text, counted


class Show(StrEnum):
    """The rows that are printed."""

    SIZES = "sizes"
    GROWTH = "growth"
    EXPIRATIONS = "expirations"
    CHANGES = "changes"
    GROUPS = "groups"


_COLUMNS = {
    Show.SIZES: REPORT_SIZES,
    Show.GROWTH: REPORT_GROWTH,
    Show.EXPIRATIONS: REPORT_EXPIRATIONS,
}
_CHANGES = {Show.CHANGES: WHAT_IF, Show.GROUPS: GROUP_LOSSES}
_OF_CHANGES = ("price_per_gb_month", "price_per_1000_requests", "warehouse")
ShowOption = Annotated[
    Show | None,
    typer.Option(
        "--show",
        help="Print only these rows: sizes by topic and age, growth by day, or the next 1000 segments that "
        "expire; with --what-if, the changes by topic, or the consumer groups that would lose records. "
        "Default: tables of all of them; json, jsonl and csv print the sizes, or the changes.",
        rich_help_panel=SHOW,
    ),
]


app = new_app()


@app.command("report", cls=Command)
@with_options(
    commands.ReportRequest,
    WHERE,
    PRIVATE_KEYS,
    STATE,
    SELECTION,
    ...,
    Fields(commands.WhatIfRequest, ("what_if", *_OF_CHANGES)),
    "topic_configs",
    "kafka_version",
    "now_ms",
    "copy_limit_ms",
    Rows,
    ENGINE,
    rows=(*_COLUMNS.values(), *_CHANGES.values()),
)
def report(ctx: typer.Context, request: commands.ReportRequest, show: ShowOption = None) -> ExitCode:
    """Report sizes by age, growth by day and the next expirations.

    They are printed as tables, or with --html as one page.

    The page of --html also shows the segments of each partition in the tier beside those of its log, by
    offset and by time, with their states, their lineage and the findings of verify, and the copy lag of each
    topic. The decisions are those of copy, sweep and delete, as in explain. With --remote, report lists all
    objects of the tier, as verify does. Exit 0 if there are no findings of verify except information, 3 with
    other findings, or if copies continue only after an operator acted, as status says it, and 7 if data is
    corrupt; the page is written in every case.

    With --what-if, the command calculates a change of retention instead. For each topic it prints the bytes,
    segments, objects, requests and costs now, right after the change, and in 90 days at the observed growth;
    on a cluster also the consumer groups that would lose records; with --log-dir the disks of the brokers.
    Unknown values are left empty. tierctl-what-if(7) has the formulas. Exit 3 if a value could not be
    decided.
    """
    is_change = bool(ctx.params["what_if"])
    _check(ctx, request.html, show, is_change=is_change)
    if is_change:
        return _print_what_if(ctx, show)
    printer = TablesPrinter.of(ctx, _COLUMNS, show)
    made = commands.report(request, console_of(ctx))
    following = None if made.exit_code is ExitCode.OK else "tierctl verify"
    if made.page is not None:
        partitions = counted(made.partitions, "partition")
        problems = counted(made.problems, "problem")
        text = f"{partitions}, {made.examined}: {problems}; {made.page}, {bytes_text(made.page_bytes)}"
        summarize(ctx, text, following=following)
        return made.exit_code
    rows = {Show.SIZES: made.sizes, Show.GROWTH: made.growth, Show.EXPIRATIONS: made.expirations}
    printer.show(rows)
    if show is None:
        summarize(ctx, made.summary, following=following)
    else:
        printer.finish(following=following)
    return made.exit_code


def _check(ctx: typer.Context, html: Path | None, show: Show | None, *, is_change: bool) -> None:
    """Raise UsageError for options that exclude each other, or that need --what-if."""
    if html is not None and show is not None:
        raise UsageError(
            "--html and --show exclude each other", hint="leave --show out: the page contains all tables"
        )
    if is_change:
        if html is not None:
            raise UsageError("--html and --what-if exclude each other", hint="run the command twice")
        if show in _COLUMNS:
            raise UsageError(
                f"--show {show} and --what-if exclude each other", hint="expected changes or groups"
            )
        return
    given = typed_option(ctx, _OF_CHANGES)
    if given or (show is not None and show not in _COLUMNS):
        raise UsageError(
            f"{given or f'--show {show}'} needs --what-if", hint="as --what-if 'orders.retention.ms=7d'"
        )


def _print_what_if(ctx: typer.Context, show: Show | None) -> ExitCode:
    """Print the results of the changes that the command line states; return the exit code."""
    printer = TablesPrinter.of(ctx, _CHANGES, show)
    # A profile names the warehouse for `pipeline run`: it is read here only if the command line asks for it.
    warehouse = {} if is_typed(ctx, "warehouse") else {"warehouse": None}
    request = request_of(commands.WhatIfRequest, ctx, **warehouse)
    found = commands.what_if(request, console_of(ctx))
    printer.show({Show.CHANGES: found.topics, Show.GROUPS: found.groups})
    total = found.topics[-1]
    amounts = ((total.now_bytes, "now"), (total.changed_bytes, "changed"), (total.later_bytes, "in 90 days"))
    known = [f"{bytes_text(size)} {when}" for size, when in amounts if size is not None]
    unknown = [f"not known {when}" for size, when in amounts if size is None]
    text = f"{counted(len(found.topics) - 1, 'topic')}: {', '.join(known + unknown)}"
    if found.groups:
        groups = counted(len({each.group for each in found.groups}), "consumer group")
        text += f"; {groups} would lose records"
    summarize(ctx, text)
    return found.exit_code
