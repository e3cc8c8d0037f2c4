"""Values of the metadata topic: golden ones, generated ones and damaged ones."""

from functools import cache
from random import Random
from typing import Any

from hypothesis import strategies as st
from tests.conftest import vectors
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    Uuid,
)
from tierctl.model.events import dialect_of
from tierctl.wire.metadata.values import encode


@cache
def golden(dialect: str) -> tuple[bytes, ...]:
    """Return values that Kafka's own classes wrote."""
    return tuple(bytes.fromhex(row["hex"]) for row in vectors(f"serde-{dialect}.jsonl"))


INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
OFFSET = st.one_of(st.integers(0, 300), st.integers(0, (1 << 63) - 1))
UUIDS = st.binary(min_size=16, max_size=16).map(Uuid.from_bytes)
TOPICS = st.one_of(
    st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.text(max_size=12), st.just("t" * 249)
)
# Tag 0 is left out: on segments it is the transaction flag, which has its own field.
TAGS = st.one_of(
    st.just(()),
    st.dictionaries(st.integers(1, 1 << 20), st.binary(max_size=6), min_size=1, max_size=3).map(
        lambda tags: tuple(sorted(tags.items()))
    ),
)
EPOCHS = st.lists(st.tuples(INT32, INT64), min_size=1, max_size=4).map(tuple)
CUSTOM = st.one_of(st.none(), st.binary(max_size=5))


@st.composite
def offsets(draw: st.DrawFn) -> dict[str, int]:
    """Return a segment's start and end offset."""
    start, end = sorted((draw(OFFSET), draw(OFFSET)))
    return {"start_offset": start, "end_offset": end}


def _nested(
    places: tuple[str, ...],
) -> st.SearchStrategy[tuple[tuple[str, tuple[tuple[int, bytes], ...]], ...]]:
    one = st.tuples(*(TAGS for _ in places))
    return one.map(
        lambda found: tuple((place, tags) for place, tags in zip(places, found, strict=True) if tags)
    )


_ID_PLACES = ("remote_log_segment_id.topic_id_partition", "remote_log_segment_id")
_WHOSE = {"topic": TOPICS, "topic_id": UUIDS, "partition": INT32}
_SEGMENT = {
    "segment_id": UUIDS,
    "max_timestamp_ms": INT64,
    "event_timestamp_ms": INT64,
    "segment_leader_epochs": EPOCHS,
    "segment_size_in_bytes": INT32,
    "state": st.sampled_from(RemoteLogSegmentState),
}
_KAFKA = {"broker_id": INT32, "unknown_tags": TAGS}
_FLAG = {"txn_index_empty": st.booleans(), "custom_metadata": CUSTOM}


def segments(event: type, **given: st.SearchStrategy[object]) -> st.SearchStrategy[Any]:
    """Return events of a type that has the facts of a segment, and the `given` ones."""
    return st.builds(lambda span, **rest: event(**span, **rest), offsets(), **_SEGMENT, **given)


KAFKA_EVENTS: st.SearchStrategy[MetadataEvent] = st.one_of(
    segments(
        RemoteLogSegmentMetadata,
        **_WHOSE,
        **_KAFKA,
        **_FLAG,
        nested_tags=_nested((*_ID_PLACES, "segment_leader_epochs.0")),
    ),
    st.builds(
        RemoteLogSegmentMetadataUpdate,
        **_WHOSE,
        **_KAFKA,
        segment_id=UUIDS,
        event_timestamp_ms=INT64,
        custom_metadata=CUSTOM,
        state=st.sampled_from(RemoteLogSegmentState),
        nested_tags=_nested(_ID_PLACES),
    ),
    st.builds(
        RemotePartitionDeleteMetadata,
        **_WHOSE,
        **_KAFKA,
        event_timestamp_ms=INT64,
        state=st.sampled_from(RemotePartitionDeleteState),
        nested_tags=_nested(("topic_id_partition",)),
    ),
    segments(RemoteLogSegmentMetadataSnapshot, **_KAFKA, **_FLAG),
)
KIP405_EVENTS: st.SearchStrategy[MetadataEvent] = st.one_of(
    segments(RemoteLogSegmentMetadata, **_WHOSE, leader_epoch=INT32),
    st.builds(
        RemoteLogSegmentMetadataUpdate,
        **_WHOSE,
        segment_id=UUIDS,
        leader_epoch=INT32,
        event_timestamp_ms=INT64,
        state=st.sampled_from(RemoteLogSegmentState),
    ),
    st.builds(
        RemotePartitionDeleteMetadata,
        **_WHOSE,
        epoch=INT32,
        event_timestamp_ms=INT64,
        state=st.sampled_from(RemotePartitionDeleteState),
    ),
)
EVENTS = st.one_of(KAFKA_EVENTS, KIP405_EVENTS)
VALUES = st.one_of(
    EVENTS.map(lambda event: encode(event, dialect_of(event))),
    st.deferred(lambda: st.sampled_from(golden("kafka"))),
    st.deferred(lambda: st.sampled_from(golden("kip405"))),
)


@st.composite
def overwritten(draw: st.DrawFn, value: bytes) -> bytes:
    """Return the value with up to three changed bytes, of the same length."""
    out = bytearray(value)
    for _ in range(draw(st.integers(0, 3))):
        out[draw(st.integers(0, len(out) - 1))] = draw(
            st.one_of(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)), st.integers(0, 255))
        )
    return bytes(out)


def mutated(value: bytes, other: bytes, source: Random) -> bytes:
    """Return a value that is cut, overwritten, lengthened, shortened, or joined with another one."""
    at = source.randrange(len(value) + 1)
    match source.randrange(5):
        case 0:
            return value[:at]
        case 1:
            return value[:at] + source.randbytes(source.randint(1, 4)) + value[at:]
        case 2:
            return value[:at] + value[at + source.randint(1, 4) :]
        case 3:
            return value[:at] + other[source.randrange(len(other) + 1) :]
        case _:
            out = bytearray(value)
            for _ in range(source.randint(1, 3)):
                byte = source.choice((0, 1, 2, 0x7F, 0x80, 0xFF, source.randrange(256)))
                out[source.randrange(len(out))] = byte
            return bytes(out)


MUTATED = st.builds(mutated, VALUES, VALUES, st.randoms(use_true_random=False))
ANY_BYTES = st.one_of(VALUES, MUTATED, st.binary(max_size=80))


@st.composite
def columns(draw: st.DrawFn) -> list[bytes | None]:
    """Return a column in which many values have the same length, with some unusual ones."""
    rows: list[bytes | None] = draw(st.lists(st.one_of(ANY_BYTES, st.none()), max_size=4))
    for _ in range(draw(st.integers(1, 3))):
        base = draw(VALUES)
        rows += draw(st.lists(overwritten(base), min_size=1, max_size=14))
    return draw(st.permutations(rows))
