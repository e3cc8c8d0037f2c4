"""Offset, time and transaction indexes and producer snapshots."""

import struct
from collections.abc import Callable
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.wire.batches.same import scan
from tests.wire.batches.samples import Capture, captured
from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.model import IndexType
from tierctl.wire.files.checkpoints import ProducerEntry, decode_producer_snapshot, encode_producer_snapshot
from tierctl.wire.files.indexes import (
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
    TransactionIndex,
    build_indexes,
    trimmed,
)


def _base(name: str) -> int:
    return int(name[:20])


def test_captured_indexes_are_written_byte_for_byte(capture: Capture) -> None:
    for path in captured(capture, "*.index"):
        index = OffsetIndex.decode(path.read_bytes(), _base(path.name))
        assert OffsetIndex.encode(index.base_offset, index).data == path.read_bytes()
    for path in captured(capture, "*.timeindex"):
        times = TimeIndex.decode(path.read_bytes(), _base(path.name))
        assert TimeIndex.encode(times.base_offset, times).data == path.read_bytes()
    for path in captured(capture, "*.txnindex"):
        assert TransactionIndex.decode(path.read_bytes(), _base(path.name)).encode() == path.read_bytes()


def test_captured_producer_snapshots_are_written_byte_for_byte(capture: Capture) -> None:
    producers = 0
    for path in captured(capture, "*.snapshot"):
        entries = decode_producer_snapshot(path.read_bytes())
        assert encode_producer_snapshot(entries) == path.read_bytes()
        producers += len(entries)
    assert producers > 10


def test_offset_index_entries_point_at_batches(capture: Capture) -> None:
    for path in captured(capture, "*.index"):
        heads = {head.position: head for head in scan(path.with_suffix(".log").read_bytes())}
        for entry in OffsetIndex.decode(path.read_bytes(), _base(path.name)):
            assert heads[entry.position].base_offset <= entry.offset


def test_rebuilt_indexes_are_those_of_the_broker(capture: Capture) -> None:
    """They differ if the broker had restarted in the middle of a segment, which starts a new interval."""
    same = other = 0
    for path in captured(capture, "*.timeindex"):
        base = _base(path.name)
        offsets, times = build_indexes(scan(path.with_suffix(".log").read_bytes()), base)
        captured_times = TimeIndex.decode(path.read_bytes(), base)
        assert times.last == captured_times.last
        if offsets.data == path.with_suffix(".index").read_bytes() and times.data == captured_times.data:
            same += 1
        else:
            other += 1
    assert same > 4 * other


@given(st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(1, 1 << 20)), max_size=30))
@example([(256, 256)])
def test_a_lookup_is_the_floor_entry_or_the_start(steps: list[tuple[int, int]]) -> None:
    """As in OffsetIndexTest and TimeIndexTest; trimmed zeros, which are allocated ahead, are no entries."""
    sums = [*accumulate(steps, lambda last, step: (last[0] + step[0], last[1] + step[1]))]
    offsets = [OffsetPosition(1000 + at, position) for at, position in sums]
    times = [TimestampOffset(time_ms, 1000 + at) for at, time_ms in sums]
    allocated = OffsetIndex.encode(1000, offsets).data + bytes(80)
    index = OffsetIndex.decode(trimmed(allocated, IndexType.OFFSET), 1000)
    allocated = TimeIndex.encode(1000, times).data + bytes(120)
    time_index = TimeIndex.decode(trimmed(allocated, IndexType.TIMESTAMP), 1000)
    assert (list(index), list(time_index)) == (offsets, times)
    start, no_time = OffsetPosition(1000, 0), TimestampOffset(-1, 1000)
    for asked in (near + step for near, _ in [(1000, 0), *offsets] for step in (-1, 0, 1)):
        assert index.lookup(asked) == max((e for e in offsets if e.offset <= asked), default=start)
    for asked in (near + step for near, _ in [(0, 0), *times] for step in (-1, 0, 1)):
        assert time_index.lookup(asked) == max((e for e in times if e.timestamp_ms <= asked), default=no_time)
    assert time_index.last == (times[-1] if times else no_time)


