"""`tierctl fetch`: records, segments and indexes from the tier."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import click

from tierctl import commands
from tierctl.cli import options, output_options
from tierctl.cli.declare import add, option
from tierctl.cli.display import Printer, console_of, summarize
from tierctl.cli.options import with_options
from tierctl.cli.request import request_of
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
    option(
        "--offset",
        metavar="N|NAME",
        help="Begin at this offset: a number, earliest, earliest-local, latest-tiered or latest.",
        panel=_RECORDS,
    ),
]
UntilOffset = Annotated[
    int | None,
    option(
        "--until-offset",
        metavar="N",
        min=0,
        help="End before this offset.",
        panel=_RECORDS,
    ),
]
FromTime = Annotated[
    int | None,
    option(
        "--from-time",
        metavar="TIME",
        parser=parse_time_ms,
        help=f"Begin at the first record of this time or later; {options.TIME_FORMS}.",
        panel=_RECORDS,
    ),
]
ToTime = Annotated[
    int | None,
    option(
        "--to-time",
        metavar="TIME",
        parser=parse_time_ms,
        help="End before the first record that is later than this.",
        panel=_RECORDS,
    ),
]
MaxRecords = Annotated[
    int | None,
    option("--max-records", metavar="N", min=1, help="Stop after N records.", panel=_RECORDS),
]
Isolation = Annotated[
    IsolationLevel,
    option(
        "--isolation",
        help="read_committed leaves out records of aborted transactions and ends at the last stable offset.",
        panel=_RECORDS,
    ),
]
BinaryOption = Annotated[
    Binary,
    option(
        "--binary",
        help="How keys and values are written. auto: as text if they are UTF-8, otherwise as base64; the "
        "fields key_encoding and value_encoding state which. Records of more than 8 MiB are written as "
        "sha256, which is an error; --limit-factor raises the limit.",
        panel=options.SHOW,
    ),
]
Rows = Annotated[
    options.OutputFormat | None,
    option(
        "--output",
        "-o",
        help="Format of the output. Default: for records a table at a terminal, otherwise jsonl; for objects "
        "their raw bytes.",
        panel=options.SHOW,
    ),
]
RawSegment = Annotated[
    str | None,
    option(
        "--raw-segment",
        metavar="SEGMENT_ID",
        help="Print the segment's log as it is stored in the tier, or with --index one of its indexes.",
        panel=_OBJECTS,
    ),
]
Index = Annotated[
    IndexType | None,
    option(
        "--index",
        help="Print an index of the segment of --raw-segment, or of the segment that contains --offset; "
        "with --output, print its decoded entries.",
        panel=_OBJECTS,
    ),
]
AuxiliaryState = Annotated[
    int | None,
    option(
        "--auxiliary-state",
        metavar="OFFSET",
        min=1,
        help="Print the state that a follower restores from the tier if its leader's local log begins at "
        "OFFSET: leader epochs and producer snapshot. With --out DIR, also write the follower's files.",
        panel=_OBJECTS,
    ),
]
EraseReport = Annotated[
    list[str] | None,
    option(
        "--erase-report",
        metavar="KEY",
        help="For an erasure request, list every segment and offset at which this key occurs, and the "
        f"objects that contain it: {KEY_FORMS}. Repeatable. All segments of the tier are searched, "
        "whatever their state, and with --log-dir the local logs, too.",
        panel=_OBJECTS,
    ),
]
Out = Annotated[
    Path | None,
    option(
        "--out",
        metavar="PATH",
        help="Write the object to this file (--auxiliary-state: into this folder).",
        panel=_OBJECTS,
    ),
]
Rebuild = Annotated[
    bool,
    option(
        "--rebuild",
        help="Without --metadata: derive the metadata from the tier's objects, in memory, as the command "
        "rebuild does. This reads every segment, or every manifest, of the selected partitions once.",
        panel=_RECORDS,
    ),
]


def register(app: click.Group) -> None:
    """Add `fetch`."""
    add(app, "fetch", fetch)


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
    ctx: click.Context,
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
