"""What benchmarks have done in a driver process of Spark, and what it cost."""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tierctl.apply.side_effects import SideEffectContext, SideEffectInput, SideEffectResult
from tierctl.model import RemoteLogSegmentMetadata, Uuid
from tierctl.model.location import TopicLocation
from tierctl.pipeline.run import run_on
from tierctl.spark import register
from tierctl.spark.executors.fold import fold_topic
from tierctl.spark.executors.transport import Executors
from tierctl.storage import TierSpec, open_tier

from tests.pipeline.tables import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _TIMES = 1, slice(11, 15)
"""Fields of /proc/<pid>/stat behind the name: the parent; times, those of children that ended among them."""


@dataclass(slots=True)
class Cost:
    """Wall and processor time of `events`."""

    events: int
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def __str__(self) -> str:
        each = 1e6 / self.events
        return (
            f"{self.wall_s:7.2f} s wall, {self.cpu_s:7.2f} s of processors; an event "
            f"{self.wall_s * each:5.2f} us, {self.cpu_s * each:5.2f} us"
        )


@contextmanager
def measured(cost: Cost, pid: int) -> Iterator[None]:
    """Fill in what the block costs a process and all that it started."""
    cpu_s, began_s = cpu_of_tree_s(pid), time.perf_counter()
    yield
    cost.wall_s, cost.cpu_s = time.perf_counter() - began_s, cpu_of_tree_s(pid) - cpu_s


def cpu_of_tree_s(root: int) -> float:
    """Processor time so far of a process and its descendants."""
    parents, ticks = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[_PARENT])
            ticks[int(entry.name)] = sum(map(int, fields[_TIMES]))
    own, added = {root}, True
    while added:
        children = {pid for pid, parent in parents.items() if parent in own and pid not in own}
        own, added = own | children, bool(children)
    return sum(ticks.get(pid, 0) for pid in own) / _TICKS


def fold_on(spark: "SparkSession", topic: Path) -> int:
    """Fold a topic on executors; how many offsets were read."""
    return sum(fold_topic(spark, TopicLocation(uri=topic.as_uri())).read.values())


def tables_on(spark: "SparkSession", topic: Path, warehouse: Path) -> int:
    """Make a new warehouse on executors; the number of its commit."""
    shutil.rmtree(warehouse, ignore_errors=True)
    return run(topic, warehouse, run_tasks=run_on(Executors(spark)))


def read_all(spark: "SparkSession", source: str, options: dict[str, str]) -> None:
    """Every row of a source with every column, for nobody."""
    register(spark)
    spark.read.format(source).options(**options).load().write.format("noop").mode("overwrite").save()


def _nothing(_bench: SideEffectContext, _piece: SideEffectInput) -> SideEffectResult:
    return SideEffectResult(begun=True)


@dataclass(slots=True)
class Waves:
    """What a wave costs that has nothing to do, by its number of pieces."""

    first_s: float = 0.0
    wall_s: dict[int, float] = field(default_factory=dict)
    cpu_s: dict[int, float] = field(default_factory=dict)


def waves_on(spark: "SparkSession", remote: Path, sizes: tuple[int, ...], count: int) -> Waves:
    """`count` waves of each size through SparkEngine; the first ever, which starts workers, apart."""
    from pyspark import cloudpickle
    from tierctl.spark.executors.engine import SideEffectContextSpec, SparkEngine

    # Executors have tierctl, and no tests.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    remote.mkdir(exist_ok=True)
    tier = TierSpec(remote.as_uri())
    opened = open_tier(tier)
    context, found = SideEffectContext(remote=opened), Waves()
    engine = SparkEngine(Executors(spark), SideEffectContextSpec(remote=tier.resolved(opened)))
    began_s = time.perf_counter()
    engine.map(_nothing, [_piece(0)], context)
    found.first_s = time.perf_counter() - began_s
    for size in sizes:
        pieces = [_piece(number) for number in range(size)]
        cost = Cost(count)
        with measured(cost, os.getpid()):
            for _ in range(count):
                assert all(answer.begun for answer in engine.map(_nothing, pieces, context))
        found.wall_s[size], found.cpu_s[size] = cost.wall_s / count, cost.cpu_s / count
    return found


def _piece(number: int) -> SideEffectInput:
    return SideEffectInput(
        metadata=RemoteLogSegmentMetadata(
            topic="orders",
            topic_id=Uuid.from_bytes(bytes(16)),
            partition=0,
            segment_id=Uuid.from_bytes(number.to_bytes(16, "big")),
            start_offset=number,
            end_offset=number,
            broker_id=1,
            max_timestamp_ms=1,
            event_timestamp_ms=1,
            segment_leader_epochs=((0, number),),
            segment_size_in_bytes=1,
        )
    )
