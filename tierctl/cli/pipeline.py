"""`tierctl pipeline`: options and output of `run` and `plan`."""

import sys
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli import options, output_options
from tierctl.cli.app import Command, Group, new_app
from tierctl.cli.display import Printer, console_of, summarize
from tierctl.cli.options import request_of, with_options
from tierctl.errors import ExitCode
from tierctl.model.engine import EngineName
from tierctl.model.times import DURATION_FORMS_S, parse_duration_s
from tierctl.report import tables

_SIZE = "Size"

Warehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        metavar="URI",
        help="The folder of the tables: s3://bucket/folder, or file:///dir or a plain path, which executors "
        "must reach as well. Other stores are not supported, because they cannot guarantee that each "
        "commit is made only once.",
        rich_help_panel=options.WHERE,
    ),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Continue until stopped, with one commit per micro-batch of Structured Streaming, and print "
        "one JSON line per commit. With --engine local, tierctl polls the topic. Not available with "
        "Spark Connect, where the server would need access to the warehouse.",
        rich_help_panel=options.RUN,
    ),
]
Interval = Annotated[
    float,
    typer.Option(
        "--interval-s",
        metavar="DURATION",
        parser=parse_duration_s,
        min=1,
        help=f"With --follow: minimum time between two commits: {DURATION_FORMS_S}.",
        rich_help_panel=options.RUN,
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="spark: one task per metadata partition. local: all metadata partitions in this process.",
        rich_help_panel=options.RUN,
    ),
]


Segments = Annotated[
    int,
    typer.Option("--segments", metavar="N", min=1, help="Number of live segments.", rich_help_panel=_SIZE),
]
Deleted = Annotated[
    int,
    typer.Option(
        "--deleted-segments",
        metavar="N",
        min=0,
        help="Number of deleted segments whose events are still in the metadata topic.",
        rich_help_panel=_SIZE,
    ),
]
Executors = Annotated[
    int,
    typer.Option("--executors", metavar="M", min=1, help="Number of Spark executors.", rich_help_panel=_SIZE),
]
Cores = Annotated[
    int,
    typer.Option(
        "--executor-cores",
        metavar="N",
        min=1,
        help="Number of cores per executor.",
        rich_help_panel=_SIZE,
    ),
]
MetadataPartitions = Annotated[
    int,
    typer.Option(
        "--metadata-partitions",
        metavar="N",
        min=1,
        help="Number of partitions of the metadata topic. Executors beyond this number are idle.",
        rich_help_panel=_SIZE,
    ),
]


app = new_app(name="pipeline", cls=Group, help="Write the metadata topic to Delta tables.")


@app.command("run", cls=Command)
@with_options(options.metadata_topic, ..., output_options.rows, options.engine)
def run(
    ctx: typer.Context,
    warehouse: Warehouse = None,
    follow: Follow = False,
    interval_s: Interval = 10,
    now_ms: options.Now = None,
    engine: Engine = EngineName.SPARK,
) -> int:
    """Update the tables to the end of the metadata topic: events, segments, partitions and anomalies.

    Each table is a Delta table in a folder of the warehouse. `events` has every record, unreadable ones too;
    `segments` has the segments that are not deleted; `partitions` has sizes, offsets and counts; `anomalies`
    has the findings of verify that need only metadata. DuckDB, polars, pandas, Spark and Trino can read the
    tables, also while a run commits: a reader sees one version of a table. Earlier versions stay readable for
    a day. The history of a table records the number of the run's commit as `tierctl.commit`.

    A run continues after the last commit. It can be killed at any time; the next run produces the same
    tables. While a run uses a warehouse, another run exits with code 6. Every 16th commit combines small
    files of `events`, and deletes files that no version of the last day uses.
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


@app.command("plan", cls=Command)
@with_options(..., output_options.rows)
def plan(
    ctx: typer.Context,
    segments: Segments,
    executors: Executors,
    deleted_segments: Deleted = 0,
    executor_cores: Cores = 1,
    metadata_partitions: MetadataPartitions = 50,
) -> int:
    """Predict the time and memory for a tier of this size, from costs measured on a small machine.

    The result is only a prediction: the command reads no data and measures no cluster.
    """
    printer = Printer.of(ctx, tables.PREDICTIONS)
    printer.show(commands.plan_pipeline(request_of(commands.PlanPipelineRequest, ctx), console_of(ctx)))
    printer.finish()
    return ExitCode.OK
