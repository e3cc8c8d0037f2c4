"""A broker with tiered topics of three leader epochs, and checks that it serves the same records again.

The last part is for a cluster that is lost: the command that restores its topics into a new node.
"""

import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint, write_leader_epoch_checkpoint

from tests.live.commands import base_offsets
from tests.support.broker import Broker, Brokers

TOPICS = {"plain": 2, "tx": 1}
PARTITIONS = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
ISOLATIONS = ("read_uncommitted", "read_committed")
SEEKS_MIN = 40
"""Seeks by which a missing leader epoch, which a scan does not show, is found."""
DELETED_BEFORE = 715
"""The log start offset of plain-1 after DeleteRecords, within a batch of its first segment."""

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
    return served_from(broker, broker.offsets("earliest", *TOPICS))


def served_from(broker: Broker, starts: dict[tuple[str, int], int]) -> Records:
    """Return the records of these partitions from their log starts on."""
    return {
        (topic, number, how): broker.records(topic, number, isolation=how, start=start)
        for (topic, number), start in starts.items()
        for how in ISOLATIONS
    }


def made_history(broker: Broker) -> Cluster:
    """Make the topics on a new broker, which keeps running, and read their records."""
    for topic, count in TOPICS.items():
        broker.create_topic(topic, count, tiered=True)
    fill(broker, seed=1)
    # A restart during a copy leaves objects that serve nothing.
    broker.await_idle()
    broker.restart()
    fill(broker, seed=2)
    broker.await_idle()
    broker.delete_records("plain", 1, DELETED_BEFORE)
    broker.restart()
    fill(broker, seed=3)
    broker.await_idle()
    return Cluster(broker=broker, records=served(broker), starts=broker.offsets("earliest", *TOPICS))


def tier_ends(broker: Broker) -> dict[tuple[str, int], int]:
    """Return the offset after the last one in the tier, by partition."""
    tiered = broker.offsets("latest-tiered", *TOPICS)
    return {key: tiered[key] + 1 for key in PARTITIONS}


def lose_metadata(broker: Broker) -> None:
    """Empty the metadata partitions; the topic keeps its id."""
    for folder in broker.log_dir.glob("__remote_log_metadata-*"):
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()


def run_until_damaged(broker: Broker, starts: dict[tuple[str, int], int]) -> None:
    """Start a broker that lost its metadata, and stop it when it has done what `await_damage` waits for."""
    broker.start()
    await_damage(broker, starts)
    broker.stop()


def await_damage(broker: Broker, starts: dict[tuple[str, int], int]) -> None:
    """Wait until leaders without metadata raised every one of the log starts, and copied what they had."""

    def all_raised() -> bool:
        found = broker.offsets("earliest")
        return all(found[key] > start for key, start in starts.items())

    broker.wait_for("raised log starts", all_raised)
    broker.await_idle()


def cut_epochs(broker: Broker, topic: str) -> None:
    """Keep only the last leader epoch of partition 0, as a start without metadata does."""
    path = broker.log_dir / f"{topic}-0" / "leader-epoch-checkpoint"
    entries = read_leader_epoch_checkpoint(path.read_bytes())
    assert len(entries) >= 3
    path.write_bytes(write_leader_epoch_checkpoint(entries[-1:]))


def batch_ends(log: bytes) -> list[int]:
    """The positions between the batches of a log, its start and end included."""
    ends = [0]
    while ends[-1] + 12 <= len(log) and (size := int.from_bytes(log[ends[-1] + 8 : ends[-1] + 12])) > 0:
        ends.append(ends[-1] + 12 + size)
    return ends


def tier(broker: Broker) -> dict[str, int]:
    """Return names and sizes of all objects in the tier, including those of tierctl."""
    files = (path for path in broker.remote_dir.rglob("*") if path.is_file())
    found = {}
    for path in files:
        # A broker may be deleting files.
        with suppress(FileNotFoundError):
            found[str(path.relative_to(broker.remote_dir))] = path.stat().st_size
    return found


