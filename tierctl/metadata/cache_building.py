"""Build KIP-405's flat files from the state of the metadata topic, and make cache files smaller.

`plan_compaction` replaces cache files by what queries' answers depend on.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from tierctl.errors import CorruptInputError, SafetyRefusal, UsageError
from tierctl.files import (
    PLAIN,
    broker_kept_out,
    exclusive,
    exists,
    open_itself,
    replace_durably,
)
from tierctl.locallog.folders import open_found
from tierctl.metadata.cache_files import CacheFile, Form, cache_name, findings, read_cache
from tierctl.metadata.state_dir import LOCK
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentState,
    Selection,
    TopicIdPartition,
)
from tierctl.model.events import StoredPartitionState, StoredRecord, StoredSegment
from tierctl.model.progress import Advance, no_op
from tierctl.model.selection import counted
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.wire.files import flatfile
from tierctl.wire.primitives import crc32c

_NO_EPOCH: Final = -1


class BuiltFiles(NamedTuple):
    """A row for each flat file, by topic, and why no file can be named after the other partitions."""

    rows: list[dict[str, Any]]
    left_out: dict[TopicIdPartition, CorruptInputError]


def write_flat_files(
    state: TierState, selection: Selection, folder: Path, *, named: bool, advance: Advance = no_op
) -> BuiltFiles:
    """Write the flat file of each selected user partition to `folder`.

    `named` chooses the header with the topic's name; `advance` receives the number of segments of each file.
    Nothing is changed if a file to replace is a link: raise SafetyRefusal. Raise LockedError if another run
    writes there, or OSError.
    """
    PLAIN.make_folder(folder.absolute())
    paths: list[tuple[PartitionState, Path]] = []
    left_out: dict[TopicIdPartition, CorruptInputError] = {}
    for part in state.partitions.values():
        if part.topic_id_partition in selection:
            try:
                paths.append((part, folder / cache_name(part.topic_id_partition)))
            except CorruptInputError as error:
                left_out[part.topic_id_partition] = error
    rows = []
    with exclusive(folder, LOCK):
        for _, path in paths:
            if exists(path):
                open_itself(path).close()
        for part, path in paths:
            rows.append(_flat_file(part, path, named=named))
            advance(part.segment_count)
    rows.sort(key=itemgetter("topic", "topic_id", "partition"))
    return BuiltFiles(rows, left_out)


def _flat_file(part: PartitionState, path: Path, *, named: bool) -> dict[str, Any]:
    partition = part.topic_id_partition
    header = flatfile.FlatFileHeader(
        topic=partition.topic if named else None,
        topic_id=partition.topic_id,
        metadata_topic_offset=part.last_event_offset,
    )
    rows = _ordered_rows(part)
    deletion = []
    if part.delete_state is not None:
        state = StoredPartitionState(epoch=_NO_EPOCH, event_timestamp_ms=_NO_EPOCH, state=part.delete_state)
        deletion = [flatfile.encode_entry(state)]

    def content() -> Iterator[bytes]:
        entries = (flatfile.encode_entry(_stored_segment(part.table.metadata(row))) for row in rows)
        return flatfile.written(header, chain(entries, deletion))

    # A run that finds the file of an earlier one must not overwrite the backup that this one made.
    if not exists(path) or not _has_content(path, content()):
        replace_durably(path.absolute(), content(), backup=True)
    return {
        "file": str(path),
        "topic": partition.topic,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        "metadata_partition": part.metadata_partition,
        "last_offset": part.last_event_offset,
        "entries": len(rows) + len(deletion),
        "size_bytes": path.stat().st_size,
    }


def _has_content(path: Path, chunks: Iterable[bytes]) -> bool:
    position = 0
    with open_itself(path) as file:
        for chunk in chunks:
            if file.read(position, len(chunk)) != chunk:
                return False
            position += len(chunk)
        return position == file.size_bytes


def _ordered_rows(part: PartitionState) -> list[int]:
    """Return the rows of the segments of a user partition by start offset and id."""
    rows = part.cache.rows
    keys = (part.table.segments[name][rows] for name in ("id_low", "id_high", "start"))
    ordered: list[int] = rows[np.lexsort(tuple(keys))].tolist()
    return ordered


def _stored_segment(segment: RemoteLogSegmentMetadata) -> StoredSegment:
    # KIP-405's record has the leader's epoch where Kafka's events have a broker id: the nearest value is the
    # epoch of the segment's last record.
    last_epoch = max((epoch for epoch, _ in segment.segment_leader_epochs), default=_NO_EPOCH)
    return StoredSegment(
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        leader_epoch=last_epoch if segment.leader_epoch is None else segment.leader_epoch,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=segment.segment_leader_epochs,
        segment_size_in_bytes=segment.segment_size_in_bytes,
        state=segment.state,
    )


_GONE = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The content of a compacted cache file."""

    data: bytes
    kept: int
    """The number of its entries."""


