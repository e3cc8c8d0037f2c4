"""The plan of `sweep`, beside `segments --sizes` of the same log."""

from collections.abc import Iterator
from pathlib import Path

from tests.bench.clusters import WIDE, sweep_inputs
from tests.bench.harness import Comparison, Required, Side, row
from tests.bench.metadata_log import Shape, metadata_log
from tests.bench.process import Measured, run, tierctl
from tests.bench.rows.segments import sizes

AS_LONG_AS_SIZES = 1 / 1.5


def sweep_plan(shape: Shape, *options: str) -> Measured:
    """Plan the deletes of a retention that has expired for a few segments of every topic."""
    log = metadata_log(shape)
    words = sweep_inputs(log).words()
    return run(*tierctl("sweep", "--metadata", log.uri, *words, "--output", "csv", *options), codes=(0, 7))


ONE_BY_ONE = (
    "By processor time, three quarters of the run read and fold events, as `--sizes` does; 12 % decide about "
    "one user partition after the other in Python, 8 % find and read 10,000 files of leader epochs, 2 % "
    "print 8,500 rows."
)


@row(
    "sweep-plan",
    work="`sweep` plan",
    shape=str(WIDE),
    required=Required(ratio=AS_LONG_AS_SIZES),
    limit=ONE_BY_ONE,
)
def sweep(_folder: Path) -> Iterator[Comparison]:
    """Plan a few thousand deletes, with settings for every topic."""
    log = metadata_log(WIDE)
    sweep_inputs(log)
    yield Comparison(
        Side("tierctl", lambda: sweep_plan(WIDE)), Side("`segments --sizes`", lambda: sizes(log))
    )


@row("sweep-skipped", work="`sweep`, no settings", shape=str(WIDE), required=Required(ratio=AS_LONG_AS_SIZES))
def sweep_without_settings(folder: Path) -> Iterator[Comparison]:
    """Plan without settings on an empty tier: every partition is skipped, and messages are bounded."""
    log = metadata_log(WIDE)
    (folder / "kafka-tiered-storage").mkdir()
    words = tierctl("sweep", "--metadata", log.uri, "--remote", folder.as_uri(), "--allow-missing-objects")
    yield Comparison(Side("tierctl", lambda: run(*words)), Side("`segments --sizes`", lambda: sizes(log)))
