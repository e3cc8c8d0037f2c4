"""`format`: the records of the metadata topic as text, from any source."""

import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict, cast

import typer

from tierctl.commands import completion
from tierctl.commands.request import TYPED_ONLY, Request
from tierctl.commands.resources import Resources
from tierctl.errors import ExitCode, NotFoundError, UsageError
from tierctl.kernel import expect
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.base import StartPositions
from tierctl.model import SelectionRequest, TopicIdPartition, Uuid
from tierctl.model.choices import EngineName
from tierctl.model.events import EVENT_TYPES, STATE_NAMES
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.selection import counted
from tierctl.model.settings.scopes import KNOWN, LATEST, KafkaVersion
from tierctl.model.times import DURATION_FORMS, TIME_FORMS, parse_duration_ms, parse_time_ms
from tierctl.report import columns as f
from tierctl.report.columns import Columns, Shown
from tierctl.report.formatters.kafka import VERSION
from tierctl.report.formatters.pages import Filter, Page, Printer, first_lines, merge_pages, render_ahead
from tierctl.report.formatters.records import Formatter, load
from tierctl.report.formatters.sources import (
    RecordRound,
    TopicRecords,
    follow_rounds,
    from_framed,
    from_hex,
    from_segment,
)
from tierctl.report.render import OutputFormat
from tierctl.report.results import RowLines

_JSON, _KAFKA, _KIP = "json", "kafka", "kip"
_STDIN = Path("-")
Spans = Mapping[int, tuple[int, int]]
"""The range [start, end) of offsets of each metadata partition."""


_STYLE = "How a record is written"
_INPUT = "What is read"
_FILTER = "Which records"
_CONSUMER = "As Kafka's console consumer"


class EventRow(TypedDict):
    """A record of the metadata topic; a field that its type or dialect does not have is missing."""

    topic: NotRequired[Annotated[str, f.TOPIC, Shown(0)]]
    topic_id: NotRequired[Annotated[str, f.TOPIC_ID]]
    partition: NotRequired[Annotated[int, f.PARTITION, Shown(0)]]
    segment_id: NotRequired[Annotated[str, f.SEGMENT_ID, Shown(6)]]
    start_offset: NotRequired[Annotated[int, f.START_OFFSET, Shown(1)]]
    end_offset: NotRequired[Annotated[int, f.END_OFFSET, Shown(2)]]
    broker_id: NotRequired[Annotated[int, f.BROKER_ID]]
    leader_epoch: NotRequired[Annotated[int, f.LEADER_EPOCH]]
    epoch: NotRequired[Annotated[int, f.EPOCH]]
    max_timestamp_ms: NotRequired[Annotated[int, f.MAX_TIMESTAMP_MS]]
    event_timestamp_ms: NotRequired[Annotated[int, f.EVENT_TIMESTAMP_MS]]
    segment_leader_epochs: NotRequired[Annotated[list[tuple[int, int]], f.SEGMENT_LEADER_EPOCHS]]
    segment_size_in_bytes: NotRequired[Annotated[int, f.SEGMENT_SIZE_IN_BYTES]]
    custom_metadata: NotRequired[Annotated[str | None, f.CUSTOM_METADATA]]
    state: NotRequired[Annotated[str, f.STATE, Shown(0)]]
    txn_index_empty: NotRequired[Annotated[bool, f.TXN_INDEX_EMPTY]]
    type: Annotated[str | None, f.EVENT_TYPE, Shown(7)]
    dialect: Annotated[str | None, f.DIALECT]
    metadata_partition: Annotated[int | None, f.METADATA_PARTITION, Shown(4)]
    metadata_offset: Annotated[int | None, f.METADATA_OFFSET, Shown(3)]
    timestamp_ms: Annotated[int | None, f.TIMESTAMP_MS, Shown(5)]
    error: NotRequired[Annotated[str, f.ERROR, Shown(8)]]
    value: NotRequired[Annotated[str, f.VALUE]]


