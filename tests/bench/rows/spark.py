"""Spark with two cores: the fold and the data sources, the second job of a session."""

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.clusters import ONE, WIDE, scaled
from tests.bench.harness import Comparison, Required, Side, row
from tests.bench.log_tier import logs_in_a_tier
from tests.bench.metadata_log import Shape, metadata_log
from tests.bench.process import REPOSITORY, Measured, run

JOB = REPOSITORY / "tests" / "bench" / "programs" / "job.py"
SMALL = scaled(Shape(segments=20_000, user_partitions=200))
EVENTS = scaled(Shape(segments=500_000, user_partitions=10_000))
MASTER = "local[2]"


def job(engine: str, *words: str) -> Measured:
    """Run a job in a separate process, timed without its start-up."""
    return run(sys.executable, str(JOB), engine, *words, is_self_timed=True)


def fold(shape: Shape) -> Comparison:
    """Compare the fold on executors with that in one process on one core."""
    log, small = metadata_log(shape), metadata_log(SMALL)
    ours = Side(f"Spark, {MASTER}", lambda: job(MASTER, "sizes", log.uri, small.uri))
    return Comparison(ours, Side("engine=local, one core", lambda: job("here", "sizes", log.uri)))


_FOLD = (
    "By processor time, measured beside other work, the executors' workers take 15.5 s, the JVM 0.7 s and "
    "the driver 0.4 s for what one process does in 13.4 s, so that two cores can reach 1.6× at most; the "
    "start and the end of the job, in which one core waits, take the rest"
)
_SPLIT = (
    "Of one process's processor time, reading and checking batches takes 46 %, decoding 20 %, folding 34 %. "
    "Split, finding each event's user partition and compressing events for the shuffle are added. By "
    "processor time, beside other work, a worker takes 2.5 s for a million events that are not split; split, "
    "the workers take 4.2 s, and the JVM 2.0 s to move 51 bytes of each event between tasks, so that two "
    "cores gain nothing"
)


@row("spark-fold", work="Spark: fold", shape=str(WIDE), required=Required(ratio=1.6), limit=_FOLD)
def fold_wide(_folder: Path) -> Iterator[Comparison]:
    """Fold 5.2 million events in fifty metadata partitions."""
    yield fold(WIDE)


@row("spark-fold-skew", work="Spark: fold", shape=str(ONE), required=Required(ratio=1.6), limit=_SPLIT)
def fold_one(_folder: Path) -> Iterator[Comparison]:
    """Fold the same events in one metadata partition."""
    yield fold(ONE)


@row(
    "source-metadata",
    work="data source `remote_log_metadata`, all columns, second read of a session",
    shape=f"{2 * EVENTS.segments:,} events in 50 metadata partitions",
    required=Required(seconds=1.5),
    limit=(
        "On two cores 1.5 s are 3.0 s of processor time. One process without Spark makes the same columns in "
        "1.75 s, half of it for reading and checking batches and a third for decoding values; beside other "
        "work, Spark's Python workers take 2.5 to 3.7 s, and its JVM 2.0 to 2.9 s to convert columns to rows"
    ),
)
def source_metadata(_folder: Path) -> Iterator[Comparison]:
    """Read every column a second time in a session, and discard the rows."""
    log = metadata_log(EVENTS)
    yield Comparison(Side(f"Spark, {MASTER}", lambda: job(MASTER, "remote_log_metadata", log.uri)))


@row(
    "source-log",
    work="data source `remote_log`, all columns, second read of a session",
    shape="4,320,000 records in 24 segments",
    required=Required(ratio=1.6),
    limit=(
        "One process without Spark makes the same columns in 4.8 s, of which the walk over the lengths of "
        "records takes a quarter; the rest of the time is Spark's conversion of the columns to rows"
    ),
)
def source_log(_folder: Path) -> Iterator[Comparison]:
    """Read a day of one partition a second time in a session, compared with the reader in one process."""
    words = logs_in_a_tier()
    yield Comparison(
        Side(f"Spark, {MASTER}", lambda: job(MASTER, "remote_log", *words)),
        Side("the reader in one process", lambda: job("here", "remote_log", *words)),
    )
