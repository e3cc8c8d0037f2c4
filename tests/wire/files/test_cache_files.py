"""Cache files: flat files, remote_log_snapshot and .remoteindex: golden files, damage, and round trips."""

import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import DATA, vectors
from tests.support.amounts import examples
from tests.wire.files.flat import read
from tests.wire.metadata.java_text import to_string
from tests.wire.metadata.samples import INT32, INT64, UUIDS, golden, segments
from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.files import FileBytes
from tierctl.metadata.cache_files import FlatEntries
from tierctl.model import (
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    Uuid,
)
from tierctl.model.events import StoredPartitionState, StoredRecord, StoredSegment
from tierctl.wire.files import flatfile
from tierctl.wire.files.flatfile import (
    CHUNK_BYTES,
    FlatFileHeader,
    RemoteIndexFile,
    find_remote_index_entry,
    parse_remote_index_name,
)
from tierctl.wire.metadata.schema import json_fields

FLAT = {name: (DATA / "vectors" / f"flat-{name}.flat").read_bytes() for name in ("named", "unnamed", "empty")}

ANY_ID = Uuid.from_bytes(bytes(range(16)))

RECORDS: st.SearchStrategy[StoredRecord] = st.one_of(
    segments(StoredSegment, leader_epoch=INT32),
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


@pytest.mark.parametrize("left", [0, 1, 51])
def test_a_flat_file_that_is_cut_while_it_is_read(tmp_path: Path, left: int) -> None:
    """Its size was taken before: what is missing must not be waited for."""
    path = tmp_path / "some.flat"
    path.write_bytes(FLAT["named"])
    start = len(flatfile.encode_header(read(FLAT["named"]).header))
    with FileBytes(path) as file:

        def rest(at: int, count: int) -> bytes:
            return file.read(at, min(count, start + left - at))

        cut = SimpleNamespace(size_bytes=file.size_bytes, read=rest)
        with pytest.raises(CorruptInputError):
            list(flatfile.read_chunks(cast("FileBytes", cut), start))


@pytest.mark.parametrize("size", [1, 2, CHUNK_BYTES, 3 * CHUNK_BYTES + 5])
def test_zeros_between_entries_are_one_error(tmp_path: Path, size: int) -> None:
    """Each zero was one, and cost a look at all that follow."""
    whole = read(FLAT["named"])
    start, hole = whole.entries[0].start, whole.entries[2].end
    path = tmp_path / "some.flat"
    path.write_bytes(FLAT["named"][:hole] + bytes(size) + FLAT["named"][hole:])
    with FileBytes(path) as file:
        found = list(FlatEntries(path=path, start=start))
        assert sum(map(len, flatfile.read_chunks(file, start))) == len(found)
    errors = [str(each.error) for each in found if each.error is not None]
    assert errors == [f"entry at byte {hole}: expected a length above 0, found {size} bytes of zeros"]
    assert [each.record for each in found if each.error is None] == [each.record for each in whole.entries]


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


SNAPSHOT = (DATA / "vectors/kafka-3.6/remote_log_snapshot").read_bytes()


def read_whole(data: bytes = SNAPSHOT) -> flatfile.RemoteLogSnapshot:
    """Read a snapshot that is not empty."""
    found = flatfile.read_snapshot(data)
    assert found is not None
    return found


def test_kafkas_own_snapshot_is_read_and_written_back() -> None:
    found = read_whole()
    assert found.damaged == ()
    text = (DATA / "vectors/kafka-3.6/remote_log_snapshot.txt").read_text().splitlines()
    assert [to_string(segment, txn_index=False) for segment in found.segments] == text
    assert (
        flatfile.write_snapshot(found.metadata_partition, found.metadata_offset, found.segments) == SNAPSHOT
    )


def test_an_empty_snapshot_is_normal() -> None:
    assert flatfile.read_snapshot(b"") is None
    found = read_whole(flatfile.write_snapshot(3, -1, []))
    assert (found.metadata_partition, found.metadata_offset, found.entries) == (3, -1, ())


def test_every_truncation_of_a_snapshot_is_an_error_or_the_valid_prefix() -> None:
    whole = read_whole()
    for length in [*range(1, 700), *range(len(SNAPSHOT) - 100, len(SNAPSHOT))]:
        if length < 18:
            with pytest.raises(CorruptInputError):
                flatfile.read_snapshot(SNAPSHOT[:length])
            continue
        found = read_whole(SNAPSHOT[:length])
        assert found.torn is not None
        assert found.entries == whole.entries[: len(found.entries)]


def test_reading_goes_on_behind_a_damaged_snapshot_entry() -> None:
    whole = read_whole()
    bad = whole.entries[1]
    data = bytearray(SNAPSHOT)
    data[bad.position + 1] = 9
    found = read_whole(bytes(data))
    assert found.segments == (*whole.segments[:1], *whole.segments[2:])
    (error,) = found.damaged
    assert error.at == bad.position + 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x01" + SNAPSHOT[2:], "version 1"),
        (SNAPSHOT[:14] + b"\xff" * 4 + SNAPSHOT[18:], "number of entries"),
    ],
)
def test_a_snapshot_whose_header_is_wrong_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptInputError, match=message):
        flatfile.read_snapshot(data)


@pytest.mark.parametrize(
    ("data", "message", "at"),
    [
        (SNAPSHOT + b"x", "1 more bytes", len(SNAPSHOT)),
        (SNAPSHOT[:18] + b"\xff" * 4 + SNAPSHOT[22:], "length of an entry", 18),
        (SNAPSHOT[:14] + b"\x7f" + SNAPSHOT[15:], "length of an entry", len(SNAPSHOT)),
    ],
)
def test_a_snapshot_that_does_not_add_up_says_where(data: bytes, message: str, at: int) -> None:
    found = read_whole(data)
    assert found.torn is not None
    assert message in str(found.torn)
    assert found.torn.at == at


