"""Clusters of three tiering brokers: their history, leaders and replicas."""

import time
from collections.abc import Sequence
from typing import Any

from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

from tests.live.history import ISOLATIONS
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers

TOPIC = "kept"
METADATA_SETTINGS = {
    "rlmm.config.remote.log.metadata.topic.num.partitions": str(METADATA_PARTITIONS),
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
    "rlmm.config.remote.log.metadata.topic.min.isr": "2",
}


def leader_of(asked: Broker, topic: str, partition: int) -> int:
    """Return the number of the leader; -1 without one, and if the broker has not heard of the partition."""
    found = asked.admin.list_topics(topic, timeout=10).topics[topic].partitions.get(partition)
    return -1 if found is None else int(found.leader)


def in_sync(asked: Broker, topic: str) -> int:
    """Return the smallest number of in-sync replicas of a partition."""
    return min(len(part.isrs) for part in asked.admin.list_topics(topic).topics[topic].partitions.values())


def await_in_sync(asked: Broker, *topics: str, replicas: int = 3) -> None:
    """Wait until each partition of the topics has so many in-sync replicas."""
    asked.wait_for(
        "replicas in sync", lambda: all(in_sync(asked, topic) == replicas for topic in topics), 180
    )


def launch(nodes: Sequence[Broker]) -> None:
    """Start the nodes, and wait until each broker among them responds."""
    for node in nodes:
        node.launch()
    for node in nodes:
        if node.roles != "controller":
            node.await_up()


def start(nodes: list[Broker], replicas: int = 3) -> None:
    launch(nodes)
    await_in_sync(nodes[0], TOPIC, replicas=replicas)


def stop(nodes: Sequence[Broker]) -> None:
    """End all of them: the last ones have no quorum for an orderly end."""
    for node in nodes:
        node.stop(kill=True)


def elect_preferred(asked: Broker) -> None:
    """Have the first replica of each partition elected."""
    elect = ("--election-type", "preferred", "--all-topic-partitions")
    asked.tool("org.apache.kafka.tools.LeaderElectionCommand", *elect)


def made_history(brokers: Brokers) -> list[Broker]:
    """Three tiering brokers with a topic of several leader epochs, which is tiered."""
    nodes = brokers.cluster(3)
    for node in nodes:
        node.settings |= METADATA_SETTINGS
        node.restart(tiered=True)
    nodes[0].create_topic(TOPIC, replicas=3, tiered=True)
    for number in range(3):
        nodes[0].produce(TOPIC, 1300, seed=number, acks="all")
        for committed in (True, False):
            nodes[0].produce_transaction(TOPIC, 60, commit=committed)
        nodes[0].await_idle()
        nodes[leader_of(nodes[0], TOPIC, 0) - 1].restart()
        await_in_sync(nodes[0], TOPIC)
    nodes[0].await_idle()
    return nodes


def raised_on(nodes: Sequence[Broker]) -> list[Broker]:
    """Return the killed brokers that cut their leader epochs: on a slow machine not all followers did."""

    def first_offset(node: Broker) -> int:
        file = node.log_dir / f"{TOPIC}-0" / "leader-epoch-checkpoint"
        return read_leader_epoch_checkpoint(file.read_bytes())[0].start_offset

    found = [node for node in nodes if first_offset(node) > 0]
    assert found
    return found


def run_without_events(nodes: list[Broker], replicas: int = 3) -> list[Broker]:
    """Start the nodes until the leader has raised the log start, and stop them; return those that know it."""
    asked = nodes[-1]
    start(nodes, replicas)
    asked.wait_for("a raised log start", lambda: asked.offsets("earliest", TOPIC)[TOPIC, 0] > 0)
    asked.await_idle()
    time.sleep(5)  # The followers learn of the log start with their next fetch.
    stop(nodes)
    return raised_on(nodes[:replicas])


def check_served(nodes: list[Broker], records: dict[str, list[Any]]) -> None:
    """Check that a consumer gets all records, from the first offset on; a new leader may take a while."""
    asked = nodes[0]
    asked.wait_for("the first offset", lambda: bool(asked.offsets("earliest", TOPIC)))
    assert asked.offsets("earliest", TOPIC) == {(TOPIC, 0): 0}
    for how in ISOLATIONS:
        assert asked.records(TOPIC, isolation=how) == records[how]
