"""When each command last ended without an error, as a file of the state directory."""

import json
from pathlib import Path

from tierctl.errors import CorruptInputError, NotFoundError
from tierctl.files import exclusive, replace_durably

LAST_RUNS = "last-successful-runs.json"
_LOCK = ".last-successful-runs.lock"
_LOCK_TIMEOUT_S = 2.0


def last_successful_runs(state_dir: Path) -> dict[str, int]:
    """Return the end time in ms of each command's last successful run; CorruptInputError if unreadable."""
    path = state_dir / LAST_RUNS
    try:
        found = json.loads(path.read_bytes())
        return {str(command): int(ended_ms) for command, ended_ms in found.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as e:
        raise CorruptInputError(
            "last successful runs",
            expected="an object of times",
            found=str(e),
            source=str(path),
            hint="delete the file: the next runs write it anew",
        ) from None


def record_successful_run(state_dir: Path, command: str, ended_ms: int) -> None:
    """Store that `command` ended at `ended_ms` without an error.

    Raises NotFoundError without the directory, which is not made; OSError, LockedError, and CorruptInputError
    for a file that another program wrote.
    """
    if not state_dir.is_dir():
        raise NotFoundError("the directory does not exist", hint="tierctl cache build makes it")
    with exclusive(state_dir, _LOCK, timeout_s=_LOCK_TIMEOUT_S):
        runs = last_successful_runs(state_dir) | {command: ended_ms}
        replace_durably(state_dir / LAST_RUNS, json.dumps(runs, indent=1, sort_keys=True).encode() + b"\n")
