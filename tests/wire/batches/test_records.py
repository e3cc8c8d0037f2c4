"""Records decoded by columns, and one by one, equal those of a plain decoder, for any bytes."""

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.amounts import examples
from tests.wire.batches.same import check_columns, decoded
from tierctl.errors import CorruptInputError
from tierctl.wire.batches.batch_head import HEAD_SIZE, CompressionType, Record
from tierctl.wire.batches.record_batch import RecordBatch, batches, encode_batch
from tierctl.wire.batches.records import record_columns

pytestmark = pytest.mark.usefixtures("every_way")

BLOB = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BLOB), max_size=3) | st.just([("h", b"v")] * 70)
RECORD = st.tuples(st.integers(-5, 10**6), st.integers(1, 300), BLOB, BLOB, HEADERS)


@st.composite
def logs(draw: st.DrawFn) -> list[RecordBatch]:
    """Return batches of every kind, as brokers have them."""
    found, offset = [], draw(st.integers(0, 1 << 40))
    for specs in draw(st.lists(st.lists(RECORD, min_size=1, max_size=6), max_size=6)):
        records = []
        for delta, step, key, value, headers in specs:
            records.append(Record(offset, 1_700_000_000_000 + delta, key, value, tuple(headers)))
            offset += step
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


def test_a_timestamp_beyond_64_bits_wraps_like_in_the_jvm() -> None:
    (good,) = batches(encode_batch([Record(i, i, b"k", b"v") for i in range(4)]))
    late = RecordBatch(good.head._replace(base_timestamp_ms=(1 << 63) - 2), good.payload)
    (columns,) = record_columns([late], decoded)
    assert columns.column("timestamp_ms").to_pylist()[2:] == [-(1 << 63), -(1 << 63) + 1]


@pytest.mark.parametrize("kind", [CompressionType.ZSTD, CompressionType.GZIP])
def test_memory_is_bounded_by_a_group_and_a_batch(kind: CompressionType) -> None:
    zeros = bytes(1 << 20)
    data = b"".join(
        encode_batch([Record(i, i, None, zeros)], base_offset=i, compression=kind) for i in range(40)
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
