"""Records of KRaft's cluster metadata: one topic in a log, and those of a node's bootstrap file."""

import json
import re
import struct
from pathlib import Path

import pytest
from tests.support.cluster_metadata import partition_record
from tests.support.formatted import DATA, VERSIONS, bootstrap_name
from tests.support.kafka import KafkaRelease
from tierctl.errors import CorruptInputError
from tierctl.locallog.formatted_node import BootstrapFile
from tierctl.model import Uuid
from tierctl.wire import kraft
from tierctl.wire.kraft import TopicRegistration, topic_record

OLD, NEW, OTHER = (Uuid.from_bytes(bytes([number] * 16)) for number in (1, 2, 3))
TOPIC = "__remote_log_metadata"
MADE = [topic_record(TOPIC, OLD), partition_record(OLD, 0, (1, 2)), partition_record(OLD, 1, (2,))]
BEGIN, END, ABORT = (bytes([1, kind, 0, 0]) for kind in (23, 24, 25))


def changed(topic_id: Uuid, partition: int, replicas: tuple[int, ...]) -> bytes:
    """Return a PartitionChangeRecord with new in-sync replicas (tag 0) and replicas (tag 2)."""
    ids = bytes([len(replicas) + 1]) + struct.pack(f">{len(replicas)}i", *replicas)
    fields = bytes([2, 0, len(ids)]) + ids + bytes([2, len(ids)]) + ids
    return b"\x01\x05\x00" + struct.pack(">i", partition) + topic_id.bytes + fields


def moved(topic_id: Uuid, partition: int, directories: tuple[Uuid, ...]) -> bytes:
    """Return a PartitionChangeRecord with new directories (tag 8)."""
    ids = bytes([len(directories) + 1]) + b"".join(each.bytes for each in directories)
    fields = bytes([1, 8, len(ids)]) + ids
    return b"\x01\x05\x01" + struct.pack(">i", partition) + topic_id.bytes + fields


def removed(topic_id: Uuid) -> bytes:
    return b"\x01\x09\x00" + topic_id.bytes + b"\x00"


