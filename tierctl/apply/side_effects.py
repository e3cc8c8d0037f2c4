"""Every side effect of a mutating command has a label, so that a test can kill the process around each.

Production has the observer that does nothing; nothing else may depend on which observer is installed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Label = Literal[
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
    "delete.offsets.commit",
]

LABELS: tuple[Label, ...] = get_args(Label)
"""All of them, in the order a run meets them."""

Moment = Literal["before", "after"]
Observer = Callable[[Label, Moment], None]


def _unobserved(label: Label, moment: Moment) -> None:
    """Production's observer: side effects go unwatched."""


_observer: Observer = _unobserved


def observe(observer: Observer | None) -> None:
    """Call `observer` before and after each side effect from now on, from whichever thread does it."""
    global _observer  # noqa: PLW0603
    _observer = observer or _unobserved


@contextmanager
def effect(label: Label) -> Iterator[None]:
    """The one side effect in the body; "after" is reported only when it succeeded."""
    _observer(label, "before")
    yield
    _observer(label, "after")
