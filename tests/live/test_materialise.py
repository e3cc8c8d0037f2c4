"""A cluster is lost, and its topics come back as local logs of a new cluster (d0)."""

import time
from bisect import bisect_left
from pathlib import Path

import pytest
from tierctl.model import Uuid

from tests.live.commands import applied, base_offsets, plan, refused
from tests.live.history import (
    ISOLATIONS,
    PARTITIONS,
    TOPICS,
    Cluster,
    Lost,
    Records,
    check_new_records_to_deletion,
    fill,
    seeks,
)
from tests.live.replicas import launch, stop
from tests.support.broker import Broker, Brokers
from tests.support.signing import is_signed, signing_key

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


BLOCK = 200 + 1 + 30
"""Number of offsets of a transaction, its marker and the records after it, as `fill` produces them."""
THEN = 1717
"""The end of plain-0 when it is restored up to an offset, within a batch."""


def restore(broker: Broker, *more: object) -> tuple[object, ...]:
    return ("restore", "log", "--log-dir", broker.log_dir, *more)


def open_transaction(topic: str, end: int) -> int | None:
    """Return the first offset of the transaction that has no marker below `end`."""
    started, within = divmod(end, BLOCK)
    return started * BLOCK if topic == "tx" and 0 < within <= 200 else None


def expected(cluster: Cluster, ends: dict[tuple[str, int], int]) -> Records:
    """Return the records below the ends; records of an open transaction are not committed."""
    found: Records = {}
    for (topic, number, how), records in cluster.records.items():
        end = ends[topic, number]
        begun = open_transaction(topic, end)
        last = end if how == "read_uncommitted" or begun is None else begun
        found[topic, number, how] = [record for record in records if record[0] < last]
    return found


def test_d0_a_new_cluster_serves_and_tiers_the_records(lost: Lost, brokers: Brokers, tmp_path: Path) -> None:
    cluster, ends = lost.cluster, lost.ends
    remote = ("--remote", cluster.broker.remote_dir)
    broker = brokers.own()
    ids = {topic: broker.create_topic(topic, count, tiered=True) for topic, count in TOPICS.items()}
    broker.create_topic("then", 1)
    for topic, count in TOPICS.items():
        broker.create_topic(f"{topic}-erased", count)
    arguments = restore(broker, *remote, *(word for topic in TOPICS for word in ("--topic", topic)))
    assert "a broker is running on" in refused(*arguments)
    broker.stop()

    done = applied(*arguments, "--apply")
    assert {step["as_topic_id"] for step in done["steps"]} == {str(each) for each in ids.values()}
    metadata = ("--metadata", cluster.broker.log_dir)
    chosen = ("--topic", "plain", "--partition", 0, "--as", "then", "--until", f"plain-0={THEN}")
    plan(*restore(broker, *remote, *metadata, *chosen, "--apply"))
    assert plan(*arguments)["steps"] == []
    keys = erase(broker, remote, cluster.records, tmp_path)
    dump_everything(broker)

    broker.start()
    check_served(broker, expected(cluster, ends), cluster.starts)
    whole = cluster.records["plain", 0, "read_uncommitted"]
    assert broker.records("then") == whole[: bisect_left(whole, (THEN,))]
    assert broker.offsets("latest", "then") == {("then", 0): THEN}
    check_erased(broker, expected(cluster, ends), cluster.starts, keys)

    broker.await_idle()
    assert len(base_offsets(broker, "plain")) >= 2
    for topic, number in PARTITIONS:
        assert broker.offsets("earliest-local", topic)[topic, number] > cluster.starts[topic, number]
    check_served(broker, expected(cluster, ends), cluster.starts)
    fill(broker, seed=9)
    broker.produce("then", 100)
    broker.produce_transaction("then", 10)
    broker.await_idle()
    broker.stop(kill=True)
    broker.start()
    check_served(broker, expected(cluster, ends), cluster.starts)
    assert len(broker.records("then")) == len(whole[: bisect_left(whole, (THEN,))]) + 110
    broker.await_idle()
    check_new_records_to_deletion(broker)
    broker.stop()


