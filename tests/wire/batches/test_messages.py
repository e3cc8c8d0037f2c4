"""Messages of the formats 0 and 1: those that Kafka's own classes made, and damage among all formats.

`messages-kafka-4.3.0.txt` is MemoryRecords of Kafka 4.3.0 as hex: four records at the offsets 7, 8, 11 and 12
in each format, compression and type of timestamps; and the records and batches that Kafka reads in them.
"""

import random
import re
import struct
import zlib
from pathlib import Path

import pytest
from tests.wire.batches.messages import LOG_APPEND_TIME, TIME_MS, all_formats, message, records_at, wrapper
from tests.wire.batches.same import check_heads, scan
from tierctl.errors import CorruptInputError
from tierctl.wire.batches.batch_head import BatchHead, CompressionType, Record, compress
from tierctl.wire.batches.record_batch import RecordBatch, batches
from tierctl.wire.batches.records import record_columns
from tierctl.wire.batches.scan import BadRange, ScanItem, TornTail, walk

MADE = (Path(__file__).parent / "messages-kafka-4.3.0.txt").read_text()
BLOCKS = re.findall(r"^entry (\d) (\w+) (\w+) (\w+)\n((?:(?!entry).*\n)+)", MADE, re.MULTILINE)


def _bytes(text: str) -> bytes | None:
    return None if text == "null" else bytes.fromhex(text)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: "-".join(block[:3]))
def test_kafkas_messages_are_read(block: tuple[str, ...]) -> None:
    *_, data, lines = block
    words = [line.split() for line in lines.splitlines()]
    records = [
        Record(int(offset), int(ms), _bytes(key), _bytes(value))
        for _, offset, ms, key, value in (each for each in words if each[0] == "record")
    ]
    heads = [tuple(each[1:]) for each in words if each[0] == "batch"]
    found = list(batches(bytes.fromhex(data)))
    assert [record for batch in found for record in batch.records()] == records
    assert len(records) == 4
    assert heads == [
        tuple(map(str, (h.base_offset, h.last_offset, h.max_timestamp_ms, h.timestamp_type)))
        for h in (batch.head for batch in found)
    ]
    columns = [row for part in record_columns(found, RecordBatch.records) for row in part.to_pylist()]
    assert [Record(r["offset"], r["timestamp_ms"], r["key"], r["value"]) for r in columns] == records
    assert {(r["timestamp_type"], r["leader_epoch"]) for r in columns} == {(block[2], -1)}


def test_ours_are_the_same_bytes() -> None:
    for magic, _, kind, data, _ in (block for block in BLOCKS if block[1] == "none"):
        made = next(batches(bytes.fromhex(data)))
        attributes = LOG_APPEND_TIME if kind == "LogAppendTime" else 0
        ours = b"".join(message(record, int(magic), attributes) for record in made.records())
        assert bytes.fromhex(data).startswith(ours)


def items_of(data: bytes) -> list[ScanItem]:
    """Return the items of a walk, after a check that the columns have the same."""
    check_heads(data, expected_offset=0)
    return list(walk(data, expected_offset=0))


def test_every_flipped_bit_is_found_and_the_rest_is_read() -> None:
    data = all_formats()
    heads = list(scan(data))
    rng = random.Random(5)
    for number, head in enumerate(heads[:-1]):
        # Kafka's checksums cover neither offset nor leader epoch, so a bit there may move a batch.
        for position in range(head.position + 8, head.end):
            if head.magic == 2 and 12 <= position - head.position < 16:
                continue
            spoilt = bytearray(data)
            spoilt[position] ^= 1 << rng.randrange(8)
            bad, *more = (item for item in items_of(bytes(spoilt)) if not isinstance(item, BatchHead))
            assert not more
            assert isinstance(bad, BadRange)
            assert (bad.position, bad.end) == (head.position, head.end), position
            assert (bad.first_offset, bad.next_offset) == (
                heads[number - 1].next_offset if number else 0,
                heads[number + 1].base_offset,
            )


def test_every_truncation_is_a_valid_prefix() -> None:
    data = all_formats()
    heads = list(scan(data))
    ends = {0, *(head.end for head in heads)}
    for cut in range(len(data)):
        *whole, last = [*items_of(data[:cut]), None] if cut in ends else items_of(data[:cut])
        assert whole == [head for head in heads if head.end <= cut]
        assert last is None or isinstance(last, TornTail)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (message(Record(5, 0, None, None), 0, 1), "a null value"),
        (message(Record(5, 0, None, b"no gzip"), 1, 1), "a complete gzip frame"),
        (message(Record(5, 0, None, b"v"), 1, 4), "a compression type from 0 to 3, found 4"),
        (wrapper(records_at(5, 5), 1, CompressionType.GZIP), "offsets that rise"),
        # No CRC covers the offset of a wrapper.
        (b"\0\0\1" + wrapper(records_at(0, 1), 0, CompressionType.GZIP)[3:], "offsets that rise"),
    ],
)
def test_impossible_wrappers(data: bytes, says: str) -> None:
    with pytest.raises(CorruptInputError, match=says):
        list(scan(data))


def _inner(body: bytes) -> bytes:
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        (
            _inner(bytes([2, 0]) + bytes(8) + b"\xff" * 8),
            "a message of format 0 or 1 in a wrapper, found magic 2",
        ),
        (_inner(bytes([255, 0]) + bytes(8) + b"\xff" * 8), "in a wrapper, found magic -1"),
        (_inner(bytes([1, 0]) + bytes(10)), "a length of at least 22 in a wrapper, found 16"),
        (_inner(bytes([0, 5]) + b"\xff" * 8), "a compression type from 0 to 3 in a wrapper, found 5"),
        (wrapper(records_at(0), 1, CompressionType.GZIP), "that are not compressed, found gzip"),
        (_inner(bytes([0, 0]) + b"\xff" * 4 + bytes([0, 0, 0, 9])), "a length up to 0, found 9"),
        (_inner(bytes([0, 0]) + b"\xff" * 9), "a key and a value of 9 bytes, found 8"),
        # The checksum of the wrapper is right: a broker keeps it, and a consumer refuses its records.
        (message(records_at(0)[0], 1)[:-1] + b"\0", r"CRC-32 .* of a message in a wrapper"),
    ],
)
def test_impossible_messages_in_a_wrapper(inner: bytes, says: str) -> None:
    value = compress(CompressionType.GZIP, inner)
    (batch,) = batches(message(Record(4, TIME_MS, None, value), 1, CompressionType.GZIP))
    assert batch.head.base_offset == 4
    with pytest.raises(CorruptInputError, match=says):
        list(batch.records())
