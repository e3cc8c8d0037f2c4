"""Checkpoint files and committed offsets: captured ones byte for byte, damage, and round trips."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import DATA
from tests.wire.batches.samples import Capture, captured
from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.model import EpochEntry, TopicPartition, Uuid
from tierctl.wire.files import checkpoints
from tierctl.wire.files.checkpoints import (
    CommittedOffsets,
    OffsetsForm,
    read_cluster_id,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
    write_leader_epoch_checkpoint,
    write_offset_checkpoint,
    write_partition_metadata,
)

KINDS = [
    (read_leader_epoch_checkpoint, write_leader_epoch_checkpoint, "*leader[-_]epoch[-_]checkpoint"),
    (read_offset_checkpoint, write_offset_checkpoint, "*-offset-checkpoint"),
    (read_partition_metadata, write_partition_metadata, "partition.metadata"),
]


@pytest.mark.parametrize(("read", "write", "pattern"), KINDS)
def test_captured_files_are_written_byte_for_byte(capture: Capture, read, write, pattern) -> None:  # type: ignore[no-untyped-def]
    files = [path for path in captured(capture, pattern) if path.stat().st_size]
    assert len(files) >= 10
    for path in files:
        data = path.read_bytes()
        assert write(read(data)) == data, path


@pytest.mark.parametrize(("read", "write", "pattern"), KINDS)
def test_every_truncation_of_captured_files(capture: Capture, read, write, pattern) -> None:  # type: ignore[no-untyped-def]
    """No number is ever wrong: 0 bytes are an empty checkpoint, any other cut is an error."""
    for data in {path.read_bytes() for path in captured(capture, pattern)}:
        for cut in range(1, len(data)):
            with pytest.raises(CorruptInputError):
                read(data[:cut])


def test_empty_files_are_empty_checkpoints() -> None:
    assert read_leader_epoch_checkpoint(b"") == ()
    assert read_offset_checkpoint(b"") == {}
    assert read_leader_epoch_checkpoint(b"0\n0\n") == ()


def test_what_the_files_say() -> None:
    assert read_leader_epoch_checkpoint(b"0\n2\n0 0\n2 2050\n") == (EpochEntry(0, 0), EpochEntry(2, 2050))
    offsets = read_offset_checkpoint(b"0\n2\nbills 1 3500\na.b-c_d 0 9223372036854775807\n")
    assert offsets == {TopicPartition("bills", 1): 3500, TopicPartition("a.b-c_d", 0): (1 << 63) - 1}
    topic_id = read_partition_metadata(b"version: 0\ntopic_id: WXLMw9uDS32Q2fp63a9ugA")
    assert topic_id == Uuid("WXLMw9uDS32Q2fp63a9ugA")
    assert read_partition_metadata(b"version: 3\ntopic_id: WXLMw9uDS32Q2fp63a9ugA\n") == topic_id
    for line in (b"a 1 2\r", b"a \t1\x0b\x0c2 "):
        assert read_offset_checkpoint(b"0\r\n1\r\n" + line + b"\n") == {TopicPartition("a", 1): 2}


@pytest.mark.parametrize("blank", [*map(chr, (0x1C, 0x1D, 0x1E, 0x1F, 0x85, 0xA0, 0x2003, 0x2028, 0x3000))])
def test_blanks_that_kafka_does_not_take_for_blanks(blank: str) -> None:
    """Kafka splits at Java's \\s+, which is ASCII, and counts an empty word before a leading blank."""
    for line in (f"5{blank}7", f"{blank}5 7", " 5 7", " 7"):
        with pytest.raises(CorruptInputError, match="line 3 at byte 4"):
            read_leader_epoch_checkpoint(f"0\n1\n{line}\n".encode())
    for line in (f"a 5{blank}7", f"a{blank}5 7", f"a 5 7{blank}", " a 5 7"):
        with pytest.raises(CorruptInputError, match="line 3 at byte 4"):
            read_offset_checkpoint(f"0\n1\n{line}\n".encode())


