"""`tierctl segments`: what the tier holds, and whether it is as it should be."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierctl.cli import options
from tierctl.cli.context import Context
from tierctl.cli.reading import Tier, logs_if_given, read_state, show_problem
from tierctl.cli.segment_offsets import COLUMNS as OFFSET_COLUMNS
from tierctl.cli.segment_offsets import offset_rows
from tierctl.cli.taking import takes
from tierctl.errors import ExitCode, NotFoundError, UsageError
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.model.times import parse_time_ms
from tierctl.wire.metadata.json_fields import json_fields

if TYPE_CHECKING:
    from tierctl.read.indexes import IndexFetcher
    from tierctl.read.partitions import Readable
    from tierctl.read.problems import Problems
    from tierctl.verify.segments import Finding

COLUMNS = (
    "topic",
    "topic_id",
    "partition",
    "segment_id",
    "start_offset",
    "end_offset",
    "broker_id",
    "max_timestamp_ms",
    "event_timestamp_ms",
    "segment_leader_epochs",
    "segment_size_in_bytes",
    "custom_metadata",
    "state",
    "txn_index_empty",
)
TABLE_COLUMNS = (
    "topic",
    "partition",
    "segment_id",
    "start_offset",
    "end_offset",
    "segment_leader_epochs",
    "segment_size_in_bytes",
    "state",
)
SIZE_COLUMNS = ("topic", "topic_id", "partitions", "segments", "log_bytes", "objects", "object_bytes")
FINDING_COLUMNS = (
    "severity",
    "kind",
    "topic",
    "topic_id",
    "partition",
    "segment_id",
    "start_offset",
    "end_offset",
    "message",
)
FINDING_TABLE_COLUMNS = (
    "severity",
    "kind",
    "topic",
    "partition",
    "segment_id",
    "start_offset",
    "end_offset",
    "message",
)
_FIND = "Which segments"

All = Annotated[
    bool,
    typer.Option("--all", help="Those whose deletion finished, too.", rich_help_panel=_FIND),
]
Epoch = Annotated[
    int | None,
    typer.Option(
        "--epoch",
        metavar="E",
        min=0,
        help="With --offset: the segment a broker reads for both.",
        rich_help_panel=_FIND,
    ),
]
Offset = Annotated[
    int | None,
    typer.Option("--offset", metavar="N", min=0, help="See --epoch.", rich_help_panel=_FIND),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="TIME",
        help="The first segment of the current leader epochs with a record as late as this; "
        "milliseconds or ISO 8601.",
        rich_help_panel=_FIND,
    ),
]
Sizes = Annotated[
    bool,
    typer.Option(
        "--sizes",
        help="Sizes by topic; with --remote of all objects, not only of the logs.",
        rich_help_panel=options.SHOW,
    ),
]
Offsets = Annotated[
    bool,
    typer.Option(
        "--offsets",
        help="Each partition's earliest, earliest-local, latest-tiered and latest offset, as GetOffsetShell "
        "names them.",
        rich_help_panel=options.SHOW,
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="What is wrong: offsets, gaps, doubled and divergent segments. "
        "Exit 3 when there is more than information.",
        rich_help_panel=options.SHOW,
    ),
]


def register(app: typer.Typer) -> None:
    """Adds `segments`."""
    app.command("segments")(segments)


@takes(
    options.where,
    options.private_keys,
    options.state,
    options.selection,
    ...,
    options.rows,
    options.engine,
)
def segments(
    ctx: typer.Context,
    all_: All = False,
    epoch: Epoch = None,
    offset: Offset = None,
    time: Time = None,
    sizes: Sizes = False,
    offsets: Offsets = False,
    check: Check = False,
    now: options.Now = None,
) -> ExitCode:
    """List remote segments, find one, sum them up, or check them.

    A listing is sorted by topic, partition, start offset and the time of the last event. Metadata records
    that can't be read are reported on stderr, and the exit code is 7. With --engine spark executors read the
    metadata topic; --all is read here all the same.
    """
    from tierctl.read.problems import Problems

    _require(ctx)
    output = ctx.params["output"]
    problems = Problems(show_problem)
    with Context.of(ctx) as context:
        if check:
            return _check(context, problems, output)
        if offsets:
            _render(offset_rows(context, _partitions(context, problems)), output, OFFSET_COLUMNS)
            return problems.exit_code
        found = list(_found(ctx, context, problems))
        if sizes:
            _render(_size_rows(found, context), output, SIZE_COLUMNS)
        else:
            _render(map(segment_row, sorted(found, key=_order)), output, COLUMNS, TABLE_COLUMNS)
    return problems.exit_code


def _require(ctx: typer.Context) -> None:
    """UsageError for options that contradict each other."""
    given = ctx.params
    if (given["epoch"] is None) != (given["offset"] is None):
        raise UsageError("--epoch and --offset go together", hint="give both, or --time")
    if given["epoch"] is not None and given["time"] is not None:
        raise UsageError("--epoch with --offset, and --time, find a segment each", hint="give one of them")
    finding = given["epoch"] is not None or given["time"] is not None
    if sum((finding, given["all_"], given["check"], given["offsets"])) > 1:
        raise UsageError("--all, --check, --offsets and finding one segment exclude each other")
    if given["sizes"] and (finding or given["check"] or given["offsets"]):
        raise UsageError("--sizes sums up a listing", hint="narrow it with --topic or --partition")


def _render(
    rows: Iterable[dict[str, Any]],
    output: options.OutputFormat,
    columns: tuple[str, ...],
    table_columns: tuple[str, ...] | None = None,
) -> None:
    from tierctl.report import render

    render(rows, output, columns, table_columns=table_columns)


def segment_row(segment: RemoteLogSegmentMetadata) -> dict[str, Any]:
    """A segment as a row of COLUMNS; what its dialect does not have is None."""
    shown = json_fields(segment)
    return {name: shown.get(name) for name in COLUMNS}


def _order(segment: RemoteLogSegmentMetadata) -> tuple[str, int, int, int, str, str]:
    return (
        segment.topic,
        segment.partition,
        segment.start_offset,
        segment.event_timestamp_ms,
        segment.topic_id,
        segment.segment_id,
    )


def _found(ctx: typer.Context, context: Context, problems: "Problems") -> Iterator[RemoteLogSegmentMetadata]:
    """The segments that the options mean, in no order."""
    state = read_state(context, problems)
    chosen = [part for part in state if part.topic_id_partition in context.selection]
    if ctx.params["epoch"] is not None:
        epoch, offset = ctx.params["epoch"], ctx.params["offset"]
        answers = (part.cache.remote_log_segment_metadata(epoch, offset) for part in chosen)
        yield from _required(answers, f"no segment holds offset {offset} of leader epoch {epoch}")
        return
    if ctx.params["time"] is not None:
        time_ms = parse_time_ms(ctx.params["time"])
        yield from _required(_by_time(context, problems, time_ms), f"no segment is as late as {time_ms}")
        return
    for part in chosen:
        yield from part.cache.list_remote_log_segments()
    if ctx.params["all_"]:
        yield from _deleted(context)


def _required(
    answers: Iterable[RemoteLogSegmentMetadata | None], message: str
) -> list[RemoteLogSegmentMetadata]:
    found = [answer for answer in answers if answer is not None]
    if not found:
        raise NotFoundError(message, hint="see tierctl segments for what there is")
    return found


def _deleted(context: Context) -> Iterator[RemoteLogSegmentMetadata]:
    from tierctl.metadata.deleted_segments import deleted_segments

    topic = context.metadata_topic()
    for segment in deleted_segments(topic, topic.end_offsets()):
        if segment.topic_id_partition in context.selection:
            yield segment


def _partitions(context: Context, problems: "Problems") -> "list[Readable]":
    from tierctl.read.partitions import tiered_partitions

    return tiered_partitions(read_state(context, problems), logs_if_given(context), context.selection)


def _fetcher(context: Context) -> "Callable[[Readable], IndexFetcher | None]":
    """Where a partition's indexes come from: nowhere without --remote, or with a name that is not legal."""
    from tierctl.read.partitions import refused

    tier = Tier.of(context) if context.remote_uri is not None else None
    return lambda readable: tier.fetcher if tier and refused(readable.topic_id_partition) is None else None


