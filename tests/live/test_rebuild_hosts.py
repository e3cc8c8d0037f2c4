"""Brokers on different hosts lose the metadata, all of them: one plan gives all the same bytes."""

import shutil
import time

import pytest
from tierctl.metadata.topic import METADATA_TOPIC

from tests.live.commands import plan, tierctl
from tests.live.history import ISOLATIONS, lose_metadata
from tests.live.replicas import TOPIC, check_served, in_sync, leader_of, made_history, raised_on, start, stop
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


def own(node: Broker) -> tuple[object, ...]:
    """Return the options of a host that has one broker's log directory."""
    return ("--metadata", node.log_dir, "--remote", node.remote_dir, "--log-dir", node.log_dir)


def metadata_logs(node: Broker) -> dict[str, bytes]:
    found = sorted(node.log_dir.glob(f"{METADATA_TOPIC}-*/*"))
    files = (path for path in found if path.name.endswith((".log", "leader-epoch-checkpoint")))
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in files}


def led_by(asked: Broker, node: Broker) -> bool:
    """Return whether a broker leads the topic, or a partition of the metadata topic."""
    leaders = {leader_of(asked, METADATA_TOPIC, number) for number in range(METADATA_PARTITIONS)}
    return node.node_id in leaders | {leader_of(asked, TOPIC, 0)}


@pytest.mark.parametrize("ran_without", [False, True], ids=["none started since", "all ran without events"])
def test_each_host_applies_the_plan(brokers: Brokers, ran_without: bool) -> None:
    nodes = made_history(brokers)
    records = {how: nodes[0].records(TOPIC, isolation=how) for how in ISOLATIONS}
    stop(nodes)
    for node in nodes:
        lose_metadata(node)
    more: tuple[str, ...] = ()
    raised: list[Broker] = []
    if ran_without:
        start(nodes)
        nodes[0].wait_for("a raised log start", lambda: nodes[0].offsets("earliest", TOPIC)[TOPIC, 0] > 0)
        nodes[0].await_idle()
        time.sleep(5)  # The followers learn of the log start with their next fetch.
        stop(nodes)
        raised = raised_on(nodes)
        for node in nodes:
            lose_metadata(node)
        more = ("--log-start", "tier")
    shutil.rmtree(nodes[1].log_dir / f"{METADATA_TOPIC}-{METADATA_PARTITIONS - 1}")

    refused = tierctl("rebuild", *own(nodes[0]), *more, "--apply")
    assert (refused.code, "--plan-out" in refused.err) == (4, True), refused.err
    saved = nodes[0].folder / "rebuild.plan"
    planned = tierctl("rebuild", *own(nodes[0]), *more, "--plan-out", saved)
    assert (planned.code, "brokers 1, 2, 3 have replicas" in planned.err) == (0, True), planned.err
    for node in reversed(nodes):
        done = plan("apply", saved, *own(node), "--apply")
        assert {outcome["status"] for outcome in done["outcomes"]} == {"done"}
        put_back = [step["log_dir"] for step in done["steps"] if step["action"] == "write_checkpoints"]
        assert put_back == ([str(node.log_dir)] if node in raised else [])
    logs = [metadata_logs(node) for node in nodes]
    assert logs[0] == logs[1] == logs[2]
    assert any(logs[0].values())

    start(nodes)
    check_served(nodes, records)
    for node in nodes:
        others = [each for each in nodes if each is not node]
        node.stop(kill=True)
        others[0].wait_for("other leaders", lambda node=node, asked=others[0]: not led_by(asked, node))
        check_served(others, records)
        node.start()
        for topic in (TOPIC, METADATA_TOPIC):
            asked = others[0]
            asked.wait_for("replicas in sync", lambda t=topic, asked=asked: in_sync(asked, t) == 3, 120)
    stop(nodes)