HISTORIES: dict[str, tuple[list[bytes], Uuid | None, dict[int, tuple[int, ...]]]] = {
    "none": ([], None, {}),
    "made": (MADE, OLD, {0: (1, 2), 1: (2,)}),
    "of another topic": (
        [*MADE, topic_record("a", OTHER), partition_record(OTHER, 2, (9,)), changed(OTHER, 0, (9,))],
        OLD,
        {0: (1, 2), 1: (2,)},
    ),
    "more partitions": ([*MADE, partition_record(OLD, 2, (3,))], OLD, {0: (1, 2), 1: (2,), 2: (3,)}),
    "reassigned": ([*MADE, changed(OLD, 1, (3, 4))], OLD, {0: (1, 2), 1: (3, 4)}),
    "deleted": ([*MADE, removed(OLD)], None, {}),
    "made again": (
        [*MADE, removed(OLD), topic_record(TOPIC, NEW), partition_record(NEW, 0, (5,))],
        NEW,
        {0: (5,)},
    ),
    "in a transaction": ([BEGIN, *MADE, END], OLD, {0: (1, 2), 1: (2,)}),
    "in an aborted transaction": ([BEGIN, *MADE, ABORT], None, {}),
    "in an open transaction": ([*MADE, BEGIN, removed(OLD)], OLD, {0: (1, 2), 1: (2,)}),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_the_records_in_their_order(name: str) -> None:
    values, topic_id, replicas = HISTORIES[name]
    found = TopicRegistration(TOPIC)
    for value in values:
        found.replay(value)
    assert (found.topic_id, found.replicas) == (topic_id, replicas)


DISK_1, DISK_2 = (Uuid.from_bytes(bytes([number] * 16)) for number in (7, 8))
UNASSIGNED, LOST = (Uuid.from_bytes(bytes(15) + bytes([number])) for number in (0, 1))
PLACED = partition_record(OLD, 0, (1, 2), (DISK_1, UNASSIGNED))
PLACES: dict[str, tuple[list[bytes], tuple[Uuid | None, Uuid | None]]] = {
    "a version without directories": ([MADE[1]], (None, None)),
    "assigned when it is made": ([PLACED], (DISK_1, None)),
    "assigned later": ([PLACED, moved(OLD, 0, (DISK_1, DISK_2))], (DISK_1, DISK_2)),
    "a disk is lost": ([PLACED, moved(OLD, 0, (LOST, DISK_2))], (None, DISK_2)),
    "of another topic": ([PLACED, moved(OTHER, 0, (DISK_2, DISK_2))], (DISK_1, None)),
    "reassigned without directories": ([PLACED, changed(OLD, 0, (2, 1, 3))], (None, None)),
    "in a snapshot after others": ([PLACED, partition_record(OLD, 0, (1, 2))], (None, None)),
}


@pytest.mark.parametrize("name", PLACES)
def test_the_log_directory_of_a_replica(name: str) -> None:
    values, expected = PLACES[name]
    found = TopicRegistration(TOPIC)
    for value in [MADE[0], *values]:
        found.replay(value)
    assert (found.directory(0, 1), found.directory(0, 2)) == expected
    assert found.directory(0, 9) is None


@pytest.mark.parametrize(
    ("record", "size"),
    [
        *((MADE[1], size) for size in range(3, 23 + 9)),
        *((PLACED, size) for size in range(23 + 9, len(PLACED) - 1)),
    ],
)
def test_a_record_that_ends_before_its_replicas_and_directories_is_damage(record: bytes, size: int) -> None:
    found = TopicRegistration(TOPIC)
    found.replay(MADE[0])
    with pytest.raises(CorruptInputError):
        found.replay(record[:size])


TOPIC_ID = Uuid("2QZ5FAXaQrqgUzsReWnweA")
DIRECTORY_ID = Uuid("pJDu_PV_mDE7nGFxt1-tOw")
PARTITION = kraft.PartitionRegistration(
    topic_id=TOPIC_ID, partition=3, node_id=7, leader_epoch=5, directory_id=DIRECTORY_ID
)
VALUES = [
    kraft.topic_record("orders", TOPIC_ID),
    kraft.config_record("orders", "retention.ms", "-1"),
    kraft.partition_record(PARTITION),
    kraft.producer_ids_record(4001),
]


def file_of(version: str) -> BootstrapFile:
    return BootstrapFile.decode((DATA / f"{version}.checkpoint").read_bytes())


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_added_before_the_footer(version: str) -> None:
    file = file_of(version)
    levels = [level for level in map(kraft.metadata_version, file.values) if level is not None]
    assert levels == [VERSIONS[version]]
    assert file.extended([]) == file.data
    # The records need more than one batch.
    many = [*VALUES, *(kraft.config_record("orders", f"setting.{n}", "x") for n in range(1200))]
    longer = BootstrapFile.decode(file.extended(many))
    assert list(longer.values) == [*file.values, *many]
    assert longer.footer_offset == file.footer_offset + len(many)
    # The header (with the voters of a dynamic quorum) and the footer's CRC do not change.
    assert longer.data.startswith(file.data[: file.footer_at])
    assert longer.data[longer.footer_at + 8 :] == file.data[file.footer_at + 8 :]
    assert list(BootstrapFile.decode(longer.extended(VALUES)).values) == [*longer.values, *VALUES]


def test_records_tell_what_they_are() -> None:
    assert [kraft.topic_of(value) for value in VALUES] == [("orders", TOPIC_ID), None, None, None]
    assert [kraft.next_producer_id(value) for value in VALUES] == [None, None, None, 4001]
    assert [kraft.metadata_version(value) for value in VALUES] == [None] * 4


def test_another_frame_is_refused() -> None:
    with pytest.raises(CorruptInputError, match="frame version 1"):
        kraft.topic_of(b"\x02\x02\x00\x00")


@pytest.mark.parametrize("version", VERSIONS)
def test_no_part_of_a_file_passes(version: str) -> None:
    data = file_of(version).data
    for size in range(len(data)):
        with pytest.raises(CorruptInputError):
            BootstrapFile.decode(data[:size])
    with pytest.raises(CorruptInputError):
        BootstrapFile.decode(data + data[-74:])


@pytest.mark.kafka
def test_kafka_reads_the_records(kafka: KafkaRelease, tmp_path: Path) -> None:
    path = tmp_path / Path(bootstrap_name("4.4.0")).name
    path.write_bytes(file_of(kafka.version).extended(VALUES))
    said = kafka.dump_log(path, "--cluster-metadata-decoder", "--skip-record-metadata")
    assert "isvalid: false" not in said
    found = [json.loads(text) for text in re.findall(r"payload: (\{.*\})", said)]
    assert [each["type"] for each in found if each["type"] == "FEATURE_LEVEL_RECORD"]
    topic, setting, partition, producer_ids = [each["data"] for each in found[-len(VALUES) :]]
    assert topic == {"name": "orders", "topicId": TOPIC_ID}
    assert setting == {"resourceType": 2, "resourceName": "orders", "name": "retention.ms", "value": "-1"}
    assert partition == {
        "partitionId": 3,
        "topicId": TOPIC_ID,
        "replicas": [7],
        "isr": [7],
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": 7,
        "leaderEpoch": 5,
        "partitionEpoch": 0,
        "directories": [DIRECTORY_ID],
    }
    assert producer_ids == {"brokerId": -1, "brokerEpoch": -1, "nextProducerId": 4001}
