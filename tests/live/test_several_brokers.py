"""Three brokers with the metadata topic: one stops during a run, or one of them tiers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tierctl.apply.run_context import observe
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.wire.metadata.values import metadata_partition

from tests.live.commands import assumed, base_offsets, plan, rows, tierctl
from tests.live.replicas import METADATA_SETTINGS, in_sync, leader_of
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
TOPIC = "spread"


@pytest.fixture
def nodes(brokers: Brokers) -> Iterator[list[Broker]]:
    """Return nodes 1, 2 and 3, none of which tiers."""
    made = brokers.cluster(3)
    for broker in made:
        broker.settings |= METADATA_SETTINGS
    yield made
    for broker in made:
        broker.stop(kill=True)


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

    copy = (
        "copy",
        *where,
        "--broker-config",
        settings,
        "--create-metadata-topic",
        *assumed(TOPIC),
        "--wave-size",
        1,
    )
    logs = [option for node in nodes for option in ("--log-dir", node.log_dir)]
    observe(kill_the_leader)
    try:
        # The killed broker also led a partition of the topic, whose next leader is not known.
        copied = plan(*copy, *logs, "--allow-live-brokers", "--apply")
    finally:
        observe(None)
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
    alive.wait_for("all replicas", lambda: in_sync(alive, METADATA_TOPIC) == 3)
    tiering, *free = sorted(range(3), key=lambda n: leader_of(alive, TOPIC, n) != killed.node_id)
    asked = [f"{TOPIC}-{number}=1100" for number in (tiering, free[0])]
    sweep = ("sweep", *where, "--apply")
    refused = tierctl(*sweep, "--log-start-offset", asked[0], "--log-start-offset", asked[1])
    assert refused.code == 4, refused.err
    assert f"{TOPIC}-{tiering}: broker {killed.node_id} leads it and tiers" in refused.err
    assert f"{TOPIC}-{free[0]}" not in refused.err
    assert len(base_offsets(alive, TOPIC)) == 6

    # Partitions that are not in the plan do not fence the run.
    assert plan(*sweep)["outcomes"] == []
    swept = plan(*sweep, "--log-start-offset", asked[1])
    assert [(o["partition"], o["status"]) for o in swept["outcomes"]] == [(free[0], "done")]
    only_tiering = tierctl(*sweep, "--topic", TOPIC, "--partition", tiering)
    assert (only_tiering.code, "leads it and tiers" in only_tiering.err) == (4, True)
