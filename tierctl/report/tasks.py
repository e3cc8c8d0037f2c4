"""A bar of tasks, for people at a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[int, int], None]


@contextmanager
def task_bar(what: str) -> Iterator[Show | None]:
    """A bar on stderr where that is a terminal; yields what to call with tasks done and in all, else None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
