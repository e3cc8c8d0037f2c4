"""Several brokers with the metadata topic: one stops, one of them tiers, or all lose it."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.wire.metadata.values import metadata_partition

from tests.docs.documents import README, Document
from tests.docs.running import replaced
from tests.live.commands import Ran, assumed, base_offsets, plan, refused, rows, tierctl
from tests.live.history import ISOLATIONS
from tests.live.replicas import (
    METADATA_SETTINGS,
    await_in_sync,
    check_served,
    check_served_without_each,
    leader_of,
    made_history,
    stop,
)
from tests.live.replicas import TOPIC as KEPT
from tests.live.test_rebuild_online import RESTART
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


_TOOLS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}


def run_readmes_lines(broker: Broker) -> Ran:
    """Run the README's lines for brokers that still run, which must succeed; return what tierctl said."""
    names = {"broker1:9092": broker.bootstrap, "s3://archive/tier": str(broker.remote_dir)}
    names |= {"--partitions 50": f"--partitions {METADATA_PARTITIONS}", "-name orders": f"-name {KEPT}"}
    _, block = Document("README.md", README.section("On a bad day")).blocks("bash")
    commands = Document("README.md", f"```bash\n{block}```").commands
    *tools, last = (shlex.split(replaced(each.line, names)) for each in commands)
    assert len(tools) == 2
    for program, *words in tools:
        broker.release.with_tools.run(_TOOLS[program], *words)
    # The brokers hear of the new topic one after the other, and an operator types more slowly.
    await_in_sync(broker, METADATA_TOPIC)
    assert last[0] == "tierctl"
    return tierctl(*last[1:]).ok()


def test_the_readmes_lines_on_running_brokers(brokers: Brokers) -> None:
    nodes = made_history(brokers)
    asked = nodes[0]
    records = {how: asked.records(KEPT, isolation=how) for how in ISOLATIONS}
    asked.delete_topic(METADATA_TOPIC)
    assert RESTART in run_readmes_lines(asked).raw_err
    check_served(nodes, records)
    found = check(asked)
    # The topic's id decides in which metadata partition its events are, and so which broker leads it.
    said_of = re.search(r"brokers \[[123]\] were not restarted", found.text("restarts"))
    assert (found.code, said_of is not None) == (3, True), found.rows
    for node in nodes:
        node.restart()
        await_in_sync(node, KEPT, METADATA_TOPIC)
    found = check(asked)
    assert (found.code, found.found("error")) == (0, {}), (found.rows, found.err)
    check_served_without_each(nodes, records)
    asked.alter_topic(KEPT, remote_log_copy_disable="false", local_retention_bytes="1")
    before = asked.offsets("latest-tiered", KEPT)[KEPT, 0]
    asked.produce(KEPT, 2500, seed=9, acks="all")
    asked.await_idle()
    assert asked.offsets("latest-tiered", KEPT)[KEPT, 0] > before
    for how in ISOLATIONS:
        assert asked.records(KEPT, isolation=how)[: len(records[how])] == records[how]
    stop(nodes)
