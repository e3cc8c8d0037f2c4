"""Seeds of the simulator: several tierctl processes with brokers, faults and crashes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.__main__ import HASH_SEED
from tests.support.amounts import rest_in_matrix

ROOT = Path(__file__).parents[2]


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the simulator in a separate process, because it replaces tierctl's clock and stores."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": HASH_SEED},
    )


@pytest.mark.slow
@pytest.mark.parametrize("seeds", rest_in_matrix(["0..40", "40..1000"]))
def test_no_seed_breaks_a_rule(seeds: str) -> None:
    ran = simulate("--seeds", seeds)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_seed_repeats() -> None:
    """Another process repeats the same steps, so one command repeats a failure."""
    first, second = (simulate("--seeds", "3..5", "--history") for _ in range(2))
    assert first.returncode == 0, first.stdout + first.stderr
    assert len(first.stdout.splitlines()) > 30
    assert first.stdout == second.stdout
