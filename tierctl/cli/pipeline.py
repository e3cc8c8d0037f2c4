"""`tierctl pipeline run`: options and output."""

import sys

import typer

from tierctl import commands
from tierctl.cli.app import Command, Group, new_app
from tierctl.cli.display import Printer, Rows, console_of, summarize
from tierctl.cli.options import METADATA_TOPIC, SPARK, with_options
from tierctl.commands.pipeline import COMMITS
from tierctl.commands.shared_options import OutputFormat
from tierctl.errors import ExitCode

app = new_app(name="pipeline", cls=Group)


@app.callback()
def pipeline() -> None:
    """Write the metadata topic to Delta tables."""


@app.command("run", cls=Command)
@with_options(commands.RunPipelineRequest, METADATA_TOPIC, ..., "now_ms", Rows, SPARK, rows=(COMMITS,))
def run(ctx: typer.Context, request: commands.RunPipelineRequest) -> int:
    """Update the tables to the end of the metadata topic: events, segments, partitions and anomalies.

    Each table is a Delta table in a folder of the warehouse. `events` has every record, unreadable ones too;
    `segments` has the segments that are not deleted; `partitions` has sizes, offsets and counts; `anomalies`
    has the findings of verify that need only metadata. DuckDB, polars, pandas, Spark and Trino can read the
    tables, also while a run commits: a reader sees one version of a table. Earlier versions stay readable for
    a day. The history of a table records the number of the run's commit as `tierctl.commit`.

    A run is a query of Spark's Structured Streaming, whose tasks fold the events with the rows that the
    tables have, and write files. Without --master Spark uses the cores of this machine. It continues after
    the last commit, and a run without new events does not start Spark. It can be killed at any time; the next
    run produces the same tables. While a run uses a warehouse, another run exits with code 6. Every 16th
    commit combines small files of `events`, and deletes files that no version of the last day uses.
    """
    printer = Printer.of(ctx, COMMITS, OutputFormat.JSONL if request.follow else None)

    made: list[int] = []

    def print_commit(commit: commands.PipelineCommit) -> None:
        made.append(commit.commit)
        printer.show([commit])
        sys.stdout.flush()

    latest = commands.run_pipeline(request, console_of(ctx), on_commit=print_commit)
    if made or request.follow:
        printer.finish()
    else:
        summarize(ctx, f"no new events since commit {latest.commit}")
    return ExitCode.OK
