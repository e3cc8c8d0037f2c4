"""Plans and outcomes as people and scripts see them."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tierctl.errors import UsageError
from tierctl.plan.steps import Plan, Step
from tierctl.report.terminal import printable

if TYPE_CHECKING:
    from tierctl.apply.outcome import Outcome
    from tierctl.state.tier import TierState

TABLE_COLUMNS = ("action", "topic", "partition", "start_offset", "end_offset", "segment_id", "reason")
OUTCOME_COLUMNS = ("status", *TABLE_COLUMNS[:-1], "error", "why")
FIXED_COLUMNS = (
    "action",
    "reason",
    "topic",
    "topic_id",
    "partition",
    "segment_id",
    "start_offset",
    "end_offset",
)


def say(text: str) -> None:
    """One line for people, on stderr."""
    typer.echo(printable(text), err=True)


def report_quarantined(state: "TierState", *, shown_max: int = 20) -> bool:
    """Name the metadata records that could not be used; whether there are any."""
    for bad in state.quarantined[:shown_max]:
        say(
            f"quarantined: __remote_log_metadata-{bad.metadata_partition} offset {bad.metadata_offset}: "
            f"{bad.error.message}; this metadata partition decides no deletes"
        )
    if len(state.quarantined) > shown_max:
        say(f"quarantined: {len(state.quarantined) - shown_max} more records")
    return bool(state.quarantined)


def write_plan(plan: Plan, file: Path | None) -> None:
    """Keep the plan for `tierctl apply`, whole or not at all."""
    if file is None:
        return
    from tierctl.files import replace_durably

    try:
        replace_durably(file.absolute(), plan.dumps().encode())
    except OSError as e:
        raise UsageError(f"--plan-out {file}: {e.strerror}") from e


def show_plan(plan: Plan, fmt: str) -> None:
    """The plan on stdout: the plan object as json, else a step a line."""
    from tierctl.report import render, render_object

    if fmt == "json":
        render_object(plan.to_json(), fmt)
        return
    rows = [step.to_json() for step in plan.steps]
    render(rows, fmt, _columns(rows), table_columns=TABLE_COLUMNS)
    if sys.stderr.isatty():
        say("nothing to do" if not plan.steps else f"{len(plan.steps)} steps; --apply carries them out")


def show_outcomes(plan: Plan, outcomes: "Sequence[Outcome]", fmt: str) -> None:
    """What became of each step: beside the plan as json, else an outcome a line; failures on stderr too."""
    from tierctl.report import render, render_object

    rows = [outcome.to_json() for outcome in outcomes]
    if fmt == "json":
        render_object(plan.to_json() | {"outcomes": rows}, fmt)
    else:
        render(rows, fmt, [*_columns(rows), "status", "error", "why"], table_columns=OUTCOME_COLUMNS)
    for outcome in outcomes:
        if outcome.error is not None:
            hint = f" ({outcome.error.hint})" if outcome.error.hint else ""
            say(f"{outcome.status} {_where(outcome.step)}: {outcome.error.message}{hint}")


def _where(step: Step) -> str:
    segment = f" from {step.start_offset}" if step.start_offset is not None else ""
    return f"{step.action} {step.topic_id_partition}{segment}"


def _columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The fixed columns, then every further one that some row has, in order of appearance."""
    found = dict.fromkeys(FIXED_COLUMNS) | {key: None for row in rows for key in row}
    return [name for name in found if name not in {"status", "error", "why"}]


@contextmanager
def progress(plan: Plan) -> Iterator[Callable[[int], None]]:
    """A bar of bytes on a terminal's stderr; elsewhere nothing. Yields what to call with bytes done."""
    total = sum(int(step.details.get("segment_size_in_bytes") or 0) for step in plan.steps)
    if not sys.stderr.isatty() or not total:
        yield _unwatched
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(plan.command, total=total)
        yield lambda size_bytes: bar.advance(task, size_bytes)


def _unwatched(_size_bytes: int) -> None:
    """Nobody looks."""
