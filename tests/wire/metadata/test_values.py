"""The scalar codec: golden values, refused values, only expected exceptions, and Kafka's text."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from tests.conftest import vectors
from tests.wire.metadata.java_text import to_string
from tests.wire.metadata.samples import ANY_BYTES, EVENTS, KIP405_EVENTS, golden
from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.model import MetadataEvent, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, Uuid
from tierctl.model.events import dialect_of
from tierctl.wire.metadata.schema import json_fields
from tierctl.wire.metadata.values import decode, encode, metadata_partition, metadata_partitions_of

SEGMENT = next(v for v in golden("kafka") if v[1] == 0 and v[-1] == 0 and len(v) < 200)
UPDATE = next(v for v in golden("kafka") if v[1] == 1)


@pytest.mark.parametrize("dialect", ["kafka", "kip405"])
def test_golden_values_decode_and_encode_byte_for_byte(dialect: str) -> None:
    for row in vectors(f"serde-{dialect}.jsonl"):
        value = bytes.fromhex(row["hex"])
        event = decode(value)
        assert json_fields(event) == row["fields"]
        assert dialect_of(event) == dialect
        assert decode(value, dialect) == event
        assert encode(event, dialect) == value


@pytest.mark.parametrize("dialect", ["kafka", "kip405"])
def test_no_truncation_of_a_golden_value_is_taken_for_an_event(dialect: str) -> None:
    for value in golden(dialect):
        # The largest values have hundreds of epochs, all similar.
        for length in [*range(min(len(value), 400)), *range(max(400, len(value) - 40), len(value))]:
            with pytest.raises(CorruptInputError):
                decode(value[:length])


@given(ANY_BYTES)
def test_bytes_decode_to_what_encodes_to_them_or_are_refused(value: bytes) -> None:
    event, at = None, None
    try:
        event = decode(value)
    except CorruptInputError as error:
        at = error.at
    if event is None:
        assert at is not None
        assert 0 <= at <= len(value)
    else:
        assert encode(event, dialect_of(event)) == value


@given(EVENTS)
def test_events_survive_their_own_dialect(event: MetadataEvent) -> None:
    """Kafka's is found out, whatever the event."""
    dialect = dialect_of(event)
    value = encode(event, dialect)
    assert decode(value, dialect) == event
    assert dialect == "kip405" or decode(value) == event


@given(KIP405_EVENTS)
def test_an_event_of_the_kip_is_none_of_kafkas(event: MetadataEvent) -> None:
    with pytest.raises(CorruptInputError):
        decode(encode(event, "kip405"), "kafka")
    with pytest.raises(UsageError, match="can't be written as kafka"):
        encode(event)


def _with(value: bytes, at: int, new: bytes) -> bytes:
    return value[:at] + new + value[at + len(new) :]


@pytest.mark.parametrize(
    ("value", "kind", "message", "at"),
    [
        (b"", CorruptInputError, "frame version", 0),
        (b"\x80", CorruptInputError, "frame version", 1),
        (_with(SEGMENT, 0, b"\x03"), UnsupportedFormatError, "frame version 3", 0),
        (b"\x80\x01" + SEGMENT[1:], UnsupportedFormatError, "frame version 128", 0),
        (_with(SEGMENT, 1, b"\x04"), UnsupportedFormatError, "apiKey 4", 1),
        (_with(SEGMENT, 2, b"\x01"), UnsupportedFormatError, "version 1", 2),
        (b"\x81\x00" + SEGMENT[1:], CorruptInputError, "shortest form", 0),
        (SEGMENT + b"\x00", CorruptInputError, "1 more bytes", len(SEGMENT)),
        (
            _with(UPDATE, len(UPDATE) - 2, b"\x04"),
            CorruptInputError,
            "state .*0 to 3, found 4",
            len(UPDATE) - 2,
        ),
        (_with(UPDATE, len(UPDATE) - 2, b"\xff"), CorruptInputError, "found -1", len(UPDATE) - 2),
        (_with(UPDATE, 3, b"\x00"), CorruptInputError, "topic .*found null", 3),
        (_with(UPDATE, 5, b"\xff"), CorruptInputError, "expected UTF-8, found byte 0xff", 5),
    ],
)
def test_what_is_refused_says_what_and_where(
    value: bytes, kind: type[Exception], message: str, at: int
) -> None:
    with pytest.raises(CorruptInputError, match=message) as caught:
        decode(value)
    assert type(caught.value) is kind
    assert caught.value.at == at


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\x03\x00", "type 3"),
        (b"\x01\x02", "version 2"),
        (b"\x02\x00\xff\xff", "null"),
        (b"\x02\x00\x80\x00", "-1 or"),
    ],
)
def test_kip405_is_refused_by_name_too(value: bytes, message: str) -> None:
    with pytest.raises(CorruptInputError, match=message):
        decode(value, "kip405")


def test_the_error_of_the_more_plausible_dialect_is_told() -> None:
    value = golden("kip405")[1][:-4]
    with pytest.raises(CorruptInputError, match=r"state|event_timestamp_ms") as caught:
        decode(value)
    assert "dialect kafka" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("section", "unknown", "flag"),
    [
        (b"\x00", (), False),
        (b"\x01\x00\x01\x01", (), True),
        # Values that Kafka reads but never writes are encoded unchanged.
        (b"\x01\x00\x01\x00", ((0, b"\x00"),), False),
        (b"\x01\x00\x01\x07", ((0, b"\x07"),), True),
        (b"\x01\x05\x02ab", ((5, b"ab"),), False),
        (b"\x03\x00\x01\x01\x05\x00\x80\x01\x01z", ((5, b""), (128, b"z")), True),
    ],
)
def test_tagged_fields_are_kept(section: bytes, unknown: tuple[tuple[int, bytes], ...], flag: bool) -> None:
    value = SEGMENT[:-1] + section
    event = decode(value)
    assert isinstance(event, RemoteLogSegmentMetadata)
    assert event.unknown_tags == unknown
    assert event.txn_index_empty is flag
    assert encode(event) == value


