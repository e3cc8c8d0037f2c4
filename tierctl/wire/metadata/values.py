"""The scalar codec of `__remote_log_metadata` values, in both dialects.

kafka (RemoteLogMetadataSerde): uvarint frame version 1, uvarint apiKey, uvarint record version 0, flexible
record. kip405 (the KIP's text): uvarint type, uvarint version 0, record without tags. A value does not name
its dialect: it is the dialect whose decoder consumes the whole value, and kafka if both do.

Every value that decodes encodes to the same bytes. Therefore four forms are refused that Kafka's reader
accepts and its writer never creates: varints that are longer than necessary, tags that repeat or do not
ascend, a transaction flag that is not one byte, a topic name that is not UTF-8. Kafka's own checks apply too:
a start offset below 0, an end offset before the start, no epochs and unknown states are refused, because no
broker can use such a record.
"""

from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.model.events import Dialect, MetadataEvent, dialect_of
from tierctl.model.ids import is_legal_topic_name
from tierctl.wire.metadata.codec import RecordCodec, Trace
from tierctl.wire.metadata.schema import METADATA_RECORDS
from tierctl.wire.primitives import read_uvarint, write_uvarint

FRAME_VERSION = 1
RECORD_VERSION = 0

CODECS: dict[Dialect, dict[int, RecordCodec]] = {
    dialect: {schema.api_key: RecordCodec(schema) for schema in schemas}
    for dialect, schemas in METADATA_RECORDS.items()
}
_BY_EVENT = {
    (dialect, codec.schema.event): codec for dialect, codecs in CODECS.items() for codec in codecs.values()
}


def decode(value: bytes, dialect: str | None = None) -> MetadataEvent:
    """Decode the value of a record to its event; detect the dialect if it is not given.

    Raise CorruptInputError with the byte, the expected and the found value; for an unknown frame version,
    apiKey or record version, raise UnsupportedFormatError.
    """
    return decode_traced(bytes(value), None if dialect is None else _dialect(dialect), None)


def encode(event: MetadataEvent, dialect: str = Dialect.KAFKA) -> bytes:
    """Encode an event to the value of a record; raise UsageError if the dialect cannot hold the event."""
    return encode_traced(event, _dialect(dialect), None)


def _dialect(name: str) -> Dialect:
    try:
        return Dialect(name)
    except ValueError:
        raise UsageError(f"no dialect {name!r}", hint="one of kafka, kip405") from None


def decode_traced(value: bytes, dialect: Dialect | None, trace: Trace | None) -> MetadataEvent:
    """Decode as `decode` does, and add the position of each field to `trace`."""
    if dialect is not None:
        return _decode_as(value, dialect, trace)
    try:
        return _decode_as(value, Dialect.KAFKA, trace)
    except CorruptInputError as error:
        as_kafka = error
    if trace is not None:
        trace.clear()
    try:
        event = _decode_as(value, Dialect.KIP405, trace)
    except CorruptInputError as as_kip405:
        raise _more_plausible(value, as_kafka, as_kip405) from None
    if _is_cut_segment(value):
        raise as_kafka
    return event


def _more_plausible(
    value: bytes, as_kafka: CorruptInputError, as_kip405: CorruptInputError
) -> CorruptInputError:
    """Return the error of the likelier dialect, with the other dialect's error as the hint.

    kip405 is likelier for type 0, which was never written to this topic as a frame version, and if its
    decoder found a legal topic name and got further.
    """
    length = int.from_bytes(value[2:4], "big")
    name = value[4 : 4 + length]
    has_name = len(name) == length and is_legal_topic_name(name.decode("ascii", "replace"))
    got_further = (as_kip405.at or 0) > (as_kafka.at or 0)
    if (has_name and got_further) or value.startswith(b"\0"):
        as_kip405.hint = f"nor is it dialect kafka: {as_kafka.message}"
        return as_kip405
    as_kafka.hint = f"nor is it dialect kip405: {as_kip405.message}"
    return as_kafka


def _decode_as(value: bytes, dialect: Dialect, trace: Trace | None) -> MetadataEvent:
    codec, at = read_frame(value, dialect)
    event: MetadataEvent = codec.decode(value, at, trace)
    return event


def read_frame(value: bytes, dialect: Dialect) -> tuple[RecordCodec, int]:
    """Return the codec of a value's record, and the position of the record's body."""
    at = 0
    if dialect is Dialect.KAFKA:
        frame, at = read_uvarint(value, 0, "frame version")
        if frame != FRAME_VERSION:
            raise UnsupportedFormatError(
                "metadata record",
                expected=f"frame version {FRAME_VERSION}",
                found=f"frame version {frame}",
                at=0,
            )
    codecs = CODECS[dialect]
    word = "apiKey" if dialect is Dialect.KAFKA else "type"
    api_key, after_key = read_uvarint(value, at, word)
    if api_key not in codecs:
        raise UnsupportedFormatError(
            "metadata record", expected=f"{word} 0 to {max(codecs)}", found=f"{word} {api_key}", at=at
        )
    codec = codecs[api_key]
    version, body = read_uvarint(value, after_key, "record version")
    if version != RECORD_VERSION:
        raise UnsupportedFormatError(
            codec.schema.name, expected=f"version {RECORD_VERSION}", found=f"version {version}", at=after_key
        )
    return codec, body


def cut_segment_marks(value: bytes) -> tuple[int, ...]:
    """Return the positions of bytes that are all 0 in a cut segment record that reads as a kip405 update.

    If a kafka segment record is cut within its end offset, it reads as an update of a topic whose name is one
    byte longer, and all fields up to the segment id are shifted by that byte. Return () if the value cannot
    be such a record.
    """
    if not value.startswith(b"\x01\x00\x00"):
        return ()
    try:
        length, at = read_uvarint(value, 3)
    except CorruptInputError:
        return ()
    topic_id = at + length - 1
    partition = topic_id + 16
    tags = partition + 4
    segment_tags = tags + 1 + 16
    end_offset = segment_tags + 1 + 8
    return (partition, tags, segment_tags) if end_offset < len(value) < end_offset + 8 else ()


def _is_cut_segment(value: bytes) -> bool:
    """Return whether a value that reads as a kip405 update is a kafka segment record that was cut.

    Such a record has a partition below 2^24 and no tags, and the rest of its end offset begins like its start
    offset or one higher. In an update, these are bytes of a random id, of the partition, of the leader epoch
    and of the time: they agree by chance once in billions.
    """
    marks = cut_segment_marks(value)
    if not marks or any(value[mark] for mark in marks):
        return False
    start = marks[-1] + 1
    end = start + 8
    left = len(value) - end
    high_start = int.from_bytes(value[start : start + left], "big")
    return int.from_bytes(value[end:], "big") - high_start in (0, 1)


def codec_of(event: MetadataEvent, dialect: Dialect) -> RecordCodec:
    """Return the codec that encodes an event; raise UsageError if the dialect cannot hold the event."""
    codec = _BY_EVENT.get((dialect, type(event)))
    if codec is None or dialect_of(event) is not dialect:
        raise UsageError(f"a {event.type} of dialect {dialect_of(event)} can't be written as {dialect}")
    return codec


def encode_traced(event: MetadataEvent, dialect: Dialect, trace: Trace | None) -> bytes:
    """Encode as `encode` does, and add the position of each field to `trace`."""
    codec = codec_of(event, dialect)
    frame = write_uvarint(FRAME_VERSION) if dialect is Dialect.KAFKA else b""
    head = frame + write_uvarint(codec.schema.api_key) + write_uvarint(RECORD_VERSION)
    return codec.encode(event, bytearray(head), trace)
