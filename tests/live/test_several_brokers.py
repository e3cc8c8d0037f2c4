"""Several brokers with the metadata topic: one stops, one of them tiers, or both lose it."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.wire.metadata.values import metadata_partition

from tests.live.commands import assumed, base_offsets, plan, refused, rows, tierctl
from tests.live.history import Records, served_from
from tests.live.replicas import METADATA_SETTINGS, await_in_sync, elect_preferred, launch, leader_of, stop
from tests.live.test_rebuild_online import RESTART, run_readmes_lines
from tests.live.test_restore_check import check
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers
from tests.support.faults import observed

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


TOPIC = "spread"


@pytest.fixture
def nodes(brokers: Brokers) -> Iterator[list[Broker]]:
    """Return nodes 1, 2 and 3, none of which tiers."""
    made = brokers.cluster(3)
    for broker in made:
        broker.settings |= METADATA_SETTINGS
    yield made
    stop(made)


def replicas_on_disk(nodes: list[Broker]) -> int:
    """Return the partitions of the topic whose high watermark is in the broker's checkpoint."""
    texts = [(node.log_dir / "replication-offset-checkpoint").read_text() for node in nodes]
    return sum(f"{TOPIC} {number} 2500" in text for text in texts for number in range(3))


def test_a_broker_goes_and_comes_back_tiering(nodes: list[Broker], tmp_path: Path) -> None:
    topic_id = nodes[0].create_topic(TOPIC, 3)
    for number in range(3):
        nodes[0].produce(TOPIC, 2500, partition=number)
    nodes[0].wait_for("the high watermarks", lambda: replicas_on_disk(nodes) == 3)
    settings = tmp_path / "server.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in METADATA_SETTINGS.items()))
    everybody = ",".join(node.bootstrap for node in nodes)
    where = ("--metadata", f"kafka://{everybody}", "--remote", nodes[0].remote_dir)
    first = metadata_partition(topic_id, 0, METADATA_PARTITIONS)
    gone: list[Broker] = []

    def kill_the_leader(label: str, moment: str) -> None:
        if (label, moment) == ("copy.started.publish", "after") and not gone:
            gone.append(nodes[leader_of(nodes[0], METADATA_TOPIC, first) - 1])
            gone[0].stop(kill=True)

    copy = ("copy", *where, *assumed(TOPIC), "--broker-config", settings, "--create-metadata-topic")
    logs = [option for node in nodes for option in ("--log-dir", node.log_dir)]
    with observed(kill_the_leader):
        # The killed broker also led a partition of the topic, whose next leader is not known.
        copied = plan(*copy, *logs, "--wave-size", 1, "--allow-live-brokers", "--apply")
    (killed,) = gone
    # Two of three brokers are enough: all events were published and read back.
    assert [outcome["status"] for outcome in copied["outcomes"]] == ["done"] * 6
    alive = next(node for node in nodes if node is not killed)
    assert leader_of(alive, METADATA_TOPIC, first) not in {killed.node_id, -1}
    listed = rows("segments", *where[:2])
    assert [row["state"] for row in listed] == ["COPY_SEGMENT_FINISHED"] * 6
    # The only replica of a partition is on the stopped broker; there is no other fault.
    found = [json.loads(line) for line in tierctl("verify", *where, *logs, "--output", "jsonl").lines]
    assert [(f["check"], leader_of(alive, TOPIC, f["partition"])) for f in found] == [("unseen_leader", -1)]

    killed.tiered = True
    killed.start()
    await_in_sync(alive, METADATA_TOPIC)
    tiering, *free = sorted(range(3), key=lambda n: leader_of(alive, TOPIC, n) != killed.node_id)
    asked = [f"{TOPIC}-{number}=1100" for number in (tiering, free[0])]
    sweep = ("sweep", *where)
    said = refused(*sweep, "--log-start-offset", asked[0], "--log-start-offset", asked[1])
    assert f"{TOPIC}-{tiering}: broker {killed.node_id} leads it and tiers" in said
    assert f"{TOPIC}-{free[0]}" not in said.partition("error: ")[2]
    assert len(base_offsets(alive, TOPIC)) == 6

    # Partitions that are not in the plan do not fence the run.
    assert plan(*sweep, "--apply")["outcomes"] == []
    swept = plan(*sweep, "--log-start-offset", asked[1], "--apply")
    assert [(o["partition"], o["status"]) for o in swept["outcomes"]] == [(free[0], "done")]
    assert "leads it and tiers" in refused(*sweep, "--topic", TOPIC, "--partition", tiering)


