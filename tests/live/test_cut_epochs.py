"""The leader-epoch checkpoint of a tiered partition lost its first entries: nothing is deleted for it.

A broker that starts with it deletes the segments that `explain` names; after `rebuild` it serves all records.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint, write_leader_epoch_checkpoint

from tests.cli.shell import Ran
from tests.live.commands import plan, tierctl
from tests.live.history import PARTITIONS, TOPICS, Cluster, check_everything, served, tier
from tests.live.test_rebuild import offline
from tests.live.test_restore import assign, second_broker
from tests.live.test_several_brokers import in_sync, leader_of
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


def checkpoint(broker: Broker) -> Path:
    return broker.log_dir / "plain-0" / "leader-epoch-checkpoint"


def in_tier(broker: Broker) -> list[int]:
    """Return the start offsets of the tiered segments of plain-0."""
    return sorted(
        int(log.name[:20]) for log in broker.remote_dir.glob("kafka-tiered-storage/plain-0-*/*.log")
    )


def cut_epochs(broker: Broker) -> None:
    """Keep only the last entry, as a defect of Kafka in a follower and an operator's hand do."""
    entries = read_leader_epoch_checkpoint(checkpoint(broker).read_bytes())
    assert len(entries) >= 3
    checkpoint(broker).write_bytes(write_leader_epoch_checkpoint(entries[-1:]))


def asked(broker: Broker, *words: object) -> Ran:
    where = ("--metadata", broker.log_dir, "--log-dir", broker.log_dir, "--output", "jsonl")
    return tierctl(*words, *where)


def of_plain(ran: Ran) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in ran.lines]
    return [row for row in found if row["topic"] == "plain" and row["partition"] == 0]


def predicted(broker: Broker, *followers: Broker) -> list[int]:
    """Return the start offsets of the segments that the last replica would delete, says `explain`."""
    more = (word for each in followers for word in ("--log-dir", each.log_dir))
    found = of_plain(asked(broker, "explain", "plain", 0, *more))
    deleted = [row for row in found if row["next_action"] == "delete"]
    assert all("once it leads with the cut leader epochs" in row["reason"] for row in deleted)
    assert all(str(each.log_dir) in row["reason"] for row in deleted for each in followers)
    return sorted(row["start_offset"] for row in deleted)


def named_by_doctor(broker: Broker, *words: object) -> list[str]:
    found = [json.loads(line) for line in asked(broker, "doctor", *words).lines]
    return [row["subject"] for row in found if (row["check"], row["outcome"]) == ("leader_epochs", "problem")]


def check_named(broker: Broker) -> None:
    """Every command names the cut, none a divergence, and no sweep deletes anything of the partition."""
    verified = asked(broker, "verify")
    assert [row["kind"] for row in of_plain(verified)] == ["cut_epochs"]
    assert "divergent_segment" not in verified.out
    assert "rebuild --log-start tier" in verified.summary
    status = tierctl("status", "--metadata", broker.log_dir, "--log-dir", broker.log_dir)
    assert (status.code, "cut_epochs" in status.out) == (3, True), (status.out, status.err)
    for ran in (verified, status):
        assert "off-lineage" not in ran.out + ran.err + ran.summary
    assert named_by_doctor(broker) == [str(checkpoint(broker).parent)]
    for option in ("--off-lineage", "--unreferenced-epochs"):
        swept = asked(broker, "sweep", option, "--remote", broker.remote_dir, "--apply")
        assert (swept.code, of_plain(swept)) == (4, []), swept.err
        assert f"plain-0: {option}: refused" in swept.err


def test_a_broker_deletes_what_explain_predicts(twin: Broker) -> None:
    assert predicted(twin) == []
    cut_epochs(twin)
    lost, whole = predicted(twin), in_tier(twin)
    assert lost
    twin.start()
    twin.wait_for("the deletes", lambda: in_tier(twin) == [at for at in whole if at not in lost])
    twin.await_idle()
    assert in_tier(twin) == [at for at in whole if at not in lost]


def test_a_repaired_checkpoint_loses_nothing(cluster: Cluster, twin: Broker) -> None:
    before, whole = tier(twin), checkpoint(twin).read_bytes()
    cut_epochs(twin)
    check_named(twin)
    assert tier(twin) == before
    refused = tierctl(*offline(twin, "--apply"))
    assert (refused.code, "plain-0: " in refused.err) == (4, True), refused.err
    done = plan(*offline(twin, "--log-start", "tier", "--apply"))
    assert [(o["status"], o["action"]) for o in done["outcomes"]] == [("done", "write_checkpoints")]
    assert checkpoint(twin).read_bytes() == whole
    assert plan(*offline(twin))["steps"] == []
    assert predicted(twin) == []
    twin.start()
    check_everything(twin, cluster, before)


def test_a_follower_with_a_cut_checkpoint_is_named_and_repaired(
    cluster: Cluster, twin: Broker, brokers: Brokers
) -> None:
    """It is in sync, so it may lead after any election."""
    before = tier(twin)
    twin.start()
    other = second_broker(brokers, twin)
    assign(twin, [twin, other])
    await_in_sync(twin)
    other.stop()
    cut_epochs(other)
    other.start()
    await_in_sync(twin)
    other.stop()
    twin.stop()

    follower = ("--log-dir", other.log_dir)
    lost = predicted(twin, other)
    assert lost
    assert lost == in_tier(twin)[: len(lost)]
    assert named_by_doctor(twin, *follower) == [str(checkpoint(other).parent)]
    [found] = of_plain(asked(twin, "verify", *follower))
    assert (found["kind"], str(other.log_dir) in found["message"]) == ("cut_epochs", True)
    done = plan(*offline(twin, *follower, "--log-start", "tier", "--apply"))
    assert [(s["action"], s["log_dir"]) for s in done["steps"]] == [("write_checkpoints", str(other.log_dir))]
    assert predicted(twin, other) == []

    twin.start()
    other.start()
    await_in_sync(twin)
    assign(twin, [other, twin])
    election = ("--election-type", "preferred", "--all-topic-partitions")
    twin.tool("org.apache.kafka.tools.LeaderElectionCommand", *election)
    assert {leader_of(twin, *key) for key in PARTITIONS} == {other.node_id}
    other.await_idle()
    assert served(other) == cluster.records
    assert tier(twin) == before
    other.stop()


def await_in_sync(broker: Broker) -> None:
    broker.wait_for("replicas in sync", lambda: all(in_sync(broker, topic) == 2 for topic in TOPICS), 120)
