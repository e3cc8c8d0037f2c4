"""Segments as columns equal the segments as objects; checks find no problem in regular histories."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tierctl.checks.segments import LogFacts, check_segments, unfinished_finding
from tierctl.model import MetadataEvent, RemoteLogSegmentMetadata
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.lineage import Lineage, segments_in_lineage
from tierctl.state.queries import LiveSegments, PartitionSegments
from tierctl.state.table_arrays import STATES

from tests.state.folding import encodable, folded, values_of
from tests.state.histories import ORDERS, S, histories, regular_histories
from tests.support.amounts import examples

NOW_MS = 10**13


def live_of(cache: RemoteLogMetadataCache) -> LiveSegments:
    return LiveSegments(cache.table, cache.rows)


def is_plainly_in_order(cache: RemoteLogMetadataCache) -> bool:
    live = live_of(cache)
    return bool(live.plainly_in_order(live.epoch_pairs(), np.zeros(len(live), np.int64), 1)[0])


def cache_of(events: list[MetadataEvent]) -> RemoteLogMetadataCache:
    state = folded(values_of([event for event in events if encodable(event)]))
    parts = list(state.partitions.values())
    return parts[0].cache if parts else RemoteLogMetadataCache()


def facts_of_tier(cache: RemoteLogMetadataCache) -> LogFacts | None:
    """Return the log that the tier alone describes, computed in a slow and simple way."""
    finished = [s for s in cache.list_remote_log_segments() if s.state is S.COPY_SEGMENT_FINISHED]
    starts: dict[int, int] = {}
    for segment in finished:
        for epoch, start in segment.segment_leader_epochs:
            starts[epoch] = min(start, starts.get(epoch, start))
    lineage = Lineage(sorted(starts.items()))
    first = next(segments_in_lineage(cache, lineage), None)
    if first is None:
        return None
    end = max(finished, key=lambda s: (max(s.segment_leader_epochs)[0], s.end_offset)).end_offset
    return LogFacts(lineage=lineage, log_start_offset=first.from_offset, log_end_offset=end + 1)


@examples(60)
@given(st.one_of(histories(), regular_histories()))
def test_columns_are_the_segments(events: list[MetadataEvent]) -> None:
    cache = cache_of(events)
    live = live_of(cache)
    segments: list[RemoteLogSegmentMetadata] = list(cache.list_remote_log_segments())
    pairs = live.epoch_pairs()
    found = list(zip(pairs.epochs.tolist(), pairs.offsets.tolist(), strict=True))
    assert [segment.end_offset for segment in segments] == live.column("end").tolist()
    assert [segment.state for segment in segments] == [STATES[code] for code in live.states]
    assert [len(segment.segment_leader_epochs) for segment in segments] == pairs.counts.tolist()
    assert [pair for segment in segments for pair in segment.segment_leader_epochs] == found
    customs = live.customs() or [None] * len(segments)
    assert [segment.custom_metadata for segment in segments] == customs


@examples(60)
@given(st.one_of(regular_histories(), regular_histories(), histories(8)))
def test_nothing_is_found_in_what_is_plainly_in_order(events: list[MetadataEvent]) -> None:
    cache = cache_of(events)
    if not is_plainly_in_order(cache):
        return
    unfinished = [s for s in cache.list_remote_log_segments() if s.state is not S.COPY_SEGMENT_FINISHED]
    expected = sorted(unfinished, key=lambda s: (s.start_offset, s.end_offset))
    found = list(check_segments(ORDERS, PartitionSegments.of_cache(cache), facts_of_tier(cache), NOW_MS))
    assert found == [unfinished_finding(ORDERS, cache, segment, NOW_MS) for segment in expected]


@examples(40)
@given(regular_histories())
def test_what_a_well_behaved_cluster_writes_is_plainly_in_order(events: list[MetadataEvent]) -> None:
    assert is_plainly_in_order(cache_of(events))
