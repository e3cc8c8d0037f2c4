"""The fold has the same results as Kafka's classes, in whole columns, in chunks, and from a snapshot on."""

import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.errors import (
    CorruptInputError,
    IllegalEventError,
    RemoteResourceNotFound,
    UnsupportedFormatError,
)
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemotePartitionDeleteState,
    Uuid,
)
from tierctl.state import fold as fold_module
from tierctl.state import table as table_module
from tierctl.state.fold import fold, read_snapshot, write_snapshot
from tierctl.state.lineage import RemoteLogMetadataCache
from tierctl.state.table_arrays import ROW_TYPES
from tierctl.state.tier_state import TierState
from tierctl.wire.metadata.decode import rows_of
from tierctl.wire.metadata.values import encode

from tests.conftest import vectors
from tests.state.folding import (
    assert_same,
    cache_of,
    encodable,
    events_of,
    folded,
    one_by_one,
    restored,
    values_of,
)
from tests.state.histories import (
    ORDERS,
    S,
    deletion,
    finished,
    histories,
    regular_histories,
    segment_id,
    started,
    updated,
)
from tests.support.amounts import examples, rest_in_matrix

pytestmark = pytest.mark.usefixtures("both_forms")

P = RemotePartitionDeleteState


def compacted(state: TierState) -> TierState:
    """Drop the rows of deleted segments."""
    for table in state.tables.values():
        table.compact()
    return state


CONTINUED = st.sampled_from([lambda state: state, compacted, restored])
"""How a fold continues after a chunk."""


def assert_lists(cache: RemoteLogMetadataCache, epoch: int, ids: list[Uuid]) -> None:
    """Compare a list with Kafka's, in which segments with equal start offsets have no order."""
    found = list(cache.list_remote_log_segments(epoch))
    assert sorted(each.segment_id for each in found) == sorted(ids)
    starts = [each.start_offset for each in found]
    assert starts == sorted(starts)
    sizes = [each.segment_size_in_bytes for each in found]
    assert cache.remote_log_size(epoch) == (len(sizes), sum(sizes))


@cache
def kafkas() -> list[Any]:
    return list(vectors("cache.jsonl"))


@pytest.mark.parametrize("number", rest_in_matrix([*range(0, 40, 2), *range(1, 40, 2)], 20))
def test_kafkas_histories(number: int) -> None:
    history = kafkas()[number]
    values = [bytes.fromhex(event["hex"]) for event in history["events"]]
    state = folded(values, chunks=range(0, len(values), 7), between=restored)
    assert_same(state, one_by_one(values))
    (part,) = state.partitions.values()
    everything = sorted([m.segment_id, m.state] for m in part.cache.list_remote_log_segments())
    assert everything == history["list_all"]
    for epoch, answers in history["by_epoch"].items():
        assert part.cache.highest_offset_for_epoch(int(epoch)) == answers["highest_offset"]
        assert_lists(part.cache, int(epoch), answers["list"])
        for offset, expected, _ in answers["find"]:
            found = part.cache.remote_log_segment_metadata(int(epoch), offset)
            assert (found and found.segment_id) == expected
    errors = {at: event["error"] for at, event in enumerate(history["events"]) if event["error"]}
    refused = [at for at, error in errors.items() if error == "IllegalArgumentException"]
    assert [bad.metadata_offset for bad in state.quarantined] == refused
    unknown = {at for at, error in errors.items() if error == "RemoteResourceNotFoundException"}
    assert len(refused) + len(unknown) == len(errors)
    assert unknown <= {anomaly.metadata_offset for anomaly in state.anomalies}


@given(st.one_of(histories(), regular_histories()), st.lists(st.integers(0, 60), max_size=4), CONTINUED)
@example([*finished(1, 0, 9), updated(1, S.DELETE_SEGMENT_STARTED)], [1], compacted)
@example([started(1, 0, 9, ((0, 3),)), started(1, 3, 9, ((0, 3),))], [1], compacted)
@example([started(1, 0, 9, ((n % 2, 0),)) for n in range(6)] + [started(2, 10, 19)], [*range(7)], restored)
@examples(200, share=8)
def test_any_history(
    history: list[MetadataEvent], chunks: list[int], continued: Callable[[TierState], TierState]
) -> None:
    values = values_of([event for event in history if encodable(event)])
    assert_same(folded(values, chunks=chunks, between=continued), one_by_one(values))


