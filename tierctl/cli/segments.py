"""`tierctl segments`: the segments that the tier has, and whether their offsets are consistent."""

from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli import options, output_options
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Printer, console_of
from tierctl.cli.options import request_of, with_options
from tierctl.errors import ExitCode
from tierctl.model.times import parse_time_ms
from tierctl.report import tables

_FIND = "Which segments"

All = Annotated[
    bool,
    typer.Option("--all", help="Also list segments whose deletion has finished.", rich_help_panel=_FIND),
]
Epoch = Annotated[
    int | None,
    typer.Option(
        "--epoch",
        metavar="E",
        min=0,
        help="With --offset: find the segment that a broker reads for this leader epoch and offset.",
        rich_help_panel=_FIND,
    ),
]
Offset = Annotated[
    int | None,
    typer.Option(
        "--offset", metavar="N", min=0, help="The offset to find; see --epoch.", rich_help_panel=_FIND
    ),
]
Time = Annotated[
    int | None,
    typer.Option(
        "--time",
        metavar="TIME",
        parser=parse_time_ms,
        help="Find the first segment of the current leader epochs with a record of this time or later; "
        f"{options.TIME_FORMS}.",
        rich_help_panel=_FIND,
    ),
]
Sizes = Annotated[
    bool,
    typer.Option(
        "--sizes",
        help="Print sizes by topic: of the segments' logs, and with --remote of all objects.",
        rich_help_panel=options.SHOW,
    ),
]
Offsets = Annotated[
    bool,
    typer.Option(
        "--offsets",
        help="Print the earliest, earliest-local, latest-tiered, earliest-pending-upload (-6, from Kafka "
        "4.2 on) and latest offset of each partition, named as in GetOffsetShell.",
        rich_help_panel=options.SHOW,
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Print problems: wrong offsets, gaps, and duplicate and divergent segments. Exit with code 3 "
        "if a problem is more than information.",
        rich_help_panel=options.SHOW,
    ),
]


app = new_app()


@app.command("segments", cls=Command)
@with_options(
    options.where,
    options.private_keys,
    options.state,
    options.selection,
    ...,
    output_options.rows,
    options.engine,
)
def segments(
    ctx: typer.Context,
    include_deleted: All = False,
    epoch: Epoch = None,
    offset: Offset = None,
    time_ms: Time = None,
    sizes: Sizes = False,
    offsets: Offsets = False,
    check: Check = False,
    now_ms: options.Now = None,
) -> ExitCode:
    """List remote segments, find one segment, sum up sizes, or check offsets.

    The list is sorted by topic, partition, start offset and time of the last event. If a metadata record is
    unreadable, or the retention of the metadata topic deleted the oldest events of a partition, a message on
    stderr says so and the exit code is 7. With --engine spark, executors read the metadata topic; for --all,
    this process reads it once more.
    """
    columns = tables.SEGMENTS
    if check:
        columns = tables.SEGMENT_FINDINGS
    elif offsets:
        columns = tables.PARTITION_OFFSETS
    elif sizes:
        columns = tables.TOPIC_SIZES
    printer = Printer.of(ctx, columns)
    result = commands.segments(request_of(commands.SegmentsRequest, ctx), console_of(ctx))
    printer.show(result.rows)
    printer.finish(following="tierctl verify" if check and result.rows else None)
    return result.exit_code
