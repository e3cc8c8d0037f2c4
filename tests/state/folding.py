"""Fold encoded events, and compare states by the results of queries."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
from tierctl.errors import IllegalEventError, RemoteResourceNotFound
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.events import is_valid_partition_transition
from tierctl.state.fold import fold, fold_event, read_snapshot, write_snapshot
from tierctl.state.lineage import RemoteLogMetadataCache
from tierctl.state.queries import LiveSegments, PartitionSegments
from tierctl.state.table_arrays import STATES
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.wire.metadata.decode import DecodedEvents, decode_values
from tierctl.wire.metadata.values import decode, encode

from tests.state.histories import S
from tests.state.reference import ReferenceCache


def events_of(values: Sequence[bytes | None]) -> DecodedEvents:
    return decode_values(pa.array(values, pa.binary()))


def folded(
    values: Sequence[bytes | None],
    *,
    chunks: Sequence[int] = (),
    keep_deleted: bool = False,
    between: Callable[[TierState], TierState] = lambda state: state,
) -> TierState:
    """Return the state after values at metadata offsets 0, 1, …, folded in chunks that end at `chunks`.

    After each chunk, the fold continues with the state that `between` returns.
    """
    state = TierState(keep_deleted=keep_deleted)
    bounds = sorted({0, len(values), *(min(c, len(values)) for c in chunks)})
    for begin, end in pairwise(bounds):
        state = between(state)
        fold(events_of(values[begin:end]), state, metadata_partition=3, metadata_offsets=range(begin, end))
    return state


def restored(state: TierState) -> TierState:
    """Write a snapshot, and read it."""
    return read_snapshot(write_snapshot(state, 3))


def cache_of(events: Iterable[MetadataEvent]) -> RemoteLogMetadataCache:
    """Return the cache of the first user partition after events that are all applied."""
    state = TierState()
    for offset, event in enumerate(events):
        fold_event(event, state, metadata_partition=3, metadata_offset=offset)
    assert state.anomaly_count == 0
    return next((part.cache for part in state.partitions.values()), RemoteLogMetadataCache.empty())


@dataclass(slots=True)
class Expected:
    """A user partition by the reference cache and by KIP-405's states of a deletion."""

    topic_id_partition: TopicIdPartition
    metadata_partition: int = 3
    delete_state: RemotePartitionDeleteState | None = None
    delete_marked_offset: int | None = None
    lowest_start_offset: int | None = None
    last_event_offset: int = -1
    cache: ReferenceCache = field(default_factory=ReferenceCache)

    def take(self, event: MetadataEvent, offset: int) -> bool:
        """Apply an event; return False if it is ignored; raise IllegalEventError."""
        self.last_event_offset = offset
        if isinstance(event, RemotePartitionDeleteMetadata):
            return self._delete(event.state, offset)
        is_taken = self.cache.take(event)
        if is_taken and isinstance(event, RemoteLogSegmentMetadata):
            known = self.lowest_start_offset
            self.lowest_start_offset = min(event.start_offset, event.start_offset if known is None else known)
        return is_taken

    def _delete(self, target: RemotePartitionDeleteState, offset: int) -> bool:
        if not is_valid_partition_transition(self.delete_state, target):
            return False
        if self.delete_state is None:
            self.delete_marked_offset = offset
        if target is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            self.delete_marked_offset = None
        self.delete_state = target
        return True


@dataclass(slots=True)
class ExpectedState:
    """The state that Kafka's classes have after events, written with dictionaries."""

    partitions: dict[tuple[Uuid, int], Expected] = field(default_factory=dict)
    refused: int = 0
    ignored: list[tuple[int, MetadataEvent]] = field(default_factory=list)


def one_by_one(values: Sequence[bytes]) -> ExpectedState:
    state = ExpectedState()
    for offset, value in enumerate(values):
        event = decode(value)
        whose = event.topic_id_partition
        part = state.partitions.setdefault(whose.key, Expected(whose))
        try:
            if not part.take(event, offset):
                state.ignored.append((offset, event))
        except IllegalEventError:
            state.refused += 1
    return state


def answers_of(cache: RemoteLogMetadataCache) -> dict[str, Any]:
    """Return the results of all queries of a cache, in its order."""
    epochs = cache.leader_epochs()
    offsets = range(-1, 60)
    listed: dict[int, Any] = {}
    for epoch in epochs:
        try:
            listed[epoch] = list(cache.list_remote_log_segments(epoch))
        except RemoteResourceNotFound:
            listed[epoch] = "RemoteResourceNotFoundException"
    return {
        "all": sorted(cache.list_remote_log_segments(), key=lambda m: m.segment_id),
        "count": len(cache),
        "listed": listed,
        "highest": {epoch: cache.highest_offset_for_epoch(epoch) for epoch in epochs},
        "found": [cache.remote_log_segment_metadata(e, o) for e in epochs for o in offsets],
        "starts": [cache.next_start_offset(e, o) for e in epochs for o in offsets],
    }


