"""`tierctl format`: the metadata topic as text."""

import codecs
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierctl import commands
from tierctl.cli import completion, options, output_options
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Printer, console_of, summarize, view_of
from tierctl.cli.options import request_of, with_options
from tierctl.console_consumer import CLASS_NAME
from tierctl.errors import ExitCode, UsageError
from tierctl.model.events import EVENT_TYPES
from tierctl.model.settings.kafka_version import KafkaVersion
from tierctl.model.states import STATE_NAMES
from tierctl.model.times import DURATION_FORMS, parse_duration_ms, parse_time_ms
from tierctl.report.summary import counted
from tierctl.report.tables import EVENTS

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


class InputKind(StrEnum):
    """The content of the files, or of stdin."""

    SEGMENT = "segment"
    HEX = "hex"
    FRAMED = "framed"


class Order(StrEnum):
    """The order of the records of several metadata partitions."""

    PARTITION = "partition"
    TIME = "time"


Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="Segment files of the metadata topic, or files of the kind --input; - is stdin.",
        show_default=False,
    ),
]
InputOption = Annotated[
    InputKind | None,
    typer.Option(
        "--input",
        help="Content of the files. hex: one value per line. framed: a 4-byte big-endian length, then the "
        "value. Without FILE, stdin is read.",
        rich_help_panel=_INPUT,
    ),
]
OrderOption = Annotated[
    Order,
    typer.Option(
        "--order", help="Partition by partition, or all partitions merged by time.", rich_help_panel=_INPUT
    ),
]
Follow = Annotated[
    bool,
    typer.Option("--follow", "-f", help="Continue with new records until stopped.", rich_help_panel=_INPUT),
]
PollInterval = Annotated[
    int,
    typer.Option(
        "--poll-interval-ms",
        metavar="DURATION",
        parser=parse_duration_ms,
        min=10,
        max=60_000,
        help=f"Pause between two reads of --follow: {DURATION_FORMS}.",
        rich_help_panel=_INPUT,
    ),
]
MaxMessages = Annotated[
    int | None,
    typer.Option("--max-messages", metavar="N", min=1, help="Stop after N records.", rich_help_panel=_INPUT),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="Consume the metadata topic of this cluster, from its end, until stopped. --partition then "
        "selects partitions of the metadata topic.",
        rich_help_panel=_CONSUMER,
    ),
]
FromBeginning = Annotated[
    bool,
    typer.Option("--from-beginning", help="Begin at the first record.", rich_help_panel=_CONSUMER),
]
Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="N",
        help="Begin at this offset of --partition: a number, earliest or latest.",
        rich_help_panel=_CONSUMER,
    ),
]
TimeoutMs = Annotated[
    int | None,
    typer.Option(
        "--timeout-ms",
        metavar="DURATION",
        parser=parse_duration_ms,
        help=f"Stop if no new record arrives for this time: {DURATION_FORMS}.",
        rich_help_panel=_CONSUMER,
    ),
]
FormatterJar = Annotated[
    bool,
    typer.Option(
        "--formatter-jar",
        help="Print the path of the jar with which Kafka's console consumer prints the same text.",
        rich_help_panel=_CONSUMER,
    ),
]
Style = Annotated[
    str | None,
    typer.Option(
        "--style",
        metavar="NAME",
        autocompletion=completion.styles,
        help="kafka: the text of Kafka's own formatter. kip: the text that KIP-405 describes. json: one "
        "object per line. A plugin can add other names. Default: kip if its properties are given, "
        "otherwise kafka. A terminal shows a table instead, if there is no option about the text and all "
        "records exist already.",
        rich_help_panel=_STYLE,
    ),
]
KafkaVersionOption = Annotated[
    KafkaVersion | None,
    typer.Option(
        "--kafka-version",
        metavar="VERSION",
        parser=KafkaVersion.parse,
        help="With --style kafka: print the text of this version, 3.6 to 4.4. Default: the version of the "
        "cluster, otherwise 4.4.",
        rich_help_panel=_STYLE,
    ),
]
Property = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "--formatter-property",
        metavar="NAME=VALUE",
        help="A property of the console consumer: format=json, print.partition=true, sep=; ... Repeatable.",
        rich_help_panel=_STYLE,
    ),
]
PrintPartition = Annotated[
    bool, typer.Option("--print-partition", help="kip: print the metadata partition.", rich_help_panel=_STYLE)
]
PrintOffset = Annotated[
    bool,
    typer.Option("--print-message-offset", help="kip: print the metadata offset.", rich_help_panel=_STYLE),
]
PrintVersion = Annotated[
    bool, typer.Option("--print-version", help="kip: print the record's version.", rich_help_panel=_STYLE)
]
PrintAll = Annotated[
    bool,
    typer.Option(
        "--print-all-event-value-fields",
        help="With --style kip: print every field instead of the short form.",
        rich_help_panel=_STYLE,
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        "--sep",
        "--separator",
        metavar="TEXT",
        help="With --style kip: text between fields. Default: a comma.",
        rich_help_panel=_STYLE,
    ),
]
ValueSeparator = Annotated[
    str | None,
    typer.Option(
        "--vs",
        "--value-separator",
        metavar="TEXT",
        help="With --style kip: text before event-value. Default: the value of --sep.",
        rich_help_panel=_STYLE,
    ),
]
Rows = Annotated[
    options.OutputFormat | None,
    typer.Option(
        "--output",
        "-o",
        help="Print the fields of --style json as rows in this format.",
        rich_help_panel=_STYLE,
    ),
]
SegmentIds = Annotated[
    list[str] | None,
    typer.Option(
        "--segment-id", metavar="ID", help="Only this segment. Repeatable.", rich_help_panel=_FILTER
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        autocompletion=completion.one_of(STATE_NAMES),
        help="Select events with this state, such as COPY_SEGMENT_FINISHED. Repeatable.",
        rich_help_panel=_FILTER,
    ),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        autocompletion=completion.one_of(EVENT_TYPES),
        help="Select events of this type, such as RemoteLogSegmentMetadata. Repeatable.",
        rich_help_panel=_FILTER,
    ),
]
FromTime = Annotated[
    int | None,
    typer.Option(
        "--from-time",
        metavar="TIME",
        parser=parse_time_ms,
        help=f"Select events of this time or later; {options.TIME_FORMS}.",
        rich_help_panel=_FILTER,
    ),
]
ToTime = Annotated[
    int | None,
    typer.Option(
        "--to-time",
        metavar="TIME",
        parser=parse_time_ms,
        help="Select events up to and including this time.",
        rich_help_panel=_FILTER,
    ),
]
MetadataPartitions = Annotated[
    list[int] | None,
    typer.Option(
        "--metadata-partition",
        metavar="N",
        min=0,
        help="Only this partition of the metadata topic. Repeatable.",
        rich_help_panel=_FILTER,
    ),
]
FromOffset = Annotated[
    int | None,
    typer.Option(
        "--from-offset", metavar="N", min=0, help="Begin at this metadata offset.", rich_help_panel=_FILTER
    ),
]
ToOffset = Annotated[
    int | None,
    typer.Option(
        "--to-offset",
        metavar="N",
        min=0,
        help="End after this metadata offset.",
        rich_help_panel=_FILTER,
    ),
]


