"""One topic in the records of KRaft's cluster metadata."""

import struct

import pytest
from tests.support.cluster_metadata import partition_record
from tierctl.errors import CorruptInputError
from tierctl.model import Uuid
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
