"""Rows about the metadata topic, and about commands with little work."""

import csv
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tierctl.metadata.topic import open_topic
from tierctl.model.location import TopicLocation
from tierctl.spark import register

from tests.bench.conftest import Measure, fresh
from tests.bench.metadata_log import NOW_MS, metadata_log, tier
from tests.bench.process import run, tierctl
from tests.bench.rivals import PROGRAMS, kafka_tool, segment_sizes
from tests.bench.rows import ON_SPARK, PASSES, REGULAR, RIVAL, STATELESS, TIERCTL, Row, measures
from tests.spark.clusters import ONE_CORE_EACH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPARED = ("topic", "partitions", "segments", "log_bytes", "copying_segments", "deleting_segments")
WORDS = {"start-version": ["--version"], "start-help": ["--help"], "start-completion": []}
COMPLETION = {"_TIERCTL_COMPLETE": "complete_bash", "COMP_WORDS": "tierctl sweep --me", "COMP_CWORD": "2"}
NEW = 0.01
"""The share of events that are new in a run after the first."""


def sizes(log: Path, *options: str) -> list[str]:
    """Return the command line that sums up the segments of each topic."""
    return tierctl("segments", "--metadata", log.as_uri(), "--sizes", "--output", "csv", *options)


def pipeline(log: Path, warehouse: Path, *options: str) -> list[str]:
    """Return the command line that updates the tables to the end of the topic."""
    return tierctl("pipeline", "run", "--metadata", log.as_uri(), "--warehouse", warehouse.as_uri(), *options)


def on_spark(master: str) -> list[str]:
    """Return the options of a command on two executors with one core each that says when Spark is ready."""
    conf = [f"--spark-conf={name}={value}" for name, value in ONE_CORE_EACH.items()]
    return ["--master", master, "--verbose", *conf]


def sums(printed: Path) -> list[tuple[str, ...]]:
    """Return the sums of each topic."""
    with printed.open(newline="") as file:
        return sorted(tuple(each[name] for name in COMPARED) for each in csv.DictReader(file))


@measures("segments-", "large-segments")
def test_sizes(row: Row, contestant: str, measure: Measure, tmp_path: Path) -> None:
    log, printed, expected = metadata_log(row.shape), tmp_path / "printed", tmp_path / "expected"
    if contestant == TIERCTL:
        measure(sizes(log))
    else:
        measure([*segment_sizes(), str(log)], stdout=printed)
        run(sizes(log), stdout=expected)
        assert sums(printed) == sums(expected)


@measures("shape-")
def test_shapes(row: Row, contestant: str, measure: Measure, benchmark: Any) -> None:
    regular = REGULAR if benchmark.enabled else REGULAR.small()
    location = TopicLocation(uri=metadata_log(row.shape if contestant == TIERCTL else regular).as_uri())
    with closing(open_topic(location)) as topic:
        benchmark.extra_info["events"] = sum(topic.end_offsets().values())
    measure(tierctl("segments", "--metadata", location.uri, "--sizes", "--output", "csv"))


@measures("sweep-plan", "large-sweep")
def test_sweep_plan(row: Row, contestant: str, measure: Measure) -> None:
    """Plan a few thousand deletes, with settings for every topic; the rival reads the same events."""
    log, newest = metadata_log(row.shape), tier(row.shape, newest_only=True)
    words = ["--metadata", log.as_uri(), "--remote", (newest / "remote").as_uri(), "--allow-missing-objects"]
    words += ["--topic-configs", str(newest / "topics.properties"), "--now", str(NOW_MS), "--output", "csv"]
    measure(tierctl("sweep", *words) if contestant == TIERCTL else sizes(log), codes=(0, 7))


