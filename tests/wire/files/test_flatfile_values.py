"""Cache entries decoded together equal entries decoded one by one."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError
from tierctl.model import Uuid
from tierctl.model.events import RemoteLogSegmentState
from tierctl.model.stored import StoredSegment, StoredValue
from tierctl.wire.files import flatfile
from tierctl.wire.files.flatfile import decode_values, encode_values

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.lists(st.tuples(INT64, INT64, st.binary(max_size=300)), max_size=12)


@given(ROWS, st.binary(max_size=20))
def test_same_bytes_and_same_records(rows: list[tuple[int, int, bytes]], before: bytes) -> None:
    offsets, times, values = ([row[n] for row in rows] for n in range(3))
    single = [StoredValue(metadata_offset=o, timestamp_ms=t, value=v) for o, t, v in rows]
    data = encode_values(offsets, times, values)
    assert data == b"".join(map(flatfile.encode_entry, single))
    found = decode_values(before + data, len(before), len(rows))
    assert found == (offsets, times, values, len(before) + len(data))
    assert [entry.record for entry in flatfile.iter_entries(data, 0)] == single


def test_very_long_values() -> None:
    for size in (100, 105, 106, 16_360, 16_370, 3_000_000):
        data = encode_values([1], [2], [bytes(size)])
        assert data == flatfile.encode_entry(
            StoredValue(metadata_offset=1, timestamp_ms=2, value=bytes(size))
        )
        assert decode_values(data, 0, 9).values == [bytes(size)]


@given(ROWS.filter(bool), st.data())
def test_cuts_and_flips_are_told_or_change_only_what_the_checksum_covers(
    rows: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    whole = encode_values(*([row[n] for row in rows] for n in range(3)))  # type: ignore[arg-type]
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    for damaged in (cut, flipped):
        found = None
        with suppress(CorruptInputError):
            found = decode_values(damaged, 0, len(rows))
        if found is not None:
            assert len(found.values) <= len(rows)
            assert found.end <= len(damaged)
            assert damaged is flipped or found.values == [row[2] for row in rows][: len(found.values)]


def test_other_types_are_named() -> None:
    segment = StoredSegment(
        segment_id=Uuid("2QZ5FAXaQrqgUzsReWnweA"),
        start_offset=0,
        end_offset=1,
        leader_epoch=0,
        max_timestamp_ms=0,
        event_timestamp_ms=0,
        segment_leader_epochs=((0, 0),),
        segment_size_in_bytes=1,
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
    )
    with pytest.raises(CorruptInputError, match="expected MetadataValue, found RemoteLogSegmentMetadata"):
        decode_values(flatfile.encode_entry(segment), 0, 1)
