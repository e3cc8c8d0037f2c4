"""Folders that sessions share: made once, and whole when they have their name."""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PARTIAL = ".partial"


def make_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return the folder `target`; if there is none, call `make` with the empty folder that becomes it.

    Processes that want it at the same time wait until one has made it. What interrupted processes left beside
    it is deleted.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + _PARTIAL)
    with _locked(_lock_of(target)):
        if not target.is_dir():
            _delete_interrupted(target.parent)
            # Nobody else holds this entry's lock: what is there was left by a process that ended.
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(target)
    return target


def _delete_interrupted(parent: Path) -> None:
    """Delete what processes that ended left of other entries in the folder."""
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
    # The file stays: another process may hold it open and wait for its lock.
