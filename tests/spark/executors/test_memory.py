"""A worker reuses the memory of arrays that it has freed."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from tierctl.spark.executors.task import keep_freed_memory

if sys.argv[1] == "keeps" and not keep_freed_memory():
    sys.exit("no mallopt")

def fill():
    arrays = [np.ones(1 << 20, np.int8) for _ in range(40)]

fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Return how many pages a new process had to get from the system for arrays of equal size."""
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=False)
    if done.stderr == "no mallopt\n":
        pytest.skip("the C library has no mallopt")
    return int(done.stdout)


def test_freed_memory_is_reused() -> None:
    assert faults("keeps") < 0.1 * faults("returns")
