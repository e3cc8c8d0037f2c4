"""A worker reuses the memory of arrays that it has freed, and imports no package that it does not need."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.spark.session.open import own_settings

FAULTS = """
import resource
import numpy as np

def fill():
    arrays = [np.ones(1 << 20, np.int8) for _ in range(40)]

fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(environment: dict[str, str]) -> int:
    """Return how many pages a new process had to get from the system for arrays of equal size."""
    return int(subprocess.check_output([sys.executable, "-c", FAULTS], env=environment))


def test_freed_memory_is_reused() -> None:
    names = own_settings("spark://h:7077").items()
    assert faults({k.removeprefix("spark.executorEnv."): v for k, v in names}) < 0.1 * faults({})


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
