"""`pipeline run`: update tables of the metadata topic."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from tierctl.commands.request import RUN, WHERE, Request
from tierctl.commands.resources import Resources
from tierctl.errors import UsageError
from tierctl.model.choices import EngineName
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.times import DURATION_FORMS, parse_duration_s
from tierctl.pipeline.update import Pipeline, StepResult, fold_woken, refuse_connect, run_stream
from tierctl.pipeline.warehouse import WarehouseSpec
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.results import TableResult, TableRows
from tierctl.storage import store_uri


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPipelineRequest(Request):
    """A request to bring the tables in `warehouse` up to the end of the metadata topic."""

    warehouse: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="The folder of the tables: s3://bucket/folder, or file:///dir or a plain path, which "
            "executors must reach as well. Other stores are not supported, because they cannot "
            "guarantee that each commit is made only once.",
            rich_help_panel=WHERE,
        ),
    ] = None
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Continue until stopped, with one commit per micro-batch, and print a JSON line for each.",
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
            max=30 * 86_400,
            show_default="10s",
            help=f"With --follow: minimum time between two commits: {DURATION_FORMS}.",
            rich_help_panel=RUN,
        ),
    ] = 10
    engine: EngineName = EngineName.SPARK
    """The only engine: without --master Spark runs in this process and JVM, on all cores."""


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

    `on_commit` receives each new commit; with `follow` until the process or Spark's stream is stopped. A run
    that was killed has no effect on the tables: the next run continues after the last commit. Raise
    LockedError if another run has the warehouse, and SafetyRefusal if it has the tables of another metadata
    topic.
    """
    refuse_connect(request.master or os.environ.get("SPARK_REMOTE", ""))
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        pipeline = _pipeline(request, resources)

        def report(done: StepResult) -> None:
            if on_commit is not None and done.commit > seen[-1]:
                seen.append(done.commit)
                on_commit(_commit(pipeline, done))

        with pipeline.opened() as run:
            seen = [run.latest.number]
            for missing in run.missing():
                resources.progress.note(f"{missing}; the tables lack them")
            interval_s = request.interval_s if request.follow else None
            if request.follow or run.new_offsets():
                # Spark's session starts here, and not for a run that finds nothing new.
                run_stream(resources.executors, run, report, interval_s=interval_s)
            if run.is_due():
                report(run.step(fold_woken(lambda: resources.executors)))
            return _commit(pipeline, StepResult(run.latest.number))


def _commit(pipeline: Pipeline, done: StepResult) -> PipelineCommit:
    return PipelineCommit(
        commit=done.commit,
        metadata_partitions=done.parts,
        offsets=done.offsets,
        events=done.rows,
        warehouse=pipeline.warehouse.uri,
    )


def _pipeline(request: RunPipelineRequest, resources: Resources) -> Pipeline:
    if request.warehouse is None:
        raise UsageError("--warehouse is missing", hint="a folder, or s3://bucket/folder")
    return Pipeline(
        location=resources.metadata_location,
        warehouse=WarehouseSpec.of(store_uri("--warehouse", request.warehouse)),
        # Not `resources.now_ms`, which reads the clock once: each commit of `follow` has its own time.
        clock_ms=lambda: request.clock_ms() if request.now_ms is None else request.now_ms,
    )
