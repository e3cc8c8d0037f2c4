"""remote_log_snapshot: Kafka 3.6's own file, damage, and round trips."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import DATA
from tests.wire.metadata.java_text import to_string
from tests.wire.metadata.samples import golden
from tierctl.errors import CorruptInputError
from tierctl.model import (
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentState,
)
from tierctl.wire.files import flatfile as snapshot
from tierctl.wire.metadata.values import decode, encode

SNAPSHOT = (DATA / "vectors/kafka-3.6/remote_log_snapshot").read_bytes()


def test_kafkas_own_snapshot_is_read_and_written_back() -> None:
    found = snapshot.read_snapshot(SNAPSHOT)
    assert found is not None
    assert found.damaged == ()
    text = (DATA / "vectors/kafka-3.6/remote_log_snapshot.txt").read_text().splitlines()
    assert [to_string(segment, txn_index=False) for segment in found.segments] == text
    assert (
        snapshot.write_snapshot(found.metadata_partition, found.metadata_offset, found.segments) == SNAPSHOT
    )


def test_an_empty_snapshot_is_normal() -> None:
    assert snapshot.read_snapshot(b"") is None
    found = snapshot.read_snapshot(snapshot.write_snapshot(3, -1, []))
    assert found is not None
    assert (found.metadata_partition, found.metadata_offset, found.entries) == (3, -1, ())


def test_every_truncation_of_a_snapshot_is_an_error_or_the_valid_prefix() -> None:
    whole = snapshot.read_snapshot(SNAPSHOT)
    assert whole is not None
    for length in [*range(1, 700), *range(len(SNAPSHOT) - 100, len(SNAPSHOT))]:
        if length < 18:
            with pytest.raises(CorruptInputError):
                snapshot.read_snapshot(SNAPSHOT[:length])
            continue
        found = snapshot.read_snapshot(SNAPSHOT[:length])
        assert found is not None
        assert found.torn is not None
        assert found.entries == whole.entries[: len(found.entries)]


def test_reading_goes_on_behind_a_damaged_snapshot_entry() -> None:
    whole = snapshot.read_snapshot(SNAPSHOT)
    assert whole is not None
    bad = whole.entries[1]
    data = bytearray(SNAPSHOT)
    data[bad.position + 1] = 9
    found = snapshot.read_snapshot(bytes(data))
    assert found is not None
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
        snapshot.read_snapshot(data)


@pytest.mark.parametrize(
    ("data", "message", "at"),
    [
        (SNAPSHOT + b"x", "1 more bytes", len(SNAPSHOT)),
        (SNAPSHOT[:18] + b"\xff" * 4 + SNAPSHOT[22:], "length of an entry", 18),
        (SNAPSHOT[:14] + b"\x7f" + SNAPSHOT[15:], "length of an entry", len(SNAPSHOT)),
    ],
)
def test_a_snapshot_that_does_not_add_up_says_where(data: bytes, message: str, at: int) -> None:
    found = snapshot.read_snapshot(data)
    assert found is not None
    assert found.torn is not None
    assert message in str(found.torn)
    assert found.torn.at == at


def test_a_snapshot_holds_no_other_records() -> None:
    value = golden("kafka")[0]
    data = SNAPSHOT[:14] + (1).to_bytes(4, "big") + len(value).to_bytes(4, "big") + value
    found = snapshot.read_snapshot(data)
    assert found is not None
    assert "apiKey 3" in str(found.damaged[0])


def test_a_segment_of_several_epochs_counts_once() -> None:
    found = snapshot.read_snapshot(SNAPSHOT)
    assert found is not None
    first, second = found.segments[:2]
    later = replace(first, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
    assert snapshot.distinct_segments([first, second, first]) == (first, second)
    assert snapshot.distinct_segments([first, second, later]) == (later, second)


def test_a_snapshot_record_of_kafka_4_says_more() -> None:
    found = snapshot.read_snapshot(SNAPSHOT)
    assert found is not None
    segment = replace(found.segments[0], txn_index_empty=True)
    assert decode(encode(segment)) == segment
    assert isinstance(segment, RemoteLogSegmentMetadataSnapshot)
    assert to_string(segment).endswith(", txnIdxEmpty=true}")


@given(st.one_of(st.binary(max_size=100), st.binary(max_size=30).map(lambda tail: SNAPSHOT[:200] + tail)))
def test_any_bytes_are_a_snapshot_or_an_error(data: bytes) -> None:
    try:
        found = snapshot.read_snapshot(data)
    except CorruptInputError:
        return
    assert found is None or len(found.entries) <= len(data)
