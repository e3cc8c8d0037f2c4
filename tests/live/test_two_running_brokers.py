"""Two running brokers lose the metadata topic, and the lines of the README are run as printed."""

import re
from functools import partial

import pytest
from tierctl.metadata.topic import METADATA_TOPIC

from tests.live.history import ISOLATIONS
from tests.live.replicas import METADATA_SETTINGS, in_sync, leader_of
from tests.live.test_rebuild_online import RESTART, run_readmes_lines
from tests.live.test_restore_check import check
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
TOPIC = "both"
FACTOR = "rlmm.config.remote.log.metadata.topic.replication.factor"

Served = dict[tuple[int, str], list[tuple[int, int, bytes | None, bytes | None]]]


def made_history(brokers: Brokers) -> list[Broker]:
    """Brokers 1 and 2, each the leader of one partition of a topic of several epochs, and a controller."""
    nodes = brokers.cluster(3, tiered=True, start=False, transaction_state_log_replication_factor="2")
    nodes[2].roles = "controller"
    for node in nodes:
        node.settings |= {**METADATA_SETTINGS, FACTOR: "2"}
    launch(nodes)
    nodes[0].create_topic(TOPIC, 2, replicas=2, tiered=True)
    for seed in (1, 2):
        fill(nodes[0], seed)
        roll(nodes[:2])
    elect = ("--election-type", "preferred", "--all-topic-partitions")
    nodes[0].tool("org.apache.kafka.tools.LeaderElectionCommand", *elect)
    nodes[0].wait_for("two leaders", lambda: {leader_of(nodes[0], TOPIC, each) for each in (0, 1)} == {1, 2})
    fill(nodes[0], 3)
    return nodes


def launch(nodes: list[Broker]) -> None:
    for node in nodes:
        node.launch()
    for node in nodes[:2]:
        node.await_up()


def fill(broker: Broker, seed: int) -> None:
    for partition in (0, 1):
        broker.produce(TOPIC, 1300, partition=partition, seed=10 * seed + partition, acks="all")
        for commit in (True, False):
            broker.produce_transaction(TOPIC, 60, partition=partition, commit=commit)
    broker.await_idle()


def roll(nodes: list[Broker]) -> None:
    """Restart one broker after the other, as an operator does."""
    for node in nodes:
        node.restart()
        await_in_sync(node)


def await_in_sync(asked: Broker) -> None:
    for topic in (TOPIC, METADATA_TOPIC):
        asked.wait_for("replicas in sync", partial(is_in_sync, asked, topic), 120)


def is_in_sync(asked: Broker, topic: str) -> bool:
    return in_sync(asked, topic) == 2


def leads_everything(node: Broker) -> bool:
    topics = {TOPIC: 2, METADATA_TOPIC: METADATA_PARTITIONS}
    led = [(topic, number) for topic, count in topics.items() for number in range(count)]
    return {leader_of(node, *each) for each in led} == {node.node_id}


def served(broker: Broker) -> Served:
    assert broker.offsets("earliest", TOPIC) == {(TOPIC, 0): 0, (TOPIC, 1): 0}
    return {
        (number, how): broker.records(TOPIC, number, isolation=how) for number in (0, 1) for how in ISOLATIONS
    }


def check_each_alone(nodes: list[Broker], records: Served) -> None:
    """Each of the brokers serves every record while the other one is down; then new ones are tiered, too."""
    for down, left in (nodes, nodes[::-1]):
        down.stop(kill=True)
        left.wait_for("one leader", partial(leads_everything, left), 120)
        assert served(left) == records
        down.start()
        await_in_sync(left)
    before = nodes[0].offsets("latest-tiered", TOPIC)
    fill(nodes[0], 9)
    after = nodes[0].offsets("latest-tiered", TOPIC)
    assert all(after[key] > before[key] for key in before)
    found = served(nodes[0])
    assert {key: found[key][: len(each)] for key, each in records.items()} == records


def test_the_readmes_lines_on_two_running_brokers(brokers: Brokers) -> None:
    nodes = made_history(brokers)
    asked, both = nodes[0], nodes[:2]
    records = served(asked)
    asked.delete_topic(METADATA_TOPIC)
    said = run_readmes_lines(asked, TOPIC, replicas=2)
    assert RESTART in said.raw_err
    assert served(asked) == records
    found = check(asked)
    # The topic's id decides in which metadata partitions its events are, and so which brokers lead them.
    said_of = re.search(r"brokers \[(1|2|1, 2)\] were not restarted", found.text("restarts"))
    assert (found.code, said_of is not None) == (3, True), found.rows
    roll(both)
    found = check(asked)
    assert (found.code, found.found("error")) == (0, {}), (found.rows, found.err)
    assert served(asked) == records
    asked.alter_topic(TOPIC, remote_log_copy_disable="false", local_retention_bytes="1")
    check_each_alone(both, records)
