"""The metadata are lost after elections, or of topics that were compacted: all records are served."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

from tests.live.commands import applied, first_offset, local_start, plan, tierctl, twin_of
from tests.live.history import ISOLATIONS, Cluster, Lost, batch_ends, lose_metadata, new_node, restore, tier
from tests.live.replicas import (
    METADATA_SETTINGS,
    TOPIC,
    await_in_sync,
    check_served,
    elect_preferred,
    launch,
    leader_of,
    run_without_events,
    start,
    stop,
)
from tests.live.test_rebuild import offline
from tests.live.test_restore_check import check
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
    launch(nodes)
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
    await_in_sync(third, TOPIC, replicas=REPLICAS)
    write(nodes, 5, leader=2)
    elect_preferred(third)
    write(nodes, 6, leader=1)
    return nodes


@pytest.mark.parametrize("ran_without", [False, True], ids=["none started since", "all ran without events"])
def test_the_last_leaders_records_are_served(brokers: Brokers, ran_without: bool) -> None:
    nodes = made_history(brokers)
    asked = nodes[2]
    records = {how: asked.records(TOPIC, isolation=how) for how in ISOLATIONS}
    assert asked.offsets("earliest", TOPIC) == {(TOPIC, 0): 0}
    stop(nodes)
    lineage = (nodes[0].log_dir / f"{TOPIC}-0" / "leader-epoch-checkpoint").read_bytes()
    for node in nodes:
        lose_metadata(node)
    more: tuple[str, ...] = ()
    if ran_without:
        run_without_events(nodes, REPLICAS)
        more = ("--log-start", "tier")
    before = tier(asked)
    logs = [word for node in nodes for word in ("--log-dir", node.log_dir)]
    rebuild = ("rebuild", "--metadata", asked.log_dir, "--remote", asked.remote_dir, *logs)
    if not more and "the log start is" in tierctl(*rebuild).err:
        # Broker 1 was cut below its local log, and killed before the checkpoint had the leader's log start.
        more = ("--log-start", "tier")
    done = applied(*rebuild, *more, "--apply")
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
    await_in_sync(asked, TOPIC, replicas=REPLICAS)
    asked.produce(TOPIC, 2500, seed=99)
    nodes[1].await_idle()
    assert before.items() < tier(asked).items()
    for how in ISOLATIONS:
        assert asked.records(TOPIC, isolation=how)[: len(records[how])] == records[how]
    asked.delete_topic(TOPIC)
    asked.wait_for("an empty tier", lambda: not tier(asked), 120)
    stop(nodes)


LOCAL = {"local": "-2", "gone": "1"}
"""local.retention.bytes by topic: all segments are on the broker's disk, too, or only the last ones."""
ONCE = range(3400)
AGAIN = [*range(200, 320), *range(900, 1500), *range(2500, 2540)]
"""Keys of ONCE that are written again: holes within a segment, at its end, and at the head of the next."""
ROLLED = len(ONCE) + len(AGAIN)


def produce(broker: Broker, topic: str, keys: Iterable[int]) -> None:
    source = random.Random(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "batch.num.messages": 20})
    for key in keys:
        producer.produce(topic, source.randbytes(1000), b"%06d" % key, 0)
        producer.poll(0)
    assert producer.flush(30) == 0


def is_cleaned(broker: Broker, topic: str) -> bool:
    """Return whether the log cleaner went through all records that may be compacted."""
    path = broker.log_dir / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return any(line.startswith(f"{topic} 0 ") and int(line.split()[2]) >= ROLLED for line in lines)


def in_tier(broker: Broker, topic: str) -> dict[int, tuple[int, int]]:
    """Return the first and the last offset of the batches of each segment in the tier, by start offset."""
    found = {}
    for path in broker.remote_dir.glob(f"kafka-tiered-storage/{topic}-0-*/*.log"):
        data = path.read_bytes()
        last = batch_ends(data)[-2]
        offset_delta = int.from_bytes(data[last + 23 : last + 27])
        span = int.from_bytes(data[:8]), int.from_bytes(data[last : last + 8]) + offset_delta
        found[int(path.name[:20])] = span
    return dict(sorted(found.items()))


