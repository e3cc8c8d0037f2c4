"""`tierctl fetch`: records, segments and indexes from the tier."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli import options, output_options
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Printer, console_of, summarize
from tierctl.cli.options import request_of, with_options
from tierctl.errors import ExitCode
from tierctl.model import IndexType, IsolationLevel
from tierctl.model.times import parse_time_ms
from tierctl.read.record_rows import KEY_FORMS, Binary
from tierctl.report import render_object, tables
from tierctl.report.tier_tables import KEY_OCCURRENCES
from tierctl.report.units import bytes_text

_RECORDS = "Which records"
_OBJECTS = "Instead of records"

Offset = Annotated[
    str,
    typer.Option(
        "--offset",
        metavar="N|NAME",
        help="Begin at this offset: a number, earliest, earliest-local, latest-tiered or latest.",
        rich_help_panel=_RECORDS,
    ),
]
UntilOffset = Annotated[
    int | None,
    typer.Option(
        "--until-offset",
        metavar="N",
        min=0,
        help="End before this offset.",
        rich_help_panel=_RECORDS,
    ),
]
FromTime = Annotated[
    int | None,
    typer.Option(
        "--from-time",
        metavar="TIME",
        parser=parse_time_ms,
        help=f"Begin at the first record of this time or later; {options.TIME_FORMS}.",
        rich_help_panel=_RECORDS,
    ),
]
ToTime = Annotated[
    int | None,
    typer.Option(
        "--to-time",
        metavar="TIME",
        parser=parse_time_ms,
        help="End before the first record that is later than this.",
        rich_help_panel=_RECORDS,
    ),
]
MaxRecords = Annotated[
    int | None,
    typer.Option("--max-records", metavar="N", min=1, help="Stop after N records.", rich_help_panel=_RECORDS),
]
Isolation = Annotated[
    IsolationLevel,
    typer.Option(
        "--isolation",
        help="read_committed leaves out records of aborted transactions and ends at the last stable offset.",
        rich_help_panel=_RECORDS,
    ),
]
BinaryOption = Annotated[
    Binary,
    typer.Option(
        "--binary",
        help="How keys and values are written. auto: as text if they are UTF-8, otherwise as base64; the "
        "fields key_encoding and value_encoding state which. Records of more than 8 MiB are written as "
        "sha256, which is an error; --limit-factor raises the limit.",
        rich_help_panel=options.SHOW,
    ),
]
Rows = Annotated[
    options.OutputFormat | None,
    typer.Option(
        "--output",
        "-o",
        help="Format of the output. Default: for records a table at a terminal, otherwise jsonl; for objects "
        "their raw bytes.",
        rich_help_panel=options.SHOW,
    ),
]
RawSegment = Annotated[
    str | None,
    typer.Option(
        "--raw-segment",
        metavar="SEGMENT_ID",
        help="Print the segment's log as it is stored in the tier, or with --index one of its indexes.",
        rich_help_panel=_OBJECTS,
    ),
]
Index = Annotated[
    IndexType | None,
    typer.Option(
        "--index",
        help="Print an index of the segment of --raw-segment, or of the segment that contains --offset; "
        "with --output, print its decoded entries.",
        rich_help_panel=_OBJECTS,
    ),
]
AuxiliaryState = Annotated[
    int | None,
    typer.Option(
        "--auxiliary-state",
        metavar="OFFSET",
        min=1,
        help="Print the state that a follower restores from the tier if its leader's local log begins at "
        "OFFSET: leader epochs and producer snapshot. With --out DIR, also write the follower's files.",
        rich_help_panel=_OBJECTS,
    ),
]
EraseReport = Annotated[
    list[str] | None,
    typer.Option(
        "--erase-report",
        metavar="KEY",
        help="For an erasure request, list every segment and offset at which this key occurs, and the "
        f"objects that contain it: {KEY_FORMS}. Repeatable. All segments of the tier are searched, "
        "whatever their state, and with --log-dir the local logs, too.",
        rich_help_panel=_OBJECTS,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="PATH",
        help="Write the object to this file (--auxiliary-state: into this folder).",
        rich_help_panel=_OBJECTS,
    ),
]
Rebuild = Annotated[
    bool,
    typer.Option(
        "--rebuild",
        help="Without --metadata: derive the metadata from the tier's objects, in memory, as the command "
        "rebuild does. This reads every segment, or every manifest, of the selected partitions once.",
        rich_help_panel=_RECORDS,
    ),
]


app = new_app()


@app.command("fetch", cls=Command)
@with_options(
    options.where,
    options.private_keys,
    options.state,
    options.selection,
    ...,
    output_options.records,
    options.engine,
    options.reading_throttle,
)
def fetch(
    ctx: typer.Context,
    offset: Offset = "earliest",
    until_offset: UntilOffset = None,
    from_time_ms: FromTime = None,
    to_time_ms: ToTime = None,
    max_records: MaxRecords = None,
    isolation: Isolation = IsolationLevel.READ_UNCOMMITTED,
    output: Rows = None,
    binary: BinaryOption = Binary.AUTO,
    raw_segment: RawSegment = None,
    index: Index = None,
    auxiliary_state: AuxiliaryState = None,
    erase_report: EraseReport = None,
    out: Out = None,
    rebuild: Rebuild = False,
) -> ExitCode:
    """Print records from the tier, and with --log-dir from the local log above it.

    Without --topic, fetch reads every partition, one after the other. Each offset is printed once, from the
    segment of the current leader epochs, which come from the logs, or else from the newest remote segment.
    Unreadable data is reported on stderr and reading continues after it; the exit code is then 7 (corrupt) or
    10 (missing).
    """
    is_record = raw_segment is None and index is None and auxiliary_state is None
    if output is None and is_record and sys.stdout.isatty():
        output = options.OutputFormat.TABLE
    printer = Printer.of(ctx, tables.RECORDS, output or options.OutputFormat.JSONL)
    if index is not None and output is not None:
        printer = Printer.of(ctx, tables.INDEXES[index.value], output)
    if erase_report:
        printer = Printer.of(ctx, KEY_OCCURRENCES, output or options.OutputFormat.TABLE)
    request = request_of(commands.FetchRequest, ctx, output=output)
    if output is options.OutputFormat.CSV and not printer.view.is_plain:
        # Executors render csv only with all columns. For other columns they render jsonl, and the driver
        # makes the csv.
        request = replace(request, output=options.OutputFormat.JSONL)
    result = commands.fetch(request, console_of(ctx, prints_meanwhile=True))
    match result:
        case commands.IndexEntries():
            printer.show(result.rows)
            printer.finish()
        case commands.FollowerState():
            render_object(result.state.to_json(), output or options.OutputFormat.JSON)
            summarize(ctx, "the state of 1 follower")
        case commands.ObjectBytes():
            with result:
                written = bytes_text(_write_bytes(result))
            summarize(ctx, f"{written} written to {out}" if out else written)
        case commands.RecordTexts():
            with result:
                printer.show_texts(result)
            printer.tally.topics.update(result.topic_ids)
            printer.finish()
        case commands.RecordRows() | commands.KeyOccurrences():
            with result:
                printer.show(result)
            printer.finish()
    return result.exit_code


def _write_bytes(chunks: Iterable[bytes]) -> int:
    """Print the bytes; return their number."""
    size_bytes = 0
    for chunk in chunks:
        size_bytes += len(chunk)
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
    return size_bytes
