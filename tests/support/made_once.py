"""Folders that sessions share: each is made once, and gets its name when it is complete."""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PARTIAL = ".partial"


def make_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return the folder `target`; if it is missing, call `make` with the empty folder that becomes it.

    Other processes wait until one process has made it. Remains of interrupted processes beside it are
    deleted.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + _PARTIAL)
    with _locked(_lock_of(target)):
        if not target.is_dir():
            _delete_interrupted(target.parent)
            # No other process holds this entry's lock, so existing files are remains of an ended process.
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(target)
    return target


def _delete_interrupted(parent: Path) -> None:
    """Delete the remains of other entries from processes that ended."""
    for partial in parent.glob(f"*{_PARTIAL}"):
        with suppress(BlockingIOError), _locked(_lock_of(partial.with_suffix("")), fcntl.LOCK_NB):
            shutil.rmtree(partial, ignore_errors=True)


def _lock_of(target: Path) -> Path:
    return target.with_name(target.name + ".lock")


@contextmanager
def _locked(path: Path, how: int = 0) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | how)
        yield
    # The lock file stays, because another process may have it open and wait for its lock.
