"""Codecs: data from brokers and other libraries, and cut or damaged data."""

import gzip
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.amounts import examples
from tests.wire.batches.samples import Capture, captured
from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.wire.batches.batch_head import CompressionType, compress, decompress
from tierctl.wire.batches.record_batch import batches

DATA = bytes(range(256)) * 900 + b"tail"
COMPRESSED = [kind for kind in CompressionType if kind is not CompressionType.NONE]
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def test_brokers_compressed_batches_decode(capture: Capture) -> None:
    seen = set()
    for path in captured(capture, "*.log"):
        for batch in batches(path.read_bytes()):
            if batch.head.compression is not CompressionType.NONE:
                assert len(list(batch.records())) == batch.head.record_count
                seen.add(batch.head.compression)
    assert seen >= {CompressionType.LZ4, CompressionType.ZSTD}


@examples(40)
@given(
    data=st.binary(max_size=2000), repeat=st.sampled_from([0, 1, 50]), kind=st.sampled_from(CompressionType)
)
def test_round_trip(data: bytes, repeat: int, kind: CompressionType) -> None:
    assert decompress(kind, compress(kind, data * repeat)) == data * repeat


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


def test_lz4_frames_are_of_the_kind_kafka_reads() -> None:
    """Kafka reads version 1 with independent blocks and no checksums, and so does any lz4 library."""
    stored = compress(CompressionType.LZ4, DATA)
    assert stored[:4] == struct.pack("<I", 0x184D2204)
    assert stored[4] == 0b0110_0000
    with pa.CompressedInputStream(pa.BufferReader(stored), "lz4") as stream:
        assert stream.read() == DATA


def test_snappy_is_framed_as_kafkas_clients_do() -> None:
    stored = compress(CompressionType.SNAPPY, DATA)
    assert stored.startswith(XERIAL)
    (size,) = struct.unpack_from(">i", stored, 16)
    assert pa.Codec("snappy").decompress(stored[20 : 20 + size], 32 << 10, asbytes=True) == DATA[: 32 << 10]


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
