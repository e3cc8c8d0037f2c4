"""A cluster is lost; a formatted node serves its topics from the tier, also after a kill (b1)."""

import json
import shutil

import pytest

from tests.live.commands import applied, on_disk, plan, refused, tierctl, where
from tests.live.history import (
    PARTITIONS,
    TOPICS,
    Cluster,
    Lost,
    await_damage,
    check_everything,
    disable_copying,
    enable_copying,
    new_node,
    restore,
    seeks,
    served,
    set_back,
    tier,
)
from tests.live.history import epoch_starts as epoch_starts_of
from tests.live.replicas import await_in_sync, elect_preferred, launch, leader_of, stop
from tests.live.test_materialise import expected
from tests.live.test_restore_check import check_over_election
from tests.support.broker import Broker, Brokers
from tests.support.formatted import LOGS, bootstrap_name
from tests.support.kafka import VERSION

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


def check_goes_on(node: Broker, lost: Lost, before: dict[str, int]) -> None:
    """Check that the node has the lost records, and tiers, expires and deletes; then stop it."""
    node.delete_topic("unused")
    records = expected(lost.cluster, lost.ends)
    check_everything(node, Cluster(broker=node, records=records, starts=lost.cluster.starts), before)
    node.stop()


def test_b4_the_metadata_are_published_to_the_started_node(lost: Lost, brokers: Brokers) -> None:
    node = new_node(lost, brokers)
    before = tier(node)
    ran = tierctl(*restore(lost, node, "--deletes-are-denied", "--publish-later", "--apply"))
    assert (ran.code, "tierctl rebuild --metadata kafka://" in ran.err) == (0, True), ran.err
    assert not list(node.log_dir.glob("__remote_log_metadata-*"))
    assert plan(*restore(lost, node, "--publish-later"))["steps"] == []

    node.start()
    node.await_idle()
    topics = (word for topic in TOPICS for word in ("--topic", topic))
    rebuild = ("rebuild", *where(node), *topics)
    applied(*rebuild, "--broker-config", node.properties, "--apply")
    records = expected(lost.cluster, lost.ends)
    assert node.offsets("earliest", *TOPICS) == lost.cluster.starts
    node.wait_for(
        "the published segments", lambda: node.records("plain") == records["plain", 0, "read_uncommitted"]
    )
    seeks(node, records, epoch_starts_of(node))
    assert tier(node) == before, "copying is disabled, and nothing is deleted"

    enable_copying(node)
    check_goes_on(node, lost, before)


def test_bempty_copying_was_on_before_the_metadata_were_published(lost: Lost, brokers: Brokers) -> None:
    """The leaders raised the log starts: nothing is published to them until these are put back."""
    node = new_node(lost, brokers)
    before = tier(node)
    tierctl(*restore(lost, node, "--deletes-are-denied", "--publish-later", "--apply")).ok()
    node.start()
    enable_copying(node)
    await_damage(node, lost.cluster.starts)
    disable_copying(node)
    topics = tuple(word for topic in TOPICS for word in ("--topic", topic))
    online = ("rebuild", *where(node), *topics)
    reason = "a broker that knew no segments may have raised it"
    assert reason in refused(*online, "--broker-config", node.properties)
    node.stop()
    assert reason in refused("rebuild", *on_disk(node), *topics)
    assert tier(node) == before
    plan("rebuild", *on_disk(node), *topics, "--log-start", "tier", "--apply")

    node.start()
    enable_copying(node)
    check_goes_on(node, lost, before)


