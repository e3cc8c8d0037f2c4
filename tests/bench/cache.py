"""A folder outside the repository for what benches make or install once.

It is $TIERCTL_BENCH_CACHE, or ~/.cache/tierctl-bench. An entry is made in a folder of its own, which gets its
name when it is whole; folders that an interrupted process left are deleted.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_PARTIAL = ".partial"


def folder() -> Path:
    """Return the cache folder, which exists."""
    found = Path(os.environ.get("TIERCTL_BENCH_CACHE") or Path.home() / ".cache" / "tierctl-bench")
    found.mkdir(parents=True, exist_ok=True)
    return found


def make_once(name: str, make: Callable[[Path], None], *, source: Sequence[Path] = ()) -> Path:
    """Return the entry `name`; if there is none, call `make` with the empty folder that becomes it.

    An entry made by other versions of the files in `source` is not the same entry. Two processes that want an
    entry at the same time make it once.
    """
    if source:
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in source)).hexdigest()
        name = f"{name}-{digest[:10]}"
    target = folder() / name
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
