"""The bootstrap file of three versions, and the records that are added to it."""

import json
import re
from pathlib import Path

import pytest
from tests.support.formatted import DATA, VERSIONS, bootstrap_name
from tests.support.kafka import KafkaRelease
from tierctl.errors import CorruptInputError
from tierctl.locallog.formatted_node import BootstrapFile
from tierctl.model import Uuid
from tierctl.wire import kraft

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
    assert setting == {
        "resourceType": 2,
        "resourceName": "orders",
        "name": "retention.ms",
        "value": "-1",
    }
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