_SHOWN = (
    "metadata_partition",
    "metadata_offset",
    "timestamp_ms",
    "type",
    "topic",
    "partition",
    "segment_id",
    "start_offset",
    "end_offset",
    "state",
    "error",
)
EVENTS = Columns(
    EventRow,
    name="events",
    title="Records of the metadata topic",
    commands="format",
    noun="record",
    terminal=_SHOWN,
    table=_SHOWN,
)


class InputKind(StrEnum):
    """The content of the files, or of stdin."""

    SEGMENT = "segment"
    HEX = "hex"
    FRAMED = "framed"


class Order(StrEnum):
    """The order of the records of several metadata partitions."""

    PARTITION = "partition"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRequest(Request):
    """A request for records of one source: `metadata`, `files`, or the cluster of `bootstrap_server`.

    With `bootstrap_server` the records are consumed as Kafka's console consumer does it: `partition` means
    partitions of the metadata topic, and `topic` may name the metadata topic itself.
    """

    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Consume the metadata topic of this cluster, from its end, until stopped. --partition then "
            "selects partitions of the metadata topic.",
            rich_help_panel=_CONSUMER,
        ),
    ] = None
    kafka_version: Annotated[
        KafkaVersion | None,
        typer.Option(
            metavar="VERSION",
            parser=KafkaVersion.parse,
            help=f"With --style kafka: print the text of this version, {KNOWN[0]} to {LATEST}. Default: the "
            f"version of the cluster, otherwise {LATEST}.",
            rich_help_panel=_STYLE,
        ),
    ] = None
    files: Annotated[
        Sequence[Path],
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Segment files of the metadata topic, or files of the kind --input; - is stdin.",
        ),
    ] = ()
    input_kind: Annotated[
        InputKind | None,
        typer.Option(
            "--input",
            help="Content of the files. hex: one value per line. framed: a 4-byte big-endian length, then "
            "the value. Without FILE, stdin is read.",
            rich_help_panel=_INPUT,
        ),
    ] = None
    order: Annotated[
        Order,
        typer.Option(
            help="Partition by partition, or all partitions merged by time.", rich_help_panel=_INPUT
        ),
    ] = Order.PARTITION
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Continue with new records until stopped.", rich_help_panel=_INPUT
        ),
    ] = False
    interval_ms: Annotated[
        int,
        typer.Option(
            "--interval",
            metavar="DURATION",
            show_default="1s",
            parser=parse_duration_ms,
            min=10,
            max=60_000,
            help=f"Pause between two reads of --follow: {DURATION_FORMS}.",
            rich_help_panel=_INPUT,
        ),
    ] = 1000
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "--max-messages",
            metavar="N",
            min=1,
            help="Stop after N records; with --sort, print the first N rows. Kafka's console consumer calls "
            "it --max-messages.",
            rich_help_panel=_INPUT,
        ),
    ] = None
    from_beginning: Annotated[
        bool, typer.Option(help="Begin at the first record.", rich_help_panel=_CONSUMER)
    ] = False
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Begin at this offset of --partition: a number, earliest or latest.",
            rich_help_panel=_CONSUMER,
        ),
    ] = None
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            metavar="MS",
            min=0,
            help="Stop if no new record arrives for this number of milliseconds.",
            rich_help_panel=_CONSUMER,
        ),
    ] = None
    style: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.styles,
            help="kafka: the text of Kafka's own formatter. kip: the text that KIP-405 describes. json: one "
            "object per line. A plugin can add other names. Default: kip if its properties are given, "
            "otherwise kafka. A terminal shows a table instead, if there is no option about the text "
            "and all records exist already.",
            rich_help_panel=_STYLE,
        ),
    ] = None
    properties: Annotated[
        Sequence[str],
        typer.Option(
            "--property",
            "--formatter-property",
            metavar="NAME=VALUE",
            help="A property of the console consumer: format=json, print.partition=true, sep=; ... "
            "Repeatable.",
            rich_help_panel=_STYLE,
        ),
    ] = ()
    print_partition: Annotated[
        bool, typer.Option(help="kip: print the metadata partition.", rich_help_panel=_STYLE)
    ] = False
    print_message_offset: Annotated[
        bool, typer.Option(help="kip: print the metadata offset.", rich_help_panel=_STYLE)
    ] = False
    print_version: Annotated[
        bool, typer.Option(help="kip: print the record's version.", rich_help_panel=_STYLE)
    ] = False
    print_all_event_value_fields: Annotated[
        bool,
        typer.Option(
            help="With --style kip: print every field instead of the short form.", rich_help_panel=_STYLE
        ),
    ] = False
    sep: Annotated[
        str | None,
        typer.Option(
            "--sep",
            "--separator",
            metavar="TEXT",
            help="With --style kip: text between fields. Default: a comma.",
            rich_help_panel=_STYLE,
        ),
    ] = None
    vs: Annotated[
        str | None,
        typer.Option(
            "--vs",
            "--value-separator",
            metavar="TEXT",
            help="With --style kip: text before event-value. Default: the value of --sep.",
            rich_help_panel=_STYLE,
        ),
    ] = None
    output: Annotated[
        OutputFormat | None,
        typer.Option(
            "--output",
            "-o",
            help="Print the fields of --style json as rows in this format.",
            rich_help_panel=_STYLE,
        ),
    ] = None
    segment_id: Annotated[
        Sequence[str],
        typer.Option(metavar="ID", help="Only this segment. Repeatable.", rich_help_panel=_FILTER),
    ] = ()
    states: Annotated[
        Sequence[str],
        typer.Option(
            "--state",
            metavar="STATE",
            autocompletion=completion.one_of(STATE_NAMES),
            help="Select events with this state, such as COPY_SEGMENT_FINISHED. Repeatable.",
            rich_help_panel=_FILTER,
        ),
    ] = ()
    types: Annotated[
        Sequence[str],
        typer.Option(
            "--type",
            metavar="TYPE",
            autocompletion=completion.one_of(EVENT_TYPES),
            help="Select events of this type, such as RemoteLogSegmentMetadata. Repeatable.",
            rich_help_panel=_FILTER,
        ),
    ] = ()
    from_time_ms: Annotated[
        int | None,
        typer.Option(
            "--from-time",
            metavar="TIME",
            parser=parse_time_ms,
            help=f"Select events of this time or later; {TIME_FORMS}.",
            rich_help_panel=_FILTER,
        ),
    ] = None
    to_time_ms: Annotated[
        int | None,
        typer.Option(
            "--to-time",
            metavar="TIME",
            parser=parse_time_ms,
            help="Select events up to and including this time.",
            rich_help_panel=_FILTER,
        ),
    ] = None
    metadata_partition: Annotated[
        Sequence[int],
        typer.Option(
            metavar="N",
            min=0,
            help="Only this partition of the metadata topic. Repeatable.",
            rich_help_panel=_FILTER,
        ),
    ] = ()
    from_offset: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Begin at this metadata offset.", rich_help_panel=_FILTER),
    ] = None
    until: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="End before this metadata offset.", rich_help_panel=_FILTER),
        TYPED_ONLY,
    ] = None

    @property
    def reads_metadata_of_cluster(self) -> bool:
        """Implement `Request.reads_metadata_of_cluster`: records are consumed instead."""
        return False

    @property
    def is_live(self) -> bool:
        """Whether more records may arrive while the first are shown."""
        return self.bootstrap_server is not None or self.follow or self.input_kind is not None

    @property
    def is_endless(self) -> bool:
        """Whether records are read until the run is stopped, or until `limit` of them were printed."""
        return (self.bootstrap_server is not None or self.follow) and self.timeout_ms is None

    @property
    def reads_all(self) -> bool:
        """Whether the source is read completely, so that all its user partitions are known at the end."""
        bounds = (self.from_offset, self.until, self.bootstrap_server)
        return not self.metadata_partition and not self.follow and all(bound is None for bound in bounds)