@measures("state-", "large-state-")
def test_state_directory(row: Row, contestant: str, measure: Measure, tmp_path: Path) -> None:
    log, kept, used = metadata_log(row.shape), tmp_path / "kept", tmp_path / "used"
    if contestant == RIVAL and row.rival == STATELESS:
        measure(sizes(log))
    elif contestant == RIVAL or "first" in row.key:
        measure(sizes(log, "--state-dir", str(used)), prepare=fresh({used: None}))
    else:
        older = metadata_log(replace(row.shape, lacking=NEW)) if row.key == "state-new" else log
        run(sizes(older, "--state-dir", str(kept)))
        measure(sizes(log, "--state-dir", str(used)), prepare=fresh({used: kept}))


@pytest.fixture
def master(request: pytest.FixtureRequest) -> str:
    """Return a cluster of two workers with one core each; rows with little data need none."""
    if not request.config.option.benchmark_only:
        return "local[2]"
    cluster: str = request.getfixturevalue("standalone")
    return cluster


@measures("pipeline-", "large-pipeline")
def test_pipeline_run(row: Row, contestant: str, measure: Measure, tmp_path: Path, master: str) -> None:
    log, kept, used = metadata_log(row.shape), tmp_path / "kept", tmp_path / "used"
    if contestant == RIVAL and row.rival == ON_SPARK:
        measure(sizes(log, "--engine", "spark", *on_spark(master)))
        return
    if is_new := contestant == TIERCTL and row.key == "pipeline-new":
        run(pipeline(metadata_log(replace(row.shape, lacking=NEW)), kept, *on_spark(master)))
    words = pipeline(log, used, *on_spark(master))
    measure(words, prepare=fresh({used: kept if is_new else None}))


@measures("spark-sizes", "large-spark-sizes")
def test_sizes_on_spark(row: Row, contestant: str, measure: Measure, master: str) -> None:
    engine = ("--engine", "spark", *on_spark(master)) if contestant == TIERCTL else ()
    measure(sizes(metadata_log(row.shape), *engine))


@measures("format-")
def test_text(row: Row, contestant: str, measure: Measure) -> None:
    """Print every record. kafka-dump-log has one style, and the heap of Kafka's scripts."""
    log = metadata_log(row.shape)
    if contestant == TIERCTL:
        measure(tierctl("format", "--metadata", log.as_uri(), "--style", row.key.removeprefix("format-")))
    else:
        tool = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "-Xmx256m")
        files = ",".join(map(str, log.glob("*/*.log")))
        measure([*tool, "--remote-log-metadata-decoder", "--files", files])


@measures("decode")
def test_decoding(row: Row, contestant: str, measure: Measure, tmp_path: Path) -> None:
    log, printed = metadata_log(row.shape), tmp_path / "printed"
    if contestant == TIERCTL:
        measure([sys.executable, str(PROGRAMS / "decode_log.py"), log.as_uri(), str(PASSES)], stdout=printed)
    else:
        measure([*segment_sizes(), str(log), str(PASSES)], stdout=printed)
    with closing(open_topic(TopicLocation(uri=log.as_uri()))) as topic:
        assert int(printed.read_text()) == PASSES * sum(topic.end_offsets().values())


@measures("source-again")
def test_source_again(row: Row, contestant: str, benchmark: Any, spark: "SparkSession") -> None:
    """Read every column of all events in a session that read them before."""
    log = metadata_log(row.shape).as_uri()
    register(spark)

    def read() -> None:
        spark.read.format("remote_log_metadata").load(log).write.format("noop").mode("overwrite").save()

    benchmark.pedantic(read, rounds=row.rounds, warmup_rounds=1)


@measures("start-")
def test_start(row: Row, contestant: str, measure: Measure) -> None:
    if contestant == TIERCTL and row.shape is None:
        measure(tierctl(*WORDS[row.key]), env=COMPLETION if row.key == "start-completion" else None)
    elif contestant == TIERCTL:
        measure(tierctl("segments", "--metadata", metadata_log(row.shape).as_uri()))
    else:
        measure([sys.executable, "-c", "pass"])