Decode = Callable[[bytes], object]
DECODERS: list[tuple[str, Decode]] = [
    ("*.index", lambda data: OffsetIndex.decode(data, 0)),
    ("*.timeindex", lambda data: TimeIndex.decode(data, 0)),
    ("*.txnindex", lambda data: TransactionIndex.decode(data, 0)),
    ("*.snapshot", decode_producer_snapshot),
]


@pytest.mark.parametrize(("pattern", "decode"), DECODERS)
def test_every_truncation_of_captured_files(capture: Capture, pattern: str, decode: Decode) -> None:
    """A whole number of entries is a valid prefix if the format has no count; other cuts are errors.

    The shortest and the longest files are cut: what a cut leaves does not depend on the values of the rest.
    """
    size = {"*.index": 8, "*.timeindex": 12, "*.txnindex": 34}.get(pattern)
    found = sorted({path.read_bytes() for path in captured(capture, pattern)}, key=len)
    for data in (*found[:3], *found[-3:]):
        for cut in range(len(data)):
            if size and cut % size == 0:
                decode(data[:cut])
                continue
            with pytest.raises(CorruptInputError):
                decode(data[:cut])


@pytest.mark.parametrize(("pattern", "decode"), DECODERS)
def test_every_flip_in_captured_files(capture: Capture, pattern: str, decode: Decode) -> None:
    """A snapshot's checksum detects each flip; in an index a flip is an error or changes a number."""
    data = max((path.read_bytes() for path in captured(capture, pattern)), key=len)[:408]
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << (position % 8)
        if pattern == "*.snapshot":
            with pytest.raises(CorruptInputError):
                decode(bytes(broken))
            continue
        try:
            decode(bytes(broken))
        except CorruptInputError as error:
            assert error.at is not None  # noqa: PT017 - any other exception fails the test


@pytest.mark.parametrize(
    ("decode", "data", "at"),
    [
        (DECODERS[0][1], struct.pack(">iiii", 5, 100, 5, 200), 8),
        (DECODERS[0][1], struct.pack(">iiii", 5, 100, 6, 100), 8),
        (DECODERS[0][1], struct.pack(">ii", -5, 100), 0),
        (DECODERS[0][1], struct.pack(">ii", 5, 100) + bytes(16), 8),
        (DECODERS[0][1], bytes(7), 0),
        (DECODERS[1][1], struct.pack(">qiqi", 9, 1, 9, 2), 12),
        (DECODERS[1][1], struct.pack(">qiqi", 9, 3, 10, 2), 12),
        (DECODERS[1][1], struct.pack(">qi", -9, 3), 0),
        (DECODERS[1][1], struct.pack(">qi", 9, 3) + bytes(12), 12),
        (DECODERS[2][1], struct.pack(">hqqqq", 0, 1, 5, 4, 6), 0),
        (DECODERS[2][1], struct.pack(">hqqqq", 0, 1, 5, 6, 7) * 2, 34),
        (lambda data: TransactionIndex.decode(data, 7), struct.pack(">hqqqq", 0, 1, 5, 6, 7), 0),
        (DECODERS[2][1], bytes(33), 0),
    ],
)
def test_what_can_not_be(decode: Decode, data: bytes, at: int) -> None:
    with pytest.raises(CorruptInputError) as caught:
        decode(data)
    assert caught.value.at == at


def test_later_versions_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedFormatError, match="version 1"):
        TransactionIndex.decode(struct.pack(">hqqqq", 1, 1, 5, 6, 7), 0)
    with pytest.raises(UnsupportedFormatError, match="version 2"):
        decode_producer_snapshot(struct.pack(">hIi", 2, 0, 0))


def test_offsets_that_no_index_can_hold() -> None:
    with pytest.raises(ValueError, match="relative"):
        OffsetIndex.encode(10, [OffsetPosition(9, 1)])
    with pytest.raises(ValueError, match="relative"):
        TimeIndex.encode(10, [TimestampOffset(1, 10 + (1 << 31))])


def test_producer_entries() -> None:
    entries = (
        ProducerEntry(7, 2, 9, 100, 4, 1_700_000_000_000, 3, 96),
        ProducerEntry(8, 0, -1, -1, 0, -1, -1, -1),
    )
    data = encode_producer_snapshot(entries)
    assert len(data) == 10 + 2 * 46
    assert decode_producer_snapshot(data) == entries
    with pytest.raises(CorruptInputError, match="2 producers"):
        decode_producer_snapshot(data + b"\x00")
