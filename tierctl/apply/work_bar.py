"""The progress bar of a plan that is carried out."""

from collections.abc import Iterator
from contextlib import contextmanager

from tierctl.model.progress import Advance, Progress, no_op
from tierctl.plan.steps import Action, Plan

_COPIES = {Action.COPY_SEGMENT, Action.MATERIALISE_PARTITION, Action.COPY_OBJECTS}


@contextmanager
def work_bar(plan: Plan, progress: Progress) -> Iterator[tuple[Advance, Advance]]:
    """Show the bytes that `plan` copies or, if it copies none, the segments that it deletes.

    Yield the function that adds copied bytes, and the one that adds deleted segments.
    """
    copies = [step for step in plan.steps if step.action in _COPIES]
    deletes = sum(step.action is Action.DELETE_SEGMENT for step in plan.steps)
    if copies:
        total = sum(int(step.details.get("segment_size_in_bytes") or 0) for step in copies)
        with progress.bar(plan.command, unit="bytes", total=total) as advance:
            yield advance, no_op
    elif deletes:
        with progress.bar(plan.command, unit="segments", total=deletes) as advance:
            yield no_op, advance
    else:
        yield no_op, no_op