@given(
    st.lists(st.one_of(histories(), regular_histories()), min_size=2, max_size=4),
    st.lists(st.integers(0, 100), max_size=4),
    st.randoms(use_true_random=False),
    st.booleans(),
    CONTINUED,
)
@examples(150, share=8)
def test_any_histories_of_neighbours(
    found: list[list[MetadataEvent]],
    chunks: list[int],
    random: Random,
    share_ids: bool,
    continued: Callable[[TierState], TierState],
) -> None:
    queues = []
    for partition, history in enumerate(found):
        own = [replace(e, partition=partition) for e in history if encodable(e)]
        if not share_ids:
            own = [replace(e, segment_id=of_partition(e.segment_id, partition)) for e in own]
        queues.append(own)
    events = []
    while any(queues):
        queue = random.choice([queue for queue in queues if queue])
        events.append(queue.pop(0))
    values = values_of(events)
    assert_same(folded(values, chunks=chunks, between=continued), one_by_one(values))


def of_partition(segment_id: Uuid, partition: int) -> Uuid:
    return Uuid.from_bytes(bytes([partition + 1]) + segment_id.bytes[1:])


LIFE = [*finished(1, 0, 9), updated(1, S.DELETE_SEGMENT_STARTED), updated(1, S.DELETE_SEGMENT_FINISHED)]
LATE = [updated(1, S.DELETE_SEGMENT_FINISHED, event_timestamp_ms=9), updated(1, S.COPY_SEGMENT_STARTED)]


@given(st.one_of(histories(), regular_histories()), st.integers(0, 60))
@example([*LIFE, *LATE], len(LIFE))
@example([*LIFE, *LATE, started(1, 30, 39)], len(LIFE))
@examples(100)
def test_deleted_segments_of_any_history(history: list[MetadataEvent], cut: int) -> None:
    values = values_of([event for event in history if encodable(event)])
    state, expected = folded(values, chunks=[cut], keep_deleted=True), one_by_one(values)
    last = {i: m for part in expected.partitions.values() for i, m in part.cache.last.items()}
    if values:
        assert last_states(state) == last
    gone = {m.segment_id for m in state.deleted_segments()}
    assert gone == {i for i, m in last.items() if m.state is S.DELETE_SEGMENT_FINISHED}
    assert_same(state, expected)


def last_states(state: TierState) -> dict[Uuid, RemoteLogSegmentMetadata]:
    """Return every segment, also deleted ones, in its last state."""
    (part,) = state.partitions.values()
    return {m.segment_id: m for m in [*part.cache.list_remote_log_segments(), *state.deleted_segments()]}


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


MARKED, BEGUN, DONE = map(deletion, P)


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
    names = {each.name for each in fields(RemoteLogSegmentMetadataSnapshot)} - {"type"}
    segment = started(5, 50, 59)
    entry = RemoteLogSegmentMetadataSnapshot(**{name: getattr(segment, name) for name in names})
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


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"start_offset": -1}, "start offset"),
        ({"end_offset": 3}, "end offset"),
        ({"segment_leader_epochs": ()}, "leader epoch"),
        ({"state": S.COPY_SEGMENT_FINISHED}, "COPY_SEGMENT_STARTED"),
    ],
)
def test_an_impossible_segment_is_refused(changed: dict[str, Any], expected: str) -> None:
    impossible = replace(started(1, 5, 9), **changed)
    events = rows_of([impossible, updated(1, S.COPY_SEGMENT_FINISHED), started(2, 10, 19)])
    state = TierState()
    fold(events, state, metadata_partition=3, metadata_offsets=range(3))
    [bad] = state.quarantined
    assert (bad.metadata_offset, type(bad.error)) == (0, IllegalEventError)
    assert expected in bad.error.expected
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


def test_an_empty_chunk_moves_only_where_reading_goes_on() -> None:
    state = TierState()
    fold(events_of([]), state, metadata_partition=3, metadata_offsets=[], next_offset=7)
    assert state.read == {3: 7}
    fold(events_of([None]), state, metadata_partition=3, metadata_offsets=np.array([8]))
    assert (state.read, state.partitions) == ({3: 9}, {})


