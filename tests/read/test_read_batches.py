"""Batches of a segment in ranges: which records damage makes unreadable, and how many bytes are read."""

from dataclasses import dataclass, field

import pytest
from tierctl.read.segment import Damage, read_batches
from tierctl.wire.batches import segment_file
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import RecordBatch, encode_batch

BASE = 100


@dataclass
class InMemory:
    """A segment in memory that records its reads."""

    data: bytes
    size_bytes: int
    start_offset: int = BASE
    end_offset: int | None = None
    name: str = "segment x"
    reads: list[tuple[int, int]] = field(default_factory=list)

    def read(self, position: int, length: int) -> bytes:
        self.reads.append((position, length))
        return self.data[position : position + length]


def a_segment(batches: int = 6, value_bytes: int = 20) -> tuple[bytes, list[int]]:
    """Return a segment of two records per batch from offset BASE on, and the positions of its batches."""
    data, starts = b"", []
    for number in range(batches):
        first = BASE + 2 * number
        records = [Record(first + i, 1_000 + first + i, b"k%d" % i, bytes(value_bytes)) for i in range(2)]
        starts.append(len(data))
        data += encode_batch(records, partition_leader_epoch=3)
    return data, starts


DATA, STARTS = a_segment()
LAST = BASE + 2 * len(STARTS) - 1


def read(data: bytes, **kwargs: int) -> tuple[list[RecordBatch], list[Damage]]:
    source = InMemory(data, size_bytes=len(DATA), end_offset=LAST)
    pieces = list(read_batches(source, **kwargs))
    return (
        [piece for piece in pieces if isinstance(piece, RecordBatch)],
        [piece for piece in pieces if isinstance(piece, Damage)],
    )


WHOLE, NO_DAMAGE = read(DATA)
OFFSETS = [record.offset for batch in WHOLE for record in batch.records()]


def test_a_healthy_segment_has_its_batches_and_no_damage() -> None:
    assert NO_DAMAGE == []
    assert [batch.head.position for batch in WHOLE] == STARTS
    assert list(range(BASE, LAST + 1)) == OFFSETS


@pytest.mark.parametrize("number", range(len(STARTS)))
def test_reading_begins_at_any_batch(number: int) -> None:
    batches, damage = read(DATA, position=STARTS[number])
    assert batches == WHOLE[number:]
    assert damage == []


def test_a_cut_segment_is_its_whole_batches_and_one_damage() -> None:
    for cut in range(len(DATA)):
        batches, [damage] = read(DATA[:cut])
        whole = sum(end <= cut for end in [*STARTS[1:], len(DATA)])
        assert batches == WHOLE[:whole]
        assert (damage.position, damage.end) == ([*STARTS, len(DATA)][whole], len(DATA))
        assert (damage.first_offset, damage.next_offset) == (BASE + 2 * whole, None)
        assert "segment x" in damage.error.message


@pytest.mark.parametrize("chunk_bytes", [64, 1 << 20])
def test_a_flipped_bit_costs_its_batch_and_no_other(chunk_bytes: int) -> None:
    for bit in range(8 * len(DATA)):
        check_flipped(bit, chunk_bytes)


def check_flipped(bit: int, chunk_bytes: int) -> None:
    at = bit // 8
    flipped = bytearray(DATA)
    flipped[at] ^= 1 << bit % 8
    hit = max(number for number, start in enumerate(STARTS) if start <= at)
    batches, damage = read(bytes(flipped), chunk_bytes=chunk_bytes)
    if 12 <= at - STARTS[hit] < 16:
        # The CRC does not cover the leader epoch; the reader compares it with the lineage.
        assert [b.head._replace(partition_leader_epoch=3) for b in batches] == [b.head for b in WHOLE]
        return
    assert [b for b in batches if b.head.base_offset != BASE + 2 * hit] == WHOLE[:hit] + WHOLE[hit + 1 :], bit
    assert [(d.position, d.first_offset) for d in damage] == [(STARTS[hit], BASE + 2 * hit)]
    assert STARTS[hit] <= (damage[0].error.at or 0) < [*STARTS[1:], len(DATA)][hit]
    assert len(batches) == len(WHOLE) - 1