def test_b1_a_new_node_serves_the_tier_under_the_old_ids(lost: Lost, brokers: Brokers) -> None:
    node = new_node(lost, brokers)
    before = tier(node)
    assert "it is not proven that the objects" in refused(*restore(lost, node))
    assert not list(node.log_dir.glob("*-0/*.log"))
    ran = tierctl(*restore(lost, node, "--deletes-are-denied", "--apply")).ok()
    assert plan(*restore(lost, node))["steps"] == []
    assert tier(node) == before

    node.start()
    records = expected(lost.cluster, lost.ends)
    assert node.offsets("earliest", *TOPICS) == lost.cluster.starts
    seeks(node, records, epoch_starts_of(node))
    node.stop(kill=True)
    node.start()
    node.await_idle()
    assert tier(node) == before, "copying is disabled, and nothing is deleted"
    # Topics without objects in the tier: tiered ones are restored with their partitions, others are not.
    assert {("unused", 0), ("unused", 1)} == set(node.offsets("latest", "unused"))
    assert not node.offsets("latest", "local")
    assert "a broker is running on" in refused(*restore(lost, node, "--deletes-are-denied"))

    assert set_back(node, ran.raw_err) == ["plain", "tx", "unused"]
    node.produce_transaction("tx", 50)
    check_goes_on(node, lost, before)
    assert "shows that a node was started" in refused(*restore(lost, node, "--deletes-are-denied"))


def assign(broker: Broker, replicas: list[Broker]) -> None:
    """Give every partition these replicas; the first one is elected if it is in sync."""
    ids = [each.node_id for each in replicas]
    wanted = [{"topic": topic, "partition": number, "replicas": ids} for topic, number in PARTITIONS]
    file = broker.folder / "reassignment.json"
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    broker.tool(tool, "--reassignment-json-file", str(file), "--execute")


def test_rep_other_brokers_build_their_replicas_from_the_tier(lost: Lost, brokers: Brokers) -> None:
    """Only the first node was prepared, and the other controllers got its bootstrap file; then it is lost."""
    nodes = brokers.cluster(3, tiered=True, start=False)
    first, left, _ = nodes
    shutil.copytree(lost.cluster.broker.remote_dir, first.remote_dir)
    before = tier(first)
    ran = tierctl(*restore(lost, first, "--deletes-are-denied", "--apply")).ok()
    for said in ("each of the other 2 controllers", "add others by reassignment"):
        assert said in ran.err
    (name,) = (found.relative_to(first.log_dir) for found in first.log_dir.rglob("*.checkpoint"))
    for each in nodes[1:]:
        shutil.copy(first.log_dir / name, each.log_dir / name)
    launch(nodes[1:])
    first.start()
    assert not list(first.log_dir.glob("*-stray"))
    assign(first, nodes)
    await_in_sync(first, *TOPICS)

    def elect() -> None:
        assign(first, [*nodes[1:], first])
        elect_preferred(first)

    found = check_over_election(first, elect)
    assert (found.code, found.found("error")) == (0, {}), (found.rows, found.err)
    assert found.found("ok")["election"] == set(PARTITIONS)
    assert {leader_of(first, *key) for key in PARTITIONS} == {left.node_id}
    first.stop(kill=True)
    assert left.offsets("earliest", *TOPICS) == lost.cluster.starts
    assert served(left) == expected(lost.cluster, lost.ends)
    assert "caused truncation" not in left.said()
    assert tier(left) == before, "copying is disabled, and nothing is deleted"
    enable_copying(left)
    check_goes_on(left, lost, before)
    stop(nodes)


@pytest.mark.parametrize("is_torn", [True, False], ids=["within a batch", "before the topics"])
def test_a_broker_that_is_started_too_early_deletes_nothing(
    is_torn: bool, lost: Lost, brokers: Brokers
) -> None:
    """A kill left this; tests/apply/test_kill_restore.py has all kills, and the next runs on a new node."""
    node = new_node(lost, brokers)
    before, bootstrap = tier(node), node.log_dir / bootstrap_name(VERSION)
    formatted, command = bootstrap.read_bytes(), restore(lost, node, "--deletes-are-denied")
    tierctl(*command, "--apply").ok()
    # The topics are written last.
    bootstrap.write_bytes(formatted)
    if is_torn:
        log = next(log for log in node.log_dir.glob(f"{LOGS}*/*.log") if log.stat().st_size)
        log.write_bytes(log.read_bytes()[:-10])
    node.start()
    node.await_idle()
    assert not {*TOPICS, "unused"} & node.admin.list_topics(timeout=30).topics.keys()
    assert "a broker is running on" in refused(*command)
    node.stop()
    assert "shows that a node was started" in refused(*command)
    assert tier(node) == before
