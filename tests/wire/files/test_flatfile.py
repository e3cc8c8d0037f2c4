"""Flat-file store: golden files, damage, and round trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import DATA, vectors
from tests.support.amounts import examples
from tests.wire.files.flat import read
from tests.wire.metadata.samples import EPOCHS, INT32, INT64, UUIDS, offsets
from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.model import (
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    Uuid,
)
from tierctl.model.events import StoredPartitionState, StoredRecord, StoredSegment
from tierctl.wire.files import flatfile
from tierctl.wire.files.flatfile import FlatFileHeader
from tierctl.wire.metadata.schema import json_fields

FLAT = {name: (DATA / "vectors" / f"flat-{name}.flat").read_bytes() for name in ("named", "unnamed", "empty")}

ANY_ID = Uuid.from_bytes(bytes(range(16)))

RECORDS: st.SearchStrategy[StoredRecord] = st.one_of(
    st.builds(
        lambda span, **rest: StoredSegment(**span, **rest),
        offsets(),
        segment_id=UUIDS,
        leader_epoch=INT32,
        max_timestamp_ms=INT64,
        event_timestamp_ms=INT64,
        segment_leader_epochs=EPOCHS,
        segment_size_in_bytes=INT32,
        state=st.sampled_from(RemoteLogSegmentState),
    ),
    st.builds(
        StoredPartitionState,
        epoch=INT32,
        event_timestamp_ms=INT64,
        state=st.sampled_from(RemotePartitionDeleteState),
    ),
)
HEADERS = st.builds(
    FlatFileHeader,
    topic=st.one_of(st.none(), st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True)),
    topic_id=UUIDS,
    metadata_topic_offset=INT64,
)


@pytest.mark.parametrize("name", FLAT)
def test_a_golden_flat_file_is_read_and_written_back(name: str) -> None:
    (expected,) = vectors(f"flat-{name}.json")
    file = read(FLAT[name])
    assert file.damaged == []
    assert file.header.topic == expected.get("topic")
    assert file.header.topic_id == expected["topic_id"]
    assert file.header.metadata_topic_offset == expected["metadata_topic_offset"]
    found = [json_fields(entry.record) | {"position": entry.position} for entry in file.entries]  # type: ignore[arg-type]
    assert found == expected["entries"]
    assert b"".join(flatfile.written(file.header, map(flatfile.encode_entry, file.records))) == FLAT[name]
    appended = flatfile.encode_header(file.header) + b"".join(map(flatfile.encode_entry, file.records))
    assert appended == FLAT[name]


@pytest.mark.parametrize("name", FLAT)
def test_every_truncation_of_a_flat_file_is_an_error_or_the_valid_prefix(name: str) -> None:
    whole = read(FLAT[name])
    header = len(flatfile.encode_header(whole.header))
    data = FLAT[name][: header + 600]
    for length in range(header):
        with pytest.raises(CorruptInputError):
            read(data[:length])
    for length in range(header, len(data) + 1):
        file = read(data[:length])
        assert file.header == whole.header
        assert file.entries == whole.entries[: len(file.entries)]
        assert file.end == (file.entries[-1].end if file.entries else header)
        assert (file.torn is None) == (file.end == length)


def test_an_entry_is_read_by_its_position_in_the_file() -> None:
    for entry in read(FLAT["named"]).entries:
        assert flatfile.read_entry(FLAT["named"], entry.start) == entry


def test_reading_goes_on_behind_a_damaged_entry() -> None:
    whole = read(FLAT["named"])
    third = whole.entries[2]
    damaged = bytearray(FLAT["named"])
    damaged[third.end - 1] = 9
    file = read(bytes(damaged))
    assert file.torn is None
    assert [entry.record for entry in file.entries if entry.start != third.start] == [
        entry.record for entry in whole.entries if entry.start != third.start
    ]
    (error,) = file.damaged
    assert error.at == third.end - 1
    assert "state" in str(error)


@pytest.mark.parametrize(
    ("raw", "kind", "message"),
    [
        (b"\x07\x00rest", UnsupportedFormatError, "type 7"),
        (b"\x00\x01rest", UnsupportedFormatError, "version 1"),
        (b"", CorruptInputError, "type of an entry"),
        (b"\x01", CorruptInputError, "version of an entry"),
        (b"\x01\x00", CorruptInputError, "epoch .*expected 4 bytes"),
    ],
)
def test_an_entry_that_is_not_known_is_kept_by_its_length(raw: bytes, kind: type, message: str) -> None:
    data = FLAT["empty"] + bytes([len(raw)]) + raw + flatfile.encode_entry(read(FLAT["named"]).records[0])
    file = read(data)
    assert file.torn is None
    assert [entry.record is None for entry in file.entries] == [True, False]
    assert file.entries[0].raw == raw
    assert type(file.entries[0].error) is kind
    with pytest.raises(kind, match=message):
        raise file.damaged[0]


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (bytes(40), "zeros up to the end"),
        (b"\x80\x00xx", "shortest form"),
        (b"\xff\xff\xff\xff\x0fxx", "entry"),
    ],
)
def test_a_tail_that_can_not_be_entries_is_told_apart(tail: bytes, message: str) -> None:
    file = read(FLAT["named"] + tail)
    assert len(file.entries) == 200
    assert file.end == len(FLAT["named"])
    with pytest.raises(CorruptInputError, match=message):
        raise file.damaged[0]


@pytest.mark.parametrize(("data", "message"), [(b"", "magic"), (b"\x01" + FLAT["named"][1:], "magic 1")])
def test_a_flat_file_of_another_magic_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptInputError, match=message):
        read(data)


@examples(60)
@given(HEADERS, st.lists(RECORDS, max_size=5))
def test_flat_files_survive(header: FlatFileHeader, records: list[StoredRecord]) -> None:
    data = b"".join(flatfile.written(header, map(flatfile.encode_entry, records)))
    file = read(data)
    assert file.damaged == []
    assert (file.header, file.records) == (header, records)


@given(
    st.one_of(st.binary(max_size=120), st.binary(max_size=30).map(lambda tail: FLAT["named"][:180] + tail))
)
def test_any_bytes_are_a_flat_file_or_an_error(data: bytes) -> None:
    try:
        file = read(data)
    except CorruptInputError:
        return
    assert file.end <= len(data)
    assert (
        b"".join(data[entry.start : entry.end] for entry in file.entries)
        == data[file.entries[0].start if file.entries else file.end : file.end]
    )


def test_a_header_cut_within_is_not_taken_for_one_without_a_name() -> None:
    header = FlatFileHeader(topic="t" * 60, topic_id=ANY_ID, metadata_topic_offset=7)
    data = flatfile.encode_header(header)
    for length in range(len(data)):
        with pytest.raises(CorruptInputError):
            read(data[:length])


def test_a_topic_without_a_name_can_not_be_written() -> None:
    with pytest.raises(UsageError):
        flatfile.encode_header(FlatFileHeader(topic="", topic_id=ANY_ID, metadata_topic_offset=0))
