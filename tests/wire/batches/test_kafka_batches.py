"""Batches made by Kafka's own classes, and Kafka's tools on batches made by tierctl.

`batches-kafka-3.9.1.txt` is MemoryRecords of Kafka 3.9.1 as hex: the same four records (a null key, a null
value, headers) with each compression in an idempotent producer's transaction, and an abort marker.
"""

import re
from pathlib import Path

import pytest
from tests.support.kafka import KafkaRelease
from tests.wire.batches.same import scan
from tests.wire.batches.samples import marker, mixed_log
from tierctl.wire.batches.batch_head import CompressionType, Record
from tierctl.wire.batches.record_batch import (
    ControlRecord,
    ControlType,
    batches,
    control_record,
    encode_batch,
)
from tierctl.wire.files.indexes import build_indexes

MADE = {
    name: bytes.fromhex(data)
    for name, data in (
        line.split() for line in (Path(__file__).parent / "batches-kafka-3.9.1.txt").read_text().splitlines()
    )
}
TIME_MS = 1_700_000_000_000
RECORDS = [
    Record(7, TIME_MS, b"key-0", b"value value value value 0" * 3),
    Record(8, TIME_MS + 1, b"key-1", b"value value value value 1" * 3, (("h", b"\x01"), ("n", None))),
    Record(9, TIME_MS + 2, None, b"value value value value 2" * 3),
    Record(10, TIME_MS + 3, b"key-3", None),
]


@pytest.mark.parametrize("kind", list(CompressionType))
def test_kafkas_batches_are_read(kind: CompressionType) -> None:
    (batch,) = batches(MADE[kind.name.lower()])
    head = batch.head
    assert list(batch.records()) == RECORDS
    assert (head.compression, head.partition_leader_epoch) == (kind, 3)
    assert (head.producer_id, head.producer_epoch, head.base_sequence) == (5, 1, 0)
    assert (head.last_offset_delta, head.max_timestamp_ms) == (3, TIME_MS + 3)
    assert head.is_transactional
    assert not head.is_control


def test_ours_are_the_same_bytes() -> None:
    ours = encode_batch(
        RECORDS,
        partition_leader_epoch=3,
        producer_id=5,
        producer_epoch=1,
        base_sequence=0,
        transactional=True,
    )
    assert ours == MADE["none"]


def test_an_abort_marker() -> None:
    (batch,) = batches(MADE["abort"])
    (record,) = batch.records()
    assert control_record(record) == ControlRecord(ControlType.ABORT, 9)
    assert (batch.head.is_control, batch.head.is_transactional, batch.head.producer_id) == (True, True, 5)
    (ours,) = batches(marker(11, ControlType.ABORT, 5, coordinator_epoch=9))
    assert [r._replace(timestamp_ms=TIME_MS) for r in ours.records()] == [record]


@pytest.mark.kafka
def test_kafka_reads_our_segment_and_its_indexes(kafka: KafkaRelease, tmp_path: Path) -> None:
    large = [Record(30, TIME_MS, b"k", bytes(range(256)) * 1000), Record(31, TIME_MS, None, b"v")]
    data = mixed_log() + b"".join(
        encode_batch([record._replace(offset=record.offset + 2 * kind) for record in large], compression=kind)
        for kind in CompressionType
    )
    offsets, times = build_indexes(scan(data), 0, interval_bytes=300)
    assert len(offsets) > 3
    paths = [tmp_path / f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")]
    for path, content in zip(paths, (data, offsets.data, times.data), strict=True):
        path.write_bytes(content)
    # One run for the three files, because the start of the JVM takes most of its time.
    text = kafka.dump_log(Path(",".join(map(str, paths))), "--deep-iteration")
    heads = list(scan(data))
    assert "isvalid: false" not in text
    assert "Mismatches" not in text
    assert "not found" not in text
    printed = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert printed == [record.offset for batch in batches(data) for record in batch.records()]
    codecs = re.findall(r"^baseOffset.*compresscodec: (\w+).*isvalid: true", text, re.MULTILINE)
    assert [codec.upper() for codec in codecs] == [head.compression.name for head in heads]
    assert len(re.findall(r"^offset: \d+ position: \d+", text, re.MULTILINE)) == len(offsets)
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", text, re.MULTILINE)) == len(times)
