"""Batches of a segment in ranges: which records damage makes unreadable, and how many bytes are read."""

from dataclasses import dataclass, field

import pytest
from tierctl.read import segment
from tierctl.read.segment import BatchStream, Damage
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
    pieces = list(BatchStream(source, **kwargs))
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


@pytest.mark.parametrize("chunk_bytes", [1, 61, 100, 4096])
def test_any_range_size_reads_the_same(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(segment, "CHUNK_BYTES", chunk_bytes)
    assert read(DATA) == (WHOLE, [])


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
def test_a_flipped_bit_costs_its_batch_and_no_other(
    monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(segment, "CHUNK_BYTES", chunk_bytes)
    for bit in range(8 * len(DATA)):
        check_flipped(bit)


def check_flipped(bit: int) -> None:
    at = bit // 8
    flipped = bytearray(DATA)
    flipped[at] ^= 1 << bit % 8
    hit = max(number for number, start in enumerate(STARTS) if start <= at)
    batches, damage = read(bytes(flipped))
    if 12 <= at - STARTS[hit] < 16:
        # The CRC does not cover the leader epoch; the reader compares it with the lineage.
        assert [b.head._replace(partition_leader_epoch=3) for b in batches] == [b.head for b in WHOLE]
        return
    assert [b for b in batches if b.head.base_offset != BASE + 2 * hit] == WHOLE[:hit] + WHOLE[hit + 1 :], bit
    assert [(d.position, d.first_offset) for d in damage] == [(STARTS[hit], BASE + 2 * hit)]
    assert STARTS[hit] <= (damage[0].error.at or 0) < [*STARTS[1:], len(DATA)][hit]
    assert len(batches) == len(WHOLE) - 1


def test_garbage_between_batches_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "CHUNK_BYTES", 64)
    monkeypatch.setattr(segment, "SEARCH_BYTES_MAX", 512)
    garbage = bytes(range(256)) * 40
    data = DATA[: STARTS[2]] + garbage + DATA[STARTS[3] :]
    source = InMemory(data, size_bytes=len(data), end_offset=LAST)
    pieces = list(BatchStream(source))
    damage = [p for p in pieces if isinstance(p, Damage)]
    assert [p.payload for p in pieces if isinstance(p, RecordBatch)] == [
        b.payload for b in WHOLE[:2] + WHOLE[3:]
    ]
    assert (damage[0].position, damage[0].end) == (STARTS[2], STARTS[2] + len(garbage))
    assert (damage[0].first_offset, damage[0].next_offset) == (BASE + 4, BASE + 6)


def test_a_length_that_is_damage_does_not_read_the_segment_into_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment, "CHUNK_BYTES", 256)
    monkeypatch.setattr(segment, "SEARCH_BYTES_MAX", 2048)
    data, starts = a_segment(batches=2000)
    wrong = bytearray(data)
    wrong[starts[1] + 8 : starts[1] + 12] = (len(data) // 2).to_bytes(4, "big")
    source = InMemory(bytes(wrong), size_bytes=len(data), end_offset=BASE + 3999)
    pieces = list(BatchStream(source))
    assert sum(isinstance(p, RecordBatch) for p in pieces) == 1999
    assert [p.position for p in pieces if isinstance(p, Damage)] == [starts[1]]
    assert max(length for _, length in source.reads) <= 4096


def test_memory_is_bounded_by_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "CHUNK_BYTES", 1024)
    data, _ = a_segment(batches=3000)
    source = InMemory(data, size_bytes=len(data), end_offset=BASE + 5999)
    reading = BatchStream(source)
    largest = max(len(reading._data) for _ in reading)
    assert largest < 3 * 1024
    assert sum(length for _, length in source.reads) == len(data)


def test_an_active_segment_may_end_in_a_torn_batch() -> None:
    data = DATA[:-10]
    source = InMemory(data, size_bytes=len(data), end_offset=None)
    assert list(BatchStream(source)) == WHOLE[:-1]


def test_batches_beyond_the_segments_end_are_damage() -> None:
    source = InMemory(DATA, size_bytes=len(DATA), end_offset=LAST - 2)
    *good, bad = BatchStream(source)
    assert good == WHOLE[:-1]
    assert isinstance(bad, Damage)
    assert bad.error.expected == f"offsets up to {LAST - 2}"
