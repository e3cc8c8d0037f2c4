"""The metadata are lost after elections, or the disk of a topic that was compacted: all is served."""

import random
from collections.abc import Iterable

import pytest
from confluent_kafka import Producer
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

from tests.live.commands import applied, first_offset, local_start, tierctl, where
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
    found = tierctl("restore", "check", *where(asked))
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


COMPACTED = "compacted"
ONCE = range(3400)
AGAIN = [*range(200, 320), *range(900, 1500), *range(2500, 2540)]
"""Keys of ONCE that are written again: holes within a segment, at its end, and at the head of the next."""
ROLLED = len(ONCE) + len(AGAIN)


def produce(broker: Broker, keys: Iterable[int]) -> None:
    source = random.Random(COMPACTED)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "batch.num.messages": 20})
    for key in keys:
        producer.produce(COMPACTED, source.randbytes(1000), b"%06d" % key, 0)
        producer.poll(0)
    assert producer.flush(30) == 0


def is_cleaned(broker: Broker) -> bool:
    """Return whether the log cleaner went through all records that may be compacted."""
    path = broker.log_dir / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return any(line.startswith(f"{COMPACTED} 0 ") and int(line.split()[2]) >= ROLLED for line in lines)


def in_tier(broker: Broker) -> dict[int, tuple[int, int]]:
    """Return the first and the last offset of the batches of each segment in the tier, by start offset."""
    found = {}
    for path in broker.remote_dir.glob(f"kafka-tiered-storage/{COMPACTED}-0-*/*.log"):
        data = path.read_bytes()
        last = batch_ends(data)[-2]
        offset_delta = int.from_bytes(data[last + 23 : last + 27])
        span = int.from_bytes(data[:8]), int.from_bytes(data[last : last + 8]) + offset_delta
        found[int(path.name[:20])] = span
    return dict(sorted(found.items()))


@pytest.fixture
def lost(brokers: Brokers) -> Lost:
    """Return a stopped broker with the topic in several leader epochs, and with holes in its segments."""
    broker = brokers.own(log_cleaner_min_cleanable_ratio="0.01")
    broker.create_topic(COMPACTED, cleanup_policy="compact")
    produce(broker, (*ONCE, *AGAIN))
    broker.restart()
    produce(broker, range(10_000, 11_300))
    broker.wait_for("the log cleaner", lambda: is_cleaned(broker))
    broker.alter_topic(COMPACTED, cleanup_policy="delete")
    broker.alter_topic(COMPACTED, remote_storage_enable="true", local_retention_bytes="1")
    broker.await_idle()
    broker.restart()
    produce(broker, range(20_000, 21_300))
    broker.await_idle()
    records = broker.records(COMPACTED)
    starts = broker.offsets("earliest", COMPACTED)
    ends = {key: offset + 1 for key, offset in broker.offsets("latest-tiered", COMPACTED).items()}
    saved = broker.folder / "topics.yaml"
    tierctl("backup-config", "--bootstrap-server", broker.bootstrap, "--output-file", saved).ok()
    broker.stop()
    assert len(records) == ROLLED - len(AGAIN) + 2600
    spans = in_tier(broker)
    assert any(first > start for start, (first, _) in spans.items())
    following = [*list(spans)[1:], ends[COMPACTED, 0]]
    assert any(last + 1 < then for (_, last), then in zip(spans.values(), following, strict=True))
    assert local_start(broker, COMPACTED) > ROLLED
    served = {(COMPACTED, 0, "read_uncommitted"): records}
    return Lost(Cluster(broker=broker, records=served, starts=starts), ends, saved)


def test_a_new_node_serves_every_record_that_was_tiered(lost: Lost, brokers: Brokers) -> None:
    """The disk is lost with all logs: the tier alone shows where each segment ends."""
    node = new_node(lost, brokers)
    before = tier(node)
    tierctl(*restore(lost, node, "--deletes-are-denied", "--apply")).ok()
    node.start()
    node.await_idle()
    (records,) = lost.cluster.records.values()
    tiered = [record for record in records if record[0] < lost.ends[COMPACTED, 0]]
    assert node.offsets("earliest", COMPACTED) == lost.cluster.starts
    assert node.records(COMPACTED) == tiered
    found = check(node)
    assert (found.code, found.found("error")) == (0, {}), found.rows
    node.alter_topic(COMPACTED, remote_log_copy_disable="false", local_retention_bytes="1")
    node.await_idle()
    assert node.records(COMPACTED) == tiered
    assert before.items() <= tier(node).items()
    node.stop()
