"""Labels of the side effects of the mutating commands, so that a test can kill the process around each.

In production the observer does nothing. No code may depend on which observer is installed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Label = Literal[
    "tier.identity.write",
    "copy.started.publish",
    "copy.segment.store",
    "copy.finished.publish",
    "copy.cleanup_started.publish",
    "copy.cleanup.delete",
    "copy.cleanup_finished.publish",
    "sweep.log_start.write",
    "sweep.started.publish",
    "sweep.segment.delete",
    "sweep.finished.publish",
    "delete.marked.publish",
    "delete.partition_started.publish",
    "delete.segment_started.publish",
    "delete.segment.delete",
    "delete.segment_finished.publish",
    "delete.partition_finished.publish",
    "rebuild.epochs.write",
    "rebuild.log_starts.write",
    "rebuild.segments.publish",
    "repair.orphans.publish",
    "repair.indexes.store",
    "repair.offsets.write",
    "materialise.staging.create",
    "materialise.segment.write",
    "materialise.left_out.write",
    "materialise.checkpoints.write",
    "materialise.old_folder.rename",
    "materialise.partition.rename",
    "materialise.staging.delete",
    "restore.objects.copy",
    "restore.staging.create",
    "restore.old_folder.rename",
    "restore.partition.rename",
    "restore.staging.delete",
    "restore.checkpoints.write",
    "restore.segments.publish",
    "restore.bootstrap.write",
]

LABELS: tuple[Label, ...] = get_args(Label)
"""All labels, in the order in which a run reaches them."""

Moment = Literal["before", "after"]
Observer = Callable[[Label, Moment], None]


def _no_op(label: Label, moment: Moment) -> None:
    """Do nothing; this is the observer outside of tests."""


_observer: Observer = _no_op


def observe(observer: Observer | None) -> None:
    """Call `observer` before and after each side effect, in the thread that runs it; None removes it."""
    global _observer  # noqa: PLW0603
    _observer = observer or _no_op


@contextmanager
def effect(label: Label) -> Iterator[None]:
    """Mark the block as the side effect `label`; the observer gets "after" only if the block succeeds."""
    _observer(label, "before")
    yield
    _observer(label, "after")
