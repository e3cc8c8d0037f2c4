"""Compact a cache file: leave out the entries on which no query's answer depends."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tierctl.errors import CorruptInputError, UsageError
from tierctl.metadata.cache_files.files import CacheFile, Form
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.model.stored import StoredPartitionState, StoredRecord, StoredSegment, StoredValue
from tierctl.state.fold import fold_event
from tierctl.state.tier import TierState
from tierctl.wire.files import flatfile
from tierctl.wire.files import remote_log_snapshot as snapshot
from tierctl.wire.metadata import decode

_GONE = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The content of a compacted cache file."""

    data: bytes
    body: bytes
    """The part of `data` after the header."""
    kept: int
    """Entries in `body`."""


def compacted(file: CacheFile) -> Compacted:
    """Return `file` without deleted segments, and with one entry per segment where the form allows it.

    Raise CorruptInputError if an entry can't be decoded, because it might be one that must be kept; raise
    UsageError for a form that is not compacted.
    """
    for error in file.errors:
        raise error.within(str(file.path))
    if file.form is Form.SNAPSHOT:
        return _snapshot(file)
    if file.form is Form.REMOTE_INDEX:
        raise UsageError(f"{file.path}: a .remoteindex file is not compacted", hint="name cache files only")
    records = [entry.record for entry in file.entries if isinstance(entry.record, StoredRecord)]
    values = [record for record in records if isinstance(record, StoredValue)]
    if values and len(values) != len(records):
        raise UsageError(
            f"{file.path} mixes entries of KIP-405 with tierctl's own format",
            hint="build it again with tierctl cache build",
        )
    kept = _values(values) if values else _stored(records)
    body = b"".join(map(flatfile.encode_entry, kept))
    return Compacted(data=_header(file) + body, body=body, kept=len(kept))


def _header(file: CacheFile) -> bytes:
    if file.topic_id is None:
        return b""
    return flatfile.encode_header(
        flatfile.FlatFileHeader(
            topic=file.topic, topic_id=file.topic_id, metadata_topic_offset=file.metadata_topic_offset
        )
    )


def _snapshot(file: CacheFile) -> Compacted:
    if file.metadata_partition is None:
        return Compacted(data=b"", body=b"", kept=0)
    segments = snapshot.distinct_segments(
        entry.record for entry in file.entries if isinstance(entry.record, RemoteLogSegmentMetadataSnapshot)
    )
    kept = [segment for segment in segments if segment.state is not _GONE]
    data = snapshot.write(file.metadata_partition, file.metadata_topic_offset, kept)
    return Compacted(data=data, body=data, kept=len(kept))


def _stored(records: Iterable[StoredRecord]) -> list[StoredRecord]:
    """Return the last entry of each segment that is not deleted, and the partition's last delete state."""
    segments: dict[Uuid, StoredRecord] = {}
    states: list[StoredRecord] = []
    for record in records:
        if isinstance(record, StoredSegment):
            segments.pop(record.segment_id, None)
            if record.state is not _GONE:
                segments[record.segment_id] = record
        elif isinstance(record, StoredPartitionState):
            states = [record]
    return [*segments.values(), *states]


@dataclass(slots=True)
class _Segment:
    """The first event of a segment and its last state."""

    first: RemoteLogSegmentMetadata
    state: RemoteLogSegmentState

    @property
    def is_live(self) -> bool:
        return self.state is not _GONE


_Segments = dict[Uuid, _Segment]


def _values(values: Sequence[StoredValue]) -> list[StoredRecord]:
    """Return the events of live segments, and of deleted segments on which an answer still depends.

    A deleted segment can decide the highest offset of an epoch, or have replaced another segment. Therefore
    a choice of events is accepted only if every query has the same answer as before; otherwise more deleted
    segments are kept, and in the end all events.
    """
    events = [decode(value.value) for value in values]
    segments = _segments(events)
    before = _answers(events)
    last = len(events) - 1
    ids = {each for each, segment in segments.items() if segment.is_live} | _highest(segments)
    for wider in (set[Uuid](), _near_live_ones(segments)):
        ids |= wider
        # The last event stays, because its offset states how far the metadata topic was consumed.
        rows = [i for i, event in enumerate(events) if i == last or _segment_id(event) in {None, *ids}]
        if _answers([events[i] for i in rows]) == before:
            return [values[i] for i in rows]
    return list(values)


def _segments(events: Iterable[MetadataEvent]) -> _Segments:
    segments: _Segments = {}
    for event in events:
        if isinstance(event, RemoteLogSegmentMetadata):
            segments.setdefault(event.segment_id, _Segment(event, event.state))
        elif isinstance(event, RemoteLogSegmentMetadataUpdate) and event.segment_id in segments:
            segments[event.segment_id].state = event.state
    return segments


def _segment_id(event: MetadataEvent) -> Uuid | None:
    return getattr(event, "segment_id", None)


def _highest(segments: _Segments) -> set[Uuid]:
    """Return the id of the segment with the highest end offset of each leader epoch."""
    best: dict[int, tuple[int, Uuid]] = {}
    for segment_id, segment in segments.items():
        for epoch, _ in segment.first.segment_leader_epochs:
            end = (segment.first.epoch_end_offset(epoch), segment_id)
            best[epoch] = max(best.get(epoch, end), end)
    return {segment_id for _, segment_id in best.values()}


def _near_live_ones(segments: _Segments) -> set[Uuid]:
    """Return the ids of segments that share offsets with a live segment."""
    live = sorted((s.first.start_offset, s.first.end_offset) for s in segments.values() if s.is_live)
    starts = [start for start, _ in live]
    furthest = list(accumulate((end for _, end in live), max))
    near = set()
    for segment_id, segment in segments.items():
        below = bisect_right(starts, segment.first.end_offset)
        if below and furthest[below - 1] >= segment.first.start_offset:
            near.add(segment_id)
    return near


def _answers(events: Sequence[MetadataEvent]) -> object:
    """Return the answers to all queries that a broker makes, from the state after `events`.

    Per partition: its delete state, the listed segments (also by epoch), the highest offset of each epoch,
    and the segment that holds the first and the last offset of each epoch of each segment.
    """
    state = TierState()
    for offset, event in enumerate(events):
        try:
            fold_event(event, state, metadata_partition=0, metadata_offset=offset)
        except CorruptInputError:
            continue
    answers = []
    for part in state:
        cache, epochs = part.cache, part.cache.leader_epochs()
        listed = sorted(cache.list_remote_log_segments(), key=lambda segment: segment.segment_id)
        edges = [
            (epoch, offset)
            for segment in listed
            for epoch, start in segment.segment_leader_epochs
            for offset in (start, segment.epoch_end_offset(epoch))
        ]
        answers.append(
            (
                part.topic_id_partition,
                part.delete_state,
                listed,
                [list(cache.list_remote_log_segments(epoch)) for epoch in epochs],
                [(epoch, cache.highest_offset_for_epoch(epoch)) for epoch in epochs],
                [cache.remote_log_segment_metadata(epoch, offset) for epoch, offset in edges],
            )
        )
    return answers
