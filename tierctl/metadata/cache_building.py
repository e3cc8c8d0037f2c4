"""Build cache files from the metadata topic: KIP-405's flat files, also those that do not fit into memory.

    events --by segment id--> shares --fold--> one sorted run for each share --merge--> one file per partition

A state that fits into memory is one run. Only metadata partitions without lost events and without records
that a broker can't use are folded in shares: what is to be said about others depends on their whole state.

`plan_compaction` replaces cache files by what queries' answers depend on.
"""

import os
import pickle
import tempfile
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from heapq import merge
from itertools import chain, groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tierctl.errors import CorruptInputError, SafetyRefusal, SpoolError, UsageError
from tierctl.files import PLAIN, broker_kept_out, exclusive, read_regular, replace_durably
from tierctl.kernel import expect
from tierctl.metadata.cache_files import CacheFile, Form, cache_name, read_cache
from tierctl.metadata.parallel_fold import PartitionFold, PartitionRange, counted, record_chunks
from tierctl.metadata.state_dir import LOCK
from tierctl.metadata.topic.base import ReadableTopic
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    Selection,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.events import StoredPartitionState, StoredRecord, StoredSegment
from tierctl.model.progress import Advance, no_op
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.wire.arrays import Int64s, array_of, take_rows
from tierctl.wire.files import flatfile
from tierctl.wire.files import flatfile as snapshot
from tierctl.wire.metadata.decode import (
    ADD,
    KIND,
    ODD,
    SEGMENT_ID_LOW,
    SNAPSHOT,
    TOMBSTONE,
    UPDATE,
    decode_values,
)
from tierctl.wire.primitives import crc32c

SHARE_EVENTS: Final = 40_000
"""The events of a share: about 15 MB are needed to fold them."""
_SHARES_MAX: Final = 256
_ROWS_AT_ONCE: Final = 64
"""The rows of each run that are in memory while runs are merged."""
_EVENTS_BYTES_AT_ONCE: Final = 2 << 20

EVENTS: Final = pa.schema(
    [("metadata_partition", pa.int32()), ("metadata_offset", pa.int64()), ("record", pa.binary())]
)
"""The columns of the events of a share, ordered by metadata partition and offset."""

Facts = tuple[bytes, int, str, int, int, str | None]
"""A user partition: topic id, number, topic, metadata partition, offset of its last event, delete state."""
Entry = tuple[int, int, int, bytes]
"""A segment: its start offset, its id as two signed words, and its entry in a flat file."""
Piece = tuple[Facts, list[Entry]]
"""Some segments of a user partition. The pieces of a run are in the order of files, and so are its segments.

Pieces consist of plain values, because executors send them.
"""
_NO_EPOCH: Final = -1


class UnusableRecordError(Exception):
    """A record of the metadata topic can't be used, or can't be read: fold whole metadata partitions."""