app = new_app()


@app.command("format", cls=Command)
@with_options(options.metadata_topic, ..., options.selection, output_options.records, options.engine)
def format_(
    ctx: typer.Context,
    metadata: options.Metadata = None,
    files: Files = None,
    input_kind: InputOption = None,
    order: OrderOption = Order.PARTITION,
    follow: Follow = False,
    poll_interval_ms: PollInterval = 1000,
    max_messages: MaxMessages = None,
    bootstrap_server: BootstrapServer = None,
    from_beginning: FromBeginning = False,
    offset: Offset = None,
    timeout_ms: TimeoutMs = None,
    formatter_jar: FormatterJar = False,
    style: Style = None,
    kafka_version: KafkaVersionOption = None,
    properties: Property = None,
    print_partition: PrintPartition = False,
    print_message_offset: PrintOffset = False,
    print_version: PrintVersion = False,
    print_all_event_value_fields: PrintAll = False,
    sep: Separator = None,
    vs: ValueSeparator = None,
    output: Rows = None,
    segment_id: SegmentIds = None,
    states: States = None,
    types: Types = None,
    from_time_ms: FromTime = None,
    to_time_ms: ToTime = None,
    metadata_partition: MetadataPartitions = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
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
    unused = _unused_sources(ctx, has_other=bool(metadata or files or input_kind))
    request = request_of(commands.FormatRequest, ctx, **dict.fromkeys(unused))
    if output is None and sys.stdout.isatty() and not request.is_live and not _is_about_text(request):
        output = options.OutputFormat.TABLE
        request = replace(request, output=output)
    printer = None if output is None else Printer.of(ctx, EVENTS, output)
    if printer is None and not view_of(ctx).is_plain:
        raise UsageError("--columns, --sort, --limit and --no-header are for rows", hint="add --output")
    if follow and view_of(ctx).sort:
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
    if not options.is_typed(ctx, "bootstrap_server"):
        return ("bootstrap_server",) if has_other else ()
    return () if any(options.is_typed(ctx, name) for name in others) else others


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
