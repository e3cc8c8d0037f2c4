"""The brokers that fence tierctl, and the topic ids that a controller does not know."""

from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import SafetyRefusal
from tierctl.model import TopicIdPartition
from tierctl.model.local import BrokerFacts, PartitionFacts, TopicFacts
from tierctl.plan.preconditions import (
    Fence,
    RunningBroker,
    check_running_brokers,
    leaders_of,
    leaked_topic_ids,
    require_open,
)

from tests.plan.tier import OTHER_ID, PARTITION, TOPIC_ID


def broker(tiers: bool | None, broker_id: int = 1) -> BrokerFacts:
    unreadable = "not allowed" if tiers is None else None
    return BrokerFacts(broker_id=broker_id, host="b", port=1, tiers=tiers, unreadable=unreadable)


def topic(leader: int | None = 1, topic_id: Any = TOPIC_ID, name: str = "orders") -> TopicFacts:
    part = PartitionFacts(partition=0, leader=leader, replicas=(1,), in_sync=(1,))
    return TopicFacts(topic=name, topic_id=topic_id, partitions=(part,), is_internal=False)


CASES: list[tuple[str, dict[str, Any], str | None]] = [
    ("its leader tiers", {"brokers": {1: broker(True)}}, "broker 1 leads it and tiers"),
    ("its leader does not", {"brokers": {1: broker(False)}}, None),
    ("another one tiers", {"brokers": {1: broker(False), 2: broker(True, 2)}}, None),
    ("settings that can't be read", {"brokers": {1: broker(None)}}, "can't be read (not allowed)"),
    ("a leader nobody describes", {"brokers": {}}, "does not say whether it tiers"),
    ("no leader", {"topics": {"orders": topic(None)}}, "it has no leader now"),
    ("no such topic", {"topics": {}}, None),
    ("made anew", {"topics": {"orders": topic(topic_id=OTHER_ID)}, "brokers": {1: broker(True)}}, None),
    ("another writer", {"brokers": {1: broker(False)}, "writers": {3: {9: 5}}}, "broker 9 wrote"),
    ("a writer elsewhere", {"brokers": {1: broker(False)}, "writers": {4: {9: 5}}}, None),
    ("a writer, and no such topic", {"topics": {}, "writers": {3: {9: 5}}}, "broker 9 wrote"),
]


@pytest.mark.parametrize(("facts", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_who_keeps_out(facts: dict[str, Any], wanted: str | None) -> None:
    fence = Fence(**{"topics": {"orders": topic()}, **facts})
    closed = fence.closed({PARTITION: 3})
    assert list(closed) == ([] if wanted is None else [PARTITION])
    assert (wanted or "") in closed.get(PARTITION, "")


@pytest.mark.parametrize(("metadata_partitions", "may_tier"), [((), False), ((3,), True), ((0, 1), True)])
def test_a_running_broker_of_an_unknown_cluster(metadata_partitions: tuple[int, ...], may_tier: bool) -> None:
    """Its log directory shows whether it tiers, because a cluster that tiers has a metadata topic."""
    brokers = [
        RunningBroker(log_dir=Path("/free"), metadata_partitions=()),
        RunningBroker(log_dir=Path("/logs"), metadata_partitions=metadata_partitions),
    ]
    if not may_tier:
        check_running_brokers(brokers)
        return
    with pytest.raises(SafetyRefusal, match="runs on /logs may tier") as caught:
        check_running_brokers(brokers)
    assert "--bootstrap-server" in (caught.value.hint or "")
    assert "--allow-live-brokers" in (caught.value.hint or "")


def test_many_are_summed_up() -> None:
    partitions = [TopicIdPartition(TOPIC_ID, "orders", number) for number in range(8)]
    facts = tuple(PartitionFacts(partition=n, leader=1, replicas=(), in_sync=()) for n in range(8))
    many = TopicFacts(topic="orders", topic_id=TOPIC_ID, partitions=facts, is_internal=False)
    fence = Fence(topics={"orders": many}, brokers={1: broker(True)})
    with pytest.raises(SafetyRefusal, match="and 3 more partitions") as caught:
        require_open(fence.closed(dict.fromkeys(partitions, 0)))
    assert "--allow-live-brokers" in (caught.value.hint or "")
    require_open({})


def test_leaders() -> None:
    facts = tuple(
        PartitionFacts(partition=n, leader=(5, None, 6)[n], replicas=(), in_sync=()) for n in range(3)
    )
    topics = {"orders": TopicFacts(topic="orders", topic_id=TOPIC_ID, partitions=facts, is_internal=False)}
    mine = [TopicIdPartition(TOPIC_ID, "orders", number) for number in (0, 1, 7)]
    assert leaders_of(topics, [*mine, TopicIdPartition(OTHER_ID, "orders", 2)]) == {5}
    assert leaders_of({}, mine) == frozenset()


def test_leaked_topic_ids() -> None:
    gone = TopicIdPartition(OTHER_ID, "orders", 0)
    elsewhere = TopicIdPartition(OTHER_ID, "payments", 0)
    assert leaked_topic_ids({"orders": topic()}, [PARTITION, gone]) == {OTHER_ID: "orders"}
    assert leaked_topic_ids({"orders": topic()}, [elsewhere]) == {OTHER_ID: "payments"}
    assert leaked_topic_ids({"orders": topic()}, [PARTITION]) == {}
