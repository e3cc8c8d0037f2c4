"""Checkpoint files: captured ones byte for byte, and the errors of damaged ones; the id of a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.batches.samples import Capture, captured
from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.model import EpochEntry, TopicPartition, Uuid
from tierctl.wire.files.checkpoints import (
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
    assert read_offset_checkpoint(b"0\r\n1\r\na 1 2\r\n") == {TopicPartition("a", 1): 2}


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
