"""The progress that prints nothing."""

from tierctl.errors import UsageError
from tierctl.model.progress import Progress, SilentProgress


def test_messages_are_kept_and_notes_only_once() -> None:
    silent = SilentProgress()
    progress: Progress = silent
    error = UsageError("wrong")
    for _ in range(2):
        progress.note("a note")
        progress.say("a line")
        progress.problem(error)
        with progress.bar("copy", unit="bytes", total=3) as advance:
            advance(3)
    assert silent.notes == ["a note"]
    assert silent.lines == ["a line", "a line"]
    assert silent.problems == [error, error]
