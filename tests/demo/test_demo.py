"""The demo passes and prints what it announces."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.__main__ import STEPS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.matrix
@pytest.mark.slow
def test_the_demo_passes_and_shows_every_step() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for step in STEPS:
        assert f"$ {step.command}" in done.stdout
    assert done.stdout.count("done    copy_segment") == 5
    assert "... and 9 more lines" in done.stdout
    assert "done    delete_segment  bills" in done.stdout
    assert "done    delete_partition  bills" in done.stdout
