"""systemd-analyze, where the machine has it: it checks units without a running systemd."""

import shutil
import subprocess
from pathlib import Path

import pytest

TIMEOUT_S = 60


def analyze(*args: str, unit: Path) -> None:
    """Fail unless systemd-analyze accepts the unit without a remark; skip where the tool is not there."""
    program = shutil.which("systemd-analyze")
    if program is None:
        # No failure under CI=true either: systemd can't be installed beside a project, as a server can.
        pytest.skip("NOT TESTED WITH SYSTEMD: systemd-analyze is not there")
    ran = subprocess.run(
        [program, *args, unit], capture_output=True, timeout=TIMEOUT_S, check=False, text=True
    )
    remarks = [line for line in ran.stderr.splitlines() if unit.stem in line]
    assert (ran.returncode, remarks) == (0, []), ran.stdout + ran.stderr
