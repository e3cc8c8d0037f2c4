"""`tierctl fetch`: records, segments and indexes from the tier."""

import sys
from collections.abc import Iterable
from dataclasses import replace

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Printer, console_of, summarize
from tierctl.cli.options import (
    ENGINE,
    PRIVATE_KEYS,
    SELECTION,
    STATE,
    WHERE,
    with_options,
)
from tierctl.commands.insight.erasure import KEY_OCCURRENCES
from tierctl.commands.shared_options import OutputFormat
from tierctl.errors import ExitCode, UsageError
from tierctl.read.record_rows import INDEXES, RECORDS
from tierctl.report import render_object
from tierctl.report.render import View
from tierctl.report.texts import bytes_text

_RECORDS = "Which records"
_OBJECTS = "Instead of records"
_AT_TERMINAL = 20
"""Number of records that a terminal shows without --limit."""


app = new_app()


@app.command("fetch", cls=Command)
@with_options(
    commands.FetchRequest,
    WHERE,
    PRIVATE_KEYS,
    STATE,
    SELECTION,
    ...,
    View,
    ENGINE,
    "throttle_fetch",
    rows=(RECORDS, *INDEXES.values(), KEY_OCCURRENCES),
)
def fetch(ctx: typer.Context, request: commands.FetchRequest) -> ExitCode:
    """Print records from the tier, and with --log-dir from the local log above it.

    Without --topic, fetch reads every partition, one after the other. Each offset is printed once, from the
    segment of the current leader epochs, which come from the logs, or else from the newest remote segment.
    Unreadable data is reported on stderr and reading continues after it; the exit code is then 7 (corrupt) or
    10 (missing). A terminal shows 20 records, unless --limit, --until, --to-time or --sort is given.
    """
    _refuse_bytes_at_terminal(request)
    is_record = request.raw_segment is None and request.index is None and request.auxiliary_state is None
    if request.output is None and is_record and sys.stdout.isatty():
        request = replace(request, output=OutputFormat.TABLE)
    printer = Printer.of(ctx, RECORDS, request.output or OutputFormat.JSONL)
    if request.index is not None and request.output is not None:
        printer = Printer.of(ctx, INDEXES[request.index], request.output)
    if request.erase_report:
        printer = Printer.of(ctx, KEY_OCCURRENCES, request.output or OutputFormat.TABLE)
    ends = (request.limit, request.until, request.to_time_ms)
    is_cut = is_record and not (request.erase_report or printer.view.sort or any(e is not None for e in ends))
    is_cut = is_cut and sys.stdout.isatty()
    if is_cut:
        request = replace(request, limit=_AT_TERMINAL)
    if printer.view.sort:
        request = replace(request, limit=None)  # All records are read, and the first rows are printed.
    else:
        printer.view = replace(printer.view, limit=None if is_record else printer.view.limit)
    if request.output is OutputFormat.CSV and not printer.view.is_plain:
        # Executors render csv only with all columns. For other columns they render jsonl, and the driver
        # makes the csv.
        request = replace(request, output=OutputFormat.JSONL)
    result = commands.fetch(request, console_of(ctx, prints_meanwhile=True))
    match result:
        case commands.IndexEntries():
            printer.show(result.rows)
            printer.finish()
        case commands.FollowerState():
            render_object(result.state.to_json(), request.output or OutputFormat.JSON)
            summarize(ctx, "the state of 1 follower")
        case commands.ObjectBytes():
            with result:
                written = bytes_text(_write_bytes(result))
            summarize(ctx, f"{written} written to {request.out}" if request.out else written)
        case commands.RecordTexts():
            with result:
                printer.show_texts(result)
            printer.tally.topics.update(result.topic_ids)
            printer.finish(also=_cut_text(printer) if is_cut else None)
        case commands.RecordRows() | commands.KeyOccurrences():
            with result:
                printer.show(result)
            printer.finish(also=_cut_text(printer) if is_cut else None)
    return result.exit_code


def _refuse_bytes_at_terminal(request: commands.FetchRequest) -> None:
    """Raise UsageError if the bytes of a segment or an index would be printed at a terminal."""
    is_bytes = request.raw_segment is not None or request.index is not None
    if is_bytes and request.output is None and request.out is None and sys.stdout.isatty():
        table = "" if request.index is None else "use --output table, "
        raise UsageError(
            "the bytes of a segment or an index are not printed at a terminal",
            hint=f"{table}write them to a file with --out, or redirect stdout to a file or a pipe",
        )


def _cut_text(printer: Printer) -> str | None:
    """Return what the line that ends a run says about records that are not shown; None if all are."""
    is_full = printer.tally.rows == _AT_TERMINAL
    return f"a terminal shows {_AT_TERMINAL} records, --limit N more" if is_full else None


def _write_bytes(chunks: Iterable[bytes]) -> int:
    """Print the bytes; return their number."""
    size_bytes = 0
    for chunk in chunks:
        size_bytes += len(chunk)
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
    return size_bytes
