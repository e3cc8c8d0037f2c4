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


@pytest.mark.parametrize("size", range(3, 23 + 9))
def test_a_record_that_ends_before_its_replicas_is_damage(size: int) -> None:
    found = TopicRegistration(TOPIC)
    found.replay(MADE[0])
    with pytest.raises(CorruptInputError):
        found.replay(MADE[1][:size])