def test_a_flag_that_is_changed_wins_over_the_bytes_it_was_read_from() -> None:
    event = decode(SEGMENT[:-1] + b"\x01\x00\x01\x07")
    assert isinstance(event, RemoteLogSegmentMetadata)
    assert encode(replace(event, txn_index_empty=False)) == SEGMENT


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (b"\x02\x05\x00\x05\x00", "a tag above 5, found 5"),
        (b"\x02\x05\x00\x03\x00", "a tag above 5, found 3"),
        (b"\x01\x00\x02\x01\x01", "expected 1 byte, found 2 bytes"),
        (b"\x01\x00\x00", "expected 1 byte, found 0 bytes"),
        (b"\x01\x05\x80\x80\x80\x80\x08ab", "tag 5 at byte"),
        (b"\x80\x80\x80\x80\x08", "tag at byte"),
        (b"\xff\xff\xff\xff\xff\x01", "a number of 32 bits"),
    ],
)
def test_tagged_fields_that_can_not_be_written_again_are_refused(section: bytes, message: str) -> None:
    with pytest.raises(CorruptInputError, match=message):
        decode(SEGMENT[:-1] + section, "kafka")


def test_tags_within_a_record_are_kept_by_place() -> None:
    event = decode(UPDATE)
    assert isinstance(event, RemoteLogSegmentMetadataUpdate)
    nested = (
        ("remote_log_segment_id.topic_id_partition", ((1, b"x"),)),
        ("remote_log_segment_id", ((0, b""), (9, b"yy"))),
    )
    value = encode(replace(event, nested_tags=nested))
    assert len(value) == len(UPDATE) + 3 + 6
    assert decode(value) == replace(event, nested_tags=nested)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_offset": -1}, "start_offset"),
        ({"start_offset": 5, "end_offset": 4}, "end_offset"),
        ({"segment_leader_epochs": ()}, "segment_leader_epochs"),
        ({"segment_leader_epochs": ((1 << 31, 0),)}, "epoch"),
        ({"partition": 1 << 31}, "partition"),
        ({"segment_size_in_bytes": None}, "segment_size_in_bytes"),
        ({"topic": "t" * 40_000}, "topic is too long"),
    ],
)
def test_an_event_no_broker_could_read_is_not_written(change: dict[str, object], message: str) -> None:
    event = decode(SEGMENT)
    with pytest.raises(UsageError, match=message):
        encode(replace(event, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", ["kafka", "kip405"])
@pytest.mark.parametrize(
    ("field", "raw", "message"),
    [
        ("start_offset", b"\xff" * 8, "start_offset .*0 or more, found -1"),
        ("end_offset", b"\xff" * 8, "end_offset .*not below the start offset, found -1"),
    ],
)
def test_offsets_that_kafka_throws_for_are_refused(
    dialect: str, field: str, raw: bytes, message: str
) -> None:
    value = next(v for v in golden(dialect) if isinstance(decode(v), RemoteLogSegmentMetadata))
    event = decode(value)
    start = value.index(event.segment_id.bytes) + 16 + (dialect == "kafka")  # type: ignore[union-attr]
    at = start + (8 if field == "end_offset" else 0)
    with pytest.raises(CorruptInputError, match=message) as caught:
        decode(_with(value, at, raw), dialect)
    assert caught.value.at == at


@pytest.mark.parametrize("at", [3, 3 + SEGMENT[3] + 20 + 1 + 16 + 1 + 36, len(SEGMENT) - 3, len(SEGMENT) - 1])
def test_a_length_is_bounded_by_what_remains(at: int) -> None:
    with pytest.raises(CorruptInputError):
        decode(SEGMENT[:at] + b"\xfe\xff\xff\xff\x0f" + SEGMENT[at + 1 :], "kafka")


@pytest.mark.parametrize("topic", ["\u00e9" * 100, "\u6f22" * 80, "t\u0000" * 70])
def test_a_name_that_no_kafka_record_could_begin_with_is_a_name(topic: str) -> None:
    """As the length of a name the bytes are invalid, so the value is no truncated kafka record."""
    update = next(e for e in map(decode, golden("kip405")) if isinstance(e, RemoteLogSegmentMetadataUpdate))
    event = replace(update, topic=topic)
    assert decode(encode(event, "kip405")) == event


def test_events_print_as_the_jvm_prints_them() -> None:
    for row in vectors("serde-kafka.jsonl"):
        assert to_string(decode(bytes.fromhex(row["hex"]))) == row["to_string"]


def test_partitions_are_where_kafka_puts_them() -> None:
    rows = list(vectors("partitioner.jsonl"))
    for row in rows:
        home = metadata_partition(Uuid(row["topic_id"]), row["partition"], row["metadata_partitions"])
        assert home == row["metadata_partition"]
    for count in {row["metadata_partitions"] for row in rows}:
        own = [row for row in rows if row["metadata_partitions"] == count]
        raws = np.frombuffer(b"".join(Uuid(row["topic_id"]).bytes for row in own), np.uint8)
        homes = metadata_partitions_of(raws, np.array([row["partition"] for row in own]), count)
        assert homes.tolist() == [row["metadata_partition"] for row in own]
