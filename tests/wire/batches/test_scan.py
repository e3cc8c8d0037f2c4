"""Batch headers and values decoded by columns equal those decoded one by one, also on damaged logs."""

import pytest
from tests.wire.batches.same import END, check_heads, check_values, scan
from tests.wire.batches.samples import Capture, captured, marker, mixed_log, one_record_log, record
from tierctl.wire.batches.batch_head import CompressionType
from tierctl.wire.batches.record_batch import ControlType, batch_at, encode_batch, seal
from tierctl.wire.batches.scan import scan_heads
from tierctl.wire.batches.segment_file import RecordChunk, Window, chunk_of

pytestmark = pytest.mark.usefixtures("every_way")


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


def _shapes() -> bytes:
    """Return values of equal length with different structure: keys, headers, nulls, deltas, times, kinds."""
    parts = []
    for offset in range(0, 120, 12):
        parts += [
            encode_batch([record(offset, b"12345678")]),
            encode_batch([record(offset + 1, b"1234", b"abcd")]),
            encode_batch([record(offset + 2, b"12", b"abcdef")]),
            encode_batch([record(offset + 3, None, b"abcdefgh")]),
            encode_batch([record(offset + 4, b"123", headers=(("a", b"b"),))]),
            encode_batch([record(offset + 5, b"12345678")], delete_horizon_ms=1_700_000_000_000),
            encode_batch([record(offset + 6, b"12345678")], log_append_time=True, max_timestamp_ms=5),
            encode_batch([record(offset + 7, b"")]),
            marker(offset + 8, ControlType.COMMIT, 3),
            encode_batch([record(offset + 9), record(offset + 10)], compression=CompressionType.LZ4),
            encode_batch([record(offset + 11, b"12345678")]),
        ]
    return b"".join(parts)


@pytest.mark.parametrize(("start", "end"), [(0, END), (0, 0), (13, 14), (10, 118), (9, 22), (500, END)])
def test_values_of_every_shape(start: int, end: int) -> None:
    check_values(_shapes(), start, end)
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


def test_a_byte_after_the_value_is_looked_at_in_every_batch() -> None:
    parts = []
    for offset in range(8):
        data = encode_batch([record(offset)])
        (head,) = scan(data)
        parts.append(seal(head, data[61:-1] + b"\x02") if offset == 5 else data)
    got = _chunk(b"".join(parts))
    assert got.offsets.tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert _damaged(got) == [(5, 6)]


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
