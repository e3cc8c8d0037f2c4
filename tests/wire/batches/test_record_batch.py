"""Record batches: captured ones byte for byte, generated and damaged ones, cut ones, and emptied records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.amounts import examples
from tests.wire.batches.same import scan
from tests.wire.batches.samples import Capture, captured, mixed_log, one_record_log, record, record_lists
from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.wire.batches.batch_head import HEAD_SIZE, BatchHead, CompressionType, Record
from tierctl.wire.batches.record_batch import (
    ControlRecord,
    ControlType,
    RecordBatch,
    batch_at,
    batch_before,
    batch_emptied,
    batches,
    control_record,
    encode_batch,
    seal,
    write_varint,
)
from tierctl.wire.batches.records import record_columns
from tierctl.wire.batches.scan import BadRange, TornTail, walk


def _encoded_again(head: BatchHead, records: list[Record]) -> bytes:
    return encode_batch(
        records,
        base_offset=head.base_offset,
        last_offset=head.last_offset,
        partition_leader_epoch=head.partition_leader_epoch,
        compression=head.compression,
        producer_id=head.producer_id,
        producer_epoch=head.producer_epoch,
        base_sequence=head.base_sequence,
        transactional=head.is_transactional,
        control=head.is_control,
        max_timestamp_ms=head.max_timestamp_ms,
    )


def test_captured_uncompressed_batches_encode_to_the_same_bytes(capture: Capture) -> None:
    compared = 0
    for path in captured(capture, "*.log"):
        data = path.read_bytes()
        for batch in batches(data):
            head = batch.head
            if head.compression is CompressionType.NONE:
                assert _encoded_again(head, list(batch.records())) == data[head.position : head.end], path
                compared += 1
    assert compared > 1000


@examples(60)
@given(records=record_lists(), kind=st.sampled_from(list(CompressionType)))
def test_what_is_encoded_is_decoded(records: list[Record], kind: CompressionType) -> None:
    data = encode_batch(records, compression=kind, partition_leader_epoch=7)
    (batch,) = batches(data)
    assert list(batch.records()) == records
    head = batch.head
    assert (head.base_offset, head.last_offset) == (records[0].offset, records[-1].offset)
    assert head.max_timestamp_ms == max(r.timestamp_ms for r in records)
    assert (head.compression, head.partition_leader_epoch) == (kind, 7)


def test_a_plain_record_is_what_a_broker_writes() -> None:
    """The bytes were computed by hand from KIP-98, except for the CRC."""
    data = encode_batch([Record(5, 1000, None, b"ab")], partition_leader_epoch=4)
    assert data[:17].hex() == "0000000000000005" + "0000003a" + "00000004" + "02"
    assert data[21:61].hex() == (
        "0000" + "00000000" + "00000000000003e8" * 2 + "ff" * 8 + "ffff" + "ffffffff" + "00000001"
    )
    assert data[61:].hex() == "10" + "00" + "00" + "00" + "01" + "04" + "6162" + "00"


def test_every_kind_of_batch_reads_back() -> None:
    got = {batch.head.base_offset: batch for batch in batches(mixed_log())}
    first = list(got[0].records())
    assert first[1] == record(1, None, b"k")
    assert first[2].headers == (("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("ключ", b"v"))
    assert [r.offset for r in got[3].records()] == [3, 5]
    assert got[3].head.next_offset == 7
    assert list(got[7].records()) == []
    assert (got[7].head.last_offset, got[7].head.base_sequence) == (9, 4)
    assert got[10].head.is_transactional
    assert not got[10].head.is_control
    assert [r.timestamp_ms for r in got[12].records()] == [1_800_000_000_000]
    assert [r.timestamp_ms for r in got[13].records()] == [1_700_000_000_013]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x0c", ControlRecord(ControlType.COMMIT, 12)),
        (b"\x00\x00\x00\x02", b"leader", ControlRecord(ControlType.LEADER_CHANGE, None)),
        (b"\x00\x05\x00\x63", None, ControlRecord(ControlType.UNKNOWN, None)),
        (b"\x00\x00\x00", b"", None),
        (None, None, None),
        (b"\xff\xff\x00\x00", b"\x00" * 6, None),
        (b"\x00\x00\x00\x00", b"\x00" * 5, None),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x00", None),
    ],
)
def test_control_records(key: bytes | None, value: bytes | None, expected: ControlRecord | None) -> None:
    given_record = Record(3, 0, key, value)
    if expected is None:
        with pytest.raises(CorruptInputError, match="control record at offset 3"):
            control_record(given_record)
    else:
        assert control_record(given_record) == expected


@pytest.mark.parametrize("magic", [3, 0xFF])
def test_other_magics_are_refused_by_name(magic: int) -> None:
    data = bytearray(one_record_log(2))
    data[16] = magic
    name = magic if magic < 128 else magic - 256
    with pytest.raises(UnsupportedFormatError, match=f"found magic {name}") as caught:
        list(scan(bytes(data)))
    assert caught.value.at == 16
    bad, good = walk(bytes(data))
    assert isinstance(bad, BadRange)
    assert isinstance(good, BatchHead)
    assert (bad.first_offset, bad.next_offset, good.base_offset) == (None, 1, 1)


def test_zeros_allocated_ahead_are_a_torn_tail() -> None:
    data = one_record_log(3)
    *heads, tail = walk(data + bytes(4096))
    assert len(heads) == 3
    assert tail == TornTail(position=len(data), size_bytes=4096, next_offset=3)


@pytest.mark.parametrize(
    ("rest", "error"),
    [
        (b"\x7f\xff\xff\xff\x80", "from 0 to 9223372034707292159, found 0x7fffffff80"),
        (b"\x80", "a base offset"),
        (bytes(16) + b"\x03", "expected magic 0, 1 or 2, found magic 3"),
        (bytes(16) + b"\xff" * 40, "found magic -1"),
        *((bytes(7) + b"\x03" + b"x" * 8 + magic, None) for magic in (b"", b"\x00", b"\x01", b"\x02")),
    ],
)
def test_a_short_end_is_torn_if_it_can_begin_a_batch(rest: bytes, error: str | None) -> None:
    data = one_record_log(3)
    *_, tail = walk(data + rest)
    assert (tail.position, isinstance(tail, TornTail)) == (len(data), error is None)
    assert error is None or (isinstance(tail, BadRange) and error in str(tail.error))


def test_a_last_batch_whose_data_never_reached_the_disk_is_a_torn_tail() -> None:
    data = one_record_log(3)
    last = list(scan(data))[-1]
    *_, tail = walk(data[: last.position + 70] + bytes(last.size_bytes - 70))
    assert tail == TornTail(position=last.position, size_bytes=last.size_bytes, next_offset=2)


def test_gaps_that_compaction_left_are_no_damage() -> None:
    data = b"".join(encode_batch([record(offset)]) for offset in (5, 90, 4000, 1 << 40))
    assert [piece.base_offset for piece in walk(data, expected_offset=0)] == [5, 90, 4000, 1 << 40]


def _payload(*fields: int | bytes) -> bytes:
    """Return one record from its fields: numbers become varints."""
    body = bytearray()
    for field in fields:
        if isinstance(field, int):
            write_varint(body, field)
        else:
            body += field
    return bytes(body)


# size, attributes, timestamp delta, offset delta, key length, value length, value, header count
_GOOD = (8, b"\x00", 0, 0, -1, 2, b"ab", 0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ((9, *_GOOD[1:]), "a size up to 8"),
        ((-1, *_GOOD[1:]), "a size up to 8"),
        ((7, *_GOOD[1:]), "a record of 7 bytes"),
        ((8, b"\x00", 0, 1, -1, 2, b"ab", 0), "an offset delta from 0 to 0"),
        ((8, b"\x00", 0, -1, -1, 2, b"ab", 0), "an offset delta from 0 to 0"),
        ((8, b"\x00", 0, 0, 9, 2, b"ab", 0), "a record of 8 bytes"),
        ((8, b"\x00", 0, 0, -1, 4, b"ab", 0), "a record of 8 bytes"),
        ((8, b"\x00", 0, 0, -1, 1, b"ab", 0), "up to 0 headers"),
        ((8, b"\x00", 0, 0, -1, 2, b"ab", 1), "up to 0 headers"),
        ((10, b"\x00", 0, 0, -1, 2, b"ab", 1, -1, -1), "a header name"),
        ((20, b"\x00", b"\xff" * 11, 0), "varints of at most 10 bytes"),
        ((*_GOOD, *_GOOD), "the end after 1 records"),
        ((), "a whole record"),
    ],
)
def test_what_no_record_is(fields: tuple[int | bytes, ...], expected: str) -> None:
    (head,) = scan(encode_batch([record(0, b"ab")]))
    payload = _payload(*fields)
    if expected.startswith("varints"):
        payload = _payload(len(payload) - 1, *fields[1:])
    (batch,) = batches(seal(head, payload))
    with pytest.raises(CorruptInputError, match=f"the batch at offset 0.*expected {expected}") as caught:
        list(batch.records())
    assert HEAD_SIZE <= (caught.value.at or 0) <= HEAD_SIZE + len(payload)
    if expected == "the end after 1 records":
        assert caught.value.at == HEAD_SIZE + len(_payload(*_GOOD))


def test_offsets_of_a_batch_rise() -> None:
    (head,) = scan(encode_batch([record(0), record(1)]))
    (batch,) = batches(seal(head, _payload(*_GOOD, *_GOOD)))
    with pytest.raises(CorruptInputError, match="an offset delta from 1 to 1"):
        list(batch.records())


@examples(60)
@given(records=record_lists(), kind=st.sampled_from(list(CompressionType)), data=st.data())
def test_only_the_chosen_records_lose_their_content(
    records: list[Record], kind: CompressionType, data: st.DataObject
) -> None:
    flags = st.booleans()
    old = encode_batch(
        records,
        base_offset=records[0].offset,
        last_offset=records[-1].offset + data.draw(st.integers(0, 2)),
        partition_leader_epoch=7,
        compression=kind,
        producer_id=5,
        producer_epoch=2,
        base_sequence=9,
        transactional=data.draw(flags),
        log_append_time=data.draw(flags),
        max_timestamp_ms=10**14,
    )
    offsets = {each.offset for each in records if data.draw(flags)}
    (before,) = scan(old)
    new = batch_emptied(old, before, offsets)
    (after,) = scan(new)
    assert after._replace(length=0, crc=0) == before._replace(length=0, crc=0)
    wanted = [
        each._replace(key=None, value=None, headers=()) if each.offset in offsets else each
        for each in batch_at(old, before).records()
    ]
    assert list(batch_at(new, after).records()) == wanted
    assert batch_emptied(old, before, ()) == old


def _with_bad_name() -> bytes:
    """Return a batch of three records, the second with a header whose name is Latin-1."""
    good = encode_batch([record(0), record(1)._replace(headers=(("?tat", b"v"),)), record(2)])
    (head,) = scan(good)
    return seal(head, good[HEAD_SIZE:].replace(b"?tat", b"\xe9tat"))


def test_a_header_name_is_read_as_consumers_read_it() -> None:
    """The record and those after it were damage, although Kafka serves them."""
    data = _with_bad_name()
    (batch,) = batches(data)
    found = list(batch.records())
    assert [each.offset for each in found] == [0, 1, 2]
    assert found[1].headers == (("\N{REPLACEMENT CHARACTER}tat", b"v"),)
    (columns,) = record_columns([batch], RecordBatch.records)
    assert columns.column("headers").to_pylist()[1] == [
        {"key": "\N{REPLACEMENT CHARACTER}tat", "value": b"v"}
    ]


@pytest.mark.parametrize("end_offset", [1, 2])
def test_records_before_a_cut_keep_their_bytes(end_offset: int) -> None:
    data = _with_bad_name()
    (head,) = scan(data)
    cut = batch_before(data, head, end_offset)
    (after,) = scan(cut)
    assert (after.record_count, after.last_offset) == (end_offset, end_offset - 1)
    assert data[HEAD_SIZE:].startswith(cut[HEAD_SIZE:])
    (whole,), (kept,) = batches(data), batches(cut)
    assert list(kept.records()) == list(whole.records())[:end_offset]
