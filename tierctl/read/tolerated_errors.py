"""What reading had to go around, kept until the end decides the exit code."""

from collections.abc import Callable

from tierctl.errors import ExitCode, TierctlError

# When a run met several kinds of trouble, the first of these is its exit code.
_GRAVEST_FIRST = (ExitCode.CORRUPT, ExitCode.NOT_FOUND, ExitCode.LIMIT)


class ToleratedErrors:
    """Takes errors that did not end the reading; `show` sees each at once."""

    def __init__(self, show: Callable[[TierctlError], None]) -> None:
        self._show = show
        self._codes: set[ExitCode] = set()
        self.count = 0

    def report(self, error: TierctlError) -> None:
        """Keep and show one error."""
        self.count += 1
        self._codes.add(error.exit_code)
        self._show(error)

    @property
    def exit_code(self) -> ExitCode:
        """OK when there was none, else the gravest one's."""
        for code in _GRAVEST_FIRST:
            if code in self._codes:
                return code
        return min(self._codes, default=ExitCode.OK)
