"""`tierctl pipeline`: options and output of `run` and `plan`."""

import sys
from typing import Annotated

import click

from tierctl import commands
from tierctl.cli import options, output_options
from tierctl.cli.declare import add, add_group, option
from tierctl.cli.display import Printer, console_of, summarize
from tierctl.cli.options import with_options
from tierctl.cli.request import request_of
from tierctl.errors import ExitCode
from tierctl.model.engine import EngineName
from tierctl.report import tables

_SIZE = "Size"

Warehouse = Annotated[
    str | None,
    option(
        "--warehouse",
        metavar="URI",
        help="The folder of the tables: file:///dir or a plain path, which executors must reach as well, or "
        "s3://bucket/folder. Other stores can't make sure that a commit is made only once.",
        panel=options.WHERE,
    ),
]
Follow = Annotated[
    bool,
    option(
        "--follow",
        "-f",
        help="Continue until stopped, with one commit per micro-batch of Structured Streaming; with --engine "
        "local tierctl polls the topic. Not on Spark Connect, where the server would have to hold the "
        "warehouse. Prints one JSON line per commit.",
        panel=options.RUN,
    ),
]
Interval = Annotated[
    int,
    option(
        "--interval-s",
        metavar="S",
        min=1,
        help="With --follow: the shortest time between two commits.",
        panel=options.RUN,
    ),
]
Engine = Annotated[
    EngineName,
    option(
        "--engine",
        help="spark: one task per metadata partition. local: all of them in this process.",
        panel=options.RUN,
    ),
]


Segments = Annotated[
    int,
    option("--segments", metavar="N", min=1, help="Live segments of the tier.", panel=_SIZE),
]
Deleted = Annotated[
    int,
    option(
        "--deleted-segments",
        metavar="N",
        min=0,
        help="Deleted segments whose events the metadata topic still has.",
        panel=_SIZE,
    ),
]
Executors = Annotated[
    int,
    option("--executors", metavar="M", min=1, help="Executors of Spark.", panel=_SIZE),
]
Cores = Annotated[
    int,
    option(
        "--executor-cores",
        metavar="N",
        min=1,
        help="Cores of each executor.",
        panel=_SIZE,
    ),
]
MetadataPartitions = Annotated[
    int,
    option(
        "--metadata-partitions",
        metavar="N",
        min=1,
        help="Partitions of the metadata topic; executors beyond this number have nothing to do.",
        panel=_SIZE,
    ),
]


def register(app: click.Group) -> None:
    """Add `pipeline` and its commands."""
    group = add_group(app, "pipeline", "Write the metadata topic to Delta tables.")
    add(group, "run", run)
    add(group, "plan", plan)


@with_options(options.metadata_topic, ..., output_options.rows, options.engine)
def run(
    ctx: click.Context,
    warehouse: Warehouse = None,
    follow: Follow = False,
    interval_s: Interval = 10,
    now_ms: options.Now = None,
    engine: Engine = EngineName.SPARK,
) -> int:
    """Bring the tables up to the end of the metadata topic: events, segments, partitions and anomalies.

    Each table is a Delta table in a folder of the warehouse. `events` has every record, unreadable ones too;
    `segments` has those not yet deleted; `partitions` has sizes, offsets and counts; `anomalies` has what
    verify finds in metadata alone. DuckDB, polars, pandas, Spark and Trino read them, also while a run
    commits: a reader sees one version of a table. Earlier versions can be read for a day; the history of a
    table has the number of the run's commit as `tierctl.commit`.

    A run continues after the last commit. It can be killed at any point: the next run comes to the same
    tables. While one run has a warehouse, another run ends with exit code 6. Every 16th commit combines
    small files of `events`, and deletes files that no version of the last day needs.
    """
    printer = Printer.of(ctx, tables.COMMITS, options.OutputFormat.JSONL if follow else None)

    def print_commit(commit: commands.PipelineCommit) -> None:
        printer.show([commit])
        sys.stdout.flush()

    request = request_of(commands.RunPipelineRequest, ctx)
    latest = commands.run_pipeline(request, console_of(ctx), on_commit=print_commit)
    if latest.metadata_partitions or follow:
        printer.finish()
    else:
        summarize(ctx, f"no new events since commit {latest.commit}")
    return ExitCode.OK


@with_options(..., output_options.rows)
def plan(
    ctx: click.Context,
    segments: Segments,
    executors: Executors,
    deleted_segments: Deleted = 0,
    executor_cores: Cores = 1,
    metadata_partitions: MetadataPartitions = 50,
) -> int:
    """Predict time and memory for a tier of this size, from costs that were measured on a small machine.

    This is a prediction: nothing is read, and no cluster was measured.
    """
    printer = Printer.of(ctx, tables.PREDICTIONS)
    printer.show(commands.plan_pipeline(request_of(commands.PlanPipelineRequest, ctx), console_of(ctx)))
    printer.finish()
    return ExitCode.OK