@pytest.fixture(scope="module")
def lost(brokers: Brokers) -> Lost:
    """Return a stopped broker with the topics in several leader epochs, and with holes in their segments."""
    broker = brokers.own(log_cleaner_min_cleanable_ratio="0.01")
    for topic in LOCAL:
        broker.create_topic(topic, cleanup_policy="compact")
        produce(broker, topic, (*ONCE, *AGAIN))
    broker.restart()
    for topic in LOCAL:
        produce(broker, topic, range(10_000, 11_300))
    broker.wait_for("the log cleaner", lambda: all(is_cleaned(broker, topic) for topic in LOCAL))
    for topic, local in LOCAL.items():
        broker.alter_topic(topic, cleanup_policy="delete")
        broker.alter_topic(topic, remote_storage_enable="true", local_retention_bytes=local)
    broker.await_idle()
    broker.restart()
    for topic in LOCAL:
        produce(broker, topic, range(20_000, 21_300))
    broker.await_idle()
    records: Any = {topic: broker.records(topic) for topic in LOCAL}
    starts = broker.offsets("earliest", *LOCAL)
    ends = {key: offset + 1 for key, offset in broker.offsets("latest-tiered", *LOCAL).items()}
    saved = broker.folder / "topics.yaml"
    assert tierctl("backup-config", "--bootstrap-server", broker.bootstrap, "--output-file", saved).code == 0
    broker.stop()
    for topic in LOCAL:
        assert len(records[topic]) == ROLLED - len(AGAIN) + 2600
        spans = in_tier(broker, topic)
        assert any(first > start for start, (first, _) in spans.items())
        following = [*list(spans)[1:], ends[topic, 0]]
        assert any(last + 1 < then for (_, last), then in zip(spans.values(), following, strict=True))
    assert (local_start(broker, "local"), local_start(broker, "gone") > ROLLED) == (0, True)
    return Lost(Cluster(broker=broker, records=records, starts=starts), ends, saved)


@pytest.fixture
def twin(lost: Lost, tmp_path: Path) -> Iterator[Broker]:
    made = twin_of(lost.cluster.broker, tmp_path / "twin")
    yield made
    made.stop()


def read(broker: Broker) -> Any:
    """Return every record of the topics from their log starts on."""
    return {
        topic: broker.records(topic, start=broker.offsets("earliest", topic)[topic, 0]) for topic in LOCAL
    }


def test_rebuilt_metadata_serve_every_record(lost: Lost, twin: Broker) -> None:
    before = tier(twin)
    lose_metadata(twin)
    done = plan(*offline(twin, "--apply"))
    assert {(o["status"], o["action"]) for o in done["outcomes"]} == {("done", "publish_segment")}
    published = {(s["topic"], s["start_offset"]): s["end_offset"] for s in done["steps"]}
    for topic in LOCAL:
        starts = list(in_tier(twin, topic))
        ends = [start - 1 for start in starts[1:]]
        assert [published[topic, start] for start in starts[:-1]] == ends
    assert plan(*offline(twin))["steps"] == []
    for _ in range(2):
        twin.start()
        twin.await_idle()
        assert twin.offsets("earliest", *LOCAL) == lost.cluster.starts
        assert read(twin) == lost.cluster.records
        found = check(twin)
        assert (found.code, found.found("error")) == (0, {}), found.rows
        assert tier(twin) == before
        twin.stop()


def test_a_new_node_serves_every_record_that_was_tiered(lost: Lost, brokers: Brokers) -> None:
    """The disk is lost with all logs: the tier alone shows where each segment ends."""
    node = new_node(lost, brokers)
    before = tier(node)
    tierctl(*restore(lost, node, "--deletes-are-denied", "--apply")).ok()
    node.start()
    node.await_idle()
    tiered = {
        topic: [record for record in lost.cluster.records[topic] if record[0] < lost.ends[topic, 0]]
        for topic in LOCAL
    }
    assert read(node) == tiered
    found = check(node)
    assert (found.code, found.found("error")) == (0, {}), found.rows
    for topic in LOCAL:
        node.alter_topic(topic, remote_log_copy_disable="false", local_retention_bytes="1")
    node.await_idle()
    assert read(node) == tiered
    assert before.items() <= tier(node).items()
    node.stop()
