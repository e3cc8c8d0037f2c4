"""The table of rows: what is measured, beside which rival, and at which size."""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

import pytest

from tests.bench.log_dirs import Logs
from tests.bench.metadata_log import Shape

TIERCTL, RIVAL = "tierctl", "rival"
# Rivals. Those of the second group come from registries or need Java: only `make matrix` tries them out.
STATELESS, FIRST_RUN, PYTHON = "without a state directory", "first run", "python -c pass"
BOTO3, DELETED_BY, REMOVED_BY, COPIED_BY = "boto3, 8 threads", "boto3", "rm -r", "cp, fsync"
JVM, DUMP_LOG = "Kafka's classes in a JVM", "kafka-dump-log"
OBSTORE = "obstore, 8 threads"
INSTALLED = {JVM, DUMP_LOG, OBSTORE}


@dataclass(frozen=True, slots=True)
class Row:
    """One row: two programs that do the same work as whole processes, `rounds` times each.

    `work` and `rival` are what the table shows; a row without a rival shows how the cost grows. `shape` is a
    Shape, Logs or None. `required` is the speed relative to the rival that is asked for, and limits.
    """

    key: str
    work: str
    rival: str
    shape: Any
    required: str = ""
    rounds: int = 3

    def small(self) -> Self:
        """Return the same row with little data."""
        return self if self.shape is None else replace(self, shape=self.shape.small())


WIDE: Final = Shape(segments=2_600_000, user_partitions=10_000)
"""KIP-405's number of segments; 200 user partitions in each metadata partition."""
ONE: Final = replace(WIDE, metadata_partitions=1)
LARGE: Final = replace(WIDE, segments=10_000_000)
FEW: Final = Shape(segments=1_000_000, user_partitions=500, deleted=0.4, failed=0.01, custom=0.5)
MANY: Final = Shape(segments=1_500_000, user_partitions=300_000, between=300, spread=1)
"""FEW and MANY have irregular histories: deletes, failed copies, other counts. Nothing is tuned to them."""
RECORDS: Final = Shape(segments=500_000, user_partitions=200, metadata_partitions=1)
EXPIRED: Final = Shape(segments=6_000, user_partitions=1, spread=0, segment_bytes=1000)
SPREAD: Final = replace(EXPIRED, user_partitions=300)
TINY: Final = Shape(segments=20, user_partitions=4, metadata_partitions=5)
LOGS: Final = Logs(segments=32)

SIZES, STATE, COPY = "`segments --sizes`", "`segments --sizes --state-dir`", "`copy --apply` to S3"
ON_SPARK = f"{SIZES}, two workers of Spark"
FAST = "≥ 1×, ≤ 250 MB"

IN_README: Final = (
    Row("segments-50x200", SIZES, JVM, WIDE, "≥ 1.5×, ≤ 600 MB"),
    Row("segments-1x10000", SIZES, JVM, ONE, "≥ 1.5×"),
    Row("segments-held-out-few", f"{SIZES}, 40% deleted", JVM, FEW, "≥ 1.5×"),
    Row("sweep-plan", "`sweep` plan", SIZES, WIDE, "≥ 0.67×"),
    Row("state-next", f"{STATE}, no new events", FIRST_RUN, WIDE, "≥ 20× or ≤ 1.5 s"),
    Row("pipeline-first", "`pipeline run`, first", ON_SPARK, WIDE, "≤ 60 s", rounds=1),
    Row("pipeline-new", "`pipeline run`, 1 % new events", FIRST_RUN, WIDE, "≥ 6.7×", rounds=1),
    Row("format-kafka", "`format --style kafka`, 1 M records", DUMP_LOG, RECORDS, "≥ 3×, ≤ 150 MB"),
    Row("copy-s3-boto3", COPY, BOTO3, LOGS, FAST),
    Row("deletes-s3", "`sweep --apply`, S3", DELETED_BY, EXPIRED, "≥ 0.5×"),
)
"""The rows of README.md; tierctl-speed(7) has all rows."""
IN_MANUAL: Final = (
    Row("pipeline-one", "`pipeline run`, first", ON_SPARK, ONE, "≤ 60 s", rounds=1),
    Row("spark-sizes-50x200", ON_SPARK, SIZES, WIDE, rounds=1),
    Row("spark-sizes-1x10000", ON_SPARK, SIZES, ONE, rounds=1),
    Row("segments-held-out-many", SIZES, JVM, MANY, "≥ 1.5×"),
    Row("state-first", f"{STATE}, first run", STATELESS, WIDE, "≥ 0.5×"),
    Row("state-new", f"{STATE}, 1 % new events", STATELESS, WIDE, "≥ 5×"),
    Row("format-json", "`format --style json`, 1 M records", DUMP_LOG, RECORDS, "≥ 3×, ≤ 150 MB"),
    Row("format-kip", "`format --style kip`, 1 M records", DUMP_LOG, RECORDS, "≥ 3×, ≤ 150 MB"),
    Row("copy-s3-obstore", COPY, OBSTORE, LOGS, FAST),
    Row("copy-s3-tls", f"{COPY} over TLS", BOTO3, LOGS, FAST),
    Row("copy-s3-aiven", f"{COPY}, layout aiven", BOTO3, LOGS, FAST),
    Row("copy-s3-batches", COPY, BOTO3, Logs(segments=16, batch_bytes=1 << 10), FAST),
    Row("copy-local", "`copy --apply` to a folder", COPIED_BY, LOGS),
    Row("deletes-s3-wide", "`sweep --apply`, S3", DELETED_BY, SPREAD, "≥ 0.5×"),
    Row("deletes-folder", "`sweep --apply`, folder", REMOVED_BY, EXPIRED),
    Row("start-version", "`--version`", PYTHON, None, rounds=11),
    Row("start-help", "`--help`", PYTHON, None, rounds=11),
    Row("start-completion", "completion", PYTHON, None, rounds=11),
    Row("start-segments", "`segments`", PYTHON, TINY, rounds=11),
    Row("large-segments", SIZES, "", LARGE, rounds=1),
    Row("large-sweep", "`sweep` plan", "", LARGE, rounds=1),
    Row("large-state-first", f"{STATE}, first run", "", LARGE, rounds=1),
    Row("large-state-next", f"{STATE}, no new events", "", LARGE, rounds=1),
    Row("large-spark-sizes", ON_SPARK, "", LARGE, rounds=1),
    Row("large-pipeline", "`pipeline run`, first", "", LARGE, rounds=1),
)
ROWS: Final = {row.key: row for row in (*IN_README, *IN_MANUAL)}


def measures(*beginnings: str) -> pytest.MarkDecorator:
    """Parametrize a test by the rows whose keys begin so, and by their contestants."""
    return pytest.mark.parametrize(
        ("row", "contestant"),
        [
            pytest.param(row, contestant, id=f"{row.key}-{contestant}", marks=_marks(row, contestant))
            for row in ROWS.values()
            if row.key.startswith(beginnings)
            for contestant in ([TIERCTL, RIVAL] if row.rival else [TIERCTL])
        ],
        indirect=["row"],
    )


def _marks(row: Row, contestant: str) -> list[pytest.MarkDecorator]:
    takes_long = row.shape == LARGE or (contestant == RIVAL and row.rival in INSTALLED)
    return [pytest.mark.benchmark(group=row.key), *([pytest.mark.matrix] if takes_long else [])]
