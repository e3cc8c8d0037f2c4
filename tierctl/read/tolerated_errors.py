"""Errors of the data that did not end a run, and the exit code that follows from them."""

from collections.abc import Callable

from tierctl.errors import ExitCode, TierctlError

# A run with several kinds of errors ends with the exit code that is first in this list.
_MOST_SEVERE_FIRST = (ExitCode.CORRUPT, ExitCode.NOT_FOUND, ExitCode.LIMIT)


class ToleratedErrors:
    """Collects errors that did not end a run, and passes each to `show` immediately."""

    def __init__(self, show: Callable[[TierctlError], None]) -> None:
        self._show = show
        self._codes: set[ExitCode] = set()
        self.count = 0

    def report(self, error: TierctlError) -> None:
        """Record and show one error."""
        self.count += 1
        self._codes.add(error.exit_code)
        self._show(error)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the most severe error; OK without errors."""
        for code in _MOST_SEVERE_FIRST:
            if code in self._codes:
                return code
        return min(self._codes, default=ExitCode.OK)

    def exit_code_of(self, *, has_read: bool) -> ExitCode:
        """Return the exit code of a run that `has_read` data: only one that read none lacks the rights."""
        code = self.exit_code
        return ExitCode.CORRUPT if has_read and code is ExitCode.AUTHENTICATION else code
