"""The lock of a file that is replaced: runs wait for each other, and no file of the lock stays."""

import subprocess
import sys
from pathlib import Path

import pytest
from tierctl.errors import LockedError
from tierctl.files import exclusive_replacement

COUNT = """
import sys
from pathlib import Path
from tierctl.files import exclusive_replacement
path = Path(sys.argv[1])
for _ in range(int(sys.argv[2])):
    with exclusive_replacement(path, timeout_s=60):
        path.write_text(str(int(path.read_text()) + 1))
"""


def test_processes_exclude_each_other_and_leave_no_lock(tmp_path: Path) -> None:
    path, rounds = tmp_path / "count", 200
    path.write_text("0")
    command = [sys.executable, "-c", COUNT, str(path), str(rounds)]
    runs = [subprocess.Popen(command) for _ in range(4)]
    assert [run.wait(timeout=120) for run in runs] == [0] * 4
    assert path.read_text() == str(4 * rounds)
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_of_a_killed_run_is_taken_over_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "page"
    (tmp_path / ".page.lock").touch()
    with exclusive_replacement(path, timeout_s=0), pytest.raises(LockedError, match=str(tmp_path)):  # noqa: SIM117
        with exclusive_replacement(path, timeout_s=0):
            pass
    assert list(tmp_path.iterdir()) == []