LOST_TOPIC = "both"
FACTOR = "rlmm.config.remote.log.metadata.topic.replication.factor"


def made_history(brokers: Brokers) -> list[Broker]:
    """Brokers 1 and 2, each the leader of one partition of a topic of several epochs, and a controller."""
    nodes = brokers.cluster(3, tiered=True, start=False, transaction_state_log_replication_factor="2")
    nodes[2].roles = "controller"
    for node in nodes:
        node.settings |= {**METADATA_SETTINGS, FACTOR: "2"}
    launch(nodes)
    nodes[0].create_topic(LOST_TOPIC, 2, replicas=2, tiered=True)
    for seed in (1, 2):
        fill(nodes[0], seed)
        roll(nodes[:2])
    elect_preferred(nodes[0])
    nodes[0].wait_for(
        "two leaders", lambda: {leader_of(nodes[0], LOST_TOPIC, each) for each in (0, 1)} == {1, 2}
    )
    fill(nodes[0], 3)
    return nodes


def fill(broker: Broker, seed: int) -> None:
    for partition in (0, 1):
        broker.produce(LOST_TOPIC, 1300, partition=partition, seed=10 * seed + partition, acks="all")
        for commit in (True, False):
            broker.produce_transaction(LOST_TOPIC, 60, partition=partition, commit=commit)
    broker.await_idle()


def roll(nodes: list[Broker]) -> None:
    """Restart one broker after the other, as an operator does."""
    for node in nodes:
        node.restart()
        await_in_sync(node, LOST_TOPIC, METADATA_TOPIC, replicas=2)


def leads_everything(node: Broker) -> bool:
    topics = {LOST_TOPIC: 2, METADATA_TOPIC: METADATA_PARTITIONS}
    led = [(topic, number) for topic, count in topics.items() for number in range(count)]
    return {leader_of(node, *each) for each in led} == {node.node_id}


def served(broker: Broker) -> Records:
    starts = broker.offsets("earliest", LOST_TOPIC)
    assert starts == {(LOST_TOPIC, 0): 0, (LOST_TOPIC, 1): 0}
    return served_from(broker, starts)


def check_each_alone(nodes: list[Broker], records: Records) -> None:
    """Each of the brokers serves every record while the other one is down; then new ones are tiered, too."""
    for down, left in (nodes, nodes[::-1]):
        down.stop(kill=True)
        left.wait_for("one leader", partial(leads_everything, left), 120)
        assert served(left) == records
        down.start()
        await_in_sync(left, LOST_TOPIC, METADATA_TOPIC, replicas=2)
    before = nodes[0].offsets("latest-tiered", LOST_TOPIC)
    fill(nodes[0], 9)
    after = nodes[0].offsets("latest-tiered", LOST_TOPIC)
    assert all(after[key] > before[key] for key in before)
    found = served(nodes[0])
    assert {key: found[key][: len(each)] for key, each in records.items()} == records


def test_the_readmes_lines_on_two_running_brokers(brokers: Brokers) -> None:
    nodes = made_history(brokers)
    asked, both = nodes[0], nodes[:2]
    records = served(asked)
    asked.delete_topic(METADATA_TOPIC)
    said = run_readmes_lines(asked, LOST_TOPIC, replicas=2)
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
    asked.alter_topic(LOST_TOPIC, remote_log_copy_disable="false", local_retention_bytes="1")
    check_each_alone(both, records)