def offset_for_time(consumer: Consumer, asked: TopicPartition) -> TopicPartition:
    """Return the offset for a time; repeat the request while the broker times out, as on a loaded machine."""
    for _ in range(5):
        (found,) = consumer.offsets_for_times([asked], timeout=20)
        if found.error is None:
            break
    assert found.error is None, found
    return found


def seeks(broker: Broker, expected: Records, epochs: dict[tuple[str, int], list[int]]) -> None:
    """Seek to offsets around the start of each epoch and through the whole log, and by time."""
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "seeks", "auto.offset.reset": "error"}
    # Without this isolation level, the client leaves out aborted records.
    config["isolation.level"] = "read_uncommitted"
    consumer = Consumer({**config, "log_level": 0, "fetch.wait.max.ms": 20})
    made = 0
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
                made += 1
            for record in records[:: max(len(records) // 4, 1)]:
                found = offset_for_time(consumer, TopicPartition(topic, number, record[1]))
                first = next(each[0] for each in records if each[1] >= record[1])
                assert found.offset <= first, (topic, number, record[1])
                assert found.offset >= max((each[0] for each in records if each[0] < first), default=-1)
                made += 1
    finally:
        consumer.close()
    assert made >= SEEKS_MIN


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
    """Check that all records are served as before, and that tiering, retention and deletion work."""
    broker.await_idle()
    assert before.items() <= tier(broker).items()
    earliest = broker.offsets("earliest", *TOPICS)
    assert earliest == cluster.starts, (earliest, broker.folder)
    found = served(broker)
    for key, records in cluster.records.items():
        assert found[key][: len(records)] == records, key
    seeks(broker, cluster.records, epoch_starts(broker))
    check_new_records_to_deletion(broker)


def check_new_records_to_deletion(broker: Broker) -> None:
    """New records are rolled and tiered, retention deletes the oldest, and deleted topics leave nothing."""
    starts = base_offsets(broker, "plain")
    broker.produce("plain", 2500, seed=9)
    broker.await_idle()
    assert base_offsets(broker, "plain")[: len(starts)] == starts
    assert len(base_offsets(broker, "plain")) > len(starts)
    broker.alter_topic("plain", retention_bytes="1500000")
    # Retention keeps the last megabyte and a half of each partition.
    broker.wait_for("retention", lambda: len(base_offsets(broker, "plain")) <= 4)
    for topic in TOPICS:
        broker.delete_topic(topic)
    broker.wait_for("an empty tier", lambda: not tier(broker), timeout_s=60)


def disable_copying(broker: Broker) -> None:
    for topic in TOPICS:
        broker.alter_topic(
            topic, local_retention_ms="-2", local_retention_bytes="-2", remote_log_copy_disable="true"
        )


def enable_copying(broker: Broker) -> None:
    for topic in TOPICS:
        broker.alter_topic(topic, remote_log_copy_disable="false", local_retention_bytes="1")


def set_back(broker: Broker, said: str) -> list[str]:
    """Run each command of kafka-configs that `said` has; return the names of its topics."""
    calls = [line.partition("kafka-configs.sh ")[2].split() for line in said.splitlines()]
    for words in filter(None, calls):
        done = broker.release.with_tools.run("kafka.admin.ConfigCommand", *words)
        assert "Completed updating config" in done, words
    return sorted(words[words.index("--entity-name") + 1] for words in calls if words)


@dataclass(frozen=True)
class Lost:
    """A stopped cluster, the end of its tier by partition, and the file of `backup-config`."""

    cluster: Cluster
    ends: dict[tuple[str, int], int]
    topics_file: Path


def new_node(lost: Lost, brokers: Brokers) -> Broker:
    """Return a formatted node with a copy of the tier."""
    node = brokers.own(start=False)
    node.remote = shutil.copytree(lost.cluster.broker.remote_dir, node.folder / "tier")
    node.format()
    return node


def restore(lost: Lost, node: Broker, *more: object) -> tuple[object, ...]:
    return (
        *("restore", "into", node.log_dir, "--log-dir", node.log_dir, "--remote", node.remote_dir),
        *("--topics-file", lost.topics_file, "--broker-config", node.properties, *more),
    )
