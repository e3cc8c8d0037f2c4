"""Three brokers ran after the metadata topic was lost (a2r): the files of every replica are put back."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

from tests.live.commands import plan, tierctl
from tests.live.history import ISOLATIONS, lose_metadata
from tests.live.test_several_brokers import METADATA_SETTINGS, in_sync, leader_of
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
TOPIC = "kept"


def start(nodes: list[Broker], replicas: int = 3) -> None:
    for node in nodes:
        node.launch()
    for node in nodes:
        node.await_up()
    nodes[0].wait_for("replicas in sync", lambda: in_sync(nodes[0], TOPIC) == replicas, 120)


def stop(nodes: list[Broker]) -> None:
    """End all of them: the last ones have no quorum for an orderly end."""
    for node in nodes:
        node.stop(kill=True)


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
        nodes[0].wait_for("replicas in sync", lambda: in_sync(nodes[0], TOPIC) == 3, 120)
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


def test_a2r_the_checkpoints_of_every_replica_are_put_back(brokers: Brokers) -> None:
    nodes = made_history(brokers)
    records = {how: nodes[0].records(TOPIC, isolation=how) for how in ISOLATIONS}
    stop(nodes)
    for node in nodes:
        lose_metadata(node)
    start(nodes)
    nodes[0].wait_for("a raised log start", lambda: nodes[0].offsets("earliest", TOPIC)[TOPIC, 0] > 0)
    nodes[0].await_idle()
    time.sleep(5)  # The followers learn of the log start with their next fetch.
    stop(nodes)
    raised = raised_on(nodes)

    logs = [word for node in nodes for word in ("--log-dir", node.log_dir)]
    rebuild = ("rebuild", "--metadata", nodes[0].log_dir, "--remote", nodes[0].remote_dir, *logs)
    refused = tierctl(*rebuild, "--apply")
    assert (refused.code, f"{TOPIC}-0: the log start is" in refused.err) == (4, True), refused.err
    done = plan(*rebuild, "--log-start", "tier", "--apply")
    assert {outcome["status"] for outcome in done["outcomes"]} == {"done"}
    written = {step["log_dir"] for step in done["steps"] if step["action"] == "write_checkpoints"}
    assert written == {str(node.log_dir) for node in raised}

    start(nodes)
    check_served(nodes, records)
    leader = leader_of(nodes[0], TOPIC, 0)
    nodes[leader - 1].stop(kill=True)
    left = [node for node in nodes if node.is_running]
    left[0].wait_for("another leader", lambda: leader_of(left[0], TOPIC, 0) not in {-1, leader})
    check_served(left, records)
    stop(nodes)


def check_served(nodes: list[Broker], records: dict[str, list[Any]]) -> None:
    assert nodes[0].offsets("earliest", TOPIC) == {(TOPIC, 0): 0}
    for how in ISOLATIONS:
        assert nodes[0].records(TOPIC, isolation=how) == records[how]
