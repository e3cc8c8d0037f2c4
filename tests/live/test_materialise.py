"""A cluster is lost, and its topics come back from the tier as local logs of a new cluster (d0)."""

from bisect import bisect_left
from pathlib import Path

import pytest
from tierctl.model import Uuid

from tests.live.commands import base_offsets, plan, tierctl
from tests.live.test_rebuild import (
    DELETED_BEFORE,
    ISOLATIONS,
    PARTITIONS,
    TOPICS,
    Cluster,
    Records,
    fill,
    seeks,
    served,
)
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
BLOCK = 200 + 1 + 30
"""Offsets of a transaction, its marker and the records after it, as `fill` produces them."""
THEN = 1717
"""Where plain-0 ends when it is restored up to an offset, within a batch."""


@pytest.fixture(scope="module")
def lost(brokers: Brokers) -> tuple[Cluster, dict[tuple[str, int], int]]:
    """A stopped cluster with tiered topics of two leader epochs, and where the tier ends."""
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
    tiered = broker.offsets("latest-tiered", *TOPICS)
    found = Cluster(broker=broker, records=served(broker), starts=broker.offsets("earliest", *TOPICS))
    broker.stop()
    return found, {key: tiered[key] + 1 for key in PARTITIONS}


def restore(broker: Broker, *more: object) -> tuple[object, ...]:
    return ("restore", "--materialise", "--log-dir", broker.log_dir, *more)


def open_transaction(topic: str, end: int) -> int | None:
    """The first offset of the transaction that has no marker below `end`."""
    started, within = divmod(end, BLOCK)
    return started * BLOCK if topic == "tx" and 0 < within <= 200 else None


def expected(cluster: Cluster, ends: dict[tuple[str, int], int]) -> Records:
    """The records below the ends; of an open transaction none is committed."""
    found: Records = {}
    for (topic, number, how), records in cluster.records.items():
        end = ends[topic, number]
        begun = open_transaction(topic, end)
        last = end if how == "read_uncommitted" or begun is None else begun
        found[topic, number, how] = [record for record in records if record[0] < last]
    return found


@pytest.mark.matrix
def test_d0_a_new_cluster_serves_and_tiers_the_records(
    lost: tuple[Cluster, dict[tuple[str, int], int]], brokers: Brokers
) -> None:
    cluster, ends = lost
    remote = ("--remote", cluster.broker.remote_dir)
    broker = brokers.own()
    ids = {topic: broker.create_topic(topic, count, tiered=True) for topic, count in TOPICS.items()}
    broker.create_topic("then", 1)
    arguments = restore(broker, *remote, *(word for topic in TOPICS for word in ("--topic", topic)))
    refused = tierctl(*arguments, "--apply")
    assert (refused.code, "a broker is running on" in refused.err) == (4, True), refused.err
    broker.stop()

    done = plan(*arguments, "--apply")
    assert {outcome["status"] for outcome in done["outcomes"]} == {"done"}
    assert {step["as_topic_id"] for step in done["steps"]} == {str(each) for each in ids.values()}
    metadata = ("--metadata", cluster.broker.log_dir)
    chosen = ("--topic", "plain", "--partition", 0, "--as", "then", "--until", f"plain-0={THEN}")
    plan(*restore(broker, *remote, *metadata, *chosen, "--apply"))
    assert plan(*arguments)["steps"] == []
    dump_everything(broker)

    broker.start()
    check_served(broker, expected(cluster, ends), cluster.starts)
    whole = cluster.records["plain", 0, "read_uncommitted"]
    assert broker.records("then") == whole[: bisect_left(whole, (THEN,))]
    assert broker.offsets("latest", "then") == {("then", 0): THEN}

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
    broker.stop()


def dump_everything(broker: Broker) -> None:
    """Kafka's own tool finds every segment and index sound."""
    for topic, number in (*PARTITIONS, ("then", 0)):
        for log in sorted((broker.log_dir / f"{topic}-{number}").glob("*.log")):
            said = broker.release.dump_log(log, "--deep-iteration")
            assert "isvalid: false" not in said
            assert "partitionLeaderEpoch: 0" in said or not log.stat().st_size
            for suffix in (".index", ".timeindex"):
                if log.with_suffix(suffix).exists():
                    found = broker.release.dump_log(log.with_suffix(suffix), "--index-sanity-check")
                    assert "passed sanity check" in found


def check_served(broker: Broker, wanted: Records, starts: dict[tuple[str, int], int]) -> None:
    """Both isolation levels begin with the records; seeks by offset and by time find them."""
    assert broker.offsets("earliest", *TOPICS) == starts
    for topic, number in PARTITIONS:
        for how in ISOLATIONS:
            found = broker.records(topic, number, isolation=how, start=starts[topic, number])
            records = wanted[topic, number, how]
            assert found[: len(records)] == records, (topic, number, how)
    seeks(broker, wanted, {key: [start] for key, start in starts.items()})


def test_a_topic_of_another_id_is_refused(
    lost: tuple[Cluster, dict[tuple[str, int], int]], tmp_path: Path, brokers: Brokers
) -> None:
    cluster, _ = lost
    broker = brokers.own(tiered=False)
    broker.create_topic("tx", 1)
    broker.produce("tx", 1)
    broker.stop()
    arguments = restore(broker, "--remote", cluster.broker.remote_dir, "--topic", "tx")
    for more, why in (
        ((), "has records"),
        (("--as-id", Uuid.from_bytes(b"0123456789abcdef")), "is of topic id"),
    ):
        refused = tierctl(*arguments, *more, "--apply")
        assert (refused.code, why in refused.err) == (4, True), refused.err
    assert not list(broker.log_dir.glob("*-delete"))
