"""The table of rows: what is measured, beside which rival, and at which size."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import pytest

from tests.bench.log_dirs import Logs
from tests.bench.metadata_log import Shape

TIERCTL, RIVAL = "tierctl", "rival"
# Rivals. Those in INSTALLED come from registries or need Java: only `make matrix` tries them out.
STATELESS, FIRST_RUN, PYTHON = "without a state directory", "first run", "python -c pass"
BOTO3, DELETED_BY, REMOVED_BY, COPIED_BY = "boto3, 8 threads", "boto3", "rm -r", "cp, fsync"
JVM, DUMP_LOG = "Kafka's classes in a JVM", "kafka-dump-log"
PASSES: Final = 10
"""How often the events are decoded: the time to load or to compile the loops is a small part then."""
OBSTORE = "obstore, 8 threads"
INSTALLED = {JVM, DUMP_LOG, OBSTORE}


@dataclass(frozen=True, slots=True)
class Row:
    """One row: two programs that do the same work as whole processes, `rounds` times each.

    `work` and `rival` are what the table shows; a row without a rival shows how the cost grows. `shape` is a
    Shape, Logs or None. `required` is the speed relative to the rival that is asked for, and limits.
    With `is_per_event` the processor time per event is compared, not the time of the whole process.
    """

    key: str
    work: str
    rival: str
    shape: Any
    required: str = ""
    rounds: int = 3
    is_per_event: bool = False

    def small(self) -> Self:
        """Return the same row with little data."""
        return self if self.shape is None else replace(self, shape=self.shape.small())


WIDE: Final = Shape(segments=2_600_000, user_partitions=10_000)
"""KIP-405's number of segments; 200 user partitions in each metadata partition."""
ONE: Final = replace(WIDE, metadata_partitions=1)
LARGE: Final = replace(WIDE, segments=10_000_000)
FEW: Final = Shape(segments=1_000_000, user_partitions=500, deleted=0.4, failed=0.01, custom=0.5)
OUTAGE: Final = replace(WIDE, failed=0.3)
"""The store was away: 30 % of the copies were begun again."""
MANY: Final = Shape(segments=1_500_000, user_partitions=300_000, between=300, spread=1)
"""FEW and MANY have irregular histories: deletes, failed copies, other counts. Nothing is tuned to them."""
RECORDS: Final = Shape(segments=500_000, user_partitions=200, metadata_partitions=1)
EXPIRED: Final = Shape(segments=6_000, user_partitions=1, spread=0, segment_bytes=1000)
SPREAD: Final = replace(EXPIRED, user_partitions=300)
TINY: Final = Shape(segments=20, user_partitions=4, metadata_partitions=5)
REGULAR: Final = Shape(segments=1_000_000, user_partitions=10_000)
SHAPES: Final = {
    "failed": ("60 % of copies failed", replace(REGULAR, segments=800_000, failed=0.6)),
    "doubled": ("30 % of segments copied by two leaders", replace(REGULAR, segments=770_000, doubled=0.3)),
    "unclean": ("unclean elections after 5 %", replace(REGULAR, unclean=0.05)),
    "terms": ("a leader epoch in every segment", replace(REGULAR, terms=40)),
    "custom": ("custom metadata on all", replace(REGULAR, custom=1)),
    "interrupted": ("half of the deletes interrupted", replace(REGULAR, deleted=0.4, interrupted=0.5)),
    "batches": ("100 events per batch", replace(REGULAR, events_of_a_batch=100)),
    "one": ("one metadata partition", replace(REGULAR, metadata_partitions=1)),
    "narrow": ("500,000 user partitions", Shape(segments=2_500_000, user_partitions=500_000, spread=0)),
    "whole": ("one user partition", Shape(segments=2_600_000, user_partitions=1, spread=0)),
}
"""Histories that differ from the regular one in one thing, with their names."""
LOGS: Final = Logs(segments=32)

SIZES, STATE, COPY = "`segments --sizes`", "`segments --sizes --state-dir`", "`copy --apply` to S3"
ON_SPARK = f"{SIZES}, two workers of Spark"
FAST = "≥ 1×, ≤ 250 MB"
TEXT = "≥ 4×, ≤ 150 MB"
THE_REGULAR = "the regular shape"

