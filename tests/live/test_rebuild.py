"""The metadata of a broker's tier are lost, and rebuilt from its objects: the broker serves everything again.

The cases are those of the design's table: a1 the brokers were not started since the loss, a2r one was, a4 a
rebuild beside the running broker, a8 only the newer events were lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tierctl.model import TopicPartition as Partition
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint, read_offset_checkpoint

from tests.live.commands import base_offsets, plan, tierctl, twin_of
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TOPICS = {"plain": 2, "tx": 1}
PARTITIONS = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
ISOLATIONS = ("read_uncommitted", "read_committed")
DELETED_BEFORE = 700
"""Where DeleteRecords let plain-1 start, within its first segment."""

Records = dict[tuple[str, int, str], list[tuple[int, int, bytes | None, bytes | None]]]


@dataclass
class Cluster:
    """A stopped broker with tiered topics of three leader epochs, and every record that it served."""

    broker: Broker
    records: Records = field(default_factory=dict)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)


def fill(broker: Broker, seed: int) -> None:
    broker.produce("plain", 1300, seed=seed, batch=20)
    broker.produce("plain", 1200, partition=1, seed=seed + 100, compression_type="zstd")
    for number in range(6):
        broker.produce_transaction("tx", 200, commit=number % 3 != 1)
        broker.produce("tx", 30, seed=number + seed)


def served(broker: Broker) -> Records:
    starts = broker.offsets("earliest", *TOPICS)
    return {
        (topic, number, how): broker.records(topic, number, isolation=how, start=starts[topic, number])
        for topic, number in PARTITIONS
        for how in ISOLATIONS
    }


@pytest.fixture(scope="module")
def cluster(brokers: Brokers) -> Cluster:
    broker = brokers.own()
    for topic, count in TOPICS.items():
        broker.create_topic(topic, count, tiered=True)
    fill(broker, seed=1)
    broker.restart()
    fill(broker, seed=2)
    broker.await_idle()
    broker.delete_records("plain", 1, DELETED_BEFORE)
    broker.restart()
    fill(broker, seed=3)
    broker.await_idle()
    found = Cluster(broker=broker, records=served(broker), starts=broker.offsets("earliest", *TOPICS))
    broker.stop()
    return found


@pytest.fixture
def twin(cluster: Cluster, tmp_path: Path) -> Iterator[Broker]:
    """A copy of the cluster for one test."""
    made = twin_of(cluster.broker, tmp_path / "twin")
    yield made
    made.stop()


def lose_metadata(broker: Broker) -> None:
    """Empty the metadata partitions; only the topic's id stays."""
    for folder in broker.log_dir.glob("__remote_log_metadata-*"):
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()


def offline(broker: Broker, *more: object) -> tuple[object, ...]:
    return (
        *("rebuild", "--metadata", broker.log_dir, "--remote", broker.remote_dir),
        *("--log-dir", broker.log_dir, *more),
    )


def tier(broker: Broker) -> dict[str, int]:
    """Names and sizes of everything in the tier, tierctl's own objects included."""
    files = (path for path in broker.remote_dir.rglob("*") if path.is_file())
    return {str(path.relative_to(broker.remote_dir)): path.stat().st_size for path in files}


def offset_for_time(consumer: Consumer, asked: TopicPartition) -> TopicPartition:
    """Ask again while the broker answers that it ran out of time, as it may on a loaded machine."""
    for _ in range(5):
        (found,) = consumer.offsets_for_times([asked], timeout=20)
        if found.error is None:
            break
    assert found.error is None, found
    return found