def erase(broker: Broker, remote: tuple[object, ...], records: Records, folder: Path) -> set[bytes]:
    """Restore every topic again without the records of some keys; return the keys."""
    keys = {
        found[at][2] or b""
        for topic, number in PARTITIONS
        for found in [records[topic, number, "read_uncommitted"]]
        for at in (0, len(found) // 2)
    }
    assert b"" not in keys
    (folder / "keys").write_text("".join(f"hex:{key.hex()}\n" for key in sorted(keys)))
    signed = ("--sign-with", signing_key(folder / "key.pem"), "--left-out", folder / "lists")
    for topic in TOPICS:
        as_topic = ("--topic", topic, "--as", f"{topic}-erased")
        plan(*restore(broker, *remote, *as_topic, "--without-keys", folder / "keys", *signed, "--apply"))
    for topic, number in PARTITIONS:
        listed = folder / "lists" / f"{topic}-erased-{number}.jsonl"
        assert is_signed(folder / "key.pem", listed, listed.with_name(f"{listed.name}.sig"))
    return keys


def check_erased(
    broker: Broker, wanted: Records, starts: dict[tuple[str, int], int], keys: set[bytes]
) -> None:
    """Check that offsets and timestamps are equal, and only records of the keys are empty."""
    for topic, number in PARTITIONS:
        for how in ISOLATIONS:
            found = broker.records(f"{topic}-erased", number, isolation=how, start=starts[topic, number])
            records = wanted[topic, number, how]
            left = [(*each[:2], None, None) if each[2] in keys else each for each in records]
            assert found[: len(left)] == left, (topic, number, how)
            assert left != records


def dump_everything(broker: Broker) -> None:
    """Check every segment and index with Kafka's own tool."""
    whole = [broker.log_dir / f"{topic}-{number}" for topic, number in (*PARTITIONS, ("then", 0))]
    erased = [broker.log_dir / f"{topic}-erased-{number}" for topic, number in PARTITIONS]
    # The first segment of each restored log has records of the keys.
    firsts = [min(folder.glob("*.log")) for folder in erased]
    for log in (*(log for folder in whole for log in sorted(folder.glob("*.log"))), *firsts):
        said = broker.release.dump_log(log, "--deep-iteration")
        assert "isvalid: false" not in said
        assert "partitionLeaderEpoch: 0" in said or not log.stat().st_size
        for suffix in (".index", ".timeindex"):
            if log.with_suffix(suffix).exists():
                found = broker.release.dump_log(log.with_suffix(suffix), "--index-sanity-check")
                assert "passed sanity check" in found


def check_served(broker: Broker, wanted: Records, starts: dict[tuple[str, int], int]) -> None:
    """Check that both isolation levels serve the records, and that seeks by offset and time find them."""
    assert broker.offsets("earliest", *TOPICS) == starts
    for topic, number in PARTITIONS:
        for how in ISOLATIONS:
            found = broker.records(topic, number, isolation=how, start=starts[topic, number])
            records = wanted[topic, number, how]
            assert found[: len(records)] == records, (topic, number, how)
    seeks(broker, wanted, {key: [start] for key, start in starts.items()})


def test_every_replica_gets_the_same_log(lost: Lost, brokers: Brokers) -> None:
    """A replica that became the leader serves what the first one served, transactions included."""
    cluster, ends = lost.cluster, lost.ends
    nodes = brokers.cluster(3, unclean_leader_election_enable="false")
    nodes[0].create_topic("tx", replicas=3)
    ids = [node.log_dir / "tx-0" / "partition.metadata" for node in nodes]
    nodes[0].wait_for("folders with the topic's id", lambda: all(path.exists() for path in ids))
    stop(nodes)
    dirs = [word for node in nodes for word in ("--log-dir", node.log_dir)]
    tier = ("--remote", cluster.broker.remote_dir, "--topic", "tx")
    applied("restore", "log", *dirs, *tier, "--apply")
    logs = [{path.name: path.read_bytes() for path in (node.log_dir / "tx-0").iterdir()} for node in nodes]
    assert logs[0] == logs[1] == logs[2]
    launch(nodes)
    wanted = expected(cluster, ends)
    served_by: set[int] = set()
    while len(served_by) < 2:
        asked = next(node for node in nodes if node.is_running)
        topic = asked.admin.list_topics("tx", timeout=10).topics["tx"].partitions[0]
        if len(topic.isrs) < len([node for node in nodes if node.is_running]) or topic.leader in served_by:
            time.sleep(0.5)
            continue
        for how in ISOLATIONS:
            assert asked.records("tx", isolation=how) == wanted["tx", 0, how]
        served_by.add(topic.leader)
        nodes[topic.leader - 1].stop(kill=True)
    stop(nodes)


def test_a_topic_of_another_id_is_refused(lost: Lost, brokers: Brokers) -> None:
    broker = brokers.own(tiered=False)
    broker.create_topic("tx", 1)
    broker.produce("tx", 1)
    broker.stop()
    arguments = restore(broker, "--remote", lost.cluster.broker.remote_dir, "--topic", "tx")
    for more, why in (
        ((), "has records"),
        (("--as-id", Uuid.from_bytes(b"0123456789abcdef")), "is of topic id"),
    ):
        assert why in refused(*arguments, *more)
    assert not list(broker.log_dir.glob("*-delete"))
