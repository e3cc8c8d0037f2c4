"""Batches made by Kafka's own classes, codecs of other libraries, and Kafka's tools on batches of tierctl."""

import gzip
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.kafka import KafkaRelease
from tests.wire.batches.messages import all_formats
from tests.wire.batches.same import scan
from tests.wire.batches.samples import marker, mixed_log
from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.wire.batches.batch_head import MAGIC, CompressionType, Record, compress, decompress
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


def _batches_of_every_codec() -> bytes:
    large = [Record(30, TIME_MS, b"k", bytes(range(256)) * 1000), Record(31, TIME_MS, None, b"v")]
    return mixed_log() + b"".join(
        encode_batch([record._replace(offset=record.offset + 2 * kind) for record in large], compression=kind)
        for kind in CompressionType
    )


@pytest.mark.kafka
@pytest.mark.parametrize("made", [_batches_of_every_codec, all_formats])
def test_kafka_reads_our_segment_and_its_indexes(
    made: Callable[[], bytes], kafka: KafkaRelease, tmp_path: Path
) -> None:
    data = made()
    offsets, times = build_indexes(scan(data), 0, interval_bytes=100)
    assert len(offsets) > 3
    paths = [tmp_path / f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")]
    for path, content in zip(paths, (data, offsets.data, times.data), strict=True):
        path.write_bytes(content)
    # One run for the three files, because the start of the JVM takes most of its time.
    text = kafka.dump_log(Path(",".join(map(str, paths))), "--deep-iteration")
    assert not re.search("isvalid: false|Mismatches|not found", text)
    printed = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert printed == [record.offset for batch in batches(data) for record in batch.records()]
    codecs = re.findall(r"^baseOffset.*compresscodec: (\w+).*isvalid: true", text, re.MULTILINE)
    # The old formats are printed without a line for the batch.
    compressions = [head.compression.name for head in scan(data) if head.magic == MAGIC]
    assert [codec.upper() for codec in codecs] == compressions
    assert len(re.findall(r"^offset: \d+ position: \d+$", text, re.MULTILINE)) == len(offsets)
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", text, re.MULTILINE)) == len(times)


DATA = bytes(range(256)) * 900 + b"tail"
COMPRESSED = [kind for kind in CompressionType if kind is not CompressionType.NONE]
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def _snappy(data: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(data, asbytes=True))


def _xerial(*blocks: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(packed)) + packed for packed in map(_snappy, blocks))


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (CompressionType.GZIP, gzip.compress(DATA)),
        (CompressionType.GZIP, gzip.compress(DATA[:70_000]) + gzip.compress(DATA[70_000:])),
        (CompressionType.SNAPPY, _snappy(DATA)),
        (CompressionType.SNAPPY, XERIAL + _xerial(DATA)),
        (CompressionType.SNAPPY, XERIAL + _xerial(DATA[:10], DATA[10:])),
        (CompressionType.SNAPPY, XERIAL + _xerial(DATA[:10]) + XERIAL + _xerial(DATA[10:])),
        (CompressionType.LZ4, bytes(pa.Codec("lz4").compress(DATA, asbytes=True))),
        (CompressionType.ZSTD, bytes(pa.Codec("zstd").compress(DATA, asbytes=True))),
    ],
)
def test_what_others_compressed(kind: CompressionType, stored: bytes) -> None:
    assert decompress(kind, stored) == DATA


def test_frames_are_those_of_kafkas_clients() -> None:
    """Lz4 of version 1 with independent blocks and no checksums; snappy of 32 KiB in xerial's frame."""
    assert compress(CompressionType.LZ4, DATA)[:5] == struct.pack("<IB", 0x184D2204, 0b0110_0000)
    stored = compress(CompressionType.SNAPPY, DATA)
    assert stored.startswith(XERIAL + _xerial(DATA[: 32 << 10]))


@pytest.mark.parametrize("kind", COMPRESSED)
def test_every_truncation_is_an_error(kind: CompressionType) -> None:
    stored = compress(kind, b"hello " * 50)
    framed_ends = {16} if kind is CompressionType.SNAPPY else set()
    for cut in set(range(len(stored))) - framed_ends:
        with pytest.raises(CorruptInputError):
            decompress(kind, stored[:cut])


@pytest.mark.parametrize("kind", COMPRESSED)
def test_every_flip_is_an_error_or_other_bytes(kind: CompressionType) -> None:
    stored = compress(kind, b"hello " * 50)
    for position in range(len(stored)):
        for bit in range(8):
            broken = bytearray(stored)
            broken[position] ^= 1 << bit
            try:
                assert len(decompress(kind, bytes(broken), max_bytes=1 << 20)) <= 1 << 20
            except (CorruptInputError, LimitExceeded):
                continue


@pytest.mark.parametrize("kind", list(CompressionType))
def test_the_cap(kind: CompressionType) -> None:
    stored = compress(kind, bytes(100_000))
    assert len(decompress(kind, stored, max_bytes=100_000)) == 100_000
    with pytest.raises(LimitExceeded):
        decompress(kind, stored, max_bytes=99_999)


def test_a_snappy_block_can_not_promise_more_than_snappy_can_do() -> None:
    """A length of 2 GiB in five bytes is refused before memory is allocated."""
    with pytest.raises(CorruptInputError, match="snappy"):
        decompress(CompressionType.SNAPPY, b"\xff\xff\xff\xff\x07abc", max_bytes=1 << 40)