def assert_answers(segments: PartitionSegments, cache: RemoteLogMetadataCache) -> None:
    """Assert that queries of the columns have the same results as queries of a cache's objects."""
    known = sorted(cache.list_remote_log_segments(), key=lambda m: m.segment_id)
    finished = [m for m in known if m.state is S.COPY_SEGMENT_FINISHED]

    def ordered(found: Iterable[RemoteLogSegmentMetadata]) -> list[RemoteLogSegmentMetadata]:
        return sorted(found, key=lambda m: m.segment_id)

    assert ordered(segments) == known
    assert_columns(segments.columns, list(segments))
    for state in S:
        assert ordered(segments.in_state(state)) == [m for m in known if m.state is state]
        assert segments.count_in(state) == sum(m.state is state for m in known)
    for offset in range(-1, 60, 7):
        assert ordered(segments.finished_before(offset)) == [m for m in finished if m.start_offset < offset]
        assert segments.count_finished_below(offset) == sum(m.end_offset < offset for m in finished)
        assert ordered(segments.finished_below(offset)) == [m for m in finished if m.end_offset < offset]
    for epoch in (*cache.leader_epochs(), 99):
        below = [m for m in finished if max(e for e, _ in m.segment_leader_epochs) < epoch]
        assert ordered(segments.finished_of_epochs_below(epoch)) == below
        assert _listed(_finished_in(segments), epoch) == _listed(cache.list_remote_log_segments, epoch)
    for at, begun in enumerate(arrived := list(segments)):
        last = max(e for e, _ in begun.segment_leader_epochs)
        highest = cache.highest_offset_for_epoch(last)
        is_copied = highest is not None and highest >= begun.end_offset
        before = [m for m in arrived[:at] if m.state is S.COPY_SEGMENT_FINISHED]
        wanted = is_copied and not any(_end_in(m, last) >= begun.end_offset for m in before)
        assert segments.has_copied_since(begun.segment_id, begun.end_offset, [last]) == wanted
    ranges = [(m.start_offset, m.end_offset) for m in finished]
    starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
    assert segments.finished_range() == ((min(starts), max(ends)) if ranges else None)
    assert segments.latest_epoch() == max(cache.leader_epochs(), default=-1)
    assert segments.newest_event_ms() == max((m.event_timestamp_ms for m in known), default=0)
    newest = segments.newest()
    assert (None if newest is None else _recency(newest)) == max(map(_recency, finished), default=None)


def assert_columns(live: LiveSegments, segments: list[RemoteLogSegmentMetadata]) -> None:
    """Assert that columns have the facts of the segments."""
    pairs = live.epoch_pairs()
    found = list(zip(pairs.epochs.tolist(), pairs.offsets.tolist(), strict=True))
    assert [segment.end_offset for segment in segments] == live.column("end").tolist()
    assert [segment.state for segment in segments] == [STATES[code] for code in live.states]
    assert [len(segment.segment_leader_epochs) for segment in segments] == pairs.counts.tolist()
    assert [pair for segment in segments for pair in segment.segment_leader_epochs] == found
    customs = live.customs() or [None] * len(segments)
    assert [segment.custom_metadata for segment in segments] == customs


def _end_in(segment: RemoteLogSegmentMetadata, epoch: int) -> int:
    """Return the last offset of `epoch` in a segment; -1 if it has none."""
    starts = sorted(dict(segment.segment_leader_epochs).items())
    ends = [start - 1 for _, start in starts[1:]] + [segment.end_offset]
    return next((end for (each, _), end in zip(starts, ends, strict=True) if each == epoch), -1)


def _finished_in(segments: PartitionSegments) -> Callable[[int], Iterable[RemoteLogSegmentMetadata]]:
    def listing(epoch: int) -> Iterable[RemoteLogSegmentMetadata]:
        found = segments.of_rows(segments.finished_in_epoch(epoch))
        return map(found.metadata, range(len(found)))

    return listing


def _listed(
    listing: Callable[[int], Iterable[RemoteLogSegmentMetadata]], epoch: int
) -> list[RemoteLogSegmentMetadata] | None:
    try:
        return [m for m in listing(epoch) if m.state is S.COPY_SEGMENT_FINISHED]
    except RemoteResourceNotFound:
        return None


def _recency(segment: RemoteLogSegmentMetadata) -> tuple[int, int, int]:
    last = max(epoch for epoch, _ in segment.segment_leader_epochs)
    return last, segment.end_offset, segment.event_timestamp_ms


def facts_of(part: PartitionState | Expected) -> tuple[Any, ...]:
    return (
        part.topic_id_partition,
        part.metadata_partition,
        part.delete_state,
        part.delete_marked_offset,
        part.lowest_start_offset,
        part.last_event_offset,
    )


def assert_same(state: TierState, expected: ExpectedState | TierState) -> None:
    assert state.partitions.keys() == expected.partitions.keys()
    if isinstance(expected, ExpectedState):
        assert [(a.metadata_offset, a.event) for a in state.anomalies] == expected.ignored
        assert (state.anomaly_count, len(state.quarantined)) == (len(expected.ignored), expected.refused)
    else:
        assert (state.anomalies, state.anomaly_count) == (expected.anomalies, expected.anomaly_count)
        assert len(state.quarantined) == len(expected.quarantined)
    for key, part in state.partitions.items():
        assert facts_of(part) == facts_of(expected.partitions[key])
        assert answers_of(part.cache) == answers_of(expected.partitions[key].cache)
        assert part.finished_count == part.segments.count_in(S.COPY_SEGMENT_FINISHED)
        assert_answers(part.segments, expected.partitions[key].cache)
        assert_answers(PartitionSegments.of_cache(part.cache), expected.partitions[key].cache)
    grouped = list(state.by_metadata_partition())
    assert sorted(part.topic_id_partition for part in grouped) == sorted(p.topic_id_partition for p in state)
    for part in state.by_metadata_partition():
        assert part.finished_count == part.segments.count_in(S.COPY_SEGMENT_FINISHED)
        assert_answers(part.segments, expected.partitions[part.topic_id_partition.key].cache)


def values_of(events: Sequence[MetadataEvent]) -> list[bytes]:
    return [encode(event, "kip405" if event.broker_id is None else "kafka") for event in events]


def encodable(event: MetadataEvent) -> bool:
    """Return values that KIP-405's dialect can represent, and that the codec accepts."""
    kip405 = event.broker_id is None
    return not (kip405 and (event.custom_metadata is not None or getattr(event, "txn_index_empty", False)))
