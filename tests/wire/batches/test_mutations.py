"""Batches with changed bytes are read as columns with the results that they have one by one."""

import random
from collections.abc import Callable

import pytest
from tests.wire.batches.messages import message
from tests.wire.batches.same import END, check_columns, check_heads, check_values, scan
from tests.wire.batches.samples import marker, one_record_log, record
from tierctl.wire.batches.batch_head import CRC_FROM, BatchHead, CompressionType, Record
from tierctl.wire.batches.record_batch import ControlType, batch_at, encode_batch, seal, write_varint
from tierctl.wire.batches.records import read_values
from tierctl.wire.batches.scan import bytes_of, crc32c_of, scan_heads, walk
from tierctl.wire.primitives import crc32c

pytestmark = pytest.mark.usefixtures("every_way")

_HEADERS = (("trace", b"\x00\xff"), ("ключ", None))
LOG = b"".join(
    (
        encode_batch([record(0, b"a" * 9), record(1, None, b"key"), record(3, b"", b"", headers=_HEADERS)]),
        encode_batch([record(4, b"value" * 30)], log_append_time=True, max_timestamp_ms=1_800_000_000_000),
        encode_batch([record(at, bytes([at]) * 40) for at in (5, 6)], compression=CompressionType.LZ4),
        marker(7, ControlType.ABORT, 7),
        encode_batch([record(8)], base_offset=8, last_offset=11, producer_id=7),
        message(record(12), 1),
        encode_batch([record(13, headers=_HEADERS)], compression=CompressionType.SNAPPY),
        encode_batch([record(14), record(15)]),
    )
)
HEADS = tuple(scan(LOG))


def mutated(chance: random.Random) -> bytes:
    """Return the log with changed bytes; half of the time, each batch has a right CRC again."""
    data = bytearray(LOG)
    for _ in range(chance.randint(1, 3)):
        head = chance.choice(HEADS)
        begin = chance.choice((head.position, head.payload_position))
        at = min(begin + int(chance.expovariate(1 / 20)), head.end - 1)
        data[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, data[at] ^ 1 << chance.randrange(8)))
    if chance.random() < 0.5:
        for head in HEADS:
            if head.magic == 2:
                crc = crc32c(bytes(data[head.position + CRC_FROM : head.end]))
                data[head.position + 17 : head.position + CRC_FROM] = crc.to_bytes(4, "big")
    return bytes(data)


def check_mutations(count: int, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(count):
        data = mutated(chance)
        check_heads(data, expected_offset=0)
        check_values(data, *chance.choice(((0, END), (4, 9))))
        check_columns([batch_at(data, piece) for piece in walk(data) if isinstance(piece, BatchHead)])


def test_changed_bytes() -> None:
    check_mutations(150, 1)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(8))
def test_many_changed_bytes(every_way: str, seed: int) -> None:
    check_mutations(40_000 if every_way == "compiled kernel" else 2_000, seed)


def _with_head(data: bytes, **change: int) -> bytes:
    (head,) = scan(data)
    return seal(head._replace(**change), batch_at(data, head).payload)


def _with_headers(count: int) -> bytes:
    body = bytearray(1)
    for field in (0, 0, -1, -1, count):
        write_varint(body, field)
    body += bytes([0, 1]) * count
    payload = bytearray()
    write_varint(payload, len(body))
    (head,) = scan(encode_batch([record(0)]))
    return seal(head, bytes(payload + body))


def _with_length(change: int) -> bytes:
    data = bytearray(one_record_log(1))
    data[11] += change
    return bytes(data)


LARGE = (1 << 31) - 1
ONE = encode_batch([record(0)])
TWO = encode_batch([record(0), record(1)])
CASES: dict[str, tuple[Callable[[], bytes], int]] = {
    "16,385 records": (lambda: encode_batch([record(at, None) for at in range(16_385)]), 16_385),
    "2^31-1 records": (lambda: _with_head(ONE, record_count=LARGE, last_offset_delta=LARGE - 1), 0),
    "one record too many": (lambda: _with_head(ONE, record_count=2, last_offset_delta=1), 0),
    "one record too few": (lambda: _with_head(TWO, record_count=1), 0),
    "no records": (lambda: _with_head(ONE, record_count=0), 0),
    "200,000 headers": (lambda: _with_headers(200_000), 0),
    "60,000 headers": (lambda: _with_headers(60_000), 1),
    "too long": (lambda: _with_length(9), 0),
    "too short": (lambda: _with_length(-9), 0),
}
"""The bytes of a batch, and how many good records it has; the batch after it begins at LARGE."""


@pytest.mark.parametrize("case", CASES)
def test_the_good_batch_after_an_unusual_one_is_found(case: str) -> None:
    make, records = CASES[case]
    data = make() + encode_batch([Record(LARGE, 5, None, b"good")])
    heads = scan_heads(data)
    got = read_values(data, heads, 0, END)
    assert got.offsets.tolist() == [*range(records), LARGE]
    assert got.values.array.to_pylist()[-1:] == [b"good"]
    assert len(heads.bad) + len(got.damaged) == (records == 0)
    check_heads(data)
    check_values(data)


def test_crcs_of_every_length() -> None:
    data = random.Random(3).randbytes(300)
    for end in range(80):
        assert crc32c_of(bytes_of(data), 3, 3 + end) == crc32c(data[3 : 3 + end])
    assert crc32c_of(bytes_of(bytes(300) + b"\xff" * 8), 0, 308) == crc32c(bytes(300) + b"\xff" * 8)
