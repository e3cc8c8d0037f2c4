"""Replace cache files by what queries' answers depend on."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from tierctl.errors import CorruptInputError, SafetyRefusal, UsageError
from tierctl.files import broker_kept_out, exclusive, read_regular, replace_durably
from tierctl.metadata.cache_files.reading import (
    CacheFile,
    Form,
    against_manifest,
    listed_in_manifest,
    manifest_of,
    read_cache,
)
from tierctl.metadata.state_dir.directory import LOCK
from tierctl.metadata.state_dir.manifest import MANIFEST
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
from tierctl.state.tier_state import TierState
from tierctl.wire.files import flatfile
from tierctl.wire.files import flatfile as snapshot
from tierctl.wire.metadata.values import decode
from tierctl.wire.primitives import crc32c

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
    data = snapshot.write_snapshot(file.metadata_partition, file.metadata_topic_offset, kept)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The effect of compacting one cache file. Executors return it without a path, so that they name none."""

    reason: str
    """Why the file is compacted or kept."""
    entries: int | None = None
    size_bytes: int = 0
    crc: int = 0
    """CRC-32C of the file as it was read."""
    compacted: Compacted | None = None
    """The new content; None if the file is not changed."""
    is_damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """The plan for one cache file."""

    path: Path
    plan: Compaction

    def row(self) -> dict[str, Any]:
        """Return the plan as JSON-ready fields."""
        plan, new = self.plan, self.plan.compacted
        return {
            "action": "keep" if new is None else "compact",
            "file": str(self.path),
            "entries": plan.entries,
            "kept": plan.entries if new is None else new.kept,
            "size_bytes": plan.size_bytes,
            "new_size_bytes": plan.size_bytes if new is None else len(new.data),
            "reason": plan.reason,
        }


def plan_compaction(path: Path) -> Compaction:
    """Read the cache file at `path` and plan its compaction; change nothing.

    Raise UsageError for a form that is not compacted, or OSError.
    """
    size_bytes = path.stat().st_size
    # Before the entries are read: if the file changes meanwhile, it is not replaced.
    crc = crc32c(read_regular(path))
    try:
        file = read_cache(path)
        for error in against_manifest(file):
            raise error
        listed = listed_in_manifest(file)
        all_entries = tuple(listed.entries)
        new = compacted(replace(listed, entries=all_entries))
    except CorruptInputError as error:
        return Compaction(reason=error.message, size_bytes=size_bytes, is_damaged=True)
    entries = len(all_entries)
    if len(new.data) >= size_bytes:
        return Compaction(entries=entries, size_bytes=size_bytes, reason="every entry is needed")
    reason = f"{entries - new.kept} entries are not needed"
    return Compaction(entries=entries, size_bytes=size_bytes, crc=crc, compacted=new, reason=reason)


def rewrite(plans: Iterable[Rewrite]) -> None:
    """Replace each cache file atomically; the old files are kept as .bak.

    Raise SafetyRefusal if a broker runs on the folder or a file is not the one that was read, LockedError if
    another tierctl works there, OSError.
    """
    by_folder: dict[Path, list[Rewrite]] = {}
    for plan in plans:
        by_folder.setdefault(plan.path.absolute().parent, []).append(plan)
    for folder, mine in by_folder.items():
        with ExitStack() as held:
            held.enter_context(exclusive(folder, LOCK))
            # A snapshot is in a partition's folder; the broker locks the log directory above that folder.
            for locked in (folder, folder.parent):
                held.enter_context(broker_kept_out(locked))
            _replace(folder, mine)


def _replace(folder: Path, plans: Iterable[Rewrite]) -> None:
    manifest = deepcopy(manifest_of(folder))
    for each in plans:
        new = each.plan.compacted
        if new is None:
            continue
        if crc32c(read_regular(each.path)) != each.plan.crc:
            raise SafetyRefusal(
                f"{each.path} is not the file that was read: it its content has changed",
                hint="run the command again; with --engine spark, executors must see the same files",
            )
        replace_durably(each.path, new.data, backup=True)
        entry = manifest.caches.get(each.path.name)
        if entry is not None:
            # The cache is written first: after a crash its CRC differs from the manifest's, and the next run
            # reads this partition from the metadata topic again.
            manifest.caches[each.path.name] = replace(entry, events=new.kept, crc=crc32c(new.body))
            replace_durably(folder / MANIFEST, manifest.dumps())
