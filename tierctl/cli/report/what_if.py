"""Options and output of `tierctl report --what-if`."""

import typer

from tierctl import commands
from tierctl.cli.display import TablesPrinter, console_of, summarize
from tierctl.cli.options import Fields, is_typed, request_of
from tierctl.cli.report.show import Show
from tierctl.commands.insight.whatif.command import GROUP_LOSSES, WHAT_IF
from tierctl.errors import ExitCode
from tierctl.report.texts import bytes_text, counted

COLUMNS = {Show.CHANGES: WHAT_IF, Show.GROUPS: GROUP_LOSSES}


def print_what_if(ctx: typer.Context, show: Show | None) -> ExitCode:
    """Print the results of the changes that the command line states; return the exit code."""
    printer = TablesPrinter.of(ctx, COLUMNS, show)
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


OPTIONS = Fields(
    commands.WhatIfRequest, ("what_if", "price_per_gb_month", "price_per_1000_requests", "warehouse")
)
