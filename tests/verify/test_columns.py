"""Checks of columns find what a plain loop over all segments of a partition finds, in the same order."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.checks.findings import Finding, FindingKind
from tierctl.checks.segments import (
    LogFacts,
    Retention,
    check_partition,
    check_segments,
    sound_partitions,
    unfinished_finding,
)
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    TopicConfig,
    Uuid,
)
from tierctl.read.partition_reader import ReadablePartition
from tierctl.state.lineage import Lineage, RemoteLogMetadataCache, segments_in_lineage
from tierctl.state.log_start import CutEpochs, cut_epochs, unreadable_below
from tierctl.state.queries import PartitionSegments

from tests.state.folding import encodable, folded, values_of
from tests.state.histories import (
    ORDERS,
    S,
    finished,
    histories,
    regular_histories,
    segment_id,
    started,
    updated,
)
from tests.support.amounts import examples

K = FindingKind
NOW_MS = 1_700_000_300_000
Found = tuple[FindingKind, Uuid | None, int | None, int | None]

_entries = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=5)


def epoch_starts(segments: list[RemoteLogSegmentMetadata], below: int = 1 << 60) -> list[tuple[int, int]]:
    """Return the lowest start of each leader epoch of finished segments that begin below an offset."""
    starts: dict[int, int] = {}
    for segment in segments:
        if segment.state is S.COPY_SEGMENT_FINISHED and segment.start_offset < below:
            for epoch, start in segment.segment_leader_epochs:
                starts[epoch] = min(start, starts.get(epoch, start))
    return sorted(starts.items())


@st.composite
def _partitions(draw: st.DrawFn) -> tuple[RemoteLogMetadataCache, LogFacts]:
    """Return a partition, and a log that has its lineage, a part of that, or any other one."""
    events = draw(st.one_of(histories(), regular_histories(), regular_histories()))
    parts = list(folded(values_of([each for each in events if encodable(each)])).partitions.values())
    cache = parts[0].cache if parts else RemoteLogMetadataCache.empty()
    lineage = Lineage(epoch_starts(list(cache.list_remote_log_segments())))
    changes: list[Callable[[Lineage], Lineage]] = [
        lambda known: known,
        lambda known: known.truncate_from_start(draw(st.integers(0, 60))),
        lambda known: Lineage(known.entries[draw(st.integers(0, 2)) :]),
        lambda known: Lineage((*known.entries, *draw(_entries))),
        lambda _known: Lineage(sorted(draw(_entries))),
    ]
    start, end = draw(st.integers(0, 60)), draw(st.one_of(st.integers(0, 200), st.just(1 << 50)))
    local_start = draw(st.one_of(st.none(), st.integers(0, 200)))
    log_start = draw(st.sampled_from([0, start]))
    log = LogFacts(
        partition=ORDERS,
        segments=PartitionSegments.of_cache(cache),
        lineage=draw(st.sampled_from(changes))(lineage),
        known_log_start_offset=log_start,
        log_start_offset=log_start,
        log_end_offset=end,
        local_only_bytes=None,
        local_start_offset=local_start,
    )
    return cache, log


@examples(300, share=10)
@given(_partitions())
def test_columns_answer_as_single_segments(partition: tuple[RemoteLogMetadataCache, LogFacts]) -> None:
    cache, log = partition
    segments, known = list(cache.list_remote_log_segments()), PartitionSegments.of_cache(cache)
    lineage, end = log.lineage, log.log_end_offset
    assert known.within(lineage, end).tolist() == [lineage.contains(each, end) for each in segments]
    for below in (log.log_start_offset, 1 << 60):
        assert known.epoch_starts(below) == epoch_starts(segments, below)
    listed = {each.segment_id for epoch in cache.leader_epochs() for each in _listed(cache, epoch)}
    finished = {each.segment_id for each in segments if each.state is S.COPY_SEGMENT_FINISHED}
    assert known.doubled_ids == finished - listed


def _listed(cache: RemoteLogMetadataCache, epoch: int) -> list[RemoteLogSegmentMetadata]:
    at = cache.table.epoch(cache.number, epoch)
    return [cache.table.metadata(row) for row in cache.listed(at, epoch).tolist()]


@examples(40)
@given(regular_histories(has_errors=False))
def test_what_a_well_behaved_cluster_writes_is_plainly_in_order(events: list[MetadataEvent]) -> None:
    for part in folded(values_of(events)).by_metadata_partition():
        assert part.segments.is_in_order
        assert PartitionSegments.of_cache(part.cache).is_in_order


@examples(400, share=10)
@given(_partitions())
def test_readable_ranges_are_the_offsets_of_spans(partition: tuple[RemoteLogMetadataCache, LogFacts]) -> None:
    cache, log = partition
    start = log.log_start_offset
    expected = [(s.from_offset, s.to_offset) for s in segments_in_lineage(cache, log.lineage, start)]
    ranges = list(PartitionSegments.of_cache(cache).readable_ranges(log.lineage, start))
    assert list(_joined(ranges)) == list(_joined(expected))


@pytest.mark.parametrize(("start", "expected"), [(0, [(0, 99)]), (55, [(55, 59)]), (60, [])])
def test_reading_begins_within_overlapping_segments(start: int, expected: list[tuple[int, int]]) -> None:
    events = [*finished(1, 0, 99), *finished(2, 50, 59)]
    (part,) = folded(values_of(events))
    assert list(part.segments.readable_ranges(Lineage([(0, 0)]), start)) == expected


def _joined(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield ascending ranges with inclusive ends, those that adjoin as one."""
    begun: int | None = None
    for at, (first, last) in enumerate(ranges):
        begun = first if begun is None else begun
        if at + 1 == len(ranges) or ranges[at + 1][0] != last + 1:
            yield begun, last
            begun = None


