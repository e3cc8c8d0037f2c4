"""Batches made in tests, and captured files by kind."""

from collections.abc import Callable, Iterator
from pathlib import Path

from hypothesis import strategies as st
from tierctl.wire.batches.batch_head import CompressionType, Record
from tierctl.wire.batches.record_batch import ControlType, encode_batch, encode_end_transaction_marker

CAPTURES = ("untiered-broker", "tiered-cluster", "unclean-leader")
Capture = Callable[[str], Path]


class Bytes:
    """Bytes with the interface of a file."""

    def __init__(self, data: bytes, size_bytes: int | None = None) -> None:
        self._data = data
        self.size_bytes = len(data) if size_bytes is None else size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        return self._data[position : position + size_bytes]

    def close(self) -> None:
        """Do nothing."""


def captured(capture: Capture, pattern: str) -> Iterator[Path]:
    """Return every captured file that matches the pattern, in a fixed order."""
    for name in CAPTURES:
        yield from sorted(capture(name).rglob(pattern))


def record(offset: int, value: bytes | None = b"value", key: bytes | None = None, **more: object) -> Record:
    return Record(offset, 1_700_000_000_000 + offset, key, value, **more)  # type: ignore[arg-type]


def one_record_log(count: int, base: int = 0, size: int = 40) -> bytes:
    """Return a log with one record per batch, like a metadata partition."""
    return b"".join(
        encode_batch([record(offset, bytes([offset % 256]) * (size + offset % 3))])
        for offset in range(base, base + count)
    )


def marker(offset: int, kind: ControlType, producer_id: int, *, coordinator_epoch: int = 3) -> bytes:
    key, value = encode_end_transaction_marker(kind, coordinator_epoch)
    return encode_batch(
        [Record(offset, 1_700_000_000_000 + offset, key, value)],
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def mixed_log() -> bytes:
    """Return a log with a batch of every kind, from offset 0 to 29."""
    headers = (("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("ключ", b"v"))
    parts = [
        encode_batch([record(0), record(1, None, b"k"), record(2, b"", b"", headers=headers)]),
        encode_batch([record(3), record(5)], base_offset=3, last_offset=6),
        encode_batch([], base_offset=7, last_offset=9, producer_id=9, producer_epoch=1, base_sequence=4),
        encode_batch([record(10)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        marker(11, ControlType.ABORT, 7),
        encode_batch([record(12)], max_timestamp_ms=1_800_000_000_000, log_append_time=True),
        encode_batch([record(13, None, b"tombstone")], delete_horizon_ms=1_700_000_009_000),
    ]
    at = 14
    for kind in CompressionType:
        parts.append(encode_batch([record(at, b"x" * 300), record(at + 1)], compression=kind))
        at += 2
    parts += [encode_batch([record(offset)]) for offset in range(at, 30)]
    return b"".join(parts)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Return records with rising offsets and any content that a producer may send."""
    maybe_bytes = st.none() | st.binary(max_size=80)
    few = st.lists(st.tuples(st.text(max_size=8), maybe_bytes), max_size=3).map(tuple)
    headers = few | st.just((("h", b"v"),) * 70)
    gaps = draw(st.lists(st.integers(1, 300), min_size=1, max_size=6))
    offset = draw(st.integers(0, 1 << 40))
    records = []
    for gap in gaps:
        timestamp_ms = draw(st.integers(0, 1 << 45))
        records.append(Record(offset, timestamp_ms, draw(maybe_bytes), draw(maybe_bytes), draw(headers)))
        offset += gap
    return records
