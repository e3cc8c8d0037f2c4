"""`tierctl fetch`: records, segments and indexes from the tier."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from tierctl.cli import fetch_options as own
from tierctl.cli import options
from tierctl.cli.context import Context
from tierctl.cli.reading import Tier, logs_if_given, note, read_state, show_problem
from tierctl.cli.taking import takes
from tierctl.errors import ExitCode, UsageError
from tierctl.model import IsolationLevel
from tierctl.model.times import parse_time_ms

if TYPE_CHECKING:
    from tierctl.read.partition_reader import PartitionReader
    from tierctl.read.partitions import ReadablePartition
    from tierctl.read.readable_log import ReadableLog
    from tierctl.read.tolerated_errors import ToleratedErrors

_EARLIEST = "earliest"


def register(app: typer.Typer) -> None:
    """Adds `fetch`."""
    app.command("fetch")(fetch)


@takes(options.where, options.private_keys, options.state, options.selection, ..., options.engine)
def fetch(
    ctx: typer.Context,
    offset: own.Offset = _EARLIEST,
    until_offset: own.UntilOffset = None,
    from_time: own.FromTime = None,
    to_time: own.ToTime = None,
    max_records: own.MaxRecords = None,
    isolation: own.Isolation = IsolationLevel.READ_UNCOMMITTED,
    output: own.Rows = None,
    binary: own.Binary = own.BinaryForm.AUTO,
    raw_segment: own.RawSegment = None,
    index: own.Index = None,
    auxiliary_state: own.AuxiliaryState = None,
    out: own.Out = None,
) -> ExitCode:
    """Print records from the tier, and with --log-dir from the local log above it.

    Without --topic: of every partition in turn. Each offset comes once, from the segment of the current
    leader epochs: those of the logs, else those of the newest remote segment. What can't be read is
    reported on stderr, the rest goes on, and the exit code is 7 (damage) or 10 (missing).
    """
    from tierctl.read.tolerated_errors import ToleratedErrors

    _check(ctx)
    problems = ToleratedErrors(show_problem)
    with Context.of(ctx) as context:
        if raw_segment is not None or index is not None:
            from tierctl.cli.fetch_objects import fetch_object

            fetch_object(ctx, context, problems)
        elif auxiliary_state is not None:
            from tierctl.cli.fetch_objects import fetch_auxiliary_state

            fetch_auxiliary_state(ctx, context, problems)
        elif context.is_on_spark:
            from tierctl.cli.fetch_spark import fetch_records

            fetch_records(ctx, context, problems)
        else:
            _fetch_records(ctx, context, problems)
    return problems.exit_code


def _check(ctx: typer.Context) -> None:
    """UsageError for options that contradict each other."""
    given = ctx.params
    if given["from_time"] is not None and given["offset"] != _EARLIEST:
        raise UsageError("--offset and --from-time both say where to begin", hint="give one of them")
    if given["auxiliary_state"] is not None and (given["raw_segment"] or given["index"]):
        raise UsageError("--auxiliary-state, --raw-segment and --index are different things to fetch")
    if given["out"] is not None and not (
        given["raw_segment"] or given["index"] or given["auxiliary_state"] is not None
    ):
        raise UsageError("--out is for --raw-segment, --index and --auxiliary-state", hint="redirect stdout")


def chosen_partitions(context: Context, problems: "ToleratedErrors") -> Iterator["ReadablePartition"]:
    """The partitions that the options mean; those with an illegal name are a problem."""
    from tierctl.read.leader_logs import with_current_topic_ids
    from tierctl.read.partitions import readable_partitions, refused

    state = read_state(context, problems)
    by_name = bool(context.topic) and not context.topic_id
    selection = with_current_topic_ids(context.selection, context.cluster()) if by_name else context.selection
    for found in readable_partitions(state, logs_if_given(context), selection, by_name=by_name):
        refusal = refused(found.topic_id_partition)
        if refusal is None:
            yield found
        else:
            problems.report(refusal)


@dataclass(frozen=True, slots=True)
class Asked:
    """A partition, opened, and the offsets of it that the options mean; `until` None is its end."""

    view: "ReadableLog"
    reader: "PartitionReader"
    start: int
    until: int | None

    @property
    def note(self) -> str | None:
        """Where and why reading ended sooner than was asked for."""
        undecided = self.reader.undecided_offset
        if undecided is None or (self.until is not None and self.until <= undecided):
            return None
        return (
            f"{self.view.topic_id_partition.topic_partition} ends at offset {undecided} for "
            "read_committed: how its transaction ended is not in the tier; --log-dir may tell"
        )


def asked_partitions(
    ctx: typer.Context, context: Context, tier: Tier, problems: "ToleratedErrors"
) -> Iterator[Asked]:
    """The partitions that the options mean, with those of their records that they mean."""
    from tierctl.read.leader_logs import leader_log_start
    from tierctl.read.partition_reader import PartitionReader

    cluster = context.cluster()
    for readable in chosen_partitions(context, problems):
        view = tier.view(readable, problems, leader_log_start(cluster, readable.topic_id_partition))
        isolation = IsolationLevel(ctx.params["isolation"])
        reader = PartitionReader(view, tier.fetcher, problems.report, isolation=isolation)
        start = _start(ctx, view, reader)
        if start is not None:
            yield Asked(view, reader, start, _until(ctx, reader, start))


def _fetch_records(ctx: typer.Context, context: Context, problems: "ToleratedErrors") -> None:
    from tierctl.read import record_rows
    from tierctl.report import render

    tier = Tier.of(context)
    encode = record_rows.encoder(record_rows.Binary(ctx.params["binary"]))

    def every() -> Iterator[dict[str, Any]]:
        for asked in asked_partitions(ctx, context, tier, problems):
            for record in asked.reader.read(asked.start, asked.until):
                yield record_rows.record_row(asked.view.topic_id_partition, record, encode)
            if asked.note is not None:
                note(asked.note)

    render(
        islice(every(), ctx.params["max_records"]),
        ctx.params["output"] or options.OutputFormat.JSONL,
        record_rows.COLUMNS,
        table_columns=record_rows.TABLE_COLUMNS,
    )


def _start(ctx: typer.Context, view: "ReadableLog", reader: "PartitionReader") -> int | None:
    """Where to begin; None when no record is as late as --from-time."""
    if ctx.params["from_time"] is not None:
        found = reader.offset_for_time(parse_time_ms(ctx.params["from_time"]))
        return None if found is None else found.offset
    return offset_of(ctx.params["offset"], view)


def offset_of(text: str, view: "ReadableLog") -> int:
    """The offset an operator named; UsageError when it is none."""
    local_start = view.local_start_offset
    named = {
        _EARLIEST: view.log_start_offset,
        "earliest-local": view.end_offset if local_start is None else local_start,
        "latest-tiered": view.latest_tiered_offset,
        "latest": view.end_offset,
    }
    if text in named:
        return max(named[text], view.log_start_offset)
    if text.isascii() and text.isdigit():
        return int(text)
    raise UsageError(f"--offset {text}: not an offset", hint=f"expected a number or {', '.join(named)}")


def _until(ctx: typer.Context, reader: "PartitionReader", start: int) -> int | None:
    until: int | None = ctx.params["until_offset"]
    if ctx.params["to_time"] is None:
        return until
    later = reader.offset_for_time(parse_time_ms(ctx.params["to_time"]) + 1, start)
    if later is None:
        return until
    return later.offset if until is None else min(until, later.offset)
