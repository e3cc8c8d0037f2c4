"""Decode every field of every event with CRC checks, in a warm process, without reading files."""

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.baselines import kafka_program
from tests.bench.harness import Comparison, MissingBaselineError, Required, Side, row
from tests.bench.metadata_log import metadata_log
from tests.bench.process import REPOSITORY, run
from tests.bench.rows.format import SHAPE, TEXT

PASSES = 6


@row(
    "decode",
    work="decode to columns, all fields",
    shape=TEXT,
    required=Required(ratio=1.5),
    limit="By a profile, a fifth of the time is the walk over the lengths of a million one-record batches.",
)
def decode(_folder: Path) -> Iterator[Comparison]:
    """Compare the median pass of a process with a loop over Kafka's classes."""
    log = metadata_log(SHAPE)
    program = REPOSITORY / "tests" / "bench" / "programs" / "decode.py"
    words = [sys.executable, str(program), str(log.folder), str(PASSES)]
    ours = Side("tierctl", lambda: run(*words, is_self_timed=True))
    try:
        theirs = [*kafka_program("DecodeEvents"), str(log.folder), str(PASSES)]
    except MissingBaselineError as e:
        yield Comparison(ours, e)
        return
    yield Comparison(ours, Side("Kafka's classes in a warm JVM", lambda: run(*theirs, is_self_timed=True)))
