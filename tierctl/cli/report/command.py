"""Options and output of `tierctl report`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import click

from tierctl import commands
from tierctl.cli import options, output_options
from tierctl.cli.declare import add, option
from tierctl.cli.display import TablesPrinter, console_of, summarize
from tierctl.cli.options import with_options
from tierctl.cli.request import request_of
from tierctl.errors import ExitCode, UsageError
from tierctl.report import tier_tables
from tierctl.report.summary import counted
from tierctl.report.units import bytes_text


class Show(StrEnum):
    """The rows that are printed."""

    SIZES = "sizes"
    GROWTH = "growth"
    EXPIRATIONS = "expirations"


_COLUMNS = {
    Show.SIZES: tier_tables.REPORT_SIZES,
    Show.GROWTH: tier_tables.REPORT_GROWTH,
    Show.EXPIRATIONS: tier_tables.REPORT_EXPIRATIONS,
}
Html = Annotated[
    Path | None,
    option(
        "--html",
        metavar="FILE",
        help="Write one page to this file instead: it needs no network and no other file. An earlier report "
        "is replaced as a whole; a file that is something else is not.",
        panel=options.SHOW,
    ),
]
ShowOption = Annotated[
    Show | None,
    option(
        "--show",
        help="Print only these rows: sizes by topic and age, growth by day, or the next 1000 segments that "
        "expire. Default: all three as tables; json, jsonl and csv have the sizes.",
        panel=options.SHOW,
    ),
]


def register(app: click.Group) -> None:
    """Add `report`."""
    add(app, "report", report)


@with_options(
    options.where,
    options.private_keys,
    options.state,
    options.selection,
    ...,
    output_options.rows,
    options.engine,
)
def report(
    ctx: click.Context,
    html: Html = None,
    show: ShowOption = None,
    topic_configs: options.TopicConfigs = None,
    kafka_version: options.KafkaVersionOption = None,
    now_ms: options.Now = None,
) -> ExitCode:
    """Report sizes by age, growth by day and the next expirations, as tables or as one HTML page.

    The page of --html also has each partition's segments in the tier beside those of its log, by offset and
    by time, with their states, their lineage and the findings of verify, and the copy lag of each topic. The
    decisions are those of copy, sweep and delete, as explain shows them. With --remote, verify lists all
    objects of the tier. Exit as verify: 0 if there are no findings but information, 3 with findings, 7 if
    something is corrupt; the page is written in every case.
    """
    if html is not None and show is not None:
        raise UsageError("--html and --show exclude each other", hint="the page has all that --show prints")
    printer = TablesPrinter.of(ctx, _COLUMNS, show)
    made = commands.report(request_of(commands.ReportRequest, ctx), console_of(ctx))
    following = None if made.exit_code is ExitCode.OK else "tierctl verify"
    if made.page is not None:
        partitions = counted(made.partitions, "partition")
        text = f"{partitions}, {made.examined}: {made.page}, {bytes_text(made.page_bytes)}"
        summarize(ctx, text, following=following)
        return made.exit_code
    rows = {Show.SIZES: made.sizes, Show.GROWTH: made.growth, Show.EXPIRATIONS: made.expirations}
    printer.show(rows)
    printer.finish(following=following)
    return made.exit_code
