"""Replace cache files by what queries' answers depend on."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tierctl.errors import CorruptInputError, SafetyRefusal, UsageError
from tierctl.files import broker_kept_out, exclusive, read_regular, replace_durably
from tierctl.metadata.cache_files.reading import CacheFile, Form, read_cache
from tierctl.metadata.state_dir import LOCK
from tierctl.model import RemoteLogSegmentMetadataSnapshot, RemoteLogSegmentState, Uuid
from tierctl.model.stored import StoredPartitionState, StoredRecord, StoredSegment
from tierctl.wire.files import flatfile
from tierctl.wire.files import flatfile as snapshot
from tierctl.wire.primitives import crc32c

_GONE = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The content of a compacted cache file."""

    data: bytes
    kept: int
    """The number of its entries."""


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
    kept = _stored(entry.record for entry in file.entries if isinstance(entry.record, StoredRecord))
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
    segments = snapshot.distinct_segments(
        entry.record for entry in file.entries if isinstance(entry.record, RemoteLogSegmentMetadataSnapshot)
    )
    kept = [segment for segment in segments if segment.state is not _GONE]
    data = snapshot.write_snapshot(file.metadata_partition, file.metadata_topic_offset, kept)
    return Compacted(data=data, kept=len(kept))


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
        all_entries = tuple(file.entries)
        new = compacted(replace(file, entries=all_entries))
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
            _replace(mine)


def _replace(plans: Iterable[Rewrite]) -> None:
    for each in plans:
        new = each.plan.compacted
        if new is None:
            continue
        if crc32c(read_regular(each.path)) != each.plan.crc:
            raise SafetyRefusal(
                f"{each.path} is not the file that was read: its content has changed",
                hint="run the command again; with --engine spark, executors must see the same files",
            )
        replace_durably(each.path, new.data, backup=True)