@pytest.fixture(params=[0, 1, 7])
def few_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let damage be large from 2 KiB on; return a window size."""
    monkeypatch.setattr(segment_file, "BATCH_BYTES_MAX", 1024)
    monkeypatch.setattr(segment_file, "WINDOW_BYTES_MAX", 2048)
    monkeypatch.setattr(segment_file, "ZEROS_BYTES", 2048)
    return 250 + int(request.param)


@pytest.mark.parametrize("byte", [b"\0", b"\x02", b"\xff", bytes(range(256))])
@pytest.mark.parametrize("repeats", [1, 3000, 9000])
def test_garbage_between_batches_is_passed_over(few_bytes: int, byte: bytes, repeats: int) -> None:
    garbage = (byte * repeats)[: 3 * repeats]
    data = DATA[: STARTS[2]] + garbage + DATA[STARTS[3] :]
    source = InMemory(data, size_bytes=len(data), end_offset=LAST)
    pieces = list(read_batches(source, chunk_bytes=few_bytes))
    [damage] = [p for p in pieces if isinstance(p, Damage)]
    assert [p.payload for p in pieces if isinstance(p, RecordBatch)] == [
        b.payload for b in WHOLE[:2] + WHOLE[3:]
    ]
    assert (damage.position, damage.end) == (STARTS[2], STARTS[2] + len(garbage))
    assert (damage.first_offset, damage.next_offset) == (BASE + 4, BASE + 6)
    assert max(length for _, length in source.reads) <= 2048


def test_a_length_that_is_damage_does_not_read_the_segment_into_memory(few_bytes: int) -> None:
    data, starts = a_segment(batches=200)
    for length in (3000, len(data) // 2, len(data), (1 << 31) - 1):
        wrong = bytearray(data)
        wrong[starts[1] + 8 : starts[1] + 12] = length.to_bytes(4, "big")
        source = InMemory(bytes(wrong), size_bytes=len(data), end_offset=BASE + 399)
        pieces = list(read_batches(source, chunk_bytes=few_bytes))
        assert sum(isinstance(p, RecordBatch) for p in pieces) == 199
        assert [p.position for p in pieces if isinstance(p, Damage)] == [starts[1]]
        assert max(length for _, length in source.reads) <= 2048


AFTER = {"nothing": b"", "zeros": bytes(5000), "garbage": b"\x02" * 70, "a torn batch": DATA[:10]}


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
def test_a_good_batch_of_any_size_is_read(few_bytes: int, after: bytes) -> None:
    """Only its CRC tells that its length is right, whatever follows it."""
    large = encode_batch([Record(LAST + 1, 1, None, bytes(5000))])
    data = DATA + large + after
    source = InMemory(data, size_bytes=len(data), end_offset=LAST + 1)
    pieces = list(read_batches(source, chunk_bytes=few_bytes))
    assert [piece for piece in pieces if isinstance(piece, RecordBatch)][:-1] == WHOLE
    assert pieces[len(WHOLE)].payload == large[61:]
    assert len(pieces) == len(WHOLE) + 1 + bool(after)


@pytest.mark.parametrize("value_bytes", [8_000, 300_000, 600_000])
def test_bytes_are_requested_about_once(value_bytes: int) -> None:
    data, _ = a_segment(batches=10_000_000 // value_bytes, value_bytes=value_bytes // 2)
    source = InMemory(data, size_bytes=len(data))
    assert not any(isinstance(piece, Damage) for piece in read_batches(source))
    assert sum(length for _, length in source.reads) < 1.07 * len(data)
    assert len(source.reads) <= len(data) / (1 << 20) * 1.1 + 2


def test_memory_is_bounded_by_the_window() -> None:
    data, _ = a_segment(batches=300)
    source = InMemory(data, size_bytes=len(data), end_offset=BASE + 599)
    assert len(list(read_batches(source, chunk_bytes=1024))) == 300
    assert max(length for _, length in source.reads) == 1024


@pytest.mark.parametrize("value_bytes", [1, 5000])
def test_an_active_segment_may_end_in_a_torn_batch(few_bytes: int, value_bytes: int) -> None:
    torn = encode_batch([Record(LAST + 1, 1, None, bytes(value_bytes))])
    data = DATA + torn[:-10]
    source = InMemory(data, size_bytes=len(data), end_offset=None)
    assert list(read_batches(source, chunk_bytes=few_bytes)) == WHOLE
    source.end_offset = LAST + 1
    *good, bad = read_batches(source, chunk_bytes=few_bytes)
    assert good == WHOLE
    assert isinstance(bad, Damage)
    assert (bad.position, bad.first_offset, bad.next_offset) == (len(DATA), LAST + 1, None)


def test_batches_beyond_the_segments_end_are_damage() -> None:
    source = InMemory(DATA, size_bytes=len(DATA), end_offset=LAST - 2)
    *good, bad = read_batches(source)
    assert good == WHOLE[:-1]
    assert isinstance(bad, Damage)
    assert bad.error.expected == f"the end of the log, at offset {LAST - 2}"