@pytest.mark.parametrize(
    ("read", "data", "line", "at"),
    [
        (read_leader_epoch_checkpoint, b"0\n2\n0 0\n2  x\n", 4, 8),
        (read_leader_epoch_checkpoint, b"0\n2\n0 0\n2 5 6\n", 4, 8),
        (read_leader_epoch_checkpoint, b"0\n2\n3 0\n2 5\n", 4, 8),
        (read_leader_epoch_checkpoint, b"0\n2\n3 9\n4 5\n", 4, 8),
        (read_leader_epoch_checkpoint, b"0\n1\n4294967296 5\n", 3, 4),
        (read_leader_epoch_checkpoint, b"0\n1\n-1 5\n", 3, 4),
        (read_leader_epoch_checkpoint, b"0\n3\n0 0\n2 5\n", 2, 2),
        (read_leader_epoch_checkpoint, b"0\n1\n0 0\n2 5\n", 2, 2),
        (read_leader_epoch_checkpoint, b"0\nmany\n0 0\n", 2, 2),
        (read_leader_epoch_checkpoint, b"zero\n1\n0 0\n", 1, 0),
        (read_leader_epoch_checkpoint, b"0\n1\n0 0\n\n", 2, 2),
        (read_offset_checkpoint, b"0\n1\ntopic 1\n", 3, 4),
        (read_offset_checkpoint, b"0\n1\ntopic 1 9223372036854775808\n", 3, 4),
        (read_offset_checkpoint, b"0\n1\ntopic 2147483648 1\n", 3, 4),
        (read_offset_checkpoint, b"0\n1\ntopic 1 12", 3, 4),
        (read_offset_checkpoint, b"0\n1\ntopic 1 \xd9\xa3\n", 3, 4),
        (read_partition_metadata, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2, 21),
        (read_partition_metadata, b"version: 0\ntopic_id: short", 2, 21),
    ],
)
def test_errors_name_line_and_byte(read, data: bytes, line: int, at: int) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CorruptInputError, match=f"line {line} ") as caught:
        read(data)
    assert caught.value.at == at


def test_other_versions_and_encodings() -> None:
    with pytest.raises(UnsupportedFormatError, match="version 1"):
        read_offset_checkpoint(b"1\n0\n")
    with pytest.raises(CorruptInputError, match="UTF-8"):
        read_offset_checkpoint(b"0\n1\n\xff 1 1\n")
    with pytest.raises(CorruptInputError):
        read_partition_metadata(b"topic_id: x\n")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_leader_epoch_checkpoint, read_offset_checkpoint, read_partition_metadata):
        for text in (data, b"0\n1\n" + data):
            try:
                read(text)
            except CorruptInputError as error:
                assert str(error)  # noqa: PT017 - any other exception fails the test


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"#\n#Sun Nov 22 13:45:19 UTC 2026\nnode.id=7\nversion=1\ncluster.id=dGllcmN0\n", "dGllcmN0"),
        (b"broker.id=0\r\nversion=0\r\ncluster.id=Mk3OEYBSD34fcwNT\r\n", "Mk3OEYBSD34fcwNT"),
        (b"", None),
        (b"cluster.id=\n", None),
        (b"version=1\nnode.id=7\n", None),
    ],
)
def test_cluster_id(data: bytes, expected: str | None) -> None:
    assert read_cluster_id(data) == expected
    with pytest.raises(CorruptInputError, match="line 1"):
        read_cluster_id(b"cluster.id=\\u12\n" + data)


def read(data: bytes) -> CommittedOffsets:
    """Decode a file without damage; raise the first error of another."""
    found = checkpoints.read_committed_offsets(data)
    for error in found.damage:
        raise error
    return found


OFFSETS = (DATA / "vectors/kafka-3.6/_rlmm_committed_offsets").read_bytes()


def test_kafkas_own_offsets_are_read_and_written_back() -> None:
    found = read(OFFSETS)
    assert found.form is OffsetsForm.CHECKPOINT
    assert len(found.offsets) == 21
    assert found.offsets[0] == 779487
    assert checkpoints.write_committed_offsets(found.offsets, found.form) == OFFSETS


@pytest.mark.parametrize(
    ("data", "offsets", "form"),
    [
        (b"", {}, OffsetsForm.KIP),
        (b"0 2022\n4 104\n2 498", {0: 2022, 4: 104, 2: 498}, OffsetsForm.KIP),
        (b"0 2022\n4 104\n", {0: 2022, 4: 104}, OffsetsForm.KIP),
        (b"0\t2022\r\n", {0: 2022}, OffsetsForm.KIP),
        (b"0\n0\n", {}, OffsetsForm.CHECKPOINT),
        (b"0\n1\n7 9223372036854775807\n", {7: 2**63 - 1}, OffsetsForm.CHECKPOINT),
    ],
)
def test_both_forms(data: bytes, offsets: dict[int, int], form: OffsetsForm) -> None:
    found = read(data)
    assert (dict(found.offsets), found.form) == (offsets, form)
    assert list(found.offsets) == list(offsets)


