"""A cluster is lost; topics of another cluster get its records, under their own new ids (R2)."""

import shutil
from pathlib import Path

import pytest

from tests.live.commands import applied, plan, refused, tierctl, where
from tests.live.history import (
    PARTITIONS,
    TOPICS,
    Cluster,
    check_everything,
    epoch_starts,
    made_history,
    seeks,
    served,
    tier,
    tier_ends,
)
from tests.live.test_materialise import expected
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


def restore(node: Broker, *more: object) -> tuple[object, ...]:
    topics = (word for topic in TOPICS for word in ("--topic", topic))
    return (
        *("restore", "new-ids", "--metadata", node.log_dir, "--log-dir", node.log_dir),
        *("--remote", node.remote_dir, "--broker-config", node.properties, *topics, *more),
    )


def check_c2pub(node: Broker, lost: Cluster) -> None:
    """Nothing is published to the new topics while their logs are empty: the leader would delete it."""
    folders = []
    for topic, number in PARTITIONS:
        (old,) = lost.broker.remote_dir.glob(f"kafka-tiered-storage/{topic}-{number}-*")
        folders.append(node.remote_dir / "kafka-tiered-storage" / f"{old.name[:-22]}{node.topic_id(topic)}")
        shutil.copytree(old, folders[-1])
    topics = (word for topic in TOPICS for word in ("--topic", topic))
    assert "plain-0: the log is behind" in refused("rebuild", *where(node), *topics)
    for folder in folders:
        shutil.rmtree(folder)


def test_r2_an_existing_cluster_serves_the_tier_under_new_ids(brokers: Brokers, tmp_path: Path) -> None:
    lost = made_history(brokers.own())
    ends = tier_ends(lost.broker)
    lost.broker.stop()
    node = brokers.own()
    for topic, count in {**TOPICS, "other": 1}.items():
        node.create_topic(topic, count, tiered=True)
    node.produce("other", 1500)
    node.await_idle()
    others = node.records("other")
    # The operator's copy of the lost cluster's tier.
    shutil.copytree(
        lost.broker.remote_dir / "kafka-tiered-storage",
        node.remote_dir / "kafka-tiered-storage",
        dirs_exist_ok=True,
    )
    before = tier(node)
    check_c2pub(node, lost)
    assert "a broker is running on" in refused(*restore(node, "--assume-enabled"))
    node.stop()
    behind, untiered = "would truncate the lineage", "remote.storage.enable=true is not among"
    assert behind in refused(*restore(node, "--assume-enabled"))
    # The lost leaders may have been elected again on a busy machine: each start raises the epoch by one.
    for _ in range(20):
        node.start()
        node.stop()
        if behind not in tierctl(*restore(node, "--assume-enabled")).err:
            break
    assert untiered in refused(*restore(node))
    assert tier(node) == before

    settings = tmp_path / "settings"
    settings.write_text("".join(f"{topic}.remote.storage.enable=true\n" for topic in TOPICS))
    applied(*restore(node, "--topic-configs", settings, "--apply"))
    assert plan(*restore(node, "--assume-enabled"))["steps"] == []
    assert before.items() < tier(node).items()
    copied = tier(node)

    node.start()
    records = expected(lost, ends)
    assert node.offsets("earliest", *TOPICS) == lost.starts
    seeks(node, records, epoch_starts(node))
    node.await_idle()
    assert served(node) == records, "nothing of a transaction without an end is committed"
    assert copied.items() <= tier(node).items(), "nothing is deleted"
    assert node.offsets("latest-tiered", *TOPICS) == {key: ends[key] - 1 for key in PARTITIONS}
    assert node.records("other") == others

    ids_of = (word for topic in TOPICS for word in ("--topic-id", node.topic_id(topic)))
    checked = tierctl("restore", "check", *where(node), *ids_of, "--output", "json")
    assert {row["severity"] for row in checked.json} <= {"ok", "not_checked"}, checked.out

    # The objects of the lost cluster and the tier's identity are left for the operator.
    (node.remote_dir / ".tierctl-identity").unlink()
    ids = {str(node.topic_id(topic)) for topic in (*TOPICS, "other")}
    for folder in (node.remote_dir / "kafka-tiered-storage").iterdir():
        if folder.name[-22:] not in ids:
            shutil.rmtree(folder)
    node.delete_topic("other")
    cluster = Cluster(broker=node, records=records, starts=lost.starts)
    check_everything(node, cluster, {})
    node.stop()
