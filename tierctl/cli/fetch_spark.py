"""`tierctl fetch --engine spark`: executors read and render the records, here they are printed in order."""

import io
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from tierctl.cli.context import Context
from tierctl.cli.fetch import asked_partitions
from tierctl.cli.reading import Tier, note
from tierctl.errors import TierctlError

if TYPE_CHECKING:
    from tierctl.read.tolerated_errors import ToleratedErrors
    from tierctl.spark.executors.fetch import Output, PrintStep


def fetch_records(ctx: typer.Context, context: Context, problems: "ToleratedErrors") -> None:
    """What without Spark is printed, byte for byte."""
    from tierctl.spark.executors.fetch import TextFormat, printed

    tier = Tier.of(context)
    output = str(ctx.params["output"] or "jsonl")
    form = TextFormat(
        spec=context.remote_spec(tier.remote),
        output="csv" if output == "csv" else "jsonl",
        binary=str(ctx.params["binary"]),
    )
    found = printed(
        context.executors(), form, _pieces(ctx, context, tier), rows_max=ctx.params["max_records"]
    )
    _write(_told(found, problems), output)


def _pieces(ctx: typer.Context, context: Context, tier: Tier) -> "Iterator[PrintStep]":
    """Tasks in order; what is wrong on the way is told when its turn to be printed comes."""
    from tierctl.read.parallel.task_planner import plan_read_tasks
    from tierctl.read.tolerated_errors import ToleratedErrors
    from tierctl.spark.executors.fetch import SPLIT_BYTES, PrintStep

    met: list[TierctlError] = []
    problems = ToleratedErrors(met.append)
    is_committed = str(ctx.params["isolation"]) == "read_committed"

    def taken() -> tuple[TierctlError, ...]:
        found = tuple(met)
        met.clear()
        return found

    try:
        for asked in asked_partitions(ctx, context, tier, problems):
            tasks = plan_read_tasks(
                asked.view,
                *asked.reader.span(asked.start, asked.until),
                committed_only=(tier.fetcher, problems.report) if is_committed else None,
                split_bytes=SPLIT_BYTES,
            )
            for task in tasks:
                yield PrintStep(task=task, problems=taken())
            yield PrintStep(problems=taken(), note=asked.note)
    except TierctlError as e:
        yield PrintStep(problems=taken(), ended=e)


def _told(found: "Iterator[Output]", problems: "ToleratedErrors") -> Iterator[str]:
    """The text; what else there is to say goes to stderr."""
    for printed in found:
        for problem in printed.problems:
            problems.report(problem)
        if printed.text:
            yield printed.text
        if printed.note is not None:
            note(printed.note)


def _write(texts: Iterator[str], output: str) -> None:
    from tierctl.read import record_rows
    from tierctl.report import render

    out = sys.stdout
    match output:
        case "table":
            render(_rows(texts), "table", record_rows.COLUMNS, table_columns=record_rows.TABLE_COLUMNS)
        case "json":
            separator = "["
            for text in texts:
                out.write(f"{separator}\n" + text.rstrip("\n").replace("\n", ",\n"))
                separator = ","
            out.write("[]\n" if separator == "[" else "\n]\n")
        case "csv":
            render([], "csv", record_rows.COLUMNS)
            for text in texts:
                out.write(text)
        case _:
            for text in texts:
                out.write(text)


def _rows(texts: Iterator[str]) -> Iterator[dict[str, Any]]:
    for text in texts:
        for line in io.StringIO(text):
            yield json.loads(line)
