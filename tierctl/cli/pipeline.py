"""`tierctl pipeline`: the metadata topic as tables."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tierctl.cli import options
from tierctl.cli.context import Context
from tierctl.cli.taking import takes
from tierctl.errors import ExitCode, UsageError
from tierctl.model.engine import EngineName

if TYPE_CHECKING:
    from tierctl.pipeline.run import Pipeline, PipelineRun, Progress, RunTasks

_SIZE = "What is planned for"
COLUMNS = ("commit", "metadata_partitions", "offsets", "events", "warehouse")

Warehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        metavar="URI",
        help="Where the tables are: file:///dir or a plain path, which executors must reach as well, or "
        "s3://bucket/folder. Other stores have no way to make a commit once only.",
        rich_help_panel=options.WHERE,
    ),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Go on until stopped, with a commit for each micro-batch of Structured Streaming; with --engine "
        "local the topic is looked at again and again. Not on Spark Connect: there the server would have to "
        "hold the warehouse. A JSON line for each commit.",
        rich_help_panel=options.RUN,
    ),
]
Interval = Annotated[
    int,
    typer.Option(
        "--interval-s",
        metavar="S",
        min=1,
        help="With --follow: the least time between two commits.",
        show_default=True,
        rich_help_panel=options.RUN,
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="spark: a task a metadata partition. local: all of it in this process.",
        show_default=True,
        rich_help_panel=options.RUN,
    ),
]


Segments = Annotated[
    int,
    typer.Option("--segments", metavar="N", min=1, help="Live segments of the tier.", rich_help_panel=_SIZE),
]
Deleted = Annotated[
    int,
    typer.Option(
        "--deleted-segments",
        metavar="N",
        min=0,
        help="Deleted ones whose events the metadata topic still has.",
        show_default=True,
        rich_help_panel=_SIZE,
    ),
]
Executors = Annotated[
    int,
    typer.Option("--executors", metavar="M", min=1, help="Executors of Spark.", rich_help_panel=_SIZE),
]
Cores = Annotated[
    int,
    typer.Option(
        "--executor-cores",
        metavar="N",
        min=1,
        help="Cores of each.",
        show_default=True,
        rich_help_panel=_SIZE,
    ),
]
MetadataPartitions = Annotated[
    int,
    typer.Option(
        "--metadata-partitions",
        metavar="N",
        min=1,
        help="Partitions of the metadata topic: more executors than these have nothing to do.",
        show_default=True,
        rich_help_panel=_SIZE,
    ),
]


def register(app: typer.Typer) -> None:
    """Adds `pipeline` and its commands."""
    group = typer.Typer(no_args_is_help=True, help="The metadata topic as tables of Parquet.")
    group.command("run")(run)
    group.command("plan")(plan)
    app.add_typer(group, name="pipeline")


@takes(options.metadata_topic, ..., options.rows, options.engine)
def run(
    ctx: typer.Context,
    warehouse: Warehouse = None,
    follow: Follow = False,
    interval_s: Interval = 10,
    now: options.Now = None,
    engine: Engine = EngineName.SPARK,
) -> ExitCode:
    """Bring the tables up to the metadata topic's end: events, segments, partitions and anomalies.

    Each is a folder of Parquet files that any reader opens. `events` has every record, unreadable ones too;
    `segments` those not yet deleted; `partitions` sizes, offsets and counts; `anomalies` what verify finds
    in metadata alone. A run reads on from the last commit. It can be killed at any point: the next one comes
    to the same tables. Two runs on one warehouse: one gets it, the other exits 6.
    """
    with Context.of(ctx) as context:
        if follow and context.is_on_spark:
            from tierctl.pipeline.follow import refuse_connect

            refuse_connect(ctx.params["master"] or os.environ.get("SPARK_REMOTE", ""))
        pipeline = _pipeline(context, warehouse)
        with pipeline.opened() as opened:
            if follow:
                _follow(context, opened, pipeline, interval_s)
            else:
                _show(opened.step(), pipeline, ctx.params["output"])
    return ExitCode.OK


@takes(..., options.rows)
def plan(
    ctx: typer.Context,
    segments: Segments,
    executors: Executors,
    deleted_segments: Deleted = 0,
    executor_cores: Cores = 1,
    metadata_partitions: MetadataPartitions = 50,
) -> ExitCode:
    """Predict what a tier of this size takes, from costs that were measured on a small machine.

    A prediction, no measurement: nothing is read, and no cluster was tried.
    """
    from tierctl.pipeline.cost import MEASURED_BY, MEASURED_ON, Cluster, predictions
    from tierctl.report import render

    cluster = Cluster(
        segments=segments,
        deleted=deleted_segments,
        executors=executors,
        cores=executor_cores,
        metadata_partitions=metadata_partitions,
    )
    typer.echo(f"a prediction, not a measurement: from costs measured on {MEASURED_ON}", err=True)
    typer.echo(f"by {MEASURED_BY}", err=True)
    render(predictions(cluster), ctx.params["output"], ("what", "value", "unit", "from"))
    return ExitCode.OK


def _follow(context: Context, opened: "PipelineRun", pipeline: "Pipeline", interval_s: int) -> None:
    from tierctl.pipeline.follow import follow_here, follow_on

    def told(done: "Progress") -> None:
        _show(done, pipeline, options.OutputFormat.JSONL)
        sys.stdout.flush()

    if context.is_on_spark:
        follow_on(context.spark(), pipeline.location, opened, told, interval_s=interval_s)
    else:
        follow_here(opened, told, interval_s=interval_s)


def _pipeline(context: Context, warehouse: str | None) -> "Pipeline":
    from tierctl.pipeline.run import Pipeline
    from tierctl.pipeline.warehouse.open import WarehouseSpec
    from tierctl.storage import store_uri

    if warehouse is None:
        raise UsageError("--warehouse is missing", hint="a folder, or s3://bucket/folder")
    if not context.is_on_cluster:
        from tierctl.metadata.topic.local_log import require_topic

        require_topic(context.metadata_folder)
    return Pipeline(
        location=context.metadata_location,
        warehouse=WarehouseSpec.of(store_uri("--warehouse", warehouse)),
        clock_ms=lambda: context.now_ms,
        run_tasks=_run_tasks(context),
    )


def _run_tasks(context: Context) -> "RunTasks":
    from tierctl.pipeline.run import run_here, run_on

    return run_on(context.executors()) if context.is_on_spark else run_here


def _show(done: "Progress", pipeline: "Pipeline", output: str) -> None:
    from tierctl.report import render

    row = {
        "commit": done.commit,
        "metadata_partitions": done.parts,
        "offsets": done.offsets,
        "events": done.rows,
        "warehouse": pipeline.warehouse.uri,
    }
    render([row], output, COLUMNS)
