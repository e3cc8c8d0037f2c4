"""The lock of a broker on its log directory: query it, and hold it against a broker."""

from pathlib import Path

import pytest
from tierctl.errors import SafetyRefusal
from tierctl.files import broker_kept_out
from tierctl.locallog import ensure_stopped, is_locked

from tests.support.broker_lock import can_start, running_broker


def test_a_held_lock_is_seen_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    assert not is_locked(tmp_path)
    with running_broker(tmp_path):
        assert is_locked(tmp_path)
        assert is_locked(tmp_path)
        with pytest.raises(SafetyRefusal, match="running broker"):
            ensure_stopped(tmp_path)
    assert not is_locked(tmp_path)
    ensure_stopped(tmp_path)


def test_asking_does_not_take_the_lock(tmp_path: Path) -> None:
    """A broker that starts at this moment must not fail because of the query."""
    (tmp_path / ".lock").touch()
    is_locked(tmp_path)
    with running_broker(tmp_path):
        pass


def test_a_directory_without_a_lock_file(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert not (tmp_path / ".lock").exists()


def test_what_can_not_be_told_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(SafetyRefusal, match="can't be queried"):
        is_locked(tmp_path)


def test_a_lock_of_this_process_is_kept_until_its_last_block_ends(tmp_path: Path) -> None:
    """POSIX locks end when the process closes any descriptor of the file."""
    (tmp_path / ".lock").touch()
    outer, inner = broker_kept_out(tmp_path), broker_kept_out(tmp_path / "." / "")
    with outer:
        with inner:
            ensure_stopped(tmp_path)
            assert not can_start(tmp_path)
        assert not is_locked(tmp_path)
        assert not can_start(tmp_path)
    assert can_start(tmp_path)
    first, second = broker_kept_out(tmp_path), broker_kept_out(tmp_path)
    first.__enter__()
    with second:
        first.__exit__(None, None, None)
        assert not can_start(tmp_path)
    assert can_start(tmp_path)


def test_a_lock_that_a_broker_holds_is_refused_each_time(tmp_path: Path) -> None:
    with running_broker(tmp_path):
        for _ in range(2):
            with pytest.raises(SafetyRefusal, match="a broker is running"), broker_kept_out(tmp_path):
                pass
    with broker_kept_out(tmp_path):
        assert not can_start(tmp_path)
