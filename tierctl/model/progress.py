"""How a use case reports to its caller while it runs, without printing."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tierctl.errors import TierctlError

Advance = Callable[[int], None]
"""Adds to the amount done; called from the thread that opened the bar."""

Unit = Literal["bytes", "objects", "tasks"]


class Progress(Protocol):
    """Receives the messages and the amount of work done of one run.

    The command line prints them on stderr; callers of the Python API may keep or discard them.
    """

    def note(self, text: str) -> None:
        """Report a fact that the operator should know and that is no error; a repeated text is shown once."""

    def say(self, text: str) -> None:
        """Report one line of text; a repeated text is shown each time."""

    def problem(self, error: TierctlError) -> None:
        """Report an error that does not end the run."""

    def bar(self, title: str, *, unit: Unit, total: int | None = None) -> AbstractContextManager[Advance]:
        """Show a bar of `total` units (None: unknown) while the context is open; it yields `advance`."""
        ...


@dataclass(slots=True)
class SilentProgress:
    """Keep every message in a list and show nothing."""

    notes: list[str] = field(default_factory=list)
    """Without repetitions, in the order of their first report."""
    lines: list[str] = field(default_factory=list)
    problems: list[TierctlError] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Implement `Progress.note`."""
        if text not in self.notes:
            self.notes.append(text)

    def say(self, text: str) -> None:
        """Implement `Progress.say`."""
        self.lines.append(text)

    def problem(self, error: TierctlError) -> None:
        """Implement `Progress.problem`."""
        self.problems.append(error)

    @contextmanager
    def bar(self, title: str, *, unit: Unit, total: int | None = None) -> Iterator[Advance]:  # noqa: ARG002
        """Implement `Progress.bar`: the amounts are discarded."""
        yield no_op


def no_op(_amount: int) -> None:
    """Discard an amount of work done."""
