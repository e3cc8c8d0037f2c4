"""A cluster is lost; a newly formatted node serves its topics from the tier, under their old ids (b1)."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live.commands import plan, tierctl
from tests.live.history import (
    TOPICS,
    Cluster,
    check_everything,
    enable_copying,
    made_history,
    seeks,
    tier,
    tier_ends,
)
from tests.live.history import epoch_starts as epoch_starts_of
from tests.live.test_materialise import expected
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


@dataclass(frozen=True)
class Lost:
    """A stopped cluster, the end of its tier by partition, and the file that was saved while it ran."""

    cluster: Cluster
    ends: dict[tuple[str, int], int]
    topics_file: Path


@pytest.fixture(scope="module")
def lost(brokers: Brokers) -> Lost:
    broker = brokers.own()
    broker.create_topic("unused", 2, tiered=True)
    broker.create_topic("local", 1)
    found = made_history(broker)
    ends = tier_ends(broker)
    saved = broker.folder / "topics.yaml"
    ran = tierctl("backup-config", "--bootstrap-server", broker.bootstrap, "--output-file", saved)
    assert ran.code == 0, ran.err
    broker.stop()
    return Lost(found, ends, saved)


def restore(lost: Lost, node: Broker, *more: object) -> tuple[object, ...]:
    return (
        *("restore", "--into", node.log_dir, "--log-dir", node.log_dir, "--remote", node.remote_dir),
        *("--topics-file", lost.topics_file, "--config", node.properties, *more),
    )


def ids(broker: Broker, *topics: str) -> dict[str, str]:
    return {topic: str(broker.topic_id(topic)) for topic in topics}


def test_b1_a_new_node_serves_the_tier_under_the_old_ids(lost: Lost, brokers: Brokers) -> None:
    node = brokers.own(start=False)
    node.remote = lost.cluster.broker.remote_dir
    node.format()
    before = tier(node)
    refused = tierctl(*restore(lost, node, "--apply"))
    assert (refused.code, "nothing proves that the objects" in refused.err) == (4, True), refused.err
    assert not list(node.log_dir.glob("*-0/*.log"))
    ran = tierctl(*restore(lost, node, "--deletes-are-denied", "--apply"))
    assert ran.code == 0, ran.err
    for setting in ("remote.log.copy.disable unset", "local.retention.bytes 1"):
        assert setting in ran.err
    assert plan(*restore(lost, node))["steps"] == []
    assert tier(node) == before

    node.start()
    records = expected(lost.cluster, lost.ends)
    assert node.offsets("earliest", *TOPICS) == lost.cluster.starts
    seeks(node, records, epoch_starts_of(node))
    node.await_idle()
    assert tier(node) == before, "copying is disabled, and nothing is deleted"
    # Topics that have nothing in the tier: tiered ones come with their partitions, others do not.
    assert {("unused", 0), ("unused", 1)} == set(node.offsets("latest", "unused"))
    assert not node.offsets("latest", "local")
    refused = tierctl(*restore(lost, node, "--deletes-are-denied", "--apply"))
    assert (refused.code, "a broker is running on" in refused.err) == (4, True), refused.err

    enable_copying(node)
    node.produce_transaction("tx", 50)
    cluster = Cluster(broker=node, records=records, starts=lost.cluster.starts)
    node.delete_topic("unused")
    check_everything(node, cluster, before)
    node.stop()
    refused = tierctl(*restore(lost, node, "--deletes-are-denied", "--apply"))
    assert (refused.code, "shows that a node was started" in refused.err) == (4, True), refused.err