def format_records(request: FormatRequest, progress: Progress | None = None) -> RowLines[Page]:
    """Return pages of one line per record, in the order that the request asks for.

    An unreadable record has a line, too, and makes the exit code 7. Raises UsageError for contradicting
    options and unknown names; iteration raises the errors of the source. If the source was read as a whole
    and no record names a selected topic, partition or topic id, a problem says so and the exit code is 10.
    """
    _require_one_source(request)
    _require_records_for_executors(request)
    progress = progress or SilentProgress()
    style, properties = _style(request)
    if style == _KAFKA and (request.kafka_version is not None or VERSION not in properties):
        with Resources(request=_on_cluster(request), progress=progress) as resources:
            properties[VERSION] = str(resources.kafka_version)
    start = _start_positions(request)
    work = _Work(
        request=request,
        style=style,
        properties=properties,
        formatter=load(style, properties),
        chosen=_filter(request, start),
        start=start,
    )
    return RowLines(_pages(work, progress), EVENTS, lambda page: page.lines, form=style)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A request whose options are checked and resolved."""

    request: FormatRequest
    style: str
    properties: dict[str, str]
    formatter: Formatter
    chosen: Filter
    start: StartPositions | None
    """Where the console consumer starts; None if another source is read."""
    seen: set[TopicIdPartition] = field(default_factory=set)
    """User partitions that the records read so far name."""

    @property
    def by_time(self) -> bool:
        return self.request.order == "time"


def _require_records_for_executors(request: FormatRequest) -> None:
    """Raise UsageError if --engine spark is given for a source other than the existing records of a topic."""
    is_topic = request.metadata is not None and not request.is_live and not request.files
    if request.engine is EngineName.SPARK and not is_topic:
        raise UsageError(
            "--engine spark can only print the existing records of --metadata",
            hint="leave --engine out with --follow, --bootstrap-server, files and pipes",
        )


def _require_one_source(request: FormatRequest) -> None:
    """Raise UsageError unless the options name exactly one source of records."""
    has_files = bool(request.files) or request.input_kind is not None
    if request.bootstrap_server is not None and (request.metadata is not None or has_files):
        raise UsageError("--bootstrap-server can't be used with --metadata or files", hint="name one of them")
    if request.metadata is not None and has_files:
        raise UsageError("--metadata can't be used with files", hint="name one of them")
    if request.bootstrap_server is not None:
        return
    for option, is_given in (("--offset", request.offset), ("--from-beginning", request.from_beginning)):
        if is_given:
            raise UsageError(f"{option} needs --bootstrap-server", hint="otherwise use --from-offset N")
    if request.follow and request.metadata is None:
        raise UsageError("--follow needs --metadata", hint="files and pipes are read to their ends anyway")
    if request.metadata is None and not has_files:
        raise UsageError(
            "nothing to read",
            hint="name --metadata or segment files, or state the content of stdin with --input",
        )


def _start_positions(request: FormatRequest) -> StartPositions | None:
    if request.bootstrap_server is None:
        return None
    partitions = (*request.partition, *request.metadata_partition)
    return StartPositions.of(partitions, offset=request.offset, from_beginning=request.from_beginning)


def _style(request: FormatRequest) -> tuple[str, dict[str, str]]:
    """Return the formatter's name and properties; the property `format` is the jar's name for the style."""
    style, properties = request.style, _properties(request)
    if style is None or properties.get("format") == style:
        style = properties.pop("format", style)
    if request.output is not None:
        if style not in {None, _JSON}:
            option = "--property format" if request.style is None else "--style"
            raise UsageError("--output can only be used with --style json", hint=f"leave {option} out")
        style = _JSON
    if style is None:
        style = _KIP if properties else _KAFKA
    return style, properties


def _properties(request: FormatRequest) -> dict[str, str]:
    """Return the properties; values of separate options take precedence."""
    flags = {
        "print.partition": request.print_partition,
        "print.message.offset": request.print_message_offset,
        "print.version": request.print_version,
        "print.all.event.value.fields": request.print_all_event_value_fields,
    }
    texts = {"sep": request.sep, "vs": request.vs}
    properties = dict(map(_parse_property, request.properties))
    properties |= {name: "true" for name, is_set in flags.items() if is_set}
    return properties | {name: text for name, text in texts.items() if text is not None}


def _parse_property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--property {text}: expected NAME=VALUE", hint="as print.partition=true")
    return name, value


def _filter(request: FormatRequest, start: StartPositions | None) -> Filter:
    is_consumer = start is not None
    asked = SelectionRequest.of(
        topics=[name for name in request.topic if not (is_consumer and name == METADATA_TOPIC)],
        partitions=() if is_consumer else request.partition,
        topic_ids=request.topic_id,
    )
    return Filter(
        topics=asked.topics,
        partitions=asked.partitions,
        named_partitions=asked.named_partitions,
        topic_ids=asked.topic_ids,
        segment_ids=[Uuid.parse(text) for text in request.segment_id],
        states=_known_names("--state", request.states, STATE_NAMES),
        types=_known_names("--type", request.types, EVENT_TYPES),
        from_time_ms=request.from_time_ms,
        to_time_ms=request.to_time_ms,
        metadata_partitions=request.metadata_partition if start is None else start.partitions,
        from_offset=request.from_offset,
        until=request.until,
    )


def _known_names(option: str, texts: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that `texts` spell in any case; UsageError for a text that is none of `names`."""
    by_folded = {name.casefold(): name for name in names}
    for text in texts:
        if text.casefold() not in by_folded:
            raise UsageError(f"{option}: no {text!r}", hint=f"one of {', '.join(names)}")
    return [by_folded[text.casefold()] for text in texts]


