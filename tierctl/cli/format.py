"""`tierctl format`: the metadata topic as text."""

import codecs
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Printer, console_of, summarize, view_of
from tierctl.cli.options import (
    ENGINE,
    METADATA_TOPIC,
    SELECTION,
    is_typed,
    request_of,
    with_options,
)
from tierctl.commands.format import EVENTS
from tierctl.commands.shared_options import OutputFormat
from tierctl.console_consumer import CLASS_NAME
from tierctl.errors import ExitCode, UsageError
from tierctl.report.render import View
from tierctl.report.texts import counted

if TYPE_CHECKING:
    from tierctl.report.formatters.pages import Page

_STYLE = "How a record is written"
_INPUT = "What is read"
_FILTER = "Which records"
_CONSUMER = "As Kafka's console consumer"
_TEXT_FIELDS = (
    *("style", "properties", "print_partition", "print_message_offset", "print_version"),
    *("print_all_event_value_fields", "sep", "vs", "kafka_version"),
)
"""Fields of the request about the text of a record."""
_JAR_USE = f"""\
CLASSPATH=$(tierctl format --formatter-jar) kafka-console-consumer.sh --bootstrap-server HOST:PORT \\
  --topic __remote_log_metadata --from-beginning --formatter {CLASS_NAME} \\
  --property print.partition=true --property print.all.event.value.fields=true
(From Kafka 4.2 on --property is called --formatter-property.)"""


FormatterJar = Annotated[
    bool,
    typer.Option(
        "--formatter-jar",
        help="Print the path of the jar with which Kafka's console consumer prints the same text.",
        rich_help_panel=_CONSUMER,
    ),
]


app = new_app()


@app.command("format", cls=Command)
@with_options(
    commands.FormatRequest, METADATA_TOPIC, ..., "metadata", SELECTION, View, ENGINE, rows=(EVENTS,)
)
def format_(
    ctx: typer.Context, request: commands.FormatRequest, formatter_jar: FormatterJar = False
) -> ExitCode:
    """Print the records of the metadata topic, one per line.

    The records come from --metadata, from segment files, from values on stdin (--input), or from a running
    cluster (--bootstrap-server and the other options of Kafka's console consumer).

    An unreadable record is printed as a line, too; format continues after it and exits with code 7. With
    --engine spark, executors decode and print the existing records of --metadata; bytes and order are the
    same.
    """
    if formatter_jar:
        typer.echo(str(commands.find_formatter_jar()))
        typer.echo(_JAR_USE, err=True)
        return ExitCode.OK
    unused = _unused_sources(ctx, has_other=bool(request.metadata or request.files or request.input_kind))
    request = request_of(commands.FormatRequest, ctx, **dict.fromkeys(unused))
    if request.output is None and sys.stdout.isatty() and not request.is_live and not _is_about_text(request):
        request = replace(request, output=OutputFormat.TABLE)
    printer = None if request.output is None else Printer.of(ctx, EVENTS, request.output)
    view = view_of(ctx)
    if printer is None and not replace(view, limit=None).is_plain:
        raise UsageError("--columns, --sort and --no-header are for rows", hint="add --output")
    if view.sort:
        request = replace(request, limit=None)  # All records are read, and the first rows are printed.
    if request.follow and view.sort:
        raise UsageError("--sort and --follow exclude each other", hint="rows that have no end have no order")
    with commands.format_records(request, console_of(ctx, prints_meanwhile=True)) as pages:
        if printer is None:
            summarize(ctx, counted(_write_lines(pages, flush=request.is_live), "record"))
        else:
            printer.show(json.loads(line) for page in pages for line in page.lines)
            printer.finish()
    return pages.exit_code


def _is_about_text(request: object) -> bool:
    """Return whether a FormatRequest has an option about the text of a record, such as --style."""
    return any(getattr(request, name) not in {None, (), False} for name in _TEXT_FIELDS)


def _unused_sources(ctx: typer.Context, *, has_other: bool) -> tuple[str, ...]:
    """Return the sources in the environment or a profile that a source on the command line replaces.

    A typed --bootstrap-server takes precedence over other sources that are not typed. If it is not typed,
    every other source takes precedence over it.
    """
    others = ("metadata", "files", "input_kind")
    if not is_typed(ctx, "bootstrap_server"):
        return ("bootstrap_server",) if has_other else ()
    return () if any(is_typed(ctx, name) for name in others) else others


def _write_lines(pages: Iterable["Page"], *, flush: bool) -> int:
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
