"""`tierctl segments`: the segments that the tier has, and whether their offsets are consistent."""

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Printer, Rows, console_of
from tierctl.cli.options import ENGINE, PRIVATE_KEYS, SELECTION, STATE, WHERE, with_options
from tierctl.commands.segments import (
    EPOCH_SIZES,
    PARTITION_OFFSETS,
    SEGMENT_FINDINGS,
    SEGMENTS,
    TOPIC_SIZES,
    columns_of,
)
from tierctl.errors import ExitCode

_FIND = "Which segments"


app = new_app()


@app.command("segments", cls=Command)
@with_options(
    commands.SegmentsRequest,
    WHERE,
    PRIVATE_KEYS,
    STATE,
    SELECTION,
    ...,
    "now_ms",
    "copy_limit_ms",
    Rows,
    ENGINE,
    rows=(SEGMENTS, TOPIC_SIZES, EPOCH_SIZES, PARTITION_OFFSETS, SEGMENT_FINDINGS),
)
def segments(ctx: typer.Context, request: commands.SegmentsRequest) -> ExitCode:
    """List remote segments, find one segment, sum up sizes, or check offsets.

    The list is sorted by topic, partition, start offset and time of the last event. If a metadata record is
    unreadable, or the retention of the metadata topic deleted the oldest events of a partition, a message on
    stderr says so and the exit code is 7. With --engine spark, executors read the metadata topic; for --all,
    this process reads it once more.
    """
    printer = Printer.of(ctx, columns_of(request))
    result = commands.segments(request, console_of(ctx))
    printer.show(result.rows)
    printer.finish(following="tierctl verify" if request.check and result.rows else None)
    return result.exit_code
