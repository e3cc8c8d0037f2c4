"""`remote_log` compared with consumers, for every topic of every capture."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tierctl.spark import register

from tests.read import brute
from tests.read.test_partition_reader import leader_logs
from tests.read.tier import Tier
from tests.spark.worlds import Capture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answer = tuple[int, int, str | None, str | None]


@pytest.fixture(scope="module")
def session(spark: "SparkSession") -> "SparkSession":
    register(spark)
    return spark


def load(session: "SparkSession", options: Mapping[str, str]) -> "DataFrame":
    return session.read.format("remote_log").options(**options).load()


def answers_of(table: pa.Table) -> dict[tuple[str, int], list[Answer]]:
    """Return the consumers' records by topic and partition, in their order."""
    found: dict[tuple[str, int], list[Answer]] = defaultdict(list)
    for row in table.to_pylist():
        answer = (row["offset"], row["timestamp_ms"], brute.sha(row["key"]), brute.sha(row["value"]))
        found[row["topic"], row["partition"]].append(answer)
    return dict(found)


TIERS = {
    "before": ("tiered-cluster", "before", "before-remote"),
    "after": ("tiered-cluster", "after", "after-remote"),
    "copied": ("untiered-broker", "tiered-metadata", "tiered-remote"),
}


def tiered(root: Path, stage: str) -> dict[str, str]:
    _, metadata, remote = TIERS[stage]
    return {"metadata": str(root / metadata), "remote": str(root / remote)}


def unclean(root: Path, stage: str) -> dict[str, str]:
    logs = ",".join(str(root / stage / broker) for broker in ("broker-1", "broker-2"))
    return {
        "metadata": str(root / stage / "broker-1"),
        "remote": str(root / stage / "remote"),
        "log_dir": logs,
    }


def aiven(root: Path) -> dict[str, str]:
    options = {
        "metadata": str(root / "broker-logs"),
        "remote": str(root / "bucket"),
        "layout": "aiven",
        "log_dir": str(root / "broker-logs"),
    }
    if (root / "keys").is_dir():
        options["aiven_private_key"] = f"key1={root / 'keys' / 'private.pem'}"
    return options


@pytest.mark.parametrize(
    ("stage", "isolation"),
    [("before", "read_committed"), ("after", "read_uncommitted"), ("copied", "read_committed")],
)
def test_every_topic_of_brokers_tiers(
    session: "SparkSession", capture: Capture, stage: str, isolation: str
) -> None:
    root = capture(TIERS[stage][0])
    options = tiered(root, stage)
    tier = Tier.of(Path(options["metadata"]), Path(options["remote"]))
    shown = brute.committed if isolation == "read_committed" else brute.visible
    expected: dict[tuple[str, int], list[Answer]] = {}
    for part in tier.state:
        partition = part.topic_id_partition
        records = brute.decode_files(leader_logs(tier, partition.topic, partition.partition))
        if records:
            expected[partition.topic, partition.partition] = [record.answer for record in shown(records)]

    found = load(session, options | {"isolation_level": isolation}).toArrow()

    assert answers_of(found) == expected
    assert sum(map(len, expected.values())) > (5_000 if stage == "copied" else 10_000)


@pytest.mark.parametrize(("stage", "answers"), [("before", "3-before"), ("after", "5-after")])
def test_every_topic_after_an_unclean_election(
    session: "SparkSession", capture: Capture, stage: str, answers: str
) -> None:
    root = capture("unclean-leader")
    files = {topic: root / "answers" / f"{answers}-{topic}-0.jsonl" for topic in ("wallets", "payouts")}
    expected = {(topic, 0): brute.answers(file) for topic, file in files.items() if file.exists()}
    assert answers_of(load(session, unclean(root, stage)).toArrow()) == expected


@pytest.mark.parametrize(
    ("name", "isolation"), [("aiven-plain", "read_uncommitted"), ("aiven-encrypted", "read_committed")]
)
def test_every_topic_of_aivens_plugin(
    session: "SparkSession", capture: Capture, name: str, isolation: str
) -> None:
    root = capture(name)
    expected = {}
    for file in (root / "answers").glob(f"*.{isolation}.jsonl"):
        topic, _, partition = file.name.split(".")[0].rpartition("-")
        expected[topic, int(partition)] = brute.answers(file)
    options = aiven(root) | {"isolation_level": isolation, "topic": "sensors,audit"}
    assert answers_of(load(session, options).toArrow()) == expected


def test_columns_are_what_the_record_has(session: "SparkSession", capture: Capture) -> None:
    from pyspark.sql import functions as f

    root = capture("tiered-cluster")
    frame = load(session, tiered(root, "before") | {"topic": "orders", "partition": "1"})
    tier = Tier.of(root / "before", root / "before-remote")
    records = brute.visible(brute.decode_files(leader_logs(tier, "orders", 1)))
    rows = frame.where((f.col("offset") >= 10) & (f.col("offset") < 400)).toArrow().to_pylist()
    assert [
        (
            row["offset"],
            row["timestamp_ms"],
            row["leader_epoch"],
            row["key"],
            row["value"],
            tuple((each["key"], each["value"]) for each in row["headers"]),
        )
        for row in rows
    ] == [(r.offset, r.timestamp_ms, r.epoch, r.key, r.value, r.headers) for r in records[10:400]]
    partition = tier.partition("orders", 1).topic_id_partition
    for row in rows:
        place = (row["topic"], row["topic_id"], row["partition"])
        assert place == (partition.topic, partition.topic_id, partition.partition)
        assert row["timestamp_type"] == "CreateTime"
        assert round(row["timestamp"].timestamp() * 1000) == row["timestamp_ms"]


def test_of_the_columns_only_those_that_are_wanted(session: "SparkSession", capture: Capture) -> None:
    reader = session.read.format("remote_log").options(**tiered(capture("tiered-cluster"), "before"))
    wanted = reader.schema("offset long, topic string").load()
    frame = wanted.where("offset in (0, 2401, 2400) and topic = 'clicks'")
    assert [tuple(row) for row in frame.collect()] == [(2400, "clicks"), (2401, "clicks")] * 2
