"""Failing disks and killed processes, for tests of code that writes files."""

import errno
import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tierctl import files, in_order
from tierctl.apply.run_context import Observer, observe
from tierctl.files import FileSystem

from tests.support.amounts import TRIES_ALL


class Failing(FileSystem):
    """Fail the nth operation (from 0) with `number`; a failing write has written half of its bytes.

    With `lasts`, every later operation fails, too, as on a full disk.
    """

    def __init__(
        self, nth: int, number: int, *, only: frozenset[str] | None = None, lasts: bool = False
    ) -> None:
        self.seen: list[str] = []
        self._nth = nth
        self._number = number
        self._only = only
        self._lasts = lasts
        self.failed: Path | None = None
        super().__init__(self._fail)

    def _fail(self, operation: str, path: Path) -> None:
        if self._only is not None and operation not in self._only:
            return
        self.seen.append(operation)
        if len(self.seen) == self._nth + 1 or (self._lasts and len(self.seen) > self._nth):
            self.failed = path
            raise OSError(self._number, os.strerror(self._number), str(path))

    def write(self, fd: int, data: bytes | memoryview, path: Path) -> None:
        try:
            super().write(fd, data, path)
        except OSError:
            os.write(fd, bytes(data)[: len(data) // 2])
            raise


NEVER = 1 << 30


def assert_durable(act: Callable[[FileSystem], None]) -> None:
    """Assert that every file written by `act` is synced after its last write and before its rename."""
    unsynced: set[Path] = set()
    unnamed: set[Path] = set()

    def watch(operation: str, path: Path) -> None:
        if operation in {"write", "truncate"}:
            unsynced.add(path)
        elif operation == "fsync":
            unsynced.discard(path)
        elif operation in {"rename", "mkdir", "rmdir", "unlink"}:
            assert not any(
                open_path.parent == path.parent and open_path.stem == path.name for open_path in unsynced
            )
            unnamed.add(path.parent)
        elif operation == "fsync-dir":
            unnamed.discard(path)

    act(FileSystem(watch))
    assert unsynced == set()
    assert unnamed == set()


def operations_of(act: Callable[[FileSystem], None]) -> list[str]:
    """Return the operations of `act` without a fault."""
    watched = Failing(NEVER, errno.EIO)
    act(watched)
    return watched.seen


class Killing(FileSystem):
    """Kill the process with SIGKILL before the nth operation, or in the middle of a write."""

    def __init__(self, nth: int) -> None:
        self._left = nth
        super().__init__(self._kill)

    def _kill(self, operation: str, _path: Path) -> None:
        if self._left == 0 and operation != "write":
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def write(self, fd: int, data: bytes | memoryview, path: Path) -> None:
        if self._left == 0:
            os.write(fd, bytes(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(fd, data, path)


def run_and_die(act: Callable[[FileSystem], None], nth: int) -> bool:
    """Run `act` in a process that is killed at the nth operation; return whether it was killed."""
    with warnings.catch_warnings():
        # Python 3.12 warns about forks in processes with threads; the child uses none and never returns.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        ended_well = False
        try:
            act(Killing(nth))
            ended_well = True
        finally:
            os._exit(0 if ended_well else 1)
    try:
        status = os.waitpid(child, 0)[1]
    except BaseException:
        # After a time-out the child would live on, with the pipes of this process.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    killed = os.WIFSIGNALED(status)
    if not killed and os.WEXITSTATUS(status):
        raise AssertionError("the child failed instead of being killed")
    return killed


def _called(do: Callable[[Any], Any], items: Iterable[Any], **_: int) -> Iterator[Any]:
    yield from map(do, items)


def each_kill(command: Callable[[], object], folder: Path, *, step: int) -> Iterator[int]:
    """Kill `command` at every change of a file in turn, and at last let it end.

    Each run begins with `folder` as it is now. Yield after each run the number of changes that it made.
    Without `TRIES_ALL`, only every `step`th kill is tried.
    """
    made = 0

    def run(_fs: FileSystem) -> None:
        # Every module has this one object, which changes files.
        files.PLAIN.__class__ = Killing
        files.PLAIN.__dict__.update(_left=made, _observe=files.PLAIN._kill)
        # A lock that another thread of the parent held stays locked, so the child has one thread only.
        in_order.__dict__["_submitted"] = _called
        command()

    is_killed = True
    with TemporaryDirectory() as aside:
        kept = shutil.copytree(folder, Path(aside) / "kept")
        while is_killed:
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
            is_killed = run_and_die(run, made)
            yield made
            made += 1 if TRIES_ALL else step


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Call `observer` before and after each side effect of the runs in the block."""
    observe(observer)
    try:
        yield
    finally:
        observe(None)


def flip_bit(path: Path, at: int | None = None) -> None:
    """Flip a bit of a file, in its middle unless `at` states the byte; files linked to it stay."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.unlink()
    path.write_bytes(data)


def without_right_to_look_into(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python find no right to see what is in a folder; root always has it."""
    stat = Path.stat

    def refused(path: Path, **how: Any) -> os.stat_result:
        if folder in path.parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **how)

    monkeypatch.setattr(Path, "stat", refused)


BOUND_BY_MODES = (
    () if os.geteuid() else ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
)
"""The words before a command line whose process may read only what modes allow, which do not bind root."""