def compacted(file: CacheFile) -> Compacted:
    """Return `file` without deleted segments, and with one entry per segment where the form allows it.

    Raise the first of `findings`, because a damaged entry might be one that must be kept; raise UsageError
    for a form that is not compacted.
    """
    for error in findings(file):
        raise error.within(str(file.path))
    if file.form is Form.SNAPSHOT:
        return _snapshot(file)
    if file.form is Form.REMOTE_INDEX:
        raise UsageError(f"{file.path}: a .remoteindex file is not compacted", hint="name cache files only")
    kept = _stored([entry.record for entry in file.entries if isinstance(entry.record, StoredRecord)])
    body = b"".join(map(flatfile.encode_entry, kept))
    return Compacted(data=_header(file) + body, kept=len(kept))


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
        return Compacted(data=b"", kept=0)
    segments = flatfile.distinct_segments(
        entry.record for entry in file.entries if isinstance(entry.record, RemoteLogSegmentMetadataSnapshot)
    )
    kept = [segment for segment in segments if segment.state is not _GONE]
    data = flatfile.write_snapshot(file.metadata_partition, file.metadata_topic_offset, kept)
    return Compacted(data=data, kept=len(kept))


def _stored(records: Sequence[StoredRecord]) -> list[StoredRecord]:
    """Return the last entry of each segment that is not deleted, and the partition's last delete state."""
    segments = flatfile.distinct_segments(each for each in records if isinstance(each, StoredSegment))
    states = [each for each in records if isinstance(each, StoredPartitionState)]
    return [*(segment for segment in segments if segment.state is not _GONE), *states[-1:]]


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
    size_bytes = 0
    try:
        # Before the entries are read: if the file changes meanwhile, it is not replaced.
        with open_found(path) as opened:
            size_bytes = opened.size_bytes
            crc = crc32c(opened.read(0, size_bytes))
        file = read_cache(path)
        all_entries = tuple(file.entries)
        new = compacted(replace(file, entries=all_entries))
    except CorruptInputError as error:
        return Compaction(reason=error.message, size_bytes=size_bytes, is_damaged=True)
    entries = len(all_entries)
    if len(new.data) >= size_bytes:
        return Compaction(entries=entries, size_bytes=size_bytes, reason="every entry is needed")
    unneeded = entries - new.kept
    reason = counted(unneeded, "entry is not needed/entries are not needed")
    return Compaction(entries=entries, size_bytes=size_bytes, crc=crc, compacted=new, reason=reason)


def rewrite(plans: Iterable[Rewrite]) -> None:
    """Replace each cache file atomically; the old files are kept as .bak.

    Nothing is changed before all folders are locked and all files are compared. Raise SafetyRefusal if a
    broker runs on a folder, or a file is a link or not the one that was read, LockedError if another tierctl
    works there, OSError.
    """
    new = {
        each.path: (each.plan.crc, each.plan.compacted.data)
        for each in plans
        if each.plan.compacted is not None
    }
    with ExitStack() as held:
        for folder in sorted({path.parent.resolve() for path in new}):
            held.enter_context(exclusive(folder, LOCK))
        for folder in {path.absolute().parent for path in new}:
            # A snapshot is in a partition's folder; the broker locks the log directory above that folder.
            for locked in (folder, folder.parent):
                held.enter_context(broker_kept_out(locked))
        for path, (crc, _) in new.items():
            _require_unchanged(path, crc)
        for path, (_, data) in new.items():
            replace_durably(path, data, backup=True)


def _require_unchanged(path: Path, crc: int) -> None:
    with open_itself(path) as file:
        found = crc32c(file.read(0, file.size_bytes))
    if found != crc:
        raise SafetyRefusal(
            f"{path} is not the file that was read: its content has changed",
            hint="run the command again; with --engine spark, executors must see the same files",
        )