def shares_of(events: int) -> int:
    """Return in how many shares so many events are folded."""
    return min(max(-(-events // SHARE_EVENTS), 1), _SHARES_MAX)


class _Spool:
    """Blocks of bytes by group, in a file without a name in the folder for temporary files."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._end = 0
        # The position and the length of each block, one after the other.
        self._places: dict[int, array[int]] = defaultdict(lambda: array("q"))

    def close(self) -> None:
        self._file.close()

    def append(self, group: int, block: bytes) -> None:
        self._places[group].extend((self._end, len(block)))
        folder = Path(tempfile.gettempdir())
        try:
            PLAIN.write(self._file.fileno(), block, folder)
        except OSError as e:
            raise SpoolError(
                f"writing a temporary file in {folder}: {e.strerror or e}",
                hint="set TMPDIR to a folder with more room",
            ) from e
        self._end += len(block)

    @property
    def groups(self) -> list[int]:
        return sorted(self._places)

    def blocks(self, group: int) -> Iterator[bytes]:
        places = iter(self._places[group])
        for at, size in zip(places, places, strict=True):
            yield os.pread(self._file.fileno(), size, at)


class FoldInShares:
    """Read events, and fold those of one share of the segment ids after the other."""

    def __init__(self, shares: int, partition_count: int) -> None:
        self.shares = shares
        self._partition_count = partition_count
        self._events = _Spool()

    def close(self) -> None:
        """Remove the events that were read."""
        self._events.close()

    def read(self, topic: ReadableTopic, ranges: Sequence[PartitionRange], advance: Advance = no_op) -> None:
        """Read metadata partitions, ascending; raise UnusableRecordError, and the errors of `topic`.

        `advance` receives the numbers of offsets that were read.
        """
        expect(sum(each.end - each.begin for each in ranges))
        for each in ranges:
            chunks = topic.read(each.metadata_partition, each.begin, each.end)
            for chunk in counted(chunks, each.begin, advance):
                events = decode_values(chunk.slices).rows
                kinds = events[:, KIND]
                if chunk.damage or bool(np.isin(kinds, (ODD, SNAPSHOT)).any()):
                    raise UnusableRecordError
                own = (kinds == ADD) | (kinds == UPDATE)
                shares = events[:, SEGMENT_ID_LOW].view(np.uint64) % np.uint64(self.shares)
                numbers = np.full(len(kinds), each.metadata_partition, np.int32)
                columns = [array_of(pa.int32(), numbers), array_of(pa.int64(), chunk.offsets), chunk.values]
                batch = pa.RecordBatch.from_arrays(columns, schema=EVENTS)
                # What is about a whole user partition belongs to all shares.
                chosen: Int64s = np.where(own, shares.astype(np.int64), -1)
                self._add(batch, chosen, np.flatnonzero(kinds != TOMBSTONE))

    def _add(self, batch: pa.RecordBatch, shares: Int64s, rows: Int64s) -> None:
        """Append rows of `batch` to their shares, those with share -1 to each share."""
        own, wide = rows[shares[rows] >= 0], rows[shares[rows] < 0]
        rows = np.concatenate([own, np.tile(wide, self.shares)])
        shares = np.concatenate([shares[own], np.repeat(np.arange(self.shares), len(wide))])
        order = np.lexsort((rows, shares))
        ordered = take_rows(batch, rows[order])
        edges = np.searchsorted(shares[order], np.arange(self.shares + 1)).tolist()
        for share, (first, end) in enumerate(pairwise(edges)):
            if first < end:
                self._events.append(share, ordered.slice(first, end - first).serialize().to_pybytes())

    def fold(self, share: int) -> Iterator[Piece]:
        """Yield the run of a share; raise UnusableRecordError."""
        state = TierState()
        fold = PartitionFold(state, self._partition_count)
        for batch in _joined(self._events.blocks(share)):
            for chunk in record_chunks(batch):
                fold.fold(chunk)
        if state.quarantined:
            raise UnusableRecordError
        yield from run_of(state)


def _joined(blocks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the events in blocks in larger batches."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for block in blocks:
        waiting.append(pa.ipc.read_record_batch(pa.py_buffer(block), EVENTS))
        size += len(block)
        if size >= _EVENTS_BYTES_AT_ONCE:
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def run_of(state: TierState) -> Iterator[Piece]:
    """Yield the user partitions of a state, and their segments, in the order of files."""
    parts = {_facts(part): part for part in state.partitions.values()}
    for facts, part in sorted(parts.items()):
        rows = _ordered_rows(part)
        for at in range(0, max(len(rows), 1), _ROWS_AT_ONCE):
            yield facts, list(_entries(part, rows[at : at + _ROWS_AT_ONCE]))


def _facts(part: PartitionState) -> Facts:
    partition, deletion = part.topic_id_partition, part.delete_state
    place = part.metadata_partition, part.last_event_offset, None if deletion is None else str(deletion)
    return partition.topic_id.bytes, partition.partition, partition.topic, *place


def _ordered_rows(part: PartitionState) -> Int64s:
    """Return the rows of the segments of a user partition by start offset and id."""
    rows = part.cache.rows
    keys = (part.table.segments[name][rows] for name in ("id_low", "id_high", "start"))
    ordered: Int64s = rows[np.lexsort(tuple(keys))]
    return ordered


def _entries(part: PartitionState, rows: Int64s) -> Iterator[Entry]:
    table = part.table
    keys = (table.segments[name][rows].tolist() for name in ("start", "id_high", "id_low"))
    for row, start, high, low in zip(rows.tolist(), *keys, strict=True):
        yield start, high, low, flatfile.encode_entry(_stored_segment(table.metadata(row)))


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


@dataclass(slots=True, kw_only=True)
class _Part:
    """A user partition, as far as the runs that were added know it."""

    topic_id_partition: TopicIdPartition
    metadata_partition: int
    last_event_offset: int
    delete_state: RemotePartitionDeleteState | None
    segments: int = 0


class SortedRuns:
    """Runs, from which flat files are written by a merge."""

    def __init__(self) -> None:
        self._parts: dict[tuple[bytes, int], _Part] = {}
        self._pieces = _Spool()

    def close(self) -> None:
        """Remove the runs."""
        self._pieces.close()

    def clear(self) -> None:
        """Forget all runs."""
        self.close()
        self._parts, self._pieces = {}, _Spool()

    def add(self, run: int, piece: Piece) -> None:
        """Add the next piece of a run."""
        (topic_id, number, topic, metadata_partition, last_event_offset, deletion), entries = piece
        part = self._parts.setdefault(
            (topic_id, number),
            _Part(
                topic_id_partition=TopicIdPartition(Uuid.from_bytes(topic_id), topic, number),
                metadata_partition=metadata_partition,
                last_event_offset=last_event_offset,
                delete_state=None if deletion is None else RemotePartitionDeleteState(deletion),
            ),
        )
        part.last_event_offset = max(part.last_event_offset, last_event_offset)
        part.segments += len(entries)
        self._pieces.append(run, pickle.dumps(piece))

    @property
    def partitions(self) -> list[TopicIdPartition]:
        """Return the user partitions of all runs."""
        return [part.topic_id_partition for part in self._parts.values()]

    @property
    def segments(self) -> int:
        """Return the number of segments of all runs."""
        return sum(part.segments for part in self._parts.values())

    def write(
        self, selection: Selection, folder: Path, *, named: bool, advance: Advance = no_op
    ) -> list[dict[str, Any]]:
        """Write the flat file of each selected user partition to `folder`; return a row for each.

        `named` chooses the header with the topic's name; `advance` receives the number of entries of each
        file. Raise CorruptInputError for a topic whose name can't be part of a path, LockedError if another
        run writes there, or OSError.
        """
        PLAIN.make_folder(folder.absolute())
        found = []
        by_partition = groupby(merge(*map(self._run, self._pieces.groups)), itemgetter(0, 1))
        with exclusive(folder, LOCK):
            for _, part in sorted(self._parts.items()):
                # Both are in the order of files; only partitions with segments have a group.
                rows = next(by_partition)[1] if part.segments else ()
                if part.topic_id_partition in selection:
                    found.append(_flat_file(part, (row[-1] for row in rows), folder, named=named))
                    advance(part.segments)
        return sorted(found, key=itemgetter("topic", "topic_id", "partition"))

    def _run(self, run: int) -> Iterator[tuple[bytes, int, int, int, int, bytes]]:
        for block in self._pieces.blocks(run):
            piece: Piece = pickle.loads(block)
            facts, entries = piece
            yield from ((*facts[:2], *entry) for entry in entries)


def _flat_file(part: _Part, entries: Iterator[bytes], folder: Path, *, named: bool) -> dict[str, Any]:
    partition = part.topic_id_partition
    name = cache_name(partition)
    if name is None:
        raise CorruptInputError("topic name", expected="[a-zA-Z0-9._-]", found=repr(partition.topic))
    header = flatfile.FlatFileHeader(
        topic=partition.topic if named else None,
        topic_id=partition.topic_id,
        metadata_topic_offset=part.last_event_offset,
    )
    deletion = []
    if part.delete_state is not None:
        state = StoredPartitionState(epoch=_NO_EPOCH, event_timestamp_ms=_NO_EPOCH, state=part.delete_state)
        deletion = [flatfile.encode_entry(state)]
    written = flatfile.written(header, chain(entries, deletion))
    replace_durably(folder.absolute() / name, written, backup=True)
    count = part.segments + len(deletion)
    return _row(folder / name, partition, part.metadata_partition, part.last_event_offset, count)


def _row(
    path: Path,
    partition: TopicIdPartition,
    metadata_partition: int,
    last_offset: int | None,
    entries: int,
) -> dict[str, Any]:
    """Return the row of a cache file that was written."""
    return {
        "file": str(path),
        "topic": partition.topic,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        "metadata_partition": metadata_partition,
        "last_offset": last_offset,
        "entries": entries,
        "size_bytes": path.stat().st_size,
    }


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
