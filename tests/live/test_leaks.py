"""A topic is deleted while its store refuses deletes: tierctl delete finds, marks and removes the leak."""

import json
import re
from pathlib import Path

import pytest
from tierctl.model import Uuid

from tests.live.commands import objects, on_disk, plan, rows, tierctl, where
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


def obstruct(broker: Broker, topic: str) -> list[Path]:
    """Replace each segment's log by a folder, which LocalTieredStorage can't delete."""
    logs = list(broker.remote_dir.glob(f"kafka-tiered-storage/{topic}-[0-9]*-*/*.log"))
    for log in logs:
        log.rename(log.with_suffix(".held"))
        log.mkdir()
    return logs


def clear(logs: list[Path]) -> None:
    for log in logs:
        log.rmdir()
        log.with_suffix(".held").rename(log)


REFUSED_BY_STORE = re.compile("Found unexpected directory|Failed to delete remote log segment")
"""Log messages of brokers of several versions about the store that can't delete."""


def leak(broker: Broker, topic: str) -> Uuid:
    """Tier and delete a topic while the store refuses deletes; repair the store; return the topic id."""
    topic_id = broker.create_topic(topic, 2, tiered=True)
    broker.produce(topic, 3500)
    broker.produce(topic, 2500, partition=1)
    broker.await_idle()
    assert "the cluster still has topic" in mark_refused(broker, topic, topic_id)
    logs = obstruct(broker, topic)
    said = len(broker.said())
    broker.delete_topic(topic)
    broker.wait_for("the broker to try", lambda: bool(REFUSED_BY_STORE.search(broker.said(), said)))
    broker.await_idle()
    clear(logs)
    return topic_id


def mark_refused(broker: Broker, topic: str, topic_id: Uuid, *more: object) -> str:
    """Check that the topic is not marked by its name, id or --i-know-it-is-deleted; return the reason."""
    for named in (("--topic", topic), ("--topic-id", topic_id, "--i-know-it-is-deleted", topic_id)):
        ran = tierctl("delete", *where(broker), "--mark", *named, *more, "--apply")
        assert ran.code == 4, ran.err
    return ran.err


def check_evidence(broker: Broker, topic_id: Uuid) -> None:
    """Check that the cluster's answer is evidence, and also its only log directory with --all-log-dirs.

    tests/plan/test_fencing.py has the directories that are none.
    """
    mark = ("delete", "--mark", "--topic-id", topic_id)
    assert len(plan(*mark, *where(broker))["steps"]) == 2
    offline = on_disk(broker)
    assert tierctl(*mark, *offline).code == 4
    broker.wait_for("the folders to go", lambda: not list(broker.log_dir.glob("*-delete")))
    assert len(plan(*mark, *offline, "--all-log-dirs")["steps"]) == 2


def found_by_verify(broker: Broker, topic: str) -> set[str]:
    """Return the kinds of findings about whole partitions."""
    ran = tierctl("verify", *where(broker), "--topic", topic, "--output", "jsonl")
    assert ran.code == 3
    return {f["check"] for f in map(json.loads, ran.lines) if f["segment_id"] is None}


def test_leaked_objects_are_found_marked_and_removed(broker: Broker) -> None:
    topic = "leaked"
    old_id = leak(broker, topic)
    leaked = objects(broker, topic)
    check_evidence(broker, old_id)
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
    for _ in range(2):
        plan(*mark)
        plan(*remove)
    assert objects(broker, topic) == recreated
    assert rows(*delete, "--find") == []
    assert {row["topic_id"] for row in rows("segments", *where(broker)[:2], "--topic", topic)} == {new_id}

    # The broker still runs and still has the topic.
    last = broker.offsets("latest-tiered")[topic, 0]
    broker.produce(topic, 2500, seed=3)
    broker.wait_for("the broker to tier on", lambda: broker.offsets("latest-tiered")[topic, 0] > last)
    assert len(broker.records(topic)) == 5000


def test_metadata_on_another_cluster_than_the_data(brokers: Brokers) -> None:
    """The topics are those of --bootstrap-server, wherever their metadata topic is (KIP-405, future work)."""
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
    # Every topic looks deleted on that cluster, so its answer is no evidence.
    ran = tierctl(*find, "--mark", "--bootstrap-server", data.bootstrap, "--apply")
    assert (ran.code, ran.out, "--bootstrap-server" in ran.err) == (4, "", True)
    offsets = rows("segments", *where(metadata)[:2], "--offsets", "--topic", topic)
    assert [row["latest"] for row in offsets] == [2500]
    aside = ("--bootstrap-server", data.bootstrap)
    (row,) = rows("segments", *where(metadata)[:2], *aside, "--offsets", "--topic", topic)
    assert (row["latest"], row["latest_tiered"]) == (None, offsets[0]["latest_tiered"])


def test_a_cluster_is_needed_to_find(tmp_path: Path) -> None:
    ran = tierctl("delete", "--metadata", tmp_path, "--remote", tmp_path, "--find")
    assert (ran.code, "--bootstrap-server" in ran.err) == (2, True)