def _on_cluster(request: FormatRequest) -> FormatRequest:
    """Return the request with the console consumer's cluster as its `metadata`."""
    if request.bootstrap_server is None:
        return request
    return replace(request, metadata=f"kafka://{request.bootstrap_server}")


def _pages(work: _Work, progress: Progress) -> Generator[Page, None, ExitCode]:
    request = _on_cluster(work.request)
    bad_count = line_count = 0
    with Resources(request=request, progress=progress) as resources, ExitStack() as opened:
        topic = None if request.metadata is None else _topic_records(resources, work)
        spans = None if topic is None or work.request.is_live else topic.spans()
        rounds = _rounds(resources, work, topic, spans, opened)
        every = (page for streams in rounds for page in merge_pages(streams, by_time=work.by_time))
        total = None if spans is None else _line_count(spans, work)
        expect(total or 0)
        advance = opened.enter_context(progress.bar("printing", unit="records", total=total))
        for page in first_lines(every, request.limit):
            advance(len(page.lines))
            bad_count += len(page.bad_rows)
            line_count += len(page.lines)
            yield page
        if bad_count:
            progress.warn(f"{counted(bad_count, 'record')} could not be read")
            return ExitCode.CORRUPT
        if work.request.reads_all and line_count != request.limit:
            try:
                resources.resolve_selection(work.seen)
            except NotFoundError as e:
                # Rows were printed already, and the caller must still close its array or table: do not raise.
                resources.problems.report(e)
        return resources.problems.exit_code