@pytest.mark.parametrize(
    ("data", "message", "at"),
    [
        (b"0\n", "line 2.*number of entries, found the end", 2),
        (b"1\n0\n", "line 1.*version 0, found version 1", 0),
        (b"0\nx\n", "line 2.*number of entries", 2),
        (b"0\n3\n0 1\n1 2\n", "line 2.*2 entries, as many as follow, found 3", 2),
        (b"0\n1\n0 1\n1 2\n", "line 2.*2 entries, as many as follow, found 1", 2),
        (b"0\n2\n0 1\n1 2", "line 4.*line feed", 8),
        (b"0\n2\n0 1\n1 x\n", "line 4.*<partition> <offset>, found '1 x'", 8),
        (b"0 1\n0 2\n", "line 2.*one entry for partition 0", 4),
        (b"0 1\n-1 2\n", "line 2.*<partition> <offset>", 4),
        (b"0 1\n\n1 2\n", "line 2", 4),
        (b"0 1\n2147483648 2\n", "line 2.*32 and 64 bits", 4),
        (b"0 9223372036854775808\n", "line 1.*32 and 64 bits", 0),
        (b"\x00\x01\x02", "line 1", 0),
        ("٠ ١\n".encode(), "line 1", 0),
    ],
)
def test_offsets_that_are_wrong_say_the_line_and_byte(data: bytes, message: str, at: int) -> None:
    with pytest.raises(CorruptInputError, match=message) as caught:
        read(data)
    assert caught.value.at == at


def test_every_truncation_of_kafkas_offsets_is_an_error() -> None:
    for length in range(1, len(OFFSETS)):
        with pytest.raises(CorruptInputError):
            read(OFFSETS[:length])


def test_a_cut_in_the_kips_form_only_lowers_offsets() -> None:
    offsets = dict(read(OFFSETS).offsets)
    data = checkpoints.write_committed_offsets(offsets, OffsetsForm.KIP)
    for length in range(len(data)):
        try:
            found = read(data[:length]).offsets
        except CorruptInputError:
            continue
        assert all(offset <= offsets[partition] for partition, offset in found.items())


@given(
    st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=6),
    st.sampled_from(OffsetsForm),
)
def test_offsets_survive(offsets: dict[int, int], form: OffsetsForm) -> None:
    found = read(checkpoints.write_committed_offsets(offsets, form))
    assert dict(found.offsets) == offsets
    assert found.form is form or not offsets


@given(st.one_of(st.binary(max_size=60), st.text(alphabet="01 \n\t-", max_size=20).map(str.encode)))
def test_any_bytes_are_offsets_or_an_error(data: bytes) -> None:
    try:
        found: Any = read(data)
    except CorruptInputError:
        return
    assert read(checkpoints.write_committed_offsets(found.offsets, found.form)).offsets == found.offsets


LINES = OFFSETS.splitlines(keepends=True)


@pytest.mark.parametrize("form", OffsetsForm)
@pytest.mark.parametrize("bad", [b"", b"\x00\x00\x00\n", b"7 seven\n", b"garbage\n", b"-1 2\n", b"3\n"])
def test_every_good_line_of_a_file_with_one_bad_line_is_read(form: OffsetsForm, bad: bytes) -> None:
    offsets = read(OFFSETS).offsets
    lines = LINES if form is OffsetsForm.CHECKPOINT else LINES[2:]
    for at, line in enumerate(lines):
        if (line, bad) == (b"0\n", b"3\n"):
            # The head of version 3.
            continue
        found = checkpoints.read_committed_offsets(b"".join([*lines[:at], bad, *lines[at + 1 :]]))
        lost = {int(line.split()[0])} if b" " in line else set()
        assert found.offsets == {each: offsets[each] for each in offsets if each not in lost}, (at, bad)
        assert found.damage or (form is OffsetsForm.KIP and not bad)
        assert found.form is form or (form is OffsetsForm.KIP and at == 0 and bad == b"3\n")


def test_of_two_lines_for_a_partition_the_lower_offset_is_kept() -> None:
    for data in (b"1 5\n1 6\n2 3\n", b"1 6\n1 5\n2 3\n"):
        found = checkpoints.read_committed_offsets(data)
        assert (found.offsets, found.form) == ({1: 5, 2: 3}, OffsetsForm.KIP)
        assert "line 2" in found.damage[0].message
