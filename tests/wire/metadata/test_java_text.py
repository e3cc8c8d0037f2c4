"""The text of Kafka's classes, and the metadata partition of a user partition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import vectors
from tests.wire.metadata.java_text import to_string
from tests.wire.metadata.samples import golden
from tierctl.model import RemoteLogSegmentMetadata, Uuid
from tierctl.wire.metadata.partitioner import metadata_partition, metadata_partitions_of
from tierctl.wire.metadata.values import decode


def test_events_print_as_the_jvm_prints_them() -> None:
    for row in vectors("serde-kafka.jsonl"):
        assert to_string(decode(bytes.fromhex(row["hex"]))) == row["to_string"]


def test_before_kafka_4_there_was_no_transaction_flag() -> None:
    event = next(e for e in map(decode, golden("kafka")) if isinstance(e, RemoteLogSegmentMetadata))
    flag = f", txnIdxEmpty={str(event.txn_index_empty).lower()}"
    assert flag in to_string(event)
    assert to_string(event, txn_index=False) == to_string(event).replace(flag, "")


@pytest.mark.parametrize(
    ("hexed", "expected"),
    [
        ("0100000e", "state=COPY_SEGMENT_FINISHED, eventTimestampMs=1600000000000, leaderEpoch=0}"),
        ("020000", "state=DELETE_PARTITION_FINISHED, eventTimestampMs=1600000000003, epoch=3}"),
        ("000000", ", leaderEpoch=0, maxTimestampMs="),
    ],
)
def test_the_kips_events_print_alike(hexed: str, expected: str) -> None:
    value = next(v for v in golden("kip405") if v.hex().startswith(hexed))
    assert expected in to_string(decode(value))


def test_epochs_print_as_a_sorted_map() -> None:
    event = next(e for e in map(decode, golden("kafka")) if isinstance(e, RemoteLogSegmentMetadata))
    object.__setattr__(event, "segment_leader_epochs", ((7, 1), (-2, 2), (7, 3)))
    assert "segmentLeaderEpochs={-2=2, 7=3}" in to_string(event)


def test_partitions_are_where_kafka_puts_them() -> None:
    for row in vectors("partitioner.jsonl"):
        topic_id, partition, count = Uuid(row["topic_id"]), row["partition"], row["metadata_partitions"]
        raw, partitions = np.frombuffer(topic_id.bytes, np.uint8), np.array([partition])
        assert metadata_partition(topic_id, partition, count) == row["metadata_partition"]
        assert metadata_partitions_of(raw, partitions, count).tolist() == [row["metadata_partition"]]


@given(
    st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, (1 << 31) - 1))),
    st.integers(1, 1000),
)
def test_the_partitions_of_many_are_those_of_each(keys: list[tuple[bytes, int]], count: int) -> None:
    expected = [metadata_partition(Uuid.from_bytes(raw), number, count) for raw, number in keys]
    raws = np.frombuffer(b"".join(raw for raw, _ in keys), np.uint8)
    numbers = np.array([number for _, number in keys], dtype=np.int64)
    assert metadata_partitions_of(raws, numbers, count).tolist() == expected