def _line_count(spans: Spans, work: _Work) -> int | None:
    """Return the number of lines that will be printed; None if it is unknown before the records are read."""
    if work.chosen.restricts_events:
        return None
    count = sum(end - start for start, end in spans.values() if end > start)
    count_max = work.request.limit
    return count if count_max is None else min(count, count_max)


def _rounds(
    resources: Resources, work: _Work, topic: TopicRecords | None, spans: Spans | None, opened: ExitStack
) -> Iterator[Sequence[Iterator[Page]]]:
    """Yield rounds of page streams: one stream per source of the records that are available now.

    `spans` are the ranges of a topic that is read once.
    """
    if resources.is_on_spark:
        assert spans is not None
        rounds = iter([_rendered_on_executors(resources, work, spans)])
    else:
        printer = Printer(formatter=work.formatter, chosen=work.chosen, with_positions=work.by_time)
        if topic is not None:
            record_rounds = _topic_rounds(topic, spans, work)
        else:
            record_rounds = iter([_file_streams(work.request, resources.progress.note, opened)])
        rounds = (_rendered(printer, streams, work) for streams in record_rounds)
    for streams in rounds:
        yield [_noting_partitions(stream, work.seen) for stream in streams]


def _rendered(printer: Printer, streams: RecordRound, work: _Work) -> list[Iterator[Page]]:
    """Return page streams; records that end, and are printed one stream after another, are rendered ahead."""
    if work.by_time or work.request.is_live:
        return [(page for records in stream for page in printer.pages(records)) for stream in streams]
    return [render_ahead(printer, chain.from_iterable(streams))]


