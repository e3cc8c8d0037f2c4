"""A topic is deleted while its store refuses: the broker leaks, tierctl delete finds, marks and removes."""

import json
from itertools import product
from pathlib import Path

import pytest

from tests.live.commands import killed, objects, plan, rows, tierctl, where
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# As runs meet them; each is killed before and after. The broker itself has begun to delete every segment.
MARK_LABELS = ("delete.marked.publish",)
DELETE_LABELS = (
    "delete.partition_started.publish",
    "delete.segment.delete",
    "delete.segment_finished.publish",
    "delete.partition_finished.publish",
)


def obstruct(broker: Broker, topic: str) -> list[Path]:
    """Put a folder where each segment's log is: LocalTieredStorage deletes no such thing."""
    logs = list(broker.remote_dir.glob(f"kafka-tiered-storage/{topic}-[0-9]*-*/*.log"))
    for log in logs:
        log.rename(log.with_suffix(".held"))
        log.mkdir()
    return logs


def clear(logs: list[Path]) -> None:
    for log in logs:
        log.rmdir()
        log.with_suffix(".held").rename(log)


def leak(broker: Broker, topic: str) -> None:
    """Tier a topic of two partitions and delete it in vain; then the store works again."""
    broker.create_topic(topic, 2, tiered=True)
    broker.produce(topic, 3500)
    broker.produce(topic, 2500, partition=1)
    broker.await_idle()
    logs = obstruct(broker, topic)
    broker.delete_topic(topic)
    broker.wait_for("the broker to try", lambda: broker.said().count("Found unexpected directory") >= 1)
    broker.await_idle()
    clear(logs)


def found_by_verify(broker: Broker, topic: str) -> set[str]:
    """Kinds of what is found of whole partitions."""
    ran = tierctl("verify", *where(broker), "--topic", topic, "--output", "jsonl")
    assert ran.code == 3
    return {f["kind"] for f in map(json.loads, ran.lines) if f["segment_id"] is None}


def test_leaked_objects_are_found_marked_and_removed(broker: Broker) -> None:
    topic = "leaked"
    leak(broker, topic)
    leaked = objects(broker, topic)
    assert found_by_verify(broker, topic) == {"unknown_topic"}
    assert len([name for name in leaked if name.endswith(".log")]) == 5
    new_id = broker.create_topic(topic, 2, tiered=True)
    broker.produce(topic, 2500)
    broker.await_idle()
    recreated = objects(broker, topic) - leaked
    assert recreated

    delete = ("delete", *where(broker), "--topic", topic)
    (found,) = rows(*delete, "--find")
    assert (found["topic"], found["partitions"], found["segments"]) == (topic, 2, 5)
    assert (found["topic_id"] != new_id, found["delete_state"]) == (True, None)
    assert tierctl(*delete, "--find", "--apply").code == 2
    assert found_by_verify(broker, topic) == {"recreated_topic"}
    marks = plan(*delete, "--find", "--mark")["steps"]
    assert {(step["action"], step["topic_id"]) for step in marks} == {("mark_partition", found["topic_id"])}

    mark, remove = (*delete, "--find", "--mark", "--apply"), (*delete, "--apply")
    for command, labels in ((mark, MARK_LABELS), (remove, DELETE_LABELS)):
        for label, moment in product(labels, ("before", "after")):
            assert killed(label, moment, *command), (label, moment)
    for _ in range(2):
        plan(*mark)
        plan(*remove)
    assert objects(broker, topic) == recreated
    assert rows(*delete, "--find") == []
    assert {row["topic_id"] for row in rows("segments", *where(broker)[:2], "--topic", topic)} == {new_id}

    # The broker runs on, and so does its topic.
    last = broker.offsets("latest-tiered")[topic, 0]
    broker.produce(topic, 2500, seed=3)
    broker.wait_for("the broker to tier on", lambda: broker.offsets("latest-tiered")[topic, 0] > last)
    assert len(broker.records(topic)) == 5000


def test_metadata_on_another_cluster_than_the_data(brokers: Brokers) -> None:
    """KIP-405's future work: the topics are those of --bootstrap-server, wherever their metadata are."""
    metadata, data = brokers.shared(), brokers.shared(tiered=False)
    topic = "elsewhere"
    metadata.create_topic(topic, tiered=True)
    metadata.produce(topic, 2500)
    metadata.await_idle()
    find = ("delete", *where(metadata), "--topic", topic, "--find", "--output", "jsonl")
    assert tierctl(*find).out == ""
    ran = tierctl(*find, "--bootstrap-server", data.bootstrap)
    assert (ran.code, len(ran.lines)) == (0, 1)
    assert "the cluster knows none of the" in ran.err
    # Every topic looks deleted from there: its answer is no evidence.
    for more in ((), ("--apply",)):
        ran = tierctl(*find, "--mark", "--bootstrap-server", data.bootstrap, *more)
        assert (ran.code, ran.out, "--bootstrap-server" in ran.err) == (4, "", True)
    for mark in (("--mark",), ("--find", "--mark")):
        one = ("delete", *where(metadata), "--topic", topic, *mark, "--bootstrap-server", data.bootstrap)
        assert tierctl(*one, "--apply").code == 4
        word = plan(*one, "--i-know-it-is-deleted", metadata.topic_id(topic))
        assert [step["topic"] for step in word["steps"]] == [topic]
    offsets = rows("segments", *where(metadata)[:2], "--offsets", "--topic", topic)
    assert [row["latest"] for row in offsets] == [2500]
    aside = ("--bootstrap-server", data.bootstrap)
    (row,) = rows("segments", *where(metadata)[:2], *aside, "--offsets", "--topic", topic)
    assert (row["latest"], row["latest_tiered"]) == (None, offsets[0]["latest_tiered"])


def test_a_cluster_is_needed_to_find(tmp_path: Path) -> None:
    ran = tierctl("delete", "--metadata", tmp_path, "--remote", tmp_path, "--find")
    assert (ran.code, "--bootstrap-server" in ran.err) == (2, True)