def _by_time(
    context: Context, problems: "Problems", time_ms: int
) -> Iterator[RemoteLogSegmentMetadata | None]:
    """Of each partition the first segment of its lineage that may hold a record as late as `time_ms`."""
    from tierctl.state.lineage import segments_in_lineage
    from tierctl.verify.offsets import current_lineage

    fetcher = _fetcher(context)
    for readable in _partitions(context, problems):
        lineage = current_lineage(readable, fetcher(readable), problems.report)
        spans = segments_in_lineage(readable.cache, lineage)
        yield next((span.segment for span in spans if span.segment.max_timestamp_ms >= time_ms), None)


def _size_rows(found: Iterable[RemoteLogSegmentMetadata], context: Context) -> list[dict[str, Any]]:
    """Sums by topic id; objects are None without --remote, and under a name that is no legal topic's."""
    from tierctl.read.partitions import refused

    remote = context.remote() if context.remote_uri is not None else None
    by_topic: dict[tuple[str, str], list[RemoteLogSegmentMetadata]] = defaultdict(list)
    for segment in found:
        by_topic[segment.topic, segment.topic_id].append(segment)
    rows = []
    for (topic, topic_id), segments in sorted(by_topic.items()):
        legal = remote is not None and all(refused(s.topic_id_partition) is None for s in segments)
        objects = [o for s in segments for o in remote.objects_of(s)] if remote and legal else None
        rows.append(
            {
                "topic": topic,
                "topic_id": topic_id,
                "partitions": len({segment.partition for segment in segments}),
                "segments": len(segments),
                "log_bytes": sum(segment.segment_size_in_bytes for segment in segments),
                "objects": None if objects is None else len(objects),
                "object_bytes": None if objects is None else sum(o.size_bytes for o in objects),
            }
        )
    return rows


def _check(context: Context, problems: "Problems", output: options.OutputFormat) -> ExitCode:
    from tierctl.read.leaders import believed_logs
    from tierctl.verify.offsets import check_partition, facts_of_leader
    from tierctl.verify.segments import Severity

    fetcher, cluster, now_ms = _fetcher(context), context.cluster(), context.now_ms
    findings: list[Finding] = []
    readables = _partitions(context, problems)
    asked = [readable.topic_id_partition for readable in readables]
    logs = {} if cluster is None else believed_logs(cluster, asked).logs
    for readable in readables:
        log = logs.get(readable.topic_id_partition)
        facts = None if log is None else facts_of_leader(readable.cache, log)
        findings += check_partition(readable, fetcher(readable), problems.report, now_ms=now_ms, facts=facts)
    _render((asdict(finding) for finding in findings), output, FINDING_COLUMNS, FINDING_TABLE_COLUMNS)
    if problems.exit_code is not ExitCode.OK:
        return problems.exit_code
    serious = any(finding.severity is not Severity.INFO for finding in findings)
    return ExitCode.PARTIAL if serious else ExitCode.OK
