"""Errors of the data that did not end a run, and the exit code that follows from them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tierctl.errors import AuthenticationError, ExitCode, TierctlError

# A run with several kinds of errors ends with the exit code that is first in this list.
_MOST_SEVERE_FIRST = (ExitCode.CORRUPT, ExitCode.NOT_FOUND, ExitCode.LIMIT)
_REFUSALS_MAX = 5


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


class _TopicRefused(Exception):  # noqa: N818
    """Ends the reading of a topic."""


class Refusals:
    """Passes errors to `report`, and ends the reading of a topic of which nothing may be read.

    That is a topic of which no record was read when its fifth error is reported, if all five are refusals for
    lack of rights. One error replaces them; otherwise they are reported late, but in order.
    """

    def __init__(self, report: Callable[[TierctlError], None]) -> None:
        self._report = report
        self._topic = ""
        self._held: list[AuthenticationError] = []
        self._holds = False
        self.has_records = False
        """Whether a record of any topic was read."""

    @contextmanager
    def within(self, topic: str) -> Iterator[None]:
        """Read `topic` during the block, which ends early, without an error, if nothing may be read."""
        self._topic, self._holds = topic, True
        try:
            yield
        except _TopicRefused:
            pass
        finally:
            self._release()

    def has_read(self) -> None:
        """State that a record of the topic was read."""
        if self._holds:
            self._release()
        self.has_records = True

    def report(self, error: TierctlError) -> None:
        """Report an error of the topic's data, or end its reading."""
        if not self._holds or not isinstance(error, AuthenticationError):
            self._release()
            self._report(error)
            return
        self._held.append(error)
        if len(self._held) == _REFUSALS_MAX:
            first, *_ = self._held
            self._held.clear()
            self._report(
                AuthenticationError(
                    f"{self._topic}: the first {_REFUSALS_MAX} objects are all refused, and no record was "
                    f"read, so the others were not tried; the first: {first.message}",
                    hint="give this user the right to read the objects of the topic",
                )
            )
            raise _TopicRefused

    def _release(self) -> None:
        held, self._held, self._holds = self._held, [], False
        for error in held:
            self._report(error)