def _noting_partitions(pages: Iterator[Page], seen: set[TopicIdPartition]) -> Iterator[Page]:
    for page in pages:
        seen |= page.partitions
        yield page


def _rendered_on_executors(resources: Resources, work: _Work, spans: Spans) -> list[Iterator[Page]]:
    """Return the pages that executors render."""
    from tierctl.spark.executors.rendered_text import Rendering, rendered_pages

    rendering = Rendering(
        location=resources.metadata_location,
        spans=spans,
        style=work.style,
        properties=work.properties,
        chosen=work.chosen,
        by_time=work.by_time,
    )
    return rendered_pages(resources.executors, rendering, max_messages=work.request.limit)


def _topic_rounds(topic: TopicRecords, spans: Spans | None, work: _Work) -> Iterator[RecordRound]:
    if spans is not None:
        return iter([topic.streams(spans, {})])
    request = work.request
    return follow_rounds(
        topic,
        {} if work.start is None else work.start.resolve(*topic.bounds()),
        poll_interval_s=request.interval_ms / 1000,
        timeout_s=None if request.timeout_ms is None else request.timeout_ms / 1000,
    )


def _file_streams(request: FormatRequest, note: Callable[[str], None], opened: ExitStack) -> RecordRound:
    if request.input_kind in {None, "segment"}:
        return _segment_files(request, note)
    read = from_hex if request.input_kind == "hex" else from_framed
    return [read(_open(file, opened)) for file in request.files or [_STDIN]]


def _topic_records(resources: Resources, work: _Work) -> TopicRecords:
    request = work.request
    records = TopicRecords(
        # A log that is written while it is followed ends in one unfinished write after another.
        topic=resources.metadata_topic(complete=False, quiet=request.follow),
        partitions=request.metadata_partition if work.start is None else work.start.partitions,
        start_offset=request.from_offset or 0,
        end_offset=request.until,
    )
    if not request.is_live:
        for missing in records.missing():
            resources.progress.note(str(missing))
    return records


def _segment_files(request: FormatRequest, note: Callable[[str], None]) -> RecordRound:
    if not request.files or _STDIN in request.files:
        raise UsageError("segments can't be read from stdin", hint="name the files")
    return [from_segment(file, note, request.from_offset or 0) for file in request.files]


def _open(file: Path, opened: ExitStack) -> BufferedIOBase:
    if file == _STDIN:
        if sys.stdin is None:
            raise UsageError("stdin is closed", hint="pipe the values into the command, or name files")
        return cast("BufferedIOBase", sys.stdin.buffer)
    return opened.enter_context(file.open("rb"))