@examples(400, share=10)
@given(_partitions())
def test_findings_are_those_of_a_plain_loop(partition: tuple[RemoteLogMetadataCache, LogFacts]) -> None:
    cache, log = partition
    known = PartitionSegments.of_cache(cache)
    found = [_told(each) for each in check_segments(ORDERS, known, log, NOW_MS) if each.check is not K.GAP]
    assert found == list(_expected(cache, log))
    without = [_told(each) for each in check_segments(ORDERS, known, None, NOW_MS)]
    assert without == [each for each in _expected(cache, None) if each[0] in _OF_STATE]


def test_findings_from_one_offset_are_in_the_order_of_their_ends() -> None:
    (part,) = folded(values_of([started(1, 0, 19), started(2, 0, 9), started(3, 0, 9)]))
    found = [each.segment_id for each in check_segments(ORDERS, part.segments, None, NOW_MS)]
    assert found == [segment_id(2), segment_id(3), segment_id(1)]


@examples(200, share=10)
@given(st.one_of(regular_histories(), regular_histories(), histories(8)), st.sampled_from([0, NOW_MS]))
def test_nothing_is_found_in_sound_partitions(events: list[MetadataEvent], now_ms: int) -> None:
    state = folded(values_of([each for each in events if encodable(each)]))
    sound = sound_partitions(state, now_ms)
    for part in state:
        readable = ReadablePartition(part.topic_id_partition, part.cache, (), part.failed_copies)
        retention = Retention(now_ms, TopicConfig(retention_ms=1000))
        found = check_partition(readable, None, _fail, now_ms=now_ms, retention=retention)
        assert part.topic_id_partition not in sound or not list(found)


@pytest.mark.parametrize(
    ("events", "is_sound"),
    [
        ([*finished(1, 0, 9), *finished(2, 10, 19, ((0, 10), (1, 15)))], True),
        ([*finished(1, 0, 9), *finished(2, 11, 19)], False),
        ([*finished(1, 0, 9), started(2, 10, 19)], False),
        ([*finished(1, 0, 9), *finished(2, 10, 19, max_timestamp_ms=0)], False),
        ([*finished(1, 0, 9), *finished(2, 10, 19, max_timestamp_ms=NOW_MS + 1)], False),
        ([started(1, 0, 9), *map(partial(updated, 1), list(S)[2:])], False),
    ],
    ids=["in order", "gap", "unfinished", "no age", "future", "failed copy"],
)
def test_sound_partitions(events: list[MetadataEvent], is_sound: bool) -> None:
    withdrawn = [
        replace(each, broker_id=1) if isinstance(each, RemoteLogSegmentMetadataUpdate) else each
        for each in events
    ]
    state = folded(values_of(withdrawn))
    assert sound_partitions(state, NOW_MS) == ({ORDERS} if is_sound else set())


def _fail(error: object) -> None:
    raise AssertionError(error)


_OF_STATE = {K.DANGLING_COPY, K.STUCK_DELETE, K.DOUBLED_SEGMENT}


def _told(finding: Finding) -> Found:
    return finding.check, finding.segment_id, finding.start_offset, finding.end_offset


def _expected(cache: RemoteLogMetadataCache, log: LogFacts | None) -> Iterator[Found]:
    """Yield the findings about single segments, and overlaps, one segment after the other."""
    known = PartitionSegments.of_cache(cache)
    segments = sorted(cache.list_remote_log_segments(), key=lambda s: (s.start_offset, s.end_offset))
    cut = None
    if log is not None:
        cut = cut_epochs(
            log.lineage,
            known,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            local_start_offset=log.local_start_offset,
        )
    current = []
    for segment in segments:
        kind: FindingKind | None = None
        if segment.state is not S.COPY_SEGMENT_FINISHED:
            kind = unfinished_finding(ORDERS, cache, segment, NOW_MS).check
        elif segment.segment_id in known.doubled_ids:
            kind = K.DOUBLED_SEGMENT
        elif log is not None:
            kind = _misplaced(segment, log)
            if kind is None and log.lineage:
                current.append(segment)
            if cut is not None and segment in cut.lost:
                kind = None
        if kind is not None:
            yield kind, segment.segment_id, segment.start_offset, segment.end_offset
    unreadable = cut or _unreadable_below(log, known)
    if unreadable is not None:
        yield K.CUT_EPOCHS, None, unreadable.lost[0].start_offset, unreadable.end_offset
    reached = -1
    for segment in current:
        if segment.start_offset <= reached:
            yield K.OVERLAP, segment.segment_id, segment.start_offset, segment.end_offset
        reached = max(reached, segment.end_offset)


def _unreadable_below(log: LogFacts | None, known: PartitionSegments) -> CutEpochs | None:
    if log is None or log.local_start_offset is None:
        return None
    return unreadable_below(log.lineage, known, log.log_start_offset)


def _misplaced(segment: RemoteLogSegmentMetadata, log: LogFacts) -> FindingKind | None:
    if segment.end_offset < log.log_start_offset:
        return K.BELOW_LOG_START
    if not log.lineage or log.lineage.contains(segment, log.log_end_offset):
        return None
    is_beyond = log.lineage.contains(segment, segment.end_offset + 1)
    return K.BEYOND_LOG_END if is_beyond else K.DIVERGENT_SEGMENT
