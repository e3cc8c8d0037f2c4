"""`segments --sizes` beside Kafka's own classes in a JVM."""

import csv
from collections.abc import Iterator
from pathlib import Path

from tests.bench.baselines import kafka_program
from tests.bench.clusters import HELD_OUT, ONE, WIDE
from tests.bench.harness import Comparison, MissingBaselineError, Required, Side, row
from tests.bench.metadata_log import MetadataLog, Shape, metadata_log
from tests.bench.process import Measured, run, tierctl

WORK = "`segments --sizes`"
COMPARED = ("topic", "partitions", "segments", "log_bytes", "copying_segments", "deleting_segments")
SAME_AS_WIDE = 1 / 1.3


def sizes(log: MetadataLog, *options: str, stdout: Path | None = None) -> Measured:
    """Run `segments --sizes` over a log."""
    words = tierctl("segments", "--metadata", log.uri, "--sizes", "--output", "csv", *options)
    return run(*words, stdout=stdout)


def beside_jvm(shape: Shape, folder: Path) -> Comparison:
    """Compare `segments --sizes` with a JVM that follows the same log, and their figures by topic."""
    log, own, other = metadata_log(shape), folder / "own.csv", folder / "other.csv"
    ours = Side("tierctl", lambda: sizes(log, stdout=own))
    try:
        program = kafka_program("SegmentSizes")
    except MissingBaselineError as e:
        return Comparison(ours, e)
    theirs = Side("Kafka's classes in a JVM", lambda: run(*program, str(log.folder), stdout=other))
    return Comparison(ours, theirs, lambda: _require_same(own, other))


def _require_same(own: Path, other: Path) -> None:
    ours, theirs = _rows(own), _rows(other)
    assert ours == theirs, f"topics differ: {sorted(set(ours) ^ set(theirs))[:4]}"


def _rows(path: Path) -> list[tuple[str, ...]]:
    with path.open(newline="") as file:
        return sorted(tuple(each[name] for name in COMPARED) for each in csv.DictReader(file))


@row("segments-50x200", work=WORK, shape=str(WIDE), required=Required(ratio=1.5, peak_mb=600))
def segments_wide(folder: Path) -> Iterator[Comparison]:
    """Run over 200 user partitions in each of 50 metadata partitions."""
    yield beside_jvm(WIDE, folder)


@row("segments-1x10000", work=WORK, shape=str(ONE), required=Required(ratio=1.5))
def segments_one(folder: Path) -> Iterator[Comparison]:
    """Run over all user partitions in one metadata partition."""
    yield beside_jvm(ONE, folder)


@row(
    "segments-skew",
    work=f"{WORK}, all in one",
    shape=str(ONE),
    required=Required(ratio=SAME_AS_WIDE),
)
def segments_skew(_folder: Path) -> Iterator[Comparison]:
    """One metadata partition beside fifty: the same number of segments must take about the same time."""
    one, wide = metadata_log(ONE), metadata_log(WIDE)
    yield Comparison(
        Side("tierctl", lambda: sizes(one)), Side("tierctl, 50 metadata partitions", lambda: sizes(wide))
    )


for _name, _shape in HELD_OUT.items():

    @row(
        f"segments-held-out-{_name}",
        work=WORK,
        shape=str(_shape),
        required=Required(ratio=1.5),
        limit="By a profile, reading takes a third of the time, the fold a third, and decoding an eighth.",
    )
    def segments_held_out(folder: Path, shape: Shape = _shape) -> Iterator[Comparison]:
        """Run over shapes for which nothing was tuned."""
        yield beside_jvm(shape, folder)
