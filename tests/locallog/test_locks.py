"""A running broker's lock, as Java takes it: a POSIX write lock on the whole of `.lock`."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tierctl.errors import SafetyRefusal
from tierctl.locallog import ensure_stopped, is_locked

_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def _held(path: Path) -> Iterator[None]:
    command = [sys.executable, "-c", _HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield
        holder.communicate()


def test_a_held_lock_is_seen_and_left_alone(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.touch()
    assert not is_locked(tmp_path)
    with _held(lock):
        assert is_locked(tmp_path)
        assert is_locked(tmp_path)
        with pytest.raises(SafetyRefusal, match="running broker"):
            ensure_stopped(tmp_path)
    assert not is_locked(tmp_path)
    ensure_stopped(tmp_path)


def test_asking_does_not_take_the_lock(tmp_path: Path) -> None:
    """A broker that starts at this moment must not fail because somebody looked."""
    lock = tmp_path / ".lock"
    lock.touch()
    is_locked(tmp_path)
    with _held(lock):
        pass


def test_a_directory_without_a_lock_file(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert not (tmp_path / ".lock").exists()


def test_what_can_not_be_told_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(SafetyRefusal, match="can't be queried"):
        is_locked(tmp_path)
