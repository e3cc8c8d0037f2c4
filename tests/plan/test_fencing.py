"""Brokers that fence tierctl, and evidence that a topic is deleted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import SafetyRefusal, UsageError
from tierctl.model import LogDirFacts, TopicIdPartition, Uuid
from tierctl.model.local import BrokerFacts, TopicFacts
from tierctl.plan.partition_deletes import ClusterAnswer, DeletionEvidence
from tierctl.plan.preconditions import (
    Fence,
    RunningBroker,
    check_running_brokers,
    leaders_of,
    leaked_topic_ids,
    require_open,
)

from tests.plan.tier import OTHER_ID, PARTITION, TOPIC_ID
from tests.support.fake_cluster import topic_facts


def broker(tiers: bool | None, broker_id: int = 1) -> BrokerFacts:
    unreadable = "not allowed" if tiers is None else None
    return BrokerFacts(broker_id=broker_id, host="b", port=1, tiers=tiers, unreadable=unreadable)


def topic(leader: int | None = 1, topic_id: Any = TOPIC_ID, name: str = "orders") -> TopicFacts:
    return topic_facts(name, topic_id, [leader])


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
    fence = Fence(topics={"orders": topic_facts("orders", TOPIC_ID, [1] * 8)}, brokers={1: broker(True)})
    with pytest.raises(SafetyRefusal, match="and 3 more partitions") as caught:
        require_open(fence.closed(dict.fromkeys(partitions, 0)))
    assert "--allow-live-brokers" in (caught.value.hint or "")
    require_open({})


def test_leaders() -> None:
    topics = {"orders": topic_facts("orders", TOPIC_ID, [5, None, 6])}
    mine = [TopicIdPartition(TOPIC_ID, "orders", number) for number in (0, 1, 7)]
    assert leaders_of(topics, [*mine, TopicIdPartition(OTHER_ID, "orders", 2)]) == {5}
    assert leaders_of({}, mine) == frozenset()


def test_leaked_topic_ids() -> None:
    gone = TopicIdPartition(OTHER_ID, "orders", 0)
    elsewhere = TopicIdPartition(OTHER_ID, "payments", 0)
    assert leaked_topic_ids({"orders": topic()}, [PARTITION, gone]) == {OTHER_ID: "orders"}
    assert leaked_topic_ids({"orders": topic()}, [elsewhere]) == {OTHER_ID: "payments"}
    assert leaked_topic_ids({"orders": topic()}, [PARTITION]) == {}


KEPT = {Uuid("4G-5AxEXSqeJpRo9lpSDYQ"): "kept-0"}
OURS, FOREIGN = "yDRBVCh3QKmOs6aFeYUCUQ", "v8MbZZiORAuO-vkcIHhoow"


def answer(*existing: Uuid, is_own: bool = True, doubt: str = "") -> ClusterAnswer:
    doubts = {TOPIC_ID: doubt} if doubt else {}
    return ClusterAnswer(cluster_id=OURS, existing=frozenset(existing), is_own=is_own, doubts=doubts)


def log_dir(name: str = "a", topic_ids: Mapping[Uuid, str] = KEPT, **more: Any) -> LogDirFacts:
    return LogDirFacts(path=Path("/") / name, topic_ids=topic_ids, **more)


def declared(*log_dirs: LogDirFacts, **more: Any) -> dict[str, Any]:
    return {"log_dirs": log_dirs, "all_log_dirs": True, "known_topic_ids": frozenset(KEPT), **more}


STILL = {TOPIC_ID: "orders-0.5bdc1fcf-delete"}
EVIDENCE: list[tuple[str, dict[str, Any], str | None]] = [
    ("nothing", {}, "no cluster was asked"),
    ("the cluster does not know it", {"cluster": answer()}, None),
    ("the cluster has it", {"cluster": answer(TOPIC_ID)}, "the cluster still has topic orders"),
    ("the cluster has another one", {"cluster": answer(OTHER_ID)}, None),
    ("a cluster that may not have had it, and all log directories",
     declared(log_dir(), log_dir("b"), cluster=answer(doubt="broker 77")), None),
    ("a cluster that may be another one", {"cluster": answer(is_own=False)}, "knows none of the topics"),
    ("not all log directories", {"log_dirs": [log_dir()]}, "no cluster was asked"),
    ("all log directories, but none is given", declared(), "no cluster was asked"),
    ("all log directories", declared(log_dir(), log_dir("b")), None),
    ("one has a folder of it", declared(log_dir(), log_dir("b", STILL)), "/b still has the folder orders-0."),
    ("a folder, and the cluster does not know it", {"cluster": answer(), "log_dirs": [log_dir("b", STILL)]},
     "/b still has"),
    ("one can't be read", declared(log_dir(), log_dir("b", why_unreadable="no right")), "/b can't be read"),
    ("one is empty", declared(log_dir(), log_dir("b", {})), "/b has no partition"),
    ("one is formatted and empty",
     declared(log_dir(cluster_id=OURS), log_dir("b", {}, cluster_id=OURS)), None),
    ("all are formatted and empty, of no known cluster",
     declared(log_dir("b", {}, cluster_id=OURS)), "/b has no partition"),
    ("all are formatted and empty, of the metadata's cluster",
     declared(log_dir("b", {}, cluster_id=OURS), cluster_id=OURS), None),
    ("one is another cluster's", declared(log_dir(cluster_id=OURS), log_dir("b", cluster_id=FOREIGN)),
     f"/b belongs to cluster {FOREIGN}"),
    ("all are another cluster's", declared(log_dir(cluster_id=FOREIGN), cluster_id=OURS),
     f"/a belongs to cluster {FOREIGN}, the tier to {OURS}"),
    ("copies without meta.properties", declared(log_dir(), cluster_id=OURS), None),
    ("a folder of this name with an unknown id",
     declared(log_dir(unreadable_topics={"orders": "orders-3"})), "topic id of /a/orders-3 can't be read"),
    ("a folder of another name with an unknown id",
     declared(log_dir(unreadable_topics={"bills": "bills-0"})), None),
    ("all log directories, and a cluster that may be another one",
     declared(log_dir(), cluster=answer(is_own=False)), None),
    ("no other topic of the metadata in any of them",
     declared(log_dir(), known_topic_ids=frozenset({OTHER_ID})),
     "they may be another cluster's"),
    ("another topic of the metadata in one of them",
     declared(log_dir(), log_dir("b", {OTHER_ID: "bills-0"}), known_topic_ids=frozenset({OTHER_ID})), None),
    ("only the cluster id shows it",
     declared(log_dir(cluster_id=OURS), cluster_id=OURS, known_topic_ids=frozenset({OTHER_ID})), None),
    ("the metadata have no other topic", declared(log_dir(), known_topic_ids=frozenset()), None),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "wanted"), [c[1:] for c in EVIDENCE], ids=[c[0] for c in EVIDENCE])
def test_what_is_evidence(facts: dict[str, Any], wanted: str | None) -> None:
    evidence = DeletionEvidence(**facts)
    if wanted is None:
        evidence.require_deleted({TOPIC_ID: "orders"})
    else:
        with pytest.raises(SafetyRefusal, match="orders") as caught:
            evidence.require_deleted({TOPIC_ID: "orders"})
        assert wanted in caught.value.message
    # --i-know-it-is-deleted is enough for one topic, unless the cluster has the topic.
    word = DeletionEvidence(**facts, overridden=frozenset({TOPIC_ID}))
    if evidence.cluster is not None and TOPIC_ID in evidence.cluster.existing:
        with pytest.raises(SafetyRefusal, match="still has topic"):
            word.require_deleted({TOPIC_ID: "orders"})
        return
    word.require_deleted({TOPIC_ID: "orders"})
    if wanted is not None and "/" not in wanted:
        with pytest.raises(SafetyRefusal, match=rf"deleted: bills \({OTHER_ID}\)"):
            word.require_deleted({TOPIC_ID: "orders", OTHER_ID: "bills"})


def test_a_word_about_a_topic_that_is_not_marked() -> None:
    word = DeletionEvidence(overridden=frozenset({TOPIC_ID}))
    word.require_overridden_among([TOPIC_ID, OTHER_ID])
    for topic_ids in ([OTHER_ID], []):
        with pytest.raises(UsageError, match=TOPIC_ID):
            word.require_overridden_among(topic_ids)
