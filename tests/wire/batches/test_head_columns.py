"""Batch headers and values decoded by columns equal those decoded one by one, also on damaged logs."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.amounts import examples
from tests.wire.batches.samples import Capture, captured, marker, mixed_log, one_record_log, record
from tierctl.errors import CorruptInputError
from tierctl.wire.batches.batch_head import BatchHead, CompressionType, Record
from tierctl.wire.batches.batch_heads import BadRange, TornTail, scan, scan_heads, walk
from tierctl.wire.batches.record_batch import ControlType, batch_at, encode_batch, seal
from tierctl.wire.batches.segment_file import read_values

END = (1 << 63) - 1


def _assert_same_heads(data: bytes, **arguments: int) -> None:
    pieces = list(walk(data, **arguments))
    columns = scan_heads(data, **arguments)
    heads = [piece for piece in pieces if isinstance(piece, BatchHead)]
    assert [columns.head(row) for row in range(len(columns))] == heads
    found = [(b.position, b.end, b.first_offset, b.next_offset, str(b.error)) for b in columns.bad]
    bad = [piece for piece in pieces if isinstance(piece, BadRange)]
    assert found == [(b.position, b.end, b.first_offset, b.next_offset, str(b.error)) for b in bad]
    assert columns.torn == (pieces[-1] if pieces and isinstance(pieces[-1], TornTail) else None)
    assert columns.next_offsets.tolist() == [head.next_offset for head in heads]
    assert columns.sizes_bytes.tolist() == [head.size_bytes for head in heads]
    assert columns.fields["max_timestamp_ms"].tolist() == [head.max_timestamp_ms for head in heads]


def test_heads_of_captured_segments(capture: Capture) -> None:
    for path in captured(capture, "*.log"):
        _assert_same_heads(path.read_bytes())


def test_heads_of_every_truncation() -> None:
    data = mixed_log()
    for cut in range(0, len(data), 7):
        _assert_same_heads(data[:cut])


@examples(150)
@given(
    flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 7)), max_size=4),
    base=st.sampled_from([0, 7]),
)
def test_heads_of_damaged_logs(flips: list[tuple[float, int]], base: int) -> None:
    data = bytearray(one_record_log(60, base=base))
    for where, bit in flips:
        data[int(where * len(data))] ^= 1 << bit
    _assert_same_heads(bytes(data))
    _assert_same_heads(bytes(data), expected_offset=base)


def test_a_wrong_offset_at_any_place_among_many_batches() -> None:
    """A jump is detected at the next batch, also at the end of a chunk of the columnar scan."""
    data = one_record_log(80)
    for head in list(scan(data)):
        broken = bytearray(data)
        broken[head.position + 5] ^= 1
        _assert_same_heads(bytes(broken), expected_offset=0)


def _one_by_one(data: bytes, start: int, end: int) -> Iterator[Record]:
    for piece in walk(data):
        if isinstance(piece, BatchHead) and not piece.is_control:
            try:
                records = list(batch_at(data, piece).records())
            except CorruptInputError:
                continue
            yield from (r for r in records if start <= r.offset < end)


def _assert_same_values(data: bytes, start: int = 0, end: int = END) -> None:
    got = read_values(data, start, end)
    got.values.validate(full=True)
    want = list(_one_by_one(data, start, end))
    assert got.offsets.tolist() == [r.offset for r in want]
    assert got.values.to_pylist() == [r.value for r in want]
    assert got.timestamps_ms.tolist() == [r.timestamp_ms for r in want]


def test_values_of_captured_segments(capture: Capture) -> None:
    for path in captured(capture, "*.log"):
        _assert_same_values(path.read_bytes())


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
    _assert_same_values(_shapes(), start, end)
    _assert_same_values(mixed_log(), start, end)


@examples(80)
@given(flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 7)), max_size=4))
def test_values_of_damaged_logs(flips: list[tuple[float, int]]) -> None:
    data = bytearray(_shapes())
    for where, bit in flips:
        data[int(where * len(data))] ^= 1 << bit
    _assert_same_values(bytes(data))


def test_next_offset_is_where_to_read_on() -> None:
    data = one_record_log(10)
    cases = {(0, END): 10, (0, 4): 4, (4, 4): 4, (12, END): 12, (3, 100): 10}
    for (start, end), expected in cases.items():
        assert read_values(data, start, end).next_offset == expected
    assert read_values(b"", 7, END).next_offset == 7


def test_an_undecodable_batch_is_a_bad_range_between_good_ones() -> None:
    log = one_record_log(9)
    heads = list(scan(log))
    victim = heads[4]
    payload = bytearray(batch_at(log, victim).payload)
    payload[0] ^= 2
    broken = log[: victim.position] + seal(victim, bytes(payload)) + log[victim.end :]
    got = read_values(broken, 0, END)
    assert got.offsets.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    (bad,) = got.bad
    assert (bad.first_offset, bad.next_offset, bad.position) == (4, 5, victim.position)
    assert read_values(broken, 5, END).bad == ()


def test_a_byte_after_the_value_is_looked_at_in_every_batch() -> None:
    parts = []
    for offset in range(8):
        data = encode_batch([record(offset)])
        (head,) = scan(data)
        parts.append(seal(head, data[61:-1] + b"\x02") if offset == 5 else data)
    got = read_values(b"".join(parts), 0, END)
    assert got.offsets.tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert [(b.first_offset, b.next_offset) for b in got.bad] == [(5, 6)]


def test_bad_ranges_elsewhere_are_not_reported() -> None:
    data = bytearray(one_record_log(9))
    third = list(scan(bytes(data)))[3]
    data[third.position + 30] ^= 1
    assert len(read_values(bytes(data), 0, END).bad) == 1
    assert read_values(bytes(data), 0, 3).bad == ()
    assert read_values(bytes(data), 4, END).bad == ()
    assert len(read_values(bytes(data), 3, 4).bad) == 1


def test_a_batch_that_becomes_too_large_is_a_bad_range() -> None:
    data = encode_batch([record(0, bytes(1 << 20))], compression=CompressionType.GZIP) + one_record_log(
        2, base=1
    )
    got = read_values(data, 0, END, max_bytes=1000)
    assert got.offsets.tolist() == [1, 2]
    assert [(b.first_offset, b.next_offset) for b in got.bad] == [(0, 1)]
