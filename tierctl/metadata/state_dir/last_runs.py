"""When each command last ended without an error, as a file of the state directory."""

from pathlib import Path

from tierctl.errors import NotFoundError
from tierctl.files import exclusive
from tierctl.metadata.state_dir.json_files import read_json, write_json

LAST_RUNS = "last-successful-runs.json"
_LOCK = ".last-successful-runs.lock"
_LOCK_TIMEOUT_S = 2.0


def last_successful_runs(state_dir: Path) -> dict[str, int]:
    """Return the end time in ms of each command's last successful run; CorruptInputError if unreadable."""
    return read_json(
        state_dir / LAST_RUNS,
        lambda found: {str(command): int(ended_ms) for command, ended_ms in found.items()},
        if_missing={},
        what="last successful runs",
        expected="an object of times",
        hint="delete the file: the next runs create it again",
    )


def record_successful_run(state_dir: Path, command: str, ended_ms: int) -> None:
    """Store that `command` ended at `ended_ms` without an error.

    Raises NotFoundError without the directory, which is not made; OSError, LockedError, and CorruptInputError
    for a file that another program wrote.
    """
    if not state_dir.is_dir():
        raise NotFoundError("the directory does not exist", hint="tierctl cache build creates it")
    with exclusive(state_dir, _LOCK, timeout_s=_LOCK_TIMEOUT_S):
        runs = last_successful_runs(state_dir) | {command: ended_ms}
        write_json(state_dir / LAST_RUNS, dict(sorted(runs.items())))
