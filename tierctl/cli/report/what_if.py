"""Options and output of `tierctl report --what-if`."""

from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli.display import TablesPrinter, console_of, summarize
from tierctl.cli.options import request_of
from tierctl.cli.report.show import Show
from tierctl.errors import ExitCode
from tierctl.report import tier_tables
from tierctl.report.summary import counted
from tierctl.report.units import bytes_text

_COLUMNS = {Show.CHANGES: tier_tables.WHAT_IF, Show.GROUPS: tier_tables.GROUP_LOSSES}
_WHAT_IF = "What if"
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--what-if",
        metavar="TOPIC.SETTING=VALUE",
        help="Calculate the effect of this change without making it: retention.ms, retention.bytes, "
        "local.retention.ms or local.retention.bytes of a topic, or of each topic that matches a glob. "
        "Times such as 7d or 36h, sizes such as 50G, or numbers as in Kafka. Repeatable; a later "
        "change of the same setting replaces an earlier one.",
        rich_help_panel=_WHAT_IF,
    ),
]
PricePerGbMonth = Annotated[
    float | None,
    typer.Option(
        "--price-per-gb-month",
        metavar="PRICE",
        min=0,
        help="With --what-if: the price of storing a GB (2^30 bytes) for a month, in any currency.",
        rich_help_panel=_WHAT_IF,
    ),
]
PricePer1000Requests = Annotated[
    float | None,
    typer.Option(
        "--price-per-1000-requests",
        metavar="PRICE",
        min=0,
        help="With --what-if: the price of a thousand requests that store or delete objects.",
        rich_help_panel=_WHAT_IF,
    ),
]
Tables = Annotated[
    str | None,
    typer.Option(
        "--tables",
        metavar="URI",
        help="With --what-if: read the tables that 'pipeline run' wrote to this --warehouse instead of the "
        "metadata topic. With --engine spark, each executor decides for some of the metadata "
        "partitions.",
        rich_help_panel=_WHAT_IF,
    ),
]


def print_what_if(ctx: typer.Context, show: Show | None) -> ExitCode:
    """Print the results of the changes that the command line states; return the exit code."""
    printer = TablesPrinter.of(ctx, _COLUMNS, show)
    found = commands.what_if(request_of(commands.WhatIfRequest, ctx), console_of(ctx))
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
