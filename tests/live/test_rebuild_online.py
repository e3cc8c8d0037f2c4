"""A rebuild on a running broker, and after a kill: no false alarm, and consumers read every record."""

import shlex
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from tierctl.metadata.topic import METADATA_TOPIC

from tests.docs.documents import README, Document
from tests.docs.running import replaced
from tests.live.commands import (
    Ran,
    applied,
    assumed,
    await_recorded,
    base_offsets,
    local_start,
    on_disk,
    plan,
    tierctl,
)
from tests.live.history import (
    DELETED_BEFORE,
    PARTITIONS,
    TOPICS,
    Cluster,
    batch_ends,
    check_everything,
    disable_copying,
    enable_copying,
    fill,
    lose_metadata,
    served,
    tier,
)
from tests.live.test_rebuild import offline
from tests.live.test_restore_check import check
from tests.support.broker import METADATA_PARTITIONS, Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
RESTART = "published; restart the brokers before copying is enabled again"


def rebuild_on_cluster(broker: Broker) -> None:
    """Publish the events to the running broker; the run ends with what must be done next."""
    online = ("rebuild", "--metadata", f"kafka://{broker.bootstrap}", "--remote", broker.remote_dir)
    ran = tierctl(*online, "--apply")
    assert (ran.code, RESTART in ran.raw_err) == (0, True), ran.err
    assert "remote.log.copy.disable=false" in ran.err
    assert plan(*online)["steps"] == []


def check_before_and_after_restart(broker: Broker) -> None:
    """`restore check` asks for the restart, and for nothing else."""
    found = check(broker)
    assert (found.code, found.found("error")) == (3, {"restarts": {(None, None)}}), found.rows
    assert f"brokers [{broker.node_id}] were not restarted" in found.text("restarts")
    broker.restart()
    broker.await_idle()
    found = check(broker)
    assert (found.code, found.found("error")) == (0, {}), (found.rows, found.err)
    assert found.found("ok")["restarts"] == {(None, None)}


def check_new_copies(broker: Broker, cluster: Cluster) -> None:
    """Read all records, then once more when the new ones are in the tier alone."""
    fill(broker, seed=7)
    expected = served(broker)
    for key, records in cluster.records.items():
        assert expected[key][: len(records)] == records, key
    enable_copying(broker)
    now = {(topic, number): expected[topic, number, "read_uncommitted"] for topic, number in PARTITIONS}
    old = {key: len(cluster.records[*key, "read_uncommitted"]) for key in PARTITIONS}
    first_new = {key: now[key][old[key]][0] for key in PARTITIONS}
    broker.wait_for(
        "new records in the tier alone",
        lambda: all(local_start(broker, *key) > first_new[key] for key in PARTITIONS),
    )
    broker.await_idle()
    assert served(broker) == expected


def starts_within_a_batch(broker: Broker, topic: str, partition: int, offset: int) -> bool:
    """Return whether `offset` is in the tier, within a batch."""
    logs = sorted(broker.remote_dir.glob(f"kafka-tiered-storage/{topic}-{partition}-*/*.log"))
    data = next(log for log in reversed(logs) if int(log.name[:20]) <= offset).read_bytes()
    bases = [int.from_bytes(data[at : at + 8]) for at in batch_ends(data)[:-1]]
    return bases[0] < offset < bases[-1] and offset not in bases


@pytest.mark.matrix
def test_a4_the_events_go_to_a_running_broker(cluster: Cluster, twin: Broker) -> None:
    """Copying was disabled before the first start with the empty topic, so no log start was raised.

    DeleteRecords had raised the log start of plain-1 within a batch.
    """
    before = tier(twin)
    assert starts_within_a_batch(twin, "plain", 1, DELETED_BEFORE)
    twin.start()
    disable_copying(twin)
    twin.stop()
    lose_metadata(twin)
    twin.start()
    twin.await_idle()
    assert twin.offsets("earliest", *TOPICS) == cluster.starts
    rebuild_on_cluster(twin)
    check_before_and_after_restart(twin)
    check_new_copies(twin, cluster)
    check_everything(twin, cluster, before)


def repeat_last_events(broker: Broker, times: int) -> None:
    """Make the metadata topic longer than a rebuilt one, as deletes do: a consumer skips so many events."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(METADATA_PARTITIONS):
        for *_, value in broker.records(METADATA_TOPIC, number)[-1:] * times:
            producer.produce(METADATA_TOPIC, value, partition=number)
    assert producer.flush(30) == 0


@pytest.mark.matrix
def test_a3_the_metadata_topic_was_created_again_under_the_broker(cluster: Cluster, twin: Broker) -> None:
    """The broker's consumer skips the events until a restart: the check finds that before any new copy."""
    before = tier(twin)
    twin.start()
    twin.wait_for("the metadata", lambda: set(twin.offsets("latest-tiered", *TOPICS)) == set(PARTITIONS))
    disable_copying(twin)
    repeat_last_events(twin, 50)
    twin.delete_topic(METADATA_TOPIC)
    twin.create_topic(METADATA_TOPIC, METADATA_PARTITIONS, retention_ms="-1", cleanup_policy="delete")
    rebuild_on_cluster(twin)
    check_before_and_after_restart(twin)
    assert tier(twin) == before
    check_new_copies(twin, cluster)
    check_everything(twin, cluster, before)


_TOOLS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}


def _replicas_of_new_topic(broker: Broker) -> int:
    """Return the smallest number of in-sync replicas that a partition of the metadata topic has."""
    found = broker.admin.list_topics(METADATA_TOPIC, timeout=10).topics[METADATA_TOPIC]
    return min((len(part.isrs) for part in found.partitions.values()), default=0)


def run_readmes_lines(broker: Broker, *topics: str, replicas: int = 1) -> Ran:
    """Run the README's lines for brokers that still run, which must succeed; return what tierctl said."""
    names = {"broker1:9092": broker.bootstrap, "s3://archive/tier": str(broker.remote_dir)}
    names |= {"--partitions 50": f"--partitions {METADATA_PARTITIONS}", "-factor 3": f"-factor {replicas}"}
    _, block = Document("README.md", README.section("On a bad day")).blocks("bash")
    *tools, last = (each.line for each in Document("README.md", f"```bash\n{block}```").commands)
    assert len(tools) == 2
    for line in tools:
        for topic in topics if "--entity-name orders" in line else topics[:1]:
            own = {**names, "--entity-name orders": f"--entity-name {topic}"}
            program, *words = shlex.split(replaced(line, own))
            broker.release.with_tools.run(_TOOLS[program], *words)
    # The brokers hear of the new topic one after the other, and an operator types more slowly.
    broker.wait_for("the new topic", lambda: _replicas_of_new_topic(broker) == replicas)
    program, *words = shlex.split(replaced(last, names))
    ran = tierctl(*words)
    assert (program, ran.code) == ("tierctl", 0), ran.err
    return ran


def copied_by_tierctl(broker: Broker, topic: str) -> list[int]:
    """Copy what the stopped broker did not copy; return the start offsets of these segments."""
    ran = tierctl("copy", *on_disk(broker), *assumed(topic), "--output", "json", "--apply")
    assert (ran.code, "skipped" in ran.err) == (0, False), ran.err
    found: dict[str, Any] = ran.json
    assert {outcome["status"] for outcome in found["outcomes"]} == {"done"}
    return [step["start_offset"] for step in found["steps"]]


@pytest.mark.matrix
def test_a_kill_leaves_no_record_of_the_log_start(cluster: Cluster, twin: Broker) -> None:
    """The broker records log starts each minute: without a record, the local log is not all of the log."""
    before = tier(twin)
    twin.settings["replica.high.watermark.checkpoint.interval.ms"] = "200"
    # On a slow machine the kill would come after the minute.
    twin.settings["log.flush.start.offset.checkpoint.interval.ms"] = "3600000"
    recorded, began = twin.log_dir / "log-start-offset-checkpoint", time.time()
    twin.start()
    # The first record comes half a second after the start: it must not name the new topic.
    twin.wait_for("the record of log starts", lambda: recorded.stat().st_mtime >= began)
    twin.create_topic("late", tiered=True)
    twin.produce("late", 2500)
    twin.await_idle()
    starts, local = base_offsets(twin, "late"), local_start(twin, "late")
    assert 0 < starts[-1] < local
    twin.alter_topic(
        "late", local_retention_ms="-2", local_retention_bytes="-2", remote_log_copy_disable="true"
    )
    twin.produce("late", 2500, seed=2)
    records = twin.records("late")
    await_recorded(twin, {"late": len(records)})
    twin.stop(kill=True)
    assert "late 0 " not in recorded.read_text()

    copied = copied_by_tierctl(twin, "late")
    assert copied[0] == local
    lose_metadata(twin)
    done = applied(*offline(twin, "--apply"))
    published = [(step["action"], step["start_offset"]) for step in done["steps"] if step["topic"] == "late"]
    assert published == [("publish_segment", start) for start in (*starts, *copied)]
    twin.start()
    twin.alter_topic("late", remote_log_copy_disable="false", local_retention_bytes="1")
    twin.wait_for("the deletion of what is in the tier", lambda: local_start(twin, "late") > copied[-1])
    assert twin.records("late") == records
    twin.await_idle()
    assert served(twin) == cluster.records
    assert before.items() <= tier(twin).items()
