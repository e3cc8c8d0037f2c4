"""Check units with systemd-analyze, which needs no running systemd."""

import shutil
import subprocess
from pathlib import Path

import pytest

TIMEOUT_S = 60


def analyze(*args: str, unit: Path) -> None:
    """Fail unless systemd-analyze accepts the unit without a warning; skip without the tool."""
    program = shutil.which("systemd-analyze")
    if program is None:
        # It is skipped also under CI=true, because systemd can't be installed like a server.
        pytest.skip("NOT TESTED WITH SYSTEMD: systemd-analyze is not there")
    ran = subprocess.run(
        [program, *args, unit], capture_output=True, timeout=TIMEOUT_S, check=False, text=True
    )
    remarks = [line for line in ran.stderr.splitlines() if unit.stem in line]
    assert (ran.returncode, remarks) == (0, []), ran.stdout + ran.stderr
