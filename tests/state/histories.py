"""Histories of one partition's metadata events, from probable to impossible ones."""

from dataclasses import replace

from hypothesis import strategies as st
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)

from tests.metadata.events import deletion_of, update_of
from tests.plan.tier import S, segment, segment_id

__all__ = ["S", "segment_id"]

ORDERS = TopicIdPartition(Uuid.from_bytes(b"topic-id-orders!"), "orders", 1)


def started(
    number: int,
    start_offset: int,
    end_offset: int,
    epochs: tuple[tuple[int, int], ...] | None = None,
    **facts: object,
) -> RemoteLogSegmentMetadata:
    """Return a segment's first event."""
    base = segment(
        number,
        start_offset,
        end_offset,
        *(epochs or ()),
        size=1000,
        max_timestamp_ms=1_700_000_000_000 + end_offset,
        event_timestamp_ms=1_700_000_100_000,
        partition=ORDERS,
    )
    return replace(base, **facts)


def updated(number: int, state: RemoteLogSegmentState, **facts: object) -> RemoteLogSegmentMetadataUpdate:
    """Return a later event of a segment."""
    base = replace(update_of(started(number, 0, 0), state, at_ms=1_700_000_200_000), broker_id=2)
    return replace(base, **facts)


def deletion(
    state: RemotePartitionDeleteState, whose: TopicIdPartition = ORDERS
) -> RemotePartitionDeleteMetadata:
    """Return the event with the delete state of a partition."""
    return deletion_of(whose, state, at_ms=1)


def finished(number: int, *facts: object, **named: object) -> list[MetadataEvent]:
    """Return both events of a copied segment."""
    return [started(number, *facts, **named), updated(number, S.COPY_SEGMENT_FINISHED)]


_numbers = st.integers(0, 7)
_epochs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=4).map(tuple)
_written_by = st.sampled_from([{}, {"broker_id": None, "leader_epoch": 3}, {"broker_id": 7}])
_custom = st.sampled_from([None, None, b"", b"object-key", b"another key"])


@st.composite
def _add(draw: st.DrawFn) -> RemoteLogSegmentMetadata:
    start = draw(st.integers(0, 40))
    end = start + draw(st.one_of(st.integers(0, 15), st.just(1 << 40)))
    epochs = draw(st.one_of(st.just(None), st.integers(0, 3).map(lambda e: ((e, start),)), _epochs))
    state = draw(st.sampled_from([S.COPY_SEGMENT_STARTED] * 9 + [S.COPY_SEGMENT_FINISHED]))
    return started(
        draw(_numbers),
        start,
        end,
        epochs,
        state=state,
        txn_index_empty=draw(st.booleans()),
        custom_metadata=draw(_custom),
        max_timestamp_ms=draw(st.integers(-1, 100)),
        **draw(_written_by),
    )


@st.composite
def _update(draw: st.DrawFn) -> RemoteLogSegmentMetadataUpdate:
    later = [S.COPY_SEGMENT_FINISHED] * 4 + [S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED]
    state = draw(st.sampled_from([*later, S.COPY_SEGMENT_STARTED]))
    return updated(
        draw(_numbers),
        state,
        custom_metadata=draw(_custom),
        event_timestamp_ms=draw(st.integers(0, 1000)),
        **draw(_written_by),
    )


@st.composite
def _life(draw: st.DrawFn) -> list[MetadataEvent]:
    """Return a prefix of the usual events of segments, one segment after the other."""
    event = draw(_add())
    states = [S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED]
    number = int.from_bytes(event.segment_id.bytes, "big")
    return [event, *(updated(number, state) for state in states[: draw(st.integers(0, 3))])]


_steps = st.one_of(_add().map(lambda e: [e]), _update().map(lambda e: [e]), _life())


def histories(max_steps: int = 25) -> st.SearchStrategy[list[MetadataEvent]]:
    """Return events in order of arrival: regular histories of segments mixed with arbitrary events."""
    return st.lists(_steps, max_size=max_steps).map(lambda steps: [event for step in steps for event in step])


@st.composite
def regular_histories(
    draw: st.DrawFn, max_segments: int = 40, *, has_errors: bool = True
) -> list[MetadataEvent]:
    """Return the events of a regular cluster: copies in order, deletes from the start, rare errors.

    An error is an event that is repeated somewhere, even before the one that it repeats.
    """
    events: list[MetadataEvent] = []
    offset, epoch, oldest = 0, 0, 0
    for number in range(draw(st.integers(0, max_segments))):
        end = offset + draw(st.integers(0, 9))
        epochs = [(epoch, offset)]
        while end > epochs[-1][1] and draw(st.integers(0, 4)) == 0:
            epoch += draw(st.integers(1, 2))
            epochs.append((epoch, draw(st.integers(epochs[-1][1] + 1, end))))
        events += [started(number, offset, end, tuple(epochs)), updated(number, S.COPY_SEGMENT_FINISHED)]
        if oldest < number and draw(st.booleans()):
            deletion = [updated(oldest, S.DELETE_SEGMENT_STARTED), updated(oldest, S.DELETE_SEGMENT_FINISHED)]
            events += deletion[: draw(st.integers(1, 2))]
            oldest += 1
        if has_errors and draw(st.integers(0, 9)) == 0:
            events.insert(draw(st.integers(0, len(events))), events[draw(st.integers(0, len(events) - 1))])
        offset = end + 1
    return events