def seeks(broker: Broker, expected: Records, epochs: dict[tuple[str, int], list[int]]) -> None:
    """Seek to offsets around each epoch's start and through the whole log; by time, too."""
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "seeks", "auto.offset.reset": "error"}
    # Without it the client leaves out aborted records.
    config["isolation.level"] = "read_uncommitted"
    consumer = Consumer({**config, "log_level": 0, "fetch.wait.max.ms": 20})
    try:
        for topic, number in PARTITIONS:
            records = expected[topic, number, "read_uncommitted"]
            offsets = [record[0] for record in records]
            around = {start + by for start in epochs[topic, number] for by in (-1, 0, 1)}
            wanted = sorted(around | set(offsets[:: max(len(offsets) // 10, 1)]))
            for offset in (each for each in wanted if offsets[0] <= each <= offsets[-1]):
                consumer.assign([TopicPartition(topic, number, offset)])
                message = consumer.poll(20)
                assert message is not None, (topic, number, offset)
                assert message.error() is None, (topic, number, offset, message.error())
                assert message.offset() == next(each for each in offsets if each >= offset)
            for record in records[:: max(len(records) // 4, 1)]:
                found = offset_for_time(consumer, TopicPartition(topic, number, record[1]))
                first = next(each[0] for each in records if each[1] >= record[1])
                assert found.offset <= first, (topic, number, record[1])
                assert found.offset >= max((each[0] for each in records if each[0] < first), default=-1)
    finally:
        consumer.close()


def epoch_starts(broker: Broker) -> dict[tuple[str, int], list[int]]:
    return {
        (topic, number): [
            entry.start_offset
            for entry in read_leader_epoch_checkpoint(
                (broker.log_dir / f"{topic}-{number}" / "leader-epoch-checkpoint").read_bytes()
            )
        ]
        for topic, number in PARTITIONS
    }


def check_everything(broker: Broker, cluster: Cluster, before: dict[str, int]) -> None:
    """Everything is served as before; new records are tiered; retention and deletion work to the end."""
    broker.await_idle()
    assert before.items() <= tier(broker).items()
    assert broker.offsets("earliest", *TOPICS) == cluster.starts
    found = served(broker)
    for key, records in cluster.records.items():
        assert found[key][: len(records)] == records, key
    seeks(broker, cluster.records, epoch_starts(broker))
    starts = base_offsets(broker, "plain")
    broker.produce("plain", 2500, seed=9)
    broker.await_idle()
    assert base_offsets(broker, "plain")[: len(starts)] == starts
    assert len(base_offsets(broker, "plain")) > len(starts)
    broker.alter_topic("plain", retention_bytes="1500000")
    # What retention leaves: the last megabyte and a half of each partition.
    broker.wait_for("retention", lambda: len(base_offsets(broker, "plain")) <= 4)
    for topic in TOPICS:
        broker.delete_topic(topic)
    broker.wait_for("an empty tier", lambda: not tier(broker), timeout_s=60)


def test_a1_nothing_ran_since_the_loss(cluster: Cluster, twin: Broker) -> None:
    before = tier(twin)
    lose_metadata(twin)
    preview = plan(*offline(twin))
    assert {step["action"] for step in preview["steps"]} == {"publish_segment"}
    assert not list(twin.log_dir.glob("__remote_log_metadata-*/*.log"))
    done = plan(*offline(twin, "--apply"))
    assert {outcome["status"] for outcome in done["outcomes"]} == {"done"}
    assert tier(twin) == before
    again = plan(*offline(twin))
    assert again["steps"] == []
    twin.start()
    check_everything(twin, cluster, before)


def log_starts(broker: Broker) -> dict[tuple[str, int], int]:
    found = read_offset_checkpoint((broker.log_dir / "log-start-offset-checkpoint").read_bytes())
    return {key: found[Partition(*key)] for key in PARTITIONS if Partition(*key) in found}


def test_a2r_a_broker_ran_with_the_empty_topic(cluster: Cluster, twin: Broker) -> None:
    """It raised the log starts, cut the leader epochs, and copied what it still had once more."""
    before = tier(twin)
    lose_metadata(twin)
    twin.start()
    twin.await_idle()
    raised = twin.offsets("earliest", *TOPICS)
    assert all(raised[key] > cluster.starts[key] for key in PARTITIONS)
    twin.stop()
    preview = tierctl(*offline(twin))
    assert preview.code == 0
    assert "--apply would refuse this: plain-0: the log start is" in preview.err
    refused = tierctl(*offline(twin, "--apply"))
    assert (refused.code, "--log-start tier" in refused.err) == (4, True), refused.err
    kept = plan(*offline(twin, "--log-start", "disk"))
    assert {step["action"] for step in kept["steps"]} <= {"discard_segment", "publish_segment"}
    done = plan(*offline(twin, "--log-start", "tier", "--apply"))
    assert {outcome["status"] for outcome in done["outcomes"]} == {"done"}
    actions = [step["action"] for step in done["steps"]]
    assert actions.count("write_checkpoints") == len(PARTITIONS)
    assert log_starts(twin) == cluster.starts
    assert (twin.log_dir / "plain-0" / "leader-epoch-checkpoint.bak").exists()
    assert before.items() <= tier(twin).items()
    twin.start()
    check_everything(twin, cluster, before)


def test_a2_publishing_without_the_checkpoints_is_refused_with_the_reason(twin: Broker) -> None:
    """The fatal variant: nor does a plan get through that was made before the broker ran."""
    lose_metadata(twin)
    saved = twin.folder / "rebuild.plan"
    plan(*offline(twin, "--plan-out", saved))
    twin.start()
    twin.await_idle()
    refused = tierctl(*offline(twin, "--apply"))
    assert refused.code == 4
    assert "a broker is running on" in refused.err or "a running broker holds" in refused.err
    twin.stop()
    arguments = ("--metadata", twin.log_dir, "--remote", twin.remote_dir, "--log-dir", twin.log_dir)
    before = tier(twin)
    stale = tierctl("apply", saved, *arguments, "--apply")
    assert stale.code == 4, stale.err
    assert "complete segments from 0 on" in stale.err
    assert tier(twin) == before


def lose_newer(broker: Broker) -> None:
    """Cut every metadata log in its middle, at a batch: one batch per record."""
    for log in broker.log_dir.glob("__remote_log_metadata-*/*.log"):
        data, at, ends = log.read_bytes(), 0, [0]
        while at + 12 <= len(data) and (size := int.from_bytes(data[at + 8 : at + 12], "big")) > 0:
            at += 12 + size
            ends.append(at)
        # A STARTED and its FINISHED stay together.
        log.write_bytes(data[: ends[(len(ends) - 1) // 4 * 2]])
        for suffix in (".index", ".timeindex"):
            log.with_suffix(suffix).unlink(missing_ok=True)


def test_a8_only_the_newer_events_were_lost(cluster: Cluster, twin: Broker) -> None:
    """The broker ran on with the older ones, copied again what it had, and the others are published to it."""
    before = tier(twin)
    lose_newer(twin)
    twin.start()
    twin.await_idle()
    assert twin.offsets("earliest", *TOPICS) == cluster.starts
    online = ("rebuild", "--metadata", f"kafka://{twin.bootstrap}", "--remote", twin.remote_dir)
    refused = tierctl(*online, "--apply")
    assert refused.code == 4, refused.err
    for setting in ("remote.log.copy.disable=true", "local.retention.ms=-2", "local.retention.bytes=-2"):
        assert setting in refused.err
    disable_copying(twin)
    done = plan(*online, "--apply")
    assert {outcome["status"] for outcome in done["outcomes"]} == {"done"}
    twin.await_idle()
    enable_copying(twin)
    check_everything(twin, cluster, before)


def disable_copying(broker: Broker) -> None:
    for topic in TOPICS:
        broker.alter_topic(
            topic, local_retention_ms="-2", local_retention_bytes="-2", remote_log_copy_disable="true"
        )


def enable_copying(broker: Broker) -> None:
    for topic in TOPICS:
        broker.alter_topic(topic, remote_log_copy_disable="false", local_retention_bytes="1")


def test_a4_the_events_go_to_a_running_broker(cluster: Cluster, twin: Broker) -> None:
    """Copying was disabled before the first start with the empty topic, so no log start was raised."""
    before = tier(twin)
    twin.start()
    disable_copying(twin)
    twin.stop()
    lose_metadata(twin)
    twin.start()
    twin.await_idle()
    assert twin.offsets("earliest", *TOPICS) == cluster.starts
    online = ("rebuild", "--metadata", f"kafka://{twin.bootstrap}", "--remote", twin.remote_dir)
    ran = tierctl(*online, "--apply")
    assert ran.code == 0, ran.err
    assert "remote.log.copy.disable=false" in ran.err
    assert plan(*online)["steps"] == []
    enable_copying(twin)
    check_everything(twin, cluster, before)