def test_epoch_that_names_a_segment_gone_is_refused_until_it_is_back() -> None:
    moved = [started(1, 0, 9, ((0, 0),)), started(1, 0, 9, ((1, 0),))]
    events = [*moved, updated(1, S.DELETE_SEGMENT_STARTED), updated(1, S.DELETE_SEGMENT_FINISHED)]
    with pytest.raises(RemoteResourceNotFound):
        cache_of(events).list_remote_log_segments(0)
    cache = cache_of([*events, started(1, 0, 9, ((2, 0),))])
    assert [m.segment_id for m in cache.list_remote_log_segments(0)] == [segment_id(1)]


def test_every_field_of_a_segment_is_kept() -> None:
    """A field that is added to the model must get a column of the state, too."""
    segment = started(
        1,
        10,
        19,
        broker_id=3,
        custom_metadata=b"custom",
        txn_index_empty=True,
    )
    # The cache adds a segment always in this state, and kafka records have no leader epoch. Nothing decides
    # by a tagged field that it does not know.
    fixed = {"state", "leader_epoch", "unknown_tags", "nested_tags"}
    assert {f.name for f in fields(segment) if getattr(segment, f.name) == f.default} == fixed
    assert cache_of([segment]).get(segment_id(1)) == segment


def test_threads_ask_at_the_same_time() -> None:
    """Each segment has another number of leader epochs: nothing of one question may be left to another."""
    events, expected = [], {}
    for number in range(40):
        first = 100 * number
        epochs = tuple((number + step, first + step) for step in range(1 + number % 7))
        events += finished(number, first, first + 99, epochs)
        expected |= {(epoch, offset): segment_id(number) for epoch, offset in epochs}
    cache = cache_of(events)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            asked = [*expected] * 8
            found = list(pool.map(lambda each: cache.remote_log_segment_metadata(*each), asked))
    finally:
        sys.setswitchinterval(interval)
    assert [each and each.segment_id for each in found] == [expected[each] for each in asked]


def test_a_snapshot_keeps_what_could_not_be_read() -> None:
    values = [encode(started(1, 0, 9)), b"\x01\x09\x00", None, encode(updated(1, S.COPY_SEGMENT_STARTED))]
    whole, parts = folded(values), folded(values, chunks=[1, 2, 3, 4], between=restored)
    assert_same(restored(parts), whole)
    assert parts.read == whole.read
    assert [(q.metadata_offset, q.error.message) for q in restored(parts).quarantined] == [
        (q.metadata_offset, q.error.message) for q in whole.quarantined
    ]


def test_events_after_one_of_200_000_epochs_are_folded() -> None:
    last = 200_000
    epochs = tuple((number, number) for number in range(last))
    events = [*finished(1, 0, last, epochs), *finished(2, last + 1, last + 9, ((last - 1, last + 1),))]
    values = [encode(each) for each in events]
    cut = values[0][: len(values[0]) // 2]
    state = folded([cut, *values], chunks=[3, 4])
    (part,) = state.partitions.values()
    assert [q.metadata_offset for q in state.quarantined] == [0]
    assert len(part.cache.leader_epochs()) == last
    assert [part.cache.highest_offset_for_epoch(each) for each in (0, last - 1)] == [0, last + 9]
    at = part.cache.remote_log_segment_metadata(last - 1, last + 5)
    assert at is not None
    assert at.segment_id == segment_id(2)
    first = part.cache.get(segment_id(1))
    assert first is not None
    assert first.segment_leader_epochs == epochs


def test_what_is_no_state_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_snapshot(TierState(), 3)
    for wrong in (b"", data[: len(data) // 2], b"nonsense"):
        with pytest.raises(CorruptInputError):
            read_snapshot(wrong)
    monkeypatch.setattr(fold_module, "SNAPSHOT_VERSION", fold_module.SNAPSHOT_VERSION + 1)
    with pytest.raises(UnsupportedFormatError, match=f"version {fold_module.SNAPSHOT_VERSION}"):
        read_snapshot(data)


def test_other_fields_of_a_row_are_another_version() -> None:
    """A snapshot has the bytes of the rows: nothing else tells that fields were exchanged."""
    kinds = repr([(name, kind.descr) for name, kind in ROW_TYPES.items()])
    assert (fold_module.SNAPSHOT_VERSION, zlib.crc32(kinds.encode())) == (7, 346698510)
