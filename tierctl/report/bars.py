"""Progress bars on stderr, for an operator at a terminal; imported only when a bar is shown."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tierctl.model.progress import Advance, Unit

UpdateTasks = Callable[[int, int], None]
"""Shows the number of finished tasks and the number of all tasks."""

_TITLE = "{task.description}"


@contextmanager
def amount_bar(title: str, *, unit: Unit, total: int | None) -> Iterator[Advance]:
    """Show the amount done of `total`; without a total, the amount done and the time."""
    columns: tuple[ProgressColumn, ...] = (
        TextColumn(_TITLE),
        BarColumn(),
        DownloadColumn() if unit == "bytes" else MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    if total is None:
        amount = TextColumn(f"{{task.completed:.0f}} {unit}")
        columns = (SpinnerColumn(), TextColumn(_TITLE), amount, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def task_bar(title: str) -> Iterator[UpdateTasks | None]:
    """Show a bar of tasks; yield the function that updates it, or None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn(_TITLE),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
