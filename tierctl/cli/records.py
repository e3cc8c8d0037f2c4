"""The commands that print records, `format` and `fetch`, and those of files that brokers make of them."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierctl import commands
from tierctl.cli.app import command, group
from tierctl.cli.display import (
    Again,
    Display,
    Printer,
    Rows,
    console_of,
    display_of,
    print_result,
    summarize,
    view_of,
)
from tierctl.cli.options import (
    ENGINE,
    METADATA_TOPIC,
    SELECTION,
    STATE,
    TIER,
    is_typed,
    request_of,
    typed_option,
)
from tierctl.console_consumer import CLASS_NAME, find_jar
from tierctl.errors import ExitCode, UsageError
from tierctl.model.selection import counted
from tierctl.report import render_object
from tierctl.report.render import OutputFormat, View
from tierctl.report.table import bytes_text

if TYPE_CHECKING:
    from tierctl.report.formatters.pages import Page


_TEXT_FIELDS = (
    *("style", "properties", "print_partition", "print_message_offset", "print_version"),
    *("print_all_event_value_fields", "sep", "vs"),
)
"""Fields of the request about the text of a record, which only format has."""
_VERSION = "kafka_version"
_JAR_USE = f"""\
CLASSPATH=$(tierctl format --formatter-jar) kafka-console-consumer.sh --bootstrap-server HOST:PORT \\
  --topic __remote_log_metadata --from-beginning --formatter {CLASS_NAME} \\
  --property print.partition=true --property print.all.event.value.fields=true
