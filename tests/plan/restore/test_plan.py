"""The files of a formatted node, by the sets of objects of a partition."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.commands.restore.new_logs import PartitionSource
from tierctl.commands.restore.new_node import NewBroker, NewTopic, former_settings
from tierctl.commands.restore.to_node import RestorePlanner, TopicSource, breaches
from tierctl.locallog.log_end import ProducerTable
from tierctl.model import ObjectSet, TopicConfig, Uuid
from tierctl.plan.partition_choice import PartitionInputs, decide_partition
from tierctl.plan.reasons import ReasonKind
from tierctl.wire.batches.record_batch import ControlType, batches, control_record
from tierctl.wire.files.checkpoints import ProducerEntry, decode_producer_snapshot, encode_producer_snapshot
from tierctl.wire.files.indexes import AbortedTxn
from tierctl.wire.kraft import config_record, next_producer_id, producer_ids_record

from tests.plan.rebuild.sets import PARTITION, object_set

FIRST, SECOND = Path("/first"), Path("/second")
IDS = {FIRST: Uuid("pJDu_PV_mDE7nGFxt1-tOw"), SECOND: Uuid("zcNH6yZoXjLFM0nEAepk_Q")}
METADATA_ID, OTHER_ID = Uuid("AAAAAAAAAAAAAAAAAAAAAQ"), Uuid("AAAAAAAAAAAAAAAAAAAAAg")
LOG = ((0, 0), (3, 150))
SETS = [object_set(1, 0, 99, LOG), object_set(2, 100, 199, LOG, log_start=50)]


def producer(producer_id: int, *, open_from: int = -1, epoch: int = 2) -> ProducerEntry:
    return ProducerEntry(producer_id, epoch, 9, 190, 0, 1000, -1, open_from)


def snapshot(*entries: ProducerEntry) -> bytes:
    return encode_producer_snapshot(entries)


def planned(
    sets: list[ObjectSet],
    taken: bytes | None = None,
    *,
    present: tuple[bytes, ...] = (),
    directories: tuple[Path, ...] = (FIRST,),
    level: int = 33,
    **more: Any,
) -> RestorePlanner:
    inputs = PartitionInputs(partition=PARTITION, sets=sets)
    source = PartitionSource(inputs=inputs, decision=decide_partition(inputs), snapshot=taken)
    topic = TopicSource(
        topic=PARTITION.topic,
        topic_id=PARTITION.topic_id,
        partition_count=5,
        settings={"local.retention.ms": "5", "retention.ms": "7"},
        partitions={PARTITION.partition: source},
    )
    metadata = NewTopic(
        topic="__remote_log_metadata", topic_id=METADATA_ID, settings={}, leader_epochs=[1], log_dir=FIRST
    )
    ids = {folder: IDS[folder] for folder in directories}
    broker = NewBroker(node_id=7, directories=ids, metadata_version=level)
    found = RestorePlanner(broker=broker, metadata_topic=metadata, present=present, **more)
    found.decide([topic], read={})
    return found


def test_a_transaction_without_an_end_is_aborted() -> None:
    found = planned(SETS, snapshot(producer(9, open_from=180), producer(8, open_from=170), producer(7)))
    (log,) = found.logs.values()
    made = list(batches(log.files[f"{200:020d}.log"]))
    assert [(b.head.base_offset, b.head.producer_id, b.head.producer_epoch) for b in made] == [
        (200, 8, 2),
        (201, 9, 2),
    ]
    for batch in made:
        assert batch.head.is_transactional
        assert batch.head.partition_leader_epoch == 3
        (record,) = batch.records()
        assert control_record(record).type is ControlType.ABORT
    # The recovery point stays at the end of the tier: the broker reads the markers when it loads the log.
    assert log.tier_end == 200


def test_under_new_ids_a_transaction_without_an_end_is_aborted_and_nobody_is_fenced() -> None:
    """A broker records an abort only if its marker ends a transaction that it knows."""
    taken = snapshot(producer(9, open_from=180), producer(7))
    inputs = PartitionInputs(partition=PARTITION, sets=SETS)
    source = PartitionSource(inputs=inputs, decision=decide_partition(inputs), snapshot=taken)
    log = source.new_log(PARTITION, FIRST, has_producers=False)
    assert log is not None
    name, (made,) = f"{200:020d}", batches(log.files[f"{200:020d}.log"])
    assert (made.head.producer_id, made.head.producer_epoch) == (9, 0)
    (known,) = decode_producer_snapshot(log.files[f"{name}.snapshot"])
    assert known == ProducerEntry(9, 0, -1, -1, 0, 1000, -1, 180)
    producers = ProducerTable.from_snapshot([known])
    aborted = producers.append(log.files[f"{name}.log"], made.head)
    assert aborted == AbortedTxn(9, 180, 200, 201)
    without = replace(source, snapshot=snapshot(producer(7))).new_log(PARTITION, FIRST, has_producers=False)
    assert without is not None
    assert f"{name}.snapshot" not in without.files


@pytest.mark.parametrize(("stated", "expected"), [(41, []), (40, [41]), (900, [])])
def test_producer_ids_only_rise(stated: int, expected: list[int]) -> None:
    found = planned(SETS, snapshot(producer(40)), present=(producer_ids_record(stated),))
    assert [next_producer_id(v) for v in found.records if next_producer_id(v) is not None] == expected


@pytest.mark.parametrize(("level", "own"), [(33, {"-2"}), (21, {"-2"}), (20, {"5"})])
def test_topics_start_with_copying_disabled_where_brokers_know_it(level: int, own: set[str]) -> None:
    records = planned(SETS, level=level).records
    values = {v for v in ("-2", "5") if config_record("orders", "local.retention.ms", v) in records}
    assert values == own
    assert (config_record("orders", "remote.log.copy.disable", "true") in records) == (own == {"-2"})
    assert config_record("orders", "remote.storage.enable", "true") in records
    assert config_record("orders", "retention.ms", "7") in records


def test_without_a_whole_set_the_log_is_empty_if_it_may_begin_after_a_hole() -> None:
    sets = [object_set(1, 0, 99, LOG, half=True)]
    assert "no complete segment" in planned(sets).refused[PARTITION]
    after = planned(sets, after_hole=True)
    assert (after.refused, after.logs) == ({}, {})
    assert after.plan.steps[-1].action == "create_topic"


def test_a_damaged_snapshot_is_refused() -> None:
    found = planned(SETS, snapshot(producer(1))[:-1])
    assert "producer snapshot of its last segment is damaged" in found.refused[PARTITION]


@pytest.mark.parametrize(
    ("name", "topic_id", "is_conflict"),
    [
        (PARTITION.topic, METADATA_ID, True),
        ("clicks", PARTITION.topic_id, True),
        ("clicks", METADATA_ID, True),
        ("__remote_log_metadata", OTHER_ID, True),
        ("clicks", OTHER_ID, False),
    ],
)
def test_a_topic_of_the_same_name_or_id_is_a_conflict(name: str, topic_id: Uuid, is_conflict: bool) -> None:
    there = NewTopic(topic=name, topic_id=topic_id, settings={}, leader_epochs=[1], log_dir=FIRST)
    broker = NewBroker(node_id=7, directories={FIRST: IDS[FIRST]}, metadata_version=33)
    found = planned(SETS, present=tuple(there.records(broker)))
    said = f"the node was prepared with topic {name} of id {topic_id}"
    assert [said in reason for reason in found.refused.values()] == [True] * is_conflict


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, "localhost:9092"),
        ({"listeners": "CONTROLLER://:9093,PLAINTEXT://h1:9092"}, "h1:9092"),
        (
            {
                "listeners": "PLAINTEXT://:9092",
                "advertised.listeners": "controller://h1:9093, SSL://h2:9094, PLAINTEXT://h3:9095",
            },
            "h2:9094",
        ),
    ],
)
def test_settings_are_given_back_through_a_brokers_listener(stated: dict[str, str], expected: str) -> None:
    said = former_settings("orders", {}, {"controller.listener.names": "CONTROLLER", **stated})
    assert f" --bootstrap-server {expected} " in said


BREACHES = {
    "by time": (100, -1, 250, SETS, [ReasonKind.RETENTION_MS]),
    "all by time": (100, -1, 400, SETS, [ReasonKind.RETENTION_MS] * 2),
    "by size": (-1, 100, 400, SETS, [ReasonKind.RETENTION_BYTES]),
    "a segment larger than the excess stays": (-1, 150, 400, SETS, []),
    "time reduces the excess": (100, 100, 250, SETS, [ReasonKind.RETENTION_MS]),
    "no limit": (-1, -1, 400, SETS, []),
    "no timestamp stops time": (100, -1, 400, [object_set(1, 0, 0, LOG), object_set(2, 1, 199, LOG)], []),
}


@pytest.mark.parametrize("case", BREACHES)
def test_what_retention_deletes_at_the_start_is_foretold_by_the_rule_of_brokers(case: str) -> None:
    retention_ms, retention_bytes, now_ms, sets, expected = BREACHES[case]
    config = TopicConfig(retention_ms=retention_ms, retention_bytes=retention_bytes)
    chain = [each.segment for each in sets if each.segment is not None]
    assert breaches(chain, config, now_ms) == expected
