"""Batches and records decoded by columns equal those decoded one by one, also damaged ones."""

import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.amounts import TRIES_ALL, examples, rest_in_matrix
from tests.wire.batches.messages import message
from tests.wire.batches.same import END, check_columns, check_heads, check_values, decoded, scan
from tests.wire.batches.samples import (
    Capture,
    captured,
    marker,
    mixed_log,
    one_record_log,
    record,
    record_lists,
)
from tierctl.errors import CorruptInputError
from tierctl.wire.batches.batch_head import CRC_FROM, HEAD_SIZE, BatchHead, CompressionType, Record
from tierctl.wire.batches.record_batch import (
    ControlType,
    RecordBatch,
    batch_at,
    batches,
    encode_batch,
    seal,
    write_varint,
)
from tierctl.wire.batches.records import read_values, record_columns
from tierctl.wire.batches.scan import scan_heads, walk
from tierctl.wire.batches.segment_file import RecordChunk, Window, chunk_of
from tierctl.wire.primitives import crc32c

pytestmark = pytest.mark.usefixtures("every_way")


@st.composite
def logs(draw: st.DrawFn) -> list[RecordBatch]:
    """Return batches of every kind, as brokers have them."""
    found = []
    for records in draw(st.lists(record_lists(), max_size=6)):
        data = encode_batch(
            records,
            partition_leader_epoch=draw(st.integers(0, 5)),
            compression=draw(st.sampled_from(CompressionType)),
            log_append_time=draw(st.booleans()),
        )
        found += list(batches(data))
    return found


@examples(60)
@given(logs(), st.sampled_from([1, 3, 4096]))
def test_columns_are_the_records(found: list[RecordBatch], rows_max: int) -> None:
    check_columns(found, rows_max)


def test_wherever_a_record_is_cut_or_changed() -> None:
    records = [Record(i, i, b"k" * i, b"v", (("é", b""), ("", None))) for i in range(4)]
    (good,) = batches(encode_batch(records))
    for at in range(len(good.payload)):
        for payload in (good.payload[:at], good.payload[:at] + b"\xff" + good.payload[at + 1 :]):
            batch = RecordBatch(good.head, payload)
            check_columns([good, batch, good])


def test_what_the_head_says_of_its_records_counts() -> None:
    (good,) = batches(encode_batch([Record(i, i, b"k", b"v") for i in range(4)]))
    for change in (
        {"record_count": 3},
        {"record_count": 5},
        {"record_count": 0},
        {"last_offset_delta": 2},
        {"base_timestamp_ms": (1 << 63) - 2},
    ):
        batch = RecordBatch(good.head._replace(**change), good.payload)
        check_columns([batch])


def test_memory_is_bounded_by_a_group_and_a_batch() -> None:
    zeros, zstd = bytes(1 << 20), CompressionType.ZSTD
    data = b"".join(
        encode_batch([Record(i, i, None, zeros)], base_offset=i, compression=zstd) for i in range(40)
    )
    assert len(data) < 1 << 20
    before = pa.total_allocated_bytes()
    rows = 0
    for table in record_columns(batches(data), decoded, bytes_max=4 << 20):
        rows += table.num_rows
        assert pa.total_allocated_bytes() - before < 20 << 20
    assert rows == 40


def test_a_batch_with_an_error_is_decoded_alone() -> None:
    rng = random.Random(5)
    good = list(batches(b"".join(encode_batch([Record(i, i, b"k", rng.randbytes(9))]) for i in range(9))))
    bad = RecordBatch(good[4].head, good[4].payload[:-1])
    asked: list[RecordBatch] = []

    def decode(batch: RecordBatch) -> Iterator[Record]:
        asked.append(batch)
        return decoded(batch)

    list(record_columns([*good[:4], bad, *good[5:]], decode))
    assert asked == [bad]
    with pytest.raises(CorruptInputError, match="batch at offset 4") as e:
        list(bad.records())
    assert (e.value.at or 0) >= HEAD_SIZE


def test_a_wrong_offset_at_any_place_among_many_batches() -> None:
    """A jump is detected at the next batch, also at the end of a chunk of the columnar scan."""
    data = one_record_log(80)
    for head in list(scan(data)):
        broken = bytearray(data)
        broken[head.position + 5] ^= 1
        check_heads(bytes(broken), expected_offset=0)


def test_captured_segments(capture: Capture) -> None:
    for path in captured(capture, "*.log"):
        data = path.read_bytes()
        check_heads(data)
        check_values(data)
        assert sum(head.size_bytes for head in scan(data)) == len(data)


@pytest.mark.parametrize(("start", "end"), [(0, END), (0, 0), (13, 14), (5, 11), (9, 22), (500, END)])
def test_values_of_every_kind_of_batch(start: int, end: int) -> None:
    check_values(mixed_log(), start, end)


def _chunk(data: bytes, start: int = 0, end: int = END) -> RecordChunk:
    return chunk_of(Window(data, 0, scan_heads(data), 0), 0, start, end, "log")


def test_next_offset_is_where_to_read_on() -> None:
    data = one_record_log(10)
    cases = {(0, END): 10, (0, 4): 4, (4, 4): 4, (12, END): 12, (3, 100): 10}
    for (start, end), expected in cases.items():
        assert _chunk(data, start, end).next_offset == expected
    assert _chunk(b"", 7).next_offset == 7


def _damaged(chunk: RecordChunk) -> list[tuple[int, int]]:
    return [(each.offset, each.next_offset) for each in chunk.damage]


def test_an_undecodable_batch_is_a_damaged_range_between_good_ones() -> None:
    log = one_record_log(9)
    heads = list(scan(log))
    victim = heads[4]
    payload = bytearray(batch_at(log, victim).payload)
    payload[0] ^= 2
    broken = log[: victim.position] + seal(victim, bytes(payload)) + log[victim.end :]
    got = _chunk(broken)
    assert got.offsets.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert _damaged(got) == [(4, 5)]
    assert _chunk(broken, 5).damage == ()


def test_bad_ranges_elsewhere_are_not_reported() -> None:
    data = bytearray(one_record_log(9))
    third = list(scan(bytes(data)))[3]
    data[third.position + 30] ^= 1
    assert len(_chunk(bytes(data)).damage) == 1
    assert _chunk(bytes(data), 0, 3).damage == ()
    assert _chunk(bytes(data), 4).damage == ()
    assert len(_chunk(bytes(data), 3, 4).damage) == 1


def test_a_batch_that_becomes_too_large_is_a_damaged_range() -> None:
    data = encode_batch([record(0, bytes(17 << 20))], compression=CompressionType.GZIP)
    got = _chunk(data + one_record_log(2, base=1))
    assert got.offsets.tolist() == [1, 2]
    assert _damaged(got) == [(0, 1)]
    assert "at most 16777216 bytes of records" in str(got.damage[0].error)


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


@pytest.mark.parametrize("seed", rest_in_matrix(range(9)))
def test_changed_bytes(every_way: str, seed: int) -> None:
    chance = random.Random(seed)
    many = 10_000 if every_way == "compiled kernel" else 2_000
    for _ in range(many if TRIES_ALL else 150):
        data = mutated(chance)
        check_heads(data, expected_offset=0)
        check_values(data, *chance.choice(((0, END), (4, 9))))
        check_columns([batch_at(data, piece) for piece in walk(data) if isinstance(piece, BatchHead)])


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
    "a large value": (lambda: encode_batch([record(0, bytes(2_600_000))]), 1),
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
