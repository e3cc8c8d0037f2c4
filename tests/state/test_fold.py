"""Folding whole columns has the same result as folding event by event."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import IllegalEventError
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    Uuid,
)
from tierctl.state import table as table_module
from tierctl.state.fold import fold
from tierctl.state.tier_state import ANOMALIES_KEPT, TierState
from tierctl.wire.metadata.decode import rows_of
from tierctl.wire.metadata.values import decode, encode

from tests.conftest import vectors
from tests.state.folding import assert_same, encodable, events_of, folded, one_by_one, values_of
from tests.state.histories import ORDERS, S, finished, histories, regular_histories, started, updated
from tests.state.reference import ReferenceCache
from tests.state.reference import updated as with_update
from tests.state.test_cache import assert_lists
from tests.support.amounts import examples

pytestmark = pytest.mark.usefixtures("both_forms")

P = RemotePartitionDeleteState


@pytest.mark.parametrize("number", range(40))
def test_kafkas_histories(number: int) -> None:
    history = list(vectors("cache.jsonl"))[number]
    values = [bytes.fromhex(event["hex"]) for event in history["events"]]
    state = folded(values)
    assert_same(state, one_by_one(values))
    (part,) = state.partitions.values()
    everything = sorted([m.segment_id, m.state] for m in part.cache.list_remote_log_segments())
    assert everything == history["list_all"]
    for epoch, answers in history["by_epoch"].items():
        assert part.cache.highest_offset_for_epoch(int(epoch)) == answers["highest_offset"]
        assert_lists(part.cache, int(epoch), answers["list"])
    errors = [event["error"] for event in history["events"]]
    assert len(state.quarantined) == errors.count("IllegalArgumentException")
    assert state.anomaly_count >= errors.count("RemoteResourceNotFoundException")


@given(
    st.one_of(histories(), regular_histories()),
    st.lists(st.integers(0, 60), max_size=4),
)
@examples(200)
def test_any_history(history: list[MetadataEvent], chunks: list[int]) -> None:
    events = [e for e in history if encodable(e) and not e.unknown_tags and not e.nested_tags]
    values = values_of(events)
    assert_same(folded(values, chunks=chunks), one_by_one(values))


@given(
    st.lists(st.one_of(histories(), regular_histories()), min_size=2, max_size=4),
    st.lists(st.integers(0, 100), max_size=4),
    st.randoms(use_true_random=False),
    st.booleans(),
)
@examples(200)
def test_any_histories_of_neighbours(
    found: list[list[MetadataEvent]], chunks: list[int], random: Random, share_ids: bool
) -> None:
    queues = []
    for partition, history in enumerate(found):
        own = [replace(e, partition=partition) for e in history if encodable(e) and not e.nested_tags]
        if not share_ids:
            own = [replace(e, segment_id=of_partition(e.segment_id, partition)) for e in own]
        queues.append(own)
    events = []
    while any(queues):
        queue = random.choice([queue for queue in queues if queue])
        events.append(queue.pop(0))
    values = values_of([e for e in events if not e.unknown_tags])
    assert_same(folded(values, chunks=chunks), one_by_one(values))


def of_partition(segment_id: Uuid, partition: int) -> Uuid:
    return Uuid.from_bytes(bytes([partition + 1]) + segment_id.bytes[1:])


def kept_by_a_cache_that_keeps(events: Sequence[MetadataEvent]) -> dict[Uuid, RemoteLogSegmentMetadata]:
    """Return the last state of every segment, from a reference cache that keeps deleted segments."""
    cache, last = ReferenceCache(initialized=False), {}
    for event in events:
        known = cache.get(event.segment_id)
        try:
            taken = cache.add(event) if isinstance(event, RemoteLogSegmentMetadata) else cache.update(event)
        except IllegalEventError:
            continue
        if taken:
            is_add = isinstance(event, RemoteLogSegmentMetadata)
            last[event.segment_id] = event if is_add else with_update(known, event)
    return last


def test_segment_finished_and_marked_for_deletion_in_a_later_chunk_stays_listed() -> None:
    values = values_of([*finished(1, 0, 9), updated(1, S.DELETE_SEGMENT_STARTED)])
    assert_same(folded(values, chunks=[1]), one_by_one(values))


@pytest.mark.parametrize("chunks", [[], [1]])
def test_a_segment_that_is_added_again_at_a_higher_offset_keeps_its_lowest_start(chunks: list[int]) -> None:
    values = values_of([started(1, 0, 9, ((0, 3),)), started(1, 3, 9, ((0, 3),))])
    assert_same(folded(values, chunks=chunks), one_by_one(values))


def last_states(state: TierState) -> dict[Uuid, RemoteLogSegmentMetadata]:
    """Return every segment, also deleted ones, in its last state."""
    (part,) = state.partitions.values()
    return {m.segment_id: m for m in [*part.cache.list_remote_log_segments(), *state.deleted_segments()]}


@given(st.one_of(histories(), regular_histories()), st.integers(0, 60))
@examples(200)
def test_deleted_segments_of_any_history(history: list[MetadataEvent], cut: int) -> None:
    events = [e for e in history if encodable(e) and not e.unknown_tags and not e.nested_tags]
    values = values_of(events)
    state = folded(values, chunks=[cut], keep_deleted=True)
    expected = kept_by_a_cache_that_keeps(events)
    if events:
        assert last_states(state) == expected
    gone = {m.segment_id for m in state.deleted_segments()}
    assert gone == {i for i, m in expected.items() if m.state is S.DELETE_SEGMENT_FINISHED}
    assert_same(state, one_by_one(values))


def test_what_is_said_of_a_segment_after_its_deletion_changes_nothing() -> None:
    life = [*finished(1, 0, 9), updated(1, S.DELETE_SEGMENT_STARTED), updated(1, S.DELETE_SEGMENT_FINISHED)]
    late = [updated(1, S.DELETE_SEGMENT_FINISHED, event_timestamp_ms=9), updated(1, S.COPY_SEGMENT_STARTED)]
    after = {"chunks": [len(life)], "keep_deleted": True}
    state = folded(values_of([*life, *late]), **after)
    (last,) = state.deleted_segments()
    assert list(last_states(state).values()) == [last]
    assert (last.state, last.event_timestamp_ms) == (S.DELETE_SEGMENT_FINISHED, life[-1].event_timestamp_ms)
    again = started(1, 30, 39)
    state = folded(values_of([*life, *late, again]), **after)
    assert list(state.deleted_segments()) == []
    assert list(last_states(state).values()) == [again]


def test_deleted_segments_are_kept_when_many_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "_DEAD_ROWS_MAX", 2)
    numbers = range(20)
    events = [e for n in numbers for e in finished(n, 10 * n, 10 * n + 9, topic="orders")]
    for target in (S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED):
        events += [updated(n, target) for n in numbers]
    state = folded(values_of(events), keep_deleted=True)
    assert [m.start_offset for m in state.deleted_segments()] == [10 * n for n in numbers]
    (part,) = state
    assert len(part.cache) == 0


def deleting(state: RemotePartitionDeleteState) -> RemotePartitionDeleteMetadata:
    return RemotePartitionDeleteMetadata(
        topic=ORDERS.topic,
        topic_id=ORDERS.topic_id,
        partition=ORDERS.partition,
        broker_id=1,
        event_timestamp_ms=5,
        state=state,
    )


MARKED, BEGUN, DONE = (deleting(state) for state in P)


@pytest.mark.parametrize(
    ("events", "delete_state", "marked_offset", "anomalies"),
    [
        ([MARKED], P.DELETE_PARTITION_MARKED, 0, 0),
        ([MARKED, MARKED, MARKED], P.DELETE_PARTITION_MARKED, 0, 0),
        ([*finished(1, 0, 9), MARKED, MARKED, BEGUN], P.DELETE_PARTITION_STARTED, 2, 0),
        ([MARKED, BEGUN, BEGUN, MARKED], P.DELETE_PARTITION_STARTED, 0, 1),
        ([MARKED, BEGUN, DONE], P.DELETE_PARTITION_FINISHED, None, 0),
        ([BEGUN, MARKED], P.DELETE_PARTITION_MARKED, 1, 1),
        ([DONE], None, None, 1),
        ([MARKED, BEGUN, DONE, MARKED], P.DELETE_PARTITION_FINISHED, None, 1),
    ],
    ids=[
        "marked",
        "marked again",
        "started",
        "late mark",
        "finished",
        "begun first",
        "out of nowhere",
        "over",
    ],
)
def test_deletion_of_a_partition(
    events: list[MetadataEvent],
    delete_state: RemotePartitionDeleteState | None,
    marked_offset: int | None,
    anomalies: int,
) -> None:
    state = folded(values_of(events))
    (part,) = state.partitions.values()
    assert (part.delete_state, part.delete_marked_offset) == (delete_state, marked_offset)
    assert state.anomaly_count == anomalies


def test_what_cannot_be_used_is_quarantined_and_the_rest_goes_on() -> None:
    snapshot = decode(encode(started(5, 50, 59)))
    entry = RemoteLogSegmentMetadataSnapshot(
        **{
            name: getattr(snapshot, name)
            for name in RemoteLogSegmentMetadataSnapshot.__dataclass_fields__
            if name != "type"
        }
    )
    values = [
        encode(started(1, 0, 9)),
        b"junk",
        None,
        encode(entry),
        encode(started(2, 10, 19, state=S.COPY_SEGMENT_FINISHED)),
        encode(updated(1, S.COPY_SEGMENT_STARTED)),
        encode(updated(9, S.COPY_SEGMENT_FINISHED)),
        encode(updated(1, S.COPY_SEGMENT_FINISHED)),
    ]
    state = folded(values)
    assert [q.metadata_offset for q in state.quarantined] == [1, 3, 4, 5]
    assert [type(q.error) for q in state.quarantined[1:]] == [IllegalEventError] * 3
    assert [(a.metadata_offset, a.event.state) for a in state.anomalies] == [(6, S.COPY_SEGMENT_FINISHED)]
    assert state.is_damaged(3)
    assert not state.is_damaged(4)
    assert state.read == {3: len(values)}
    (part,) = state.partitions.values()
    assert [m.state for m in part.cache.list_remote_log_segments()] == [S.COPY_SEGMENT_FINISHED]
    assert part.last_event_offset == 7


@pytest.mark.parametrize("changed", [{"start_offset": -1}, {"end_offset": 3}, {"segment_leader_epochs": ()}])
def test_an_impossible_segment_is_refused(changed: dict[str, Any]) -> None:
    impossible = replace(started(1, 5, 9), **changed)
    events = rows_of([impossible, updated(1, S.COPY_SEGMENT_FINISHED), started(2, 10, 19)])
    state = TierState()
    fold(events, state, metadata_partition=3, metadata_offsets=range(3))
    assert [q.metadata_offset for q in state.quarantined] == [0]
    assert [a.metadata_offset for a in state.anomalies] == [1]
    assert len(state.partitions[ORDERS.key].cache) == 1


def test_partitions_of_one_name_and_several_ids_are_apart() -> None:
    other = Uuid.from_bytes(b"another topic id")
    events = [started(1, 0, 9), started(2, 0, 9, topic_id=other), started(3, 0, 9, partition=2)]
    state = folded(values_of(events))
    assert list(state.partitions) == [(ORDERS.topic_id, 1), (other, 1), (ORDERS.topic_id, 2)]
    assert all(len(part.cache) == 1 for part in state)
    assert state.partition(ORDERS) is state.partitions[ORDERS.key]


def test_topic_that_changes_its_name_keeps_each_segments_own() -> None:
    events = [started(1, 0, 9), started(2, 10, 19, topic="renamed"), updated(2, S.COPY_SEGMENT_FINISHED)]
    (part,) = folded(values_of(events)).partitions.values()
    assert [m.topic for m in part.cache.list_remote_log_segments()] == ["orders", "renamed"]


def test_tags_and_custom_metadata_survive_both_ways() -> None:
    events = [
        started(1, 0, 9, unknown_tags=((9, b"later"),), custom_metadata=b"key"),
        started(2, 10, 19),
        updated(2, S.COPY_SEGMENT_FINISHED, custom_metadata=b""),
        updated(1, S.COPY_SEGMENT_FINISHED),
    ]
    (part,) = folded(values_of(events)).partitions.values()
    first, second = part.cache.list_remote_log_segments()
    assert (first.unknown_tags, first.custom_metadata) == (((9, b"later"),), None)
    assert (second.unknown_tags, second.custom_metadata) == ((), b"")


def test_nonsense_is_counted_and_not_hoarded() -> None:
    values = [encode(updated(1, S.COPY_SEGMENT_FINISHED))] * (ANOMALIES_KEPT + 5)
    state = folded(values)
    assert (state.anomaly_count, len(state.anomalies)) == (ANOMALIES_KEPT + 5, ANOMALIES_KEPT)


def test_an_empty_chunk_moves_only_where_reading_goes_on() -> None:
    state = TierState()
    fold(events_of([]), state, metadata_partition=3, metadata_offsets=[], next_offset=7)
    assert state.read == {3: 7}
    fold(events_of([None]), state, metadata_partition=3, metadata_offsets=np.array([8]))
    assert (state.read, state.partitions) == ({3: 9}, {})