def test_a_snapshot_holds_no_other_records() -> None:
    value = golden("kafka")[0]
    data = SNAPSHOT[:14] + (1).to_bytes(4, "big") + len(value).to_bytes(4, "big") + value
    found = read_whole(data)
    assert "apiKey 3" in str(found.damaged[0])


def test_a_segment_of_several_epochs_counts_once() -> None:
    found = read_whole()
    first, second = found.segments[:2]
    later = replace(first, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
    assert flatfile.distinct_segments([first, second, first]) == (second, first)
    assert flatfile.distinct_segments([first, second, later]) == (second, later)


@given(st.one_of(st.binary(max_size=100), st.binary(max_size=30).map(lambda tail: SNAPSHOT[:200] + tail)))
def test_any_bytes_are_a_snapshot_or_an_error(data: bytes) -> None:
    try:
        found = flatfile.read_snapshot(data)
    except CorruptInputError:
        return
    assert found is None or len(found.entries) <= len(data)


def written(starts: Sequence[int], allocated: int = 0) -> bytes:
    return b"".join(struct.pack(">i", start - starts[0]) for start in starts) + bytes(4 * allocated)


def found(data: bytes, base: int, offset: int, tmp_path: Path) -> tuple[int, int] | None:
    file = tmp_path / f"{base}.remoteindex"
    file.write_bytes(data)
    with FileBytes(file) as opened:
        return find_remote_index_entry(opened, base, offset)


@given(
    starts=st.sets(st.integers(5, 1 << 31), max_size=60).map(sorted),
    allocated=st.integers(0, 70),
    offset=st.integers(0, 1 << 32),
)
def test_the_entry_is_that_of_the_last_segment_at_or_before(
    starts: list[int], allocated: int, offset: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = written(starts, allocated) if starts else b""
    expected = max((start, 4 * at) for at, start in enumerate([-1, *starts], -1) if start <= offset)
    entry = found(data, starts[0] if starts else 5, offset, tmp_path_factory.mktemp("index"))
    assert entry == (expected[::-1] if expected[0] >= 0 else None)


@pytest.mark.parametrize("relative", [(0, 50, -70, 90), (0, 50, 20, 90), (0, 50, 900, 60), (0, 50, 0, 90)])
def test_an_entry_beside_which_offsets_descend_is_no_answer(relative: Sequence[int], tmp_path: Path) -> None:
    with pytest.raises(CorruptInputError, match=r"remote index at byte [0-9]+: expected an offset above"):
        found(struct.pack(">4i", *relative), 100, 170, tmp_path)


@given(
    starts=st.sets(st.integers(1, 60), min_size=1, max_size=20).map(lambda found: [0, *sorted(found)]),
    allocated=st.integers(0, 5),
    place=st.integers(0, 25),
    value=st.integers(-60, 60),
    offset=st.integers(0, 70),
)
def test_one_damaged_entry_gives_no_wrong_answer(
    *,
    starts: list[int],
    allocated: int,
    place: int,
    value: int,
    offset: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    whole = written(starts, allocated)
    at = 4 * (place % (len(whole) // 4))
    data = whole[:at] + struct.pack(">i", value) + whole[at + 4 :]
    folder = tmp_path_factory.mktemp("index")
    expected = found(whole, 5, offset, folder)
    try:
        RemoteIndexFile.decode("5.remoteindex", data)
    except CorruptInputError:
        with suppress(CorruptInputError):
            assert found(data, 5, offset, folder) == expected


def test_few_entries_of_a_large_file_are_read(tmp_path: Path) -> None:
    reads: list[int] = []

    class Watched(FileBytes):
        def read(self, position: int, size_bytes: int) -> bytes:
            reads.append(size_bytes)
            return super().read(position, size_bytes)

    file = tmp_path / "0.remoteindex"
    file.write_bytes(written(range(0, 1 << 18, 2)))
    with Watched(file) as opened:
        assert find_remote_index_entry(opened, 0, 1001) == (2000, 1000)
    assert sum(reads) <= 4 * 22


def test_zeros_allocated_ahead_are_no_entries() -> None:
    decoded = RemoteIndexFile.decode("00000000000007.remoteindex", struct.pack(">ii", 0, 256) + bytes(400))
    assert decoded.start_offsets == (7, 263)
    assert RemoteIndexFile.decode("7.remoteindex", bytes(400)).start_offsets == (7,)
    assert RemoteIndexFile.decode("7.remoteindex", b"").start_offsets == ()


def test_names() -> None:
    assert parse_remote_index_name("0000001000121.remoteindex") == 1000121
    assert parse_remote_index_name("00000000000001000121.remoteindex") == 1000121
    for name in ("1000121.index", "x.remoteindex", ".remoteindex", "99999999999999999999.remoteindex"):
        assert parse_remote_index_name(name) is None


@pytest.mark.parametrize(
    ("name", "data", "at"),
    [
        ("7.remoteindex", bytes(5), 4),
        ("7.remoteindex", struct.pack(">ii", 3, 9), 0),
        ("7.remoteindex", struct.pack(">iii", 0, 9, 9), 8),
        ("7.remoteindex", struct.pack(">ii", 0, -9), 4),
        ("9223372036854775807.remoteindex", struct.pack(">ii", 0, 9), 4),
        ("7.index", b"", None),
    ],
)
def test_what_is_wrong(name: str, data: bytes, at: int | None) -> None:
    with pytest.raises(CorruptInputError) as caught:
        RemoteIndexFile.decode(name, data)
    assert caught.value.at == at
