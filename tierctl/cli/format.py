"""`tierctl format`: the metadata topic as text."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from tierctl.cli import format_options as own
from tierctl.cli import options
from tierctl.cli.context import Context
from tierctl.cli.options import with_options
from tierctl.errors import ExitCode, UsageError
from tierctl.model import Uuid
from tierctl.model.times import parse_time_ms

if TYPE_CHECKING:
    from tierctl.cli.format_consumer import Consumer
    from tierctl.cli.format_input import RecordRound, TopicRecords
    from tierctl.cli.format_run import Round
    from tierctl.report.formatters.choice import Filter
    from tierctl.report.formatters.pages import Page

_JSON, _KAFKA, _KIP = "json", "kafka", "kip"
_FLAGS = {
    "print_partition": "print.partition",
    "print_message_offset": "print.message.offset",
    "print_version": "print.version",
    "print_all_event_value_fields": "print.all.event.value.fields",
}


def register(app: typer.Typer) -> None:
    """Adds `format`."""
    app.command("format")(format_)


@with_options(options.metadata_topic, ..., options.selection, options.engine)
def format_(
    ctx: typer.Context,
    files: own.Files = None,
    input_: own.InputOption = None,
    order: own.OrderOption = own.Order.PARTITION,
    follow: own.Follow = False,
    poll_interval_ms: own.PollInterval = 1000,
    max_messages: own.MaxMessages = None,
    bootstrap_server: own.BootstrapServer = None,
    from_beginning: own.FromBeginning = False,
    offset: own.Offset = None,
    timeout_ms: own.TimeoutMs = None,
    formatter_jar: own.FormatterJar = False,
    style: own.Style = None,
    property_: own.Property = None,
    print_partition: own.PrintPartition = False,
    print_message_offset: own.PrintOffset = False,
    print_version: own.PrintVersion = False,
    print_all_event_value_fields: own.PrintAll = False,
    sep: own.Separator = None,
    vs: own.ValueSeparator = None,
    output: own.Rows = None,
    segment_id: own.SegmentIds = None,
    state: own.States = None,
    type_: own.Types = None,
    from_time: own.FromTime = None,
    to_time: own.ToTime = None,
    metadata_partition: own.MetadataPartitions = None,
    from_offset: own.FromOffset = None,
    to_offset: own.ToOffset = None,
) -> ExitCode:
    """Print the records of the metadata topic, one a line.

    They come from --metadata, from segment files, as values on stdin (--input), or from a cluster as they
    are written (--bootstrap-server and the other flags of Kafka's console consumer).

    A record that can't be read has its line too, the rest goes on, and the exit code is 7. With --engine
    spark executors decode and print what --metadata has now, the same bytes in the same order.
    """
    from tierctl.cli.format_run import first, pages

    if formatter_jar:
        from tierctl.cli.format_jar import print_jar

        print_jar()
        return ExitCode.OK
    consumer = _consumer(ctx)
    by_time = order is own.Order.TIME
    with Context.of(ctx) as context, ExitStack() as opened:
        rounds = _rounds(ctx, context, opened, consumer)
        every = (page for streams in rounds for page in pages(streams, by_time=by_time))
        bad_count = _write(first(every, max_messages), output, flush=_is_live(ctx, consumer))
    if bad_count:
        typer.echo(f"{bad_count} records could not be read", err=True)
        return ExitCode.CORRUPT
    return ExitCode.OK


def _consumer(ctx: typer.Context) -> "Consumer | None":
    """What is consumed, when it is a cluster; UsageError when something else is read as well.

    What the command line names wins over what the environment or a profile has for other commands.
    """
    from tierctl.cli.format_consumer import Consumer, without_consumer

    given = ctx.params
    others = [name for name in ("metadata", "files", "input_") if given[name]]
    is_typed = options.is_typed(ctx, "bootstrap_server")
    if is_typed and any(options.is_typed(ctx, name) for name in others):
        raise UsageError("--bootstrap-server and what else is named are two inputs", hint="name one of them")
    if given["bootstrap_server"] is None or (others and not is_typed):
        without_consumer(given)
        return None
    return Consumer.of(given)


def _is_live(ctx: typer.Context, consumer: "Consumer | None") -> bool:
    """Whether somebody may be waiting for each line."""
    return consumer is not None or ctx.params["follow"] or ctx.params["input_"] is not None


def _style(ctx: typer.Context) -> tuple[str, dict[str, str]]:
    """The style's name and its properties; --property format=... is the jar's way to say --style."""
    style, properties = ctx.params["style"], _properties(ctx)
    if style is None:
        style = properties.pop("format", _KIP if properties else _KAFKA)
    if ctx.params["output"] is not None:
        if ctx.params["style"] not in {None, _JSON}:
            raise UsageError("--output prints the fields of --style json", hint="leave --style out")
        style = _JSON
    return style, properties


def _write(pages: Iterable["Page"], output: options.OutputFormat | None, *, flush: bool) -> int:
    """Print the pages; how many of their records could not be read."""
    bad_counts: list[int] = []

    def counted() -> Iterator[list[str]]:
        for page in pages:
            bad_counts.append(len(page.bad_rows))
            yield page.lines

    if output is not None:
        from tierctl.report import render

        rows = (json.loads(line) for lines in counted() for line in lines)
        render(rows, output, own.COLUMNS, table_columns=own.TABLE_COLUMNS)
        return sum(bad_counts)
    for lines in counted():
        sys.stdout.writelines(f"{line}\n" for line in lines)
        if flush:
            sys.stdout.flush()
    return sum(bad_counts)


def _properties(ctx: typer.Context) -> dict[str, str]:
    """What --property says, then what the flags say."""
    properties = dict(_property(text) for text in ctx.params["property_"] or ())
    properties |= {name: "true" for option, name in _FLAGS.items() if ctx.params[option]}
    return properties | {name: ctx.params[name] for name in ("sep", "vs") if ctx.params[name] is not None}


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--property {text}: expected NAME=VALUE", hint="as print.partition=true")
    return name, value


def _filter(ctx: typer.Context, consumer: "Consumer | None") -> "Filter":
    from tierctl.cli.format_consumer import METADATA_TOPIC
    from tierctl.report.formatters.choice import Filter

    given = dict(ctx.params)
    if consumer is not None:
        given["topic"] = [name for name in given["topic"] or () if name != METADATA_TOPIC]
        given |= {"partition": (), "metadata_partition": consumer.partitions}
    from_time, to_time = given["from_time"], given["to_time"]
    return Filter(
        topics=given["topic"] or (),
        partitions=given["partition"] or (),
        topic_ids=[Uuid.parse(text) for text in given["topic_id"] or ()],
        segment_ids=[Uuid.parse(text) for text in given["segment_id"] or ()],
        states=own.chosen("--state", given["state"], own.STATES),
        types=own.chosen("--type", given["type_"], own.TYPES),
        from_time_ms=None if from_time is None else parse_time_ms(from_time),
        to_time_ms=None if to_time is None else parse_time_ms(to_time),
        metadata_partitions=given["metadata_partition"] or (),
        from_offset=given["from_offset"],
        to_offset=given["to_offset"],
    )


def _rounds(
    ctx: typer.Context, context: Context, opened: ExitStack, consumer: "Consumer | None"
) -> Iterator["Round"]:
    """What is printed, a stream for each place it comes from."""
    style, properties = _style(ctx)
    chosen, by_time = _filter(ctx, consumer), ctx.params["order"] is own.Order.TIME
    if context.is_on_spark:
        return _spark_rounds(ctx, context, style, properties, chosen)
    from tierctl.report.formatters.pages import Printer
    from tierctl.report.formatters.registry import load

    printer = Printer(formatter=load(style, properties), chosen=chosen, with_positions=by_time)
    rounds = _record_rounds(ctx, context, opened, consumer)
    return ([map(printer.page, stream) for stream in streams] for streams in rounds)


def _spark_rounds(
    ctx: typer.Context, context: Context, style: str, properties: dict[str, str], chosen: "Filter"
) -> Iterator["Round"]:
    """What executors print of the topic as it is now; UsageError for what comes bit by bit."""
    from tierctl.report.formatters.registry import load
    from tierctl.spark.executors.format import Rendering, rendered

    given = ctx.params
    if given["follow"] or given["files"] or given["input_"] or context.metadata_uri is None:
        raise UsageError(
            "--engine spark prints what --metadata has now",
            hint="leave it out with --follow, --bootstrap-server, files and pipes: these need no executors",
        )
    # A style or property that isn't one is known before executors are asked for.
    load(style, properties)
    rendering = Rendering(
        location=context.metadata_location,
        style=style,
        properties=properties,
        chosen=chosen,
        by_time=given["order"] is own.Order.TIME,
    )
    spans = _topic_of(ctx, context).spans()
    return iter([rendered(context.executors(), rendering, spans, max_messages=given["max_messages"])])


def _record_rounds(
    ctx: typer.Context, context: Context, opened: ExitStack, consumer: "Consumer | None"
) -> Iterator["RecordRound"]:
    """Where records come from; UsageError when that is nowhere, or two places."""
    if consumer is not None:
        return _consumed_rounds(ctx, context, consumer)
    files, kind, uri = ctx.params["files"] or [], ctx.params["input_"], context.metadata_uri
    if uri is not None and (files or kind is not None):
        raise UsageError("--metadata and files are two inputs", hint="name one of them")
    if ctx.params["follow"] and uri is None:
        raise UsageError("--follow needs --metadata", hint="a file or a pipe is read to its end anyway")
    if uri is not None:
        return _one_after_another(ctx, _topic_of(ctx, context), {}, follow=ctx.params["follow"])
    if not files and kind is None:
        raise UsageError(
            "nothing to read",
            hint="name --metadata URI or segment files, or say what stdin holds with --input",
        )
    if kind in {None, own.Input.SEGMENT}:
        return _file_rounds(files, context)
    return _value_rounds(kind, files or [Path("-")], opened)


def _consumed_rounds(ctx: typer.Context, context: Context, consumer: "Consumer") -> Iterator["RecordRound"]:
    from tierctl.cli.format_input import TopicRecords

    context.metadata_uri = consumer.uri
    bounds = _offset_bounds(ctx)
    topic = TopicRecords(topic=context.metadata_topic(), partitions=consumer.partitions, **bounds)
    return _one_after_another(ctx, topic, consumer.positions(*topic.bounds()), follow=True)


def _topic_of(ctx: typer.Context, context: Context) -> "TopicRecords":
    """Return the records of --metadata that the options ask for."""
    from tierctl.cli.format_input import TopicRecords

    # A log that is written while it is followed ends in one unfinished write after another.
    topic = context.metadata_topic(complete=False, quiet=ctx.params["follow"])
    partitions = ctx.params["metadata_partition"] or ()
    return TopicRecords(topic=topic, partitions=partitions, **_offset_bounds(ctx))


def _offset_bounds(ctx: typer.Context) -> dict[str, Any]:
    to_offset = ctx.params["to_offset"]
    return {
        "start_offset": ctx.params["from_offset"] or 0,
        "end_offset": None if to_offset is None else to_offset + 1,
    }


def _one_after_another(
    ctx: typer.Context,
    topic: "TopicRecords",
    positions: dict[int, int],
    *,
    follow: bool,
) -> Iterator["RecordRound"]:
    """The topic as it is now; followed, one round after another, for ever or until nothing comes."""
    from tierctl.cli.format_run import Patience

    timeout_ms = ctx.params["timeout_ms"]
    patience = Patience(
        poll_interval_s=ctx.params["poll_interval_ms"] / 1000,
        timeout_s=None if timeout_ms is None else timeout_ms / 1000,
    )
    yield topic.round(positions)
    while follow and patience.wait(positions):
        yield topic.round(positions)


def _file_rounds(files: Sequence[Path], context: Context) -> Iterator["RecordRound"]:
    from tierctl.cli.format_input import from_segment

    if not files or Path("-") in files:
        raise UsageError("segments can't be read from stdin", hint="name the files")
    yield [from_segment(file, context.note) for file in files]


def _value_rounds(kind: str, files: Sequence[Path], opened: ExitStack) -> Iterator["RecordRound"]:
    from tierctl.cli.format_input import from_framed, from_hex

    read = from_hex if kind is own.Input.HEX else from_framed
    yield [read(_open(file, opened)) for file in files]


def _open(file: Path, opened: ExitStack) -> BufferedIOBase:
    if file == Path("-"):
        return cast("BufferedIOBase", sys.stdin.buffer)
    return opened.enter_context(file.open("rb"))
