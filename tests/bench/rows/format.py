"""`format` of a million records beside kafka-dump-log."""

from collections.abc import Iterator
from pathlib import Path

from tests.bench.baselines import kafka_tool
from tests.bench.clusters import scaled
from tests.bench.harness import Comparison, MissingBaselineError, Required, Side, row
from tests.bench.metadata_log import Shape, metadata_log
from tests.bench.process import run, tierctl

SHAPE = scaled(Shape(segments=500_000, user_partitions=200, metadata_partitions=1))
REQUIRED = Required(ratio=3, peak_mb=150)
TEXT = f"{2 * SHAPE.segments:,} records, {SHAPE.user_partitions} user partitions in one file"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
HEAP = "-Xmx256m"
"""The heap size that kafka-run-class.sh sets for tools."""


def beside_dump_log(style: str) -> Comparison:
    """Compare one style with kafka-dump-log, which has only one style."""
    log = metadata_log(SHAPE)
    ours = Side("tierctl", lambda: run(*tierctl("format", "--metadata", log.uri, "--style", style)))
    try:
        tool = kafka_tool(DUMP_LOG, HEAP)
    except MissingBaselineError as e:
        return Comparison(ours, e)
    (file,) = log.folder.glob("*/*.log")
    words = [*tool, "--remote-log-metadata-decoder", "--files", str(file)]
    return Comparison(ours, Side("kafka-dump-log", lambda: run(*words)))


for _style in ("kafka", "json", "kip"):

    @row(
        f"format-{_style}",
        work=f"`format --style {_style}`",
        shape=TEXT,
        required=REQUIRED,
        limit=(
            "By a profile, reading and checking a million batches of one record takes 0.9 s of processor "
            "time, decoding 0.5 s and making the text 1.75 s; two threads share this, and one interpreter"
        ),
    )
    def formatted(_folder: Path, style: str = _style) -> Iterator[Comparison]:
        """Run the whole process, with its output to /dev/null."""
        yield beside_dump_log(style)