IN_README: Final = (
    Row("segments-50x200", SIZES, JVM, WIDE, "≥ 6×, ≤ 400 MB"),
    Row("segments-outage", f"{SIZES}, 30% of copies failed", JVM, OUTAGE, "≥ 4×"),
    Row("segments-held-out-few", f"{SIZES}, 40% deleted", JVM, FEW),
    Row("sweep-plan", "`sweep` plan", SIZES, WIDE, "≥ 0.8×"),
    Row("state-next", f"{STATE}, no new events", FIRST_RUN, WIDE, "≤ 1 s"),
    Row("pipeline-first", "`pipeline run`, first", ON_SPARK, WIDE, "≤ 60 s", rounds=1),
    Row("pipeline-new", "`pipeline run`, 1 % new events", FIRST_RUN, WIDE, "≥ 6.7×", rounds=1),
    Row("format-kafka", "`format --style kafka`, 1 M records", DUMP_LOG, RECORDS, TEXT),
    Row("copy-s3-boto3", COPY, BOTO3, LOGS, FAST),
    Row("deletes-s3", "`sweep --apply`, S3", DELETED_BY, EXPIRED, "≥ 0.5×"),
)
"""The rows of README.md; tierctl-speed(7) has all rows."""
IN_MANUAL: Final = (
    Row("pipeline-one", "`pipeline run`, first", ON_SPARK, ONE, "≤ 60 s", rounds=1),
    Row("spark-sizes-50x200", ON_SPARK, SIZES, WIDE, rounds=1),
    Row("spark-sizes-1x10000", ON_SPARK, SIZES, ONE, rounds=1),
    Row("segments-1x10000", SIZES, JVM, ONE),
    Row("segments-held-out-many", SIZES, JVM, MANY),
    Row("state-first", f"{STATE}, first run", STATELESS, WIDE, "≥ 0.83×"),
    Row("state-new", f"{STATE}, 1 % new events", STATELESS, WIDE, "≥ 4× or ≤ 2 s"),
    *(
        Row(f"shape-{key}", f"{SIZES}, {name}", THE_REGULAR, shape, "≥ 0.67×", 1, is_per_event=True)
        for key, (name, shape) in SHAPES.items()
    ),
    Row("format-json", "`format --style json`, 1 M records", DUMP_LOG, RECORDS, TEXT),
    Row("format-kip", "`format --style kip`, 1 M records", DUMP_LOG, RECORDS, TEXT),
    Row("decode", f"decode 1 M records {PASSES} times, with CRC", JVM, RECORDS, "≥ 4×"),
    Row("source-again", "`remote_log_metadata`, 1 M records, read again in a session", "", RECORDS, "≤ 2 s"),
    Row("copy-s3-obstore", COPY, OBSTORE, LOGS, FAST),
    Row("copy-s3-tls", f"{COPY} over TLS", BOTO3, LOGS, FAST),
    Row("copy-s3-aiven", f"{COPY}, layout aiven", BOTO3, LOGS, FAST),
    Row("copy-s3-batches", COPY, BOTO3, Logs(segments=16, batch_bytes=1 << 10), FAST),
    Row("copy-local", "`copy --apply` to a folder", COPIED_BY, LOGS),
    Row("deletes-s3-wide", "`sweep --apply`, S3", DELETED_BY, SPREAD, "≥ 0.5×"),
    Row("deletes-folder", "`sweep --apply`, folder", REMOVED_BY, EXPIRED),
    Row("start-version", "`--version`", PYTHON, None, rounds=11),
    Row("start-help", "`--help`", PYTHON, None, "≤ 0.5 s", rounds=11),
    Row("start-completion", "completion", PYTHON, None, rounds=11),
    Row("start-segments", "`segments`", PYTHON, TINY, "≥ 0.031×", rounds=11),
    Row("large-segments", SIZES, "", LARGE, rounds=1),
    Row("large-sweep", "`sweep` plan", "", LARGE, rounds=1),
    Row("large-state-first", f"{STATE}, first run", "", LARGE, rounds=1),
    Row("large-state-next", f"{STATE}, no new events", "", LARGE, rounds=1),
    Row("large-spark-sizes", ON_SPARK, "", LARGE, rounds=1),
    Row("large-pipeline", "`pipeline run`, first", "", LARGE, rounds=1),
)
ROWS: Final = {row.key: row for row in (*IN_README, *IN_MANUAL)}


_REPEATED: Final = {
    ("copy-s3-obstore", TIERCTL),
    *(("copy-s3-tls", contestant) for contestant in (TIERCTL, RIVAL)),
    ("deletes-s3", TIERCTL),
    ("shape-failed", RIVAL),
    *(("state-first", contestant) for contestant in (TIERCTL, RIVAL)),
    ("sweep-plan", RIVAL),
}
"""Contestants that run the program of another row's, on other data or with another store."""


def measures(*beginnings: str) -> pytest.MarkDecorator:
    """Parametrize a test by the rows whose keys begin so, and by their contestants."""
    rows = [row for row in ROWS.values() if row.key.startswith(beginnings)]
    # Rows with one rival run the same programs: `make test` tries the first of them.
    tried = {row.rival: row for row in reversed(rows)}.values()
    return pytest.mark.parametrize(
        ("row", "contestant"),
        [
            pytest.param(row, contestant, id=f"{row.key}-{contestant}", marks=_marks(row, contestant, tried))
            for row in rows
            for contestant in ([TIERCTL, RIVAL] if row.rival else [TIERCTL])
        ],
        indirect=["row"],
    )


def _marks(row: Row, contestant: str, tried: Collection[Row]) -> list[pytest.MarkDecorator]:
    is_on_spark = row.key.startswith(("pipeline-", "spark-", "source-"))
    takes_long = row.shape == LARGE or is_on_spark or (contestant == RIVAL and row.rival in INSTALLED)
    is_for_matrix = takes_long or row not in tried or (row.key, contestant) in _REPEATED
    return [pytest.mark.benchmark(group=row.key), *([pytest.mark.matrix] if is_for_matrix else [])]
