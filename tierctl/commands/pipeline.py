"""`pipeline run`: update tables of the metadata topic."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.commands.shared_options import RUN, WHERE
from tierctl.errors import UsageError
from tierctl.model.choices import EngineName
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.times import DURATION_FORMS, parse_duration_s
from tierctl.pipeline import update as pipeline_run
from tierctl.pipeline.follow import follow_here, follow_on, refuse_connect
from tierctl.pipeline.partition_task import Task
from tierctl.pipeline.update import Pipeline, RunTasks, run_here, run_on
from tierctl.pipeline.warehouse.layout import WarehouseSpec
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.results import TableResult, TableRows
from tierctl.storage import store_uri


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPipelineRequest(Request):
    """A request to bring the tables in `warehouse` up to the end of the metadata topic."""

    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            metavar="URI",
            help="The folder of the tables: s3://bucket/folder, or file:///dir or a plain path, which "
            "executors must reach as well. Other stores are not supported, because they cannot guarantee "
            "that each commit is made only once.",
            rich_help_panel=WHERE,
        ),
    ] = None
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Continue until stopped, with one commit per micro-batch of Structured Streaming, and print "
            "one JSON line per commit. With --engine local, tierctl polls the topic. Not available with "
            "Spark Connect, where the server would need access to the warehouse.",
            rich_help_panel=RUN,
        ),
    ] = False
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="DURATION",
            parser=parse_duration_s,
            min=1,
            help=f"With --follow: minimum time between two commits: {DURATION_FORMS}.",
            rich_help_panel=RUN,
        ),
    ] = 10
    engine: Annotated[
        EngineName,
        typer.Option(
            "--engine",
            help="spark: one task per metadata partition. local: all metadata partitions in this process.",
            rich_help_panel=RUN,
        ),
    ] = EngineName.SPARK


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCommit(TableResult):
    """The state of the tables after a run: the number of their last commit, and the events new in it."""

    commit: Annotated[int, Field(Kind.NUMBER, "number of the last commit"), Shown(0)]
    metadata_partitions: Annotated[int, Field(Kind.NUMBER, "metadata partitions with new events"), Shown(2)]
    """Metadata partitions that had new events; 0 if the run made no commit."""
    offsets: Annotated[int, Field(Kind.NUMBER, "metadata offsets that were read"), Shown(1)]
    events: Annotated[int, Field(Kind.NUMBER, "events that are new in the tables"), Shown(1)]
    warehouse: Annotated[str, Field(Kind.NAME, "folder of the tables"), Shown(1)]

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`: the one row of the commit."""
        return COMMITS, [self]


COMMITS = Columns(
    PipelineCommit,
    name="commits",
    title="Commits of the pipeline",
    commands="pipeline run",
    noun="commit",
)


OnCommit = Callable[[PipelineCommit], object]


def run_pipeline(
    request: RunPipelineRequest, progress: Progress | None = None, *, on_commit: OnCommit | None = None
) -> PipelineCommit:
    """Commit the new events of the metadata topic to the tables; return the last commit.

    With `follow`, `on_commit` receives each new commit until the process or Spark's stream is stopped;
    otherwise it receives the last commit. A run that was killed has no effect on the tables: the next run
    continues after the last commit. Raise LockedError if another run has the warehouse, and SafetyRefusal if
    it has the tables of another metadata topic.
    """
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        if request.follow and resources.is_on_spark:
            refuse_connect(request.master or os.environ.get("SPARK_REMOTE", ""))
        pipeline = _pipeline(request, resources)

        def report(done: pipeline_run.StepResult) -> None:
            if on_commit is not None:
                on_commit(_commit(pipeline, done))

        with pipeline.opened() as opened:
            for missing in opened.missing():
                resources.progress.note(f"{missing}; the tables lack them")
            if not request.follow:
                done = opened.step()
                report(done)
                return _commit(pipeline, done)
            if resources.is_on_spark:
                spark, location = resources.spark, pipeline.location
                follow_on(spark, location, opened, report, interval_s=request.interval_s)
            else:
                follow_here(opened, report, interval_s=request.interval_s)
            return _commit(pipeline, pipeline_run.StepResult(opened.latest.number))


def _commit(pipeline: Pipeline, done: pipeline_run.StepResult) -> PipelineCommit:
    return PipelineCommit(
        commit=done.commit,
        metadata_partitions=done.parts,
        offsets=done.offsets,
        events=done.rows,
        warehouse=pipeline.warehouse.uri,
    )


def _run_watched(progress: Progress) -> RunTasks:
    """Return `run_here` with a bar of the events that are committed."""

    def run(tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
        total = sum(task.offsets for task in tasks)
        with progress.bar("writing tables", unit="events", total=total) as advance:
            for task, result in zip(tasks, run_here(tasks), strict=True):
                advance(task.offsets)
                yield result

    return run


def _pipeline(request: RunPipelineRequest, resources: Resources) -> Pipeline:
    if request.warehouse is None:
        raise UsageError("--warehouse is missing", hint="a folder, or s3://bucket/folder")
    return Pipeline(
        location=resources.metadata_location,
        warehouse=WarehouseSpec.of(store_uri("--warehouse", request.warehouse)),
        # Not `resources.now_ms`, which reads the clock once: each commit of `follow` has its own time.
        clock_ms=lambda: request.clock_ms() if request.now_ms is None else request.now_ms,
        run_tasks=run_on(resources.executors) if resources.is_on_spark else _run_watched(resources.progress),
    )
