"""Messages and progress bars on stderr, for the operator."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tierctl.errors import TierctlError
from tierctl.model.progress import Advance, Unit, no_op
from tierctl.report.terminal import printable


@dataclass(slots=True)
class Console:
    """Implement `model.Progress`: print messages on stderr, and show bars if stderr is a terminal."""

    _noted: set[str] = field(default_factory=set)

    def note(self, text: str) -> None:
        """Implement `Progress.note`."""
        if text not in self._noted:
            self._noted.add(text)
            self.say(f"note: {text}")

    def say(self, text: str) -> None:
        """Implement `Progress.say`."""
        print(printable(text), file=sys.stderr, flush=True)

    def problem(self, error: TierctlError) -> None:
        """Implement `Progress.problem`: print message and hint as for an error that ends the run."""
        self.say(f"error: {error.message}")
        if error.hint:
            self.say(f"hint: {error.hint}")

    @contextmanager
    def bar(self, title: str, *, unit: Unit, total: int | None = None) -> Iterator[Advance]:
        """Implement `Progress.bar`; without a terminal nothing is shown."""
        if not sys.stderr.isatty():
            yield no_op
            return
        from tierctl.report.bars import amount_bar

        with amount_bar(title, unit=unit, total=total) as advance:
            yield advance
