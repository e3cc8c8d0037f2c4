"""Captures that are read in bulk, and a comparison of both engines."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tierctl.commands.resources import Resources
from tierctl.metadata.parallel_fold import FoldResult, FoldTask
from tierctl.spark import fold
from tierctl.spark.executors import examined
from tierctl.spark.executors import rendered_text as spark_format
from tierctl.spark.executors.task import dumps, loads
from tierctl.spark.fold import SparkFold
from tierctl.wire.metadata.values import encode

from tests.cli.shell import Ran, tierctl
from tests.metadata.events import started, update
from tests.metadata.topics import topic_in
from tests.spark.on_engines import SPARK
from tests.spark.worlds import Capture

TIERS = {
    "tiered-cluster/before": ("tiered-cluster/before-remote", "tiered-cluster/before"),
    "tiered-cluster/after": ("tiered-cluster/after-remote", "tiered-cluster/after"),
    "untiered-broker/tiered-metadata": ("untiered-broker/tiered-remote", "untiered-broker/local"),
    "unclean-leader/after/broker-1": ("unclean-leader/after/remote", "unclean-leader/after/broker-2"),
    "aiven-plain/broker-logs": ("aiven-plain/bucket", "aiven-plain/broker-logs"),
    "aiven-encrypted/broker-logs": ("aiven-encrypted/bucket", "aiven-encrypted/broker-logs"),
}
"""The tier and the local logs that belong to a folder with a metadata topic."""
DAMAGE = (
    *("record flipped", "log cut", "offset index cut", "time index flipped", "snapshot gone"),
    *("leader epochs changed", "transactions gone", "foreign segment", "foreign object", "temporary file"),
    *("copy dangling", "metadata unreadable", "partition marked"),
    "deleted, objects there",
)
MISPLACED = ("object misplaced", "foreign segment", "foreign object", "update of nothing")


def within(capture: Capture, place: str) -> Path:
    name, _, part = place.partition("/")
    return capture(name) / part


def assert_same(*args: object) -> Ran:
    """Check that a command line prints the same in this process and on the open session; return the run."""
    here, there = tierctl(*args), tierctl(*args, *SPARK)
    assert (there.code, there.out, there.err) == (here.code, here.out, here.err)
    return here


def damaged(folder: Path) -> Path:
    """Return bytes without a batch, a batch with a wrong CRC, invalid values, and an unfinished write."""
    topic = topic_in(folder, writable=True, partition_count=2)
    for number in range(12):
        value = b"\x63what" if number % 5 == 0 else encode(started(number))
        topic.append([(0, value), (1, encode(update(number)))])
    topic.close()
    log = folder / "__remote_log_metadata-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    step = len(data) // 12
    data[4 * step + 40] ^= 1
    data[8 * step : 9 * step + 40] = b"\xff" * (step + 40)
    log.write_bytes(data + data[:30])
    return folder


@dataclass
class Here:
    """Executors that run in this thread; functions, pieces and results are encoded as for Spark."""

    slots: int = 2
    jobs: list[int] = field(default_factory=list)

    def run(self, do: Callable[[Any], Any], pieces: Sequence[Any], **_: object) -> Iterator[Any]:
        """Return the results of the pieces, and note how many there are."""
        self.jobs.append(len(pieces))
        function, sent = pickle.loads(pickle.dumps((do, list(pieces))))
        return (loads(dumps(function(piece))) for piece in sent)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """Run --engine spark without Spark: split, render and join as with Spark."""
    executors = Here()
    # Other tests cover the fold.
    monkeypatch.setattr(Resources, "_bulk_fold", lambda _: None)
    monkeypatch.setattr(Resources, "executors", executors)
    return executors


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split small captures as if they were large."""
    monkeypatch.setattr(fold, "LEAST_EVENTS", 1)
    monkeypatch.setattr(fold, "TASK_EVENTS_MAX", 0)
    monkeypatch.setattr(spark_format, "LEAST_RECORDS", 1)
    monkeypatch.setattr(spark_format, "RECORDS_PER_SPLIT_MIN", 10)
    monkeypatch.setattr(spark_format, "RECORDS_PER_SPLIT_MAX", 20)
    monkeypatch.setattr(examined, "SEGMENTS_AT_ONCE", 20)
    monkeypatch.setattr(examined, "_LEAST_US", 1)


@pytest.fixture
def no_segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FoldResult]]:
    """Require that executors return no state that has segments, and some answers."""
    fold, received = SparkFold.__call__, list[FoldResult]()

    def noting(self: SparkFold, tasks: Sequence[FoldTask]) -> Iterator[FoldResult]:
        for result in fold(self, tasks):
            received.append(result)
            yield result

    monkeypatch.setattr(SparkFold, "__call__", noting)
    yield received
    assert all(table.sums is not None for result in received for table in result.state.tables.values())
    assert any(result.answers for result in received)
