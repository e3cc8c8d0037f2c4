"""A worker reuses the memory of arrays that it has freed, and imports no package that it does not need."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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


SHARES = """
import sys
import numpy as np
import pyarrow as pa
from tierctl.metadata.topic import open_topic
from tierctl.model.location import TopicLocation
from tierctl.spark.fold_rows import FOLDED, rows_of_shares
from tierctl.spark.sources.metadata_splits import event_tasks, read_task
from tierctl.wire.arrays import array_of

location = TopicLocation(uri=sys.argv[1])
with_ends = open_topic(location)
ranges = {number: (0, end) for number, end in with_ends.end_offsets().items() if end}
tasks = event_tasks(location, ranges, columns=(*FOLDED, "segment_id"))
batches = [batch for task in tasks for batch in read_task(task)]
shares = [array_of(pa.int32(), np.zeros(batch.num_rows, np.int32)) for batch in batches]
of_one = [batch.append_column("share", share) for batch, share in zip(batches, shares)]
assert len(list(rows_of_shares(None, of_one))) > 1
print("pandas" in sys.modules)
"""


def test_a_worker_that_builds_flat_files_does_not_import_pandas(capture: Callable[[str], Path]) -> None:
    """Pandas takes 40 MB, and pyarrow imports it where it makes an array of Python's objects."""
    pytest.importorskip("pandas")
    folder = capture("tiered-cluster") / "before"
    command = [sys.executable, "-c", SHARES, folder.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr
