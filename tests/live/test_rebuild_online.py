"""A rebuild on a running broker, and after a kill: no false alarm, and consumers read every record.

test_several_brokers.py has a topic that was created again under running brokers.
"""

import time
from typing import Any

import pytest

from tests.live.commands import (
    applied,
    assumed,
    await_recorded,
    base_offsets,
    local_start,
    on_disk,
    plan,
    tierctl,
    where,
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
from tests.support.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
RESTART = "published; restart the brokers before copying is enabled again"


def rebuild_on_cluster(broker: Broker) -> None:
    """Publish the events to the running broker; the run ends with what must be done next."""
    online = ("rebuild", *where(broker))
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
