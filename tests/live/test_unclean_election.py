"""The metadata are lost after an unclean election and a clean one: the last leader's records are served."""

import time

import pytest
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

from tests.live.commands import first_offset, plan, tierctl
from tests.live.history import ISOLATIONS, lose_metadata, tier
from tests.live.replicas import (
    METADATA_SETTINGS,
    TOPIC,
    check_served,
    in_sync,
    leader_of,
    raised_on,
    start,
    stop,
)
from tests.support.broker import Broker, Brokers
from tests.support.broker_settings import TIERED_TOPIC

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
REPLICAS = 2


def write(nodes: list[Broker], seed: int, leader: int) -> None:
    """Have `leader` write and copy about two segments, some of their records in transactions."""
    asked = nodes[2]
    asked.wait_for(f"broker {leader} to lead", lambda: leader_of(asked, TOPIC, 0) == leader, 120)
    for number, committed in enumerate((True, False)):
        asked.produce(TOPIC, 900, seed=10 * seed + number)
        asked.produce_transaction(TOPIC, 200 + seed, commit=committed)
    nodes[leader - 1].await_idle()


def made_history(brokers: Brokers) -> list[Broker]:
    """Brokers 1 and 2 have the topic: 1 goes on alone, 2 takes over without its records, 1 leads again."""
    nodes = brokers.cluster(3, tiered=True, start=False, transaction_state_log_replication_factor="3")
    first, second, third = nodes
    for node in nodes:
        node.settings |= METADATA_SETTINGS
        node.launch()
    for node in nodes:
        node.await_up()
    settings = {**TIERED_TOPIC, "unclean.leader.election.enable": "true"}
    third.tool(
        *("org.apache.kafka.tools.TopicCommand", "--create", "--topic", TOPIC, "--replica-assignment", "1:2"),
        *(word for key, value in settings.items() for word in ("--config", f"{key}={value}")),
    )
    write(nodes, 1, leader=1)
    second.stop(kill=True)
    write(nodes, 2, leader=1)
    first.restart()
    write(nodes, 3, leader=1)
    first.stop(kill=True)
    second.start()
    write(nodes, 4, leader=2)
    first.start()
    third.wait_for("replicas in sync", lambda: in_sync(third, TOPIC) == REPLICAS, 120)
    write(nodes, 5, leader=2)
    elect = ("--election-type", "preferred", "--all-topic-partitions")
    third.tool("org.apache.kafka.tools.LeaderElectionCommand", *elect)
    write(nodes, 6, leader=1)
    return nodes


@pytest.mark.parametrize("ran_without", [False, True], ids=["none started since", "all ran without events"])
def test_the_last_leaders_records_are_served(brokers: Brokers, ran_without: bool) -> None:
    nodes = made_history(brokers)
    replicas, asked = nodes[:REPLICAS], nodes[2]
    records = {how: asked.records(TOPIC, isolation=how) for how in ISOLATIONS}
    assert asked.offsets("earliest", TOPIC) == {(TOPIC, 0): 0}
    stop(nodes)
    lineage = (nodes[0].log_dir / f"{TOPIC}-0" / "leader-epoch-checkpoint").read_bytes()
    for node in nodes:
        lose_metadata(node)
    more: tuple[str, ...] = ()
    if ran_without:
        start(nodes, REPLICAS)
        asked.wait_for("a raised log start", lambda: asked.offsets("earliest", TOPIC)[TOPIC, 0] > 0)
        asked.await_idle()
        time.sleep(5)  # The followers learn of the log start with their next fetch.
        stop(nodes)
        assert raised_on(replicas)
        more = ("--log-start", "tier")
    before = tier(asked)
    logs = [word for node in nodes for word in ("--log-dir", node.log_dir)]
    rebuild = ("rebuild", "--metadata", asked.log_dir, "--remote", asked.remote_dir, *logs)
    if not more and "the log start is" in tierctl(*rebuild).err:
        # Broker 1 was cut below its local log, and killed before the checkpoint had the leader's log start.
        more = ("--log-start", "tier")
    done = plan(*rebuild, *more, "--apply")
    assert {outcome["status"] for outcome in done["outcomes"]} == {"done"}
    published = [step["start_offset"] for step in done["steps"] if step["action"] == "publish_segment"]
    assert published[0] == 0, done["steps"]
    discarded = [step["reason"] for step in done["steps"] if step["action"] == "discard_segment"]
    assert any("the log has " in reason for reason in discarded), discarded
    assert tier(asked) == before

    start(nodes, REPLICAS)
    check_served(nodes, records)
    found = tierctl(
        "restore", "check", "--metadata", f"kafka://{asked.bootstrap}", "--remote", asked.remote_dir
    )
    assert found.code == 0, (found.out, found.err)
    nodes[0].stop(kill=True)
    asked.wait_for("the other leader", lambda: leader_of(asked, TOPIC, 0) == 2, 120)
    check_served(nodes[1:], records)
    offsets = [record[0] for record in records["read_uncommitted"]]
    for epoch in read_leader_epoch_checkpoint(lineage):
        for wanted in range(max(epoch.start_offset - 1, 0), epoch.start_offset + 2):
            found_offset = first_offset(asked, TOPIC, wanted)
            assert found_offset == next(each for each in offsets if each >= wanted)

    nodes[0].start()
    asked.wait_for("replicas in sync", lambda: in_sync(asked, TOPIC) == REPLICAS, 120)
    asked.produce(TOPIC, 2500, seed=99)
    nodes[1].await_idle()
    assert before.items() < tier(asked).items()
    for how in ISOLATIONS:
        assert asked.records(TOPIC, isolation=how)[: len(records[how])] == records[how]
    asked.delete_topic(TOPIC)
    asked.wait_for("an empty tier", lambda: not tier(asked), 120)
    stop(nodes)