(From Kafka 4.2 on --property is called --formatter-property.)"""
_FormatterJar = Annotated[
    bool,
    typer.Option(
        "--formatter-jar",
        help="Print the path of the jar with which Kafka's console consumer prints the same text.",
        rich_help_panel="As Kafka's console consumer",
    ),
]


@command("format", METADATA_TOPIC, ..., "metadata", SELECTION, View, ENGINE, rows=lambda: (commands.EVENTS,))
def format_(
    ctx: typer.Context, request: commands.FormatRequest, formatter_jar: _FormatterJar = False
) -> ExitCode:
    """Print the records of the metadata topic, one per line.

    The records come from --metadata, from segment files, from values on stdin (--input), or from a running
    cluster (--bootstrap-server and the other options of Kafka's console consumer).

    An unreadable record is printed as a line, too; format continues after it and exits with code 7. With
    --engine spark, executors decode and print the existing records of --metadata; bytes and order are the
    same.
    """
    if formatter_jar:
        typer.echo(str(find_jar()))
        typer.echo(_JAR_USE, err=True)
        return ExitCode.OK
    request = request_of(commands.FormatRequest, ctx, **dict.fromkeys(_unused(ctx, request)))
    # The environment may name the version for other commands.
    is_text = is_typed(ctx, _VERSION) or any(getattr(request, name) for name in _TEXT_FIELDS)
    if request.output is None and sys.stdout.isatty() and not request.is_live and not is_text:
        request = replace(request, output=OutputFormat.TABLE)
    printer = None if request.output is None else Printer.of(ctx, output=request.output)
    view = view_of(ctx)
    if printer is None and not replace(view, limit=None).is_plain:
        raise UsageError("--columns, --sort and --no-header are for rows", hint="add --output")
    _require_end(request, view)
    if view.sort:
        request = replace(request, limit=None)  # All records are read, and the first rows are printed.
    with commands.format_records(request, console_of(ctx, prints_meanwhile=True)) as pages:
        if printer is None:
            summarize(ctx, counted(_write_lines(pages, flush=request.is_live), "record"))
        else:
            printer.show(_rows_of(pages, flush=request.is_live))
            printer.finish()
    return pages.exit_code


def _require_end(request: commands.FormatRequest, view: View) -> None:
    """Raise UsageError for rows that a run without an end would never print.

    A table prints no row before it has the widths of its columns.
    """
    if not request.is_endless:
        return
    option = "--follow" if request.follow else "--bootstrap-server"
    if view.sort:
        raise UsageError(
            f"--sort can't be used with {option}, whose records have no end", hint="add --timeout-ms MS"
        )
    if request.output is OutputFormat.TABLE and request.limit is None:
        raise UsageError(
            f"--output table can't be used with {option}, whose records have no end",
            hint="use --output csv or jsonl, or add --limit N or --timeout-ms MS",
        )


def _unused(ctx: typer.Context, request: commands.FormatRequest) -> Iterator[str]:
    """Yield the options in the environment or a profile that other options of a FormatRequest replace.

    A typed --bootstrap-server takes precedence over other sources that are not typed. If it is not typed,
    every other source takes precedence over it. So do --output and the options about the text of a record,
    and a typed property over --kafka-version.
    """
    sources = ("metadata", "files", "input_kind")
    if not is_typed(ctx, "bootstrap_server"):
        yield from ("bootstrap_server",) if any(getattr(request, name) for name in sources) else ()
    elif not any(is_typed(ctx, name) for name in sources):
        yield from sources
    if is_typed(ctx, "output"):
        yield from (name for name in _TEXT_FIELDS if not is_typed(ctx, name))
    elif typed_option(ctx, (*_TEXT_FIELDS, _VERSION)) is not None:
        yield "output"
    if not is_typed(ctx, _VERSION) and any(text.startswith("kafka.version=") for text in request.properties):
        yield _VERSION


def _write_lines(pages: Iterable[Page], *, flush: bool) -> int:
    """Print the lines of the pages; return their number."""
    count = 0
    is_utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    for page in pages:
        count += len(page.lines)
        if is_utf8:
            sys.stdout.buffer.write(page.lines.text)
        else:
            sys.stdout.write(str(page.lines.text, "utf-8"))
        if flush:
            sys.stdout.flush()
    return count


def _rows_of(pages: Iterable[Page], *, flush: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of the pages; `flush` writes those of a page out before the next page is read."""
    for page in pages:
        yield from map(json.loads, page.lines)
        if flush:
            sys.stdout.flush()


_AT_TERMINAL = 20
"""Number of records that a terminal shows without --limit."""


@command(
    "fetch",
    *TIER,
    ...,
    View,
    ENGINE,
    "throttle_fetch",
    rows=lambda: (commands.RECORDS, *commands.INDEXES.values(), commands.KEY_OCCURRENCES),
)
def fetch(ctx: typer.Context, request: commands.FetchRequest) -> ExitCode:
    """Print records from the tier, and with --log-dir from the local log above it.

    Without --topic, fetch reads every partition, one after the other. Each offset is printed once, from the
    segment of the current leader epochs, which come from the logs, or else from the newest remote segment.
    Unreadable data is reported on stderr and reading continues after it; the exit code is then 7 (corrupt) or
    10 (missing). A terminal shows 20 records, unless --limit, --until, --to-time or --sort is given.
    """
    _refuse_bytes_at_terminal(request)
    _require_rows(ctx, request)
    is_record = request.raw_segment is None and request.index is None and request.auxiliary_state is None
    if request.output is None and is_record and sys.stdout.isatty():
        request = replace(request, output=OutputFormat.TABLE)
    columns, default = commands.RECORDS, OutputFormat.JSONL
    if request.erase_report:
        columns, default = commands.KEY_OCCURRENCES, OutputFormat.TABLE
    elif request.index is not None and request.output is not None:
        columns = commands.INDEXES[request.index]
    printer = Printer.of(ctx, columns, request.output or default)
    ends = (request.limit, request.until, request.to_time_ms)
    is_cut = is_record and not (request.erase_report or printer.view.sort or any(e is not None for e in ends))
    is_cut = is_cut and sys.stdout.isatty()
    if is_cut:
        request = replace(request, limit=_AT_TERMINAL)
    if printer.view.sort:
        request = replace(request, limit=None)  # All records are read, and the first rows are printed.
    else:
        printer.view = replace(printer.view, limit=None if is_record else printer.view.limit)
    result = commands.fetch(request, console_of(ctx, prints_meanwhile=True))
    match result:
        case commands.IndexEntries():
            printer.show(result.rows)
            printer.finish()
        case commands.FollowerState():
            render_object(result.to_json(), request.output or OutputFormat.JSON)
            summarize(ctx, "the state of 1 follower")
        case commands.ObjectBytes():
            with result:
                written = _write_bytes(result)
            summarize(ctx, _written_text(written, request.out))
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


_ABOUT_RECORDS = ("until", "from_time_ms", "to_time_ms", "isolation", "binary")
_ABOUT_ROWS = ("limit", "columns", "sort", "no_header", "times")


def _require_rows(ctx: typer.Context, request: commands.FetchRequest) -> None:
    """Raise UsageError for a typed option about records, or about rows, where an object is printed instead.

    Values of the environment and of a profile are for other runs.
    """
    objects = ("raw_segment", "index", "auxiliary_state")
    printed = typed_option(ctx, (name for name in objects if getattr(request, name) is not None))
    has_rows = request.index is not None and request.output is not None
    # An index may be that of the segment at --offset.
    is_named = request.raw_segment is not None or request.auxiliary_state is not None
    names = (*_ABOUT_RECORDS, *(() if has_rows else _ABOUT_ROWS), *(("offset",) if is_named else ()))
    given = typed_option(ctx, names)
    if printed is not None and given is not None:
        raise UsageError(f"{given} can't be used with {printed}", hint=f"leave {given} out")


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


def _written_text(printed: int, out: Path | None) -> str:
    """Return how many bytes were printed, or written to the file `out`."""
    return bytes_text(printed) if out is None else f"{bytes_text(out.stat().st_size)} written to {out}"


def _write_bytes(chunks: Iterable[bytes]) -> int:
    """Print the bytes; return their number."""
    size_bytes = 0
    for chunk in chunks:
        size_bytes += len(chunk)
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
    return size_bytes


group("cache", "Show, verify, build and compact cache files (KIP-405).")
group("offsets", "Show, check and repair _rlmm_committed_offsets.")


@command("cache show", ..., "log_dir", Rows, ENGINE, rows=lambda: (commands.CACHE_ENTRIES,))
def show_cache(ctx: typer.Context, request: commands.ShowCacheRequest) -> int:
    """Print the header and every entry of cache files, with their byte positions, or one entry.

    With --epoch and --offset, it is the entry of the segment from which a broker serves that offset. The file
    is searched in chunks, so that a large one needs little memory; a .remoteindex file, which has the offsets
    at which segments begin, is searched by halves. An entry that can't be read has a row with the error, and
    the exit code is 7. With --engine spark, executors read the files, which they must see under the same
    paths.
    """
    return print_result(ctx, commands.show_cache, request, prints_meanwhile=True)


@command("cache verify", ..., "log_dir", Rows, ENGINE, rows=lambda: (commands.CACHE_CHECKS,))
def verify_cache(ctx: typer.Context, request: commands.CacheRequest) -> int:
    """Check every byte of cache files, and print each problem with its position.

    A file without problems has one row, a damaged file one row for each problem; the exit code is then 7.
    With --engine spark, executors read the files, which they must see under the same paths.
    """
    printer = Printer.of(ctx)
    result = commands.verify_cache(request, console_of(ctx, prints_meanwhile=True))
    printer.show(result.rows)
    printer.finish(following="tierctl cache build" if result.exit_code else None)
    return result.exit_code


@command(
    "cache build", METADATA_TOPIC, STATE, ..., SELECTION, Rows, ENGINE, rows=lambda: (commands.CACHE_FILES,)
)
def build_cache(ctx: typer.Context, request: commands.BuildCacheRequest) -> int:
    """Build the flat files of KIP-405 from the metadata topic, one for each user partition.

    Existing files with another content are kept as .bak. The entries of flat files have no fields for broker
    ids, custom metadata and transaction indexes. A partition whose topic's name is illegal, or too long for a
    file's name, is left out with a warning, and the exit code is 7. With --engine spark, executors read the
    metadata topic, and this process writes the files.
    """
    return print_result(ctx, commands.build_cache, request)


@command(
    "cache compact", ..., "log_dir", Display, "apply", Rows, ENGINE, rows=lambda: (commands.CACHE_REWRITES,)
)
def compact_cache(ctx: typer.Context, request: commands.CompactCacheRequest) -> int:
    """Remove entries that no query needs: deleted segments, and entries that later entries replace.

    The old file is kept as .bak. A damaged file is not changed, and the exit code is 7. With --engine spark,
    executors read and compact the files, which they must see under the same paths, and this process writes
    them.
    """
    printer = Printer.of(ctx)
    result = commands.compact_cache(request, console_of(ctx))
    rows = [each.row() for each in result.rewrites]
    printer.show(rows)
    before, after = (sum(row[name] for row in rows) for name in ("size_bytes", "new_size_bytes"))
    done = "a plan, nothing changed" if result.is_pending else "the old files are kept as .bak"
    printer.finish(
        also=f"{bytes_text(before)} become {bytes_text(after)}" + (f"; {done}" if after < before else ""),
        following=Again.APPLY if result.is_pending else None,
    )
    return display_of(ctx).exit_code(result.exit_code, is_pending=result.is_pending)


@command("offsets show", ..., "log_dir", Rows, ENGINE, rows=lambda: (commands.COMMITTED_OFFSETS,))
def show_offsets(ctx: typer.Context, request: commands.OffsetsRequest) -> None:
    """Print the last consumed offset of each metadata partition, and the format of the file.

    Of a damaged file the good lines are printed, and the exit code is 7.
    """
    printer = Printer.of(ctx)
    found = commands.show_offsets(request, console_of(ctx))
    _, rows = found.table_rows()
    printer.show(rows)
    for error in found.damage:
        raise error
    printer.finish()


@command(
    "offsets check", ..., METADATA_TOPIC, "log_dir", Rows, ENGINE, rows=lambda: (commands.UNSAFE_OFFSETS,)
)
def check_offsets(ctx: typer.Context, request: commands.OffsetsRequest) -> int:
    """Print offsets that would lose segments: beyond the end of the log, or ahead of the caches.

    The caches are the flat files, and the snapshots of Kafka 3, in --log-dir. A damaged one is taken to have
    no events, as is a missing or empty snapshot of a partition there if others have one. An offset above a
    record that is not understood is printed, too; repair leaves it as it is. The exit code is 7 if an offset
    is printed or a cache can't be read, and 2 if there are no caches and no metadata topic to compare with.
    With --engine spark, executors read the metadata topic and the caches, which they must see under the same
    paths.
    """
    printer = Printer.of(ctx)
    result = commands.check_offsets(request, console_of(ctx))
    printer.show(result.findings)
    repair = "tierctl offsets repair" + (f" {quote(str(request.file))}" if request.file else "")
    can_repair = any(each.limit != each.committed_offset for each in result.findings)
    printer.finish(following=repair if can_repair else None)
    return result.exit_code


@command(
    "offsets repair",
    METADATA_TOPIC,
    "log_dir",
    ...,
    Display,
    "apply",
    Rows,
    ENGINE,
    rows=lambda: (commands.OFFSET_REPAIRS,),
)
def repair_offsets(ctx: typer.Context, request: commands.RepairOffsetsRequest) -> int:
    """Lower offsets to the safe values that `check` found, or to the values of --set.

    The events above a lowered offset are read again, which takes time and is harmless. Damaged lines are left
    out and the good ones are kept. A file without a good line is refused with exit code 7, as is one of an
    unknown version: it may be no file of committed offsets. With --force it is replaced by a file without
    offsets (start_over), and brokers read all events again. The old file is kept as .bak. The exit code is 7,
    too, if a cache can't be read, or if an offset stays above a record that is not understood.
    """
    printer = Printer.of(ctx)
    result = commands.repair_offsets(request, console_of(ctx))
    printer.show(result.steps)
    done = f"written to {result.path}, the old file is kept as .bak"
    printer.finish(
        also=("a plan, nothing changed" if result.is_pending else done) if result.steps else None,
        following=Again.APPLY if result.is_pending else None,
    )
    return display_of(ctx).exit_code(result.exit_code, is_pending=result.is_pending)
