"""The tables of every capture equal the folded state and the findings, on every kind of cluster."""

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tierctl.model import RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.pipeline.update import run_stream
from tierctl.spark.executors.transport import Executors

from tests.cli.shell import tierctl
from tests.metadata.topics import manager_at
from tests.pipeline.tables import Rows, pipeline, rows_of, run
from tests.spark.clusters import Engine, run_command
from tests.spark.executors.bulk import TIERS, within
from tests.spark.worlds import Capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = 1_800_000_000_000
TOPICS = [*TIERS][1:]


@pytest.fixture(scope="session")
def expected(capture: Capture, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """Return the tables that the tasks make in this process, of the metadata topic of each capture."""
    tables = {}
    for place in TOPICS:
        warehouse = tmp_path_factory.mktemp("here")
        run(within(capture, place), warehouse, now_ms=NOW_MS)
        tables[place] = rows_of(warehouse)
    return tables


def make_all(spark: "SparkSession", places: list[tuple[Path, Path]]) -> None:
    """Make the tables of several topics in one session."""
    for topic, warehouse in places:
        with pipeline(topic, warehouse, now_ms=NOW_MS).opened() as opened:
            run_stream(Executors(spark), opened, lambda _commit: None)


def test_tables_are_equal_everywhere(
    engine: Engine, capture: Capture, expected: dict[str, Rows], tmp_path: Path
) -> None:
    # Other tests have the same tables of all captures without Spark.
    first, *others = TOPICS if engine.driver else TOPICS[:1]
    where = ("--metadata", within(capture, first), "--warehouse", tmp_path / first, "--now", NOW_MS)
    words = ["pipeline", "run", *map(str, where), "--master", engine.master]
    ran = tierctl(*words) if engine.driver is None else engine.driver.call(run_command, words)
    if engine.name == "connect":
        assert (ran.code, "Spark Connect" in ran.err) == (2, True), ran.err
        return
    assert ran.code == 0, ran.err
    engine.call(make_all, [(within(capture, place), tmp_path / place) for place in others])
    for place in (first, *others):
        assert rows_of(tmp_path / place) == expected[place]


@pytest.mark.parametrize("place", TOPICS)
def test_segments_are_those_of_the_embedded_fold(
    place: str, capture: Capture, expected: dict[str, Rows]
) -> None:
    listed = json.loads(tierctl("segments", "--metadata", within(capture, place), "--output", "json").out)
    columns = set(listed[0])
    found = [
        {k: printed(k, v) for k, v in row.items() if k in columns} for row in expected[place]["segments"]
    ]
    assert found
    assert sorted(found, key=repr) == sorted(({k: row[k] for k in found[0]} for row in listed), key=repr)


def printed(column: str, value: Any) -> Any:
    if column == "segment_leader_epochs":
        return [[pair["leader_epoch"], pair["offset"]] for pair in value]
    return value.hex() if isinstance(value, bytes) else value


@pytest.mark.parametrize("place", TOPICS)
def test_anomalies_are_those_of_verify(place: str, capture: Capture, expected: dict[str, Rows]) -> None:
    ran = tierctl("verify", "--metadata", within(capture, place), "--output", "json", "--now", NOW_MS)
    about_topics = {"recreated_topic", "unknown_topic"}
    told = [finding for finding in json.loads(ran.out) if finding["check"] not in about_topics]
    columns = ("severity", "check", "topic", "topic_id", "partition", "segment_id", "start_offset", "found")
    assert sorted(([row[c] for c in columns] for row in expected[place]["anomalies"]), key=repr) == sorted(
        ([finding[c] for c in columns] for finding in told), key=repr
    )


@pytest.mark.parametrize("place", TOPICS)
def test_events_are_every_record(place: str, capture: Capture, expected: dict[str, Rows]) -> None:
    lines = tierctl("format", "--metadata", within(capture, place), "--style", "json").out.splitlines()
    ids = [json.loads(line).get("segment_id") for line in lines]
    assert sorted(map(repr, ids)) == sorted(repr(row["segment_id"]) for row in expected[place]["events"])


@pytest.mark.parametrize("place", TOPICS)
def test_sizes_and_offsets_are_what_a_broker_would_say(
    place: str, capture: Capture, expected: dict[str, Rows]
) -> None:
    """KIP-852's remoteLogSize, and the highest offset of each leader epoch."""
    with closing(manager_at(within(capture, place))) as manager:
        state = manager.refresh()
        assert len(state.partitions) == len(expected[place]["partitions"])
        for row in expected[place]["partitions"]:
            whose = TopicIdPartition(Uuid(row["topic_id"]), row["topic"], row["partition"])
            cache = state.partitions[whose.key].cache
            epochs = cache.leader_epochs()
            sizes = {
                epoch: sum(s.segment_size_in_bytes for s in cache.list_remote_log_segments(epoch))
                for epoch in epochs
            }
            highest = {epoch: cache.highest_offset_for_epoch(epoch) for epoch in epochs}
            listed = manager.state.segments_of(whose)
            copied = [s for s in listed if s.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
            assert dict(row["remote_log_size_bytes_by_epoch"]) == {e: n for e, n in sizes.items() if n}
            assert dict(row["highest_offset_by_epoch"]) == {e: o for e, o in highest.items() if o is not None}
            assert row["remote_log_size_bytes"] == sum(s.segment_size_in_bytes for s in copied)
            assert row["copy_segment_finished"] == len(copied)
