"""Read cache files of any form: which events they have, and what is wrong with them; find one entry.

An entry is found by the offset that it serves, or by its position. As in the KIP's lazy approach, entries are
read in chunks; a search by offset keeps eight numbers of each in memory, one of which is its position.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.files import FileBytes, read_regular
from tierctl.locallog.folders import names_in, open_found, parse_partition_folder
from tierctl.model import (
    RemoteLogSegmentMetadataSnapshot,
    TopicIdPartition,
    TopicPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.checked_values import natural_number
from tierctl.model.events import PARTITION_MAX, StoredRecord
from tierctl.state.lineage import serving_copy
from tierctl.state.table_arrays import FINISHED
from tierctl.wire.arrays import Int64s, ranges
from tierctl.wire.files import flatfile
from tierctl.wire.files.flatfile import EntryChunk, RemoteIndexFile
from tierctl.wire.metadata.decode import (
    ADD,
    END,
    EPOCH_COUNT,
    EPOCHS_AT,
    EVENT_TIMESTAMP,
    KIND,
    SEGMENT_ID,
    SEGMENT_ID_LOW,
    SNAPSHOT,
    STATE,
    DecodedEvents,
    rows_of,
)
from tierctl.wire.metadata.schema import json_fields
from tierctl.wire.primitives import read_uvarint

SNAPSHOT_NAME = "remote_log_snapshot"
SUFFIX = ".rlmcache"
"""The ending of the names that `cache build` gives to flat files; the KIP names none."""

_NAME_BYTES_MAX = 240
_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})-(?P<id>[A-Za-z0-9_-]{22})\.rlmcache\Z")


def cache_name(partition: TopicIdPartition) -> str:
    """Return the file's name; CorruptInputError for an illegal partition, and a topic that is too long."""
    stem = f"{partition.topic}-{partition.partition}"
    if not is_legal_topic_name(partition.topic) or partition.partition < 0:
        expected = "a topic of [a-zA-Z0-9._-]{1,249} and a number of 0 or more"
        raise CorruptInputError("partition", expected=expected, found=repr(stem))
    name = f"{stem}-{partition.topic_id}{SUFFIX}"
    if len(name) > _NAME_BYTES_MAX:
        found = f"{len(name)} bytes"
        raise CorruptInputError(
            "name of a flat file", expected=f"at most {_NAME_BYTES_MAX} bytes", found=found
        )
    return name


def partition_of(name: str) -> TopicIdPartition | None:
    """Return the user partition that a file name states, None if it is no name of a flat file."""
    match = _NAME.match(name)
    if match is None or not is_legal_topic_name(match["topic"]) or int(match["partition"]) > PARTITION_MAX:
        return None
    return TopicIdPartition(Uuid(match["id"]), match["topic"], int(match["partition"]))


class Form(StrEnum):
    """The format of a cache file."""

    NAMED = "named"
    """A flat file whose header has the topic's name."""
    UNNAMED = "unnamed"
    """A flat file of early revisions of KIP-405, whose header has only the topic id."""
    SNAPSHOT = "snapshot"
    """Kafka 3's `remote_log_snapshot`."""
    REMOTE_INDEX = "remoteindex"
    """`.remoteindex` of KIP-405's early design: the start offsets of a partition's remote segments."""


@dataclass(frozen=True, slots=True)
class RemoteIndexEntry:
    """One entry of a `.remoteindex` file: the start offset of a remote segment."""

    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a cache file, or the reason why it can't be decoded."""

    position: int
    """The position in the file of the byte that states the entry's type, or of its first byte."""
    record: StoredRecord | RemoteLogSegmentMetadataSnapshot | RemoteIndexEntry | None
    """None if `error` is set, and for a checked entry that is only counted."""
    error: CorruptInputError | None
    is_torn: bool = False
    """Whether this is no entry: `error` is the reason why no bytes from `position` on can be read."""

    def fields(self) -> dict[str, Any]:
        """Return the entry as JSON-ready fields; `type` is one of them."""
        match self.record:
            case None:
                return {"type": None, "error": str(self.error)}
            case RemoteIndexEntry(start_offset):
                return {"type": "RemoteIndexEntry", "start_offset": start_offset}
        return json_fields(self.record)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatEntries:
    """The entries of a flat file from byte `start` on.

    The file is read each time they are iterated over, in chunks, so that memory does not grow with them.
    """

    path: Path
    start: int
    only_counted: bool = False
    """Whether entries are checked and have no `record`, which takes time."""

    def __iter__(self) -> Iterator[Entry]:
        try:
            for chunk in self.chunks():
                yield from entries_of(chunk, only_counted=self.only_counted)
        except CorruptInputError as error:
            yield Entry(position=error.at or 0, record=None, error=error, is_torn=True)

    def chunks(self) -> Iterator[EntryChunk]:
        """Yield the entries of the whole file as rows; raise CorruptInputError if the last one is cut."""
        with FileBytes(self.path) as file:
            yield from flatfile.read_chunks(file, self.start)


def entries_of(chunk: EntryChunk, *, only_counted: bool = False) -> Iterator[Entry]:
    """Yield the entries of a chunk; see `FlatEntries.only_counted`."""
    errors = chunk.rows.errors
    if only_counted:
        errors = errors | flatfile.impossible_rows(chunk)
    for row, position in enumerate(chunk.positions.tolist()):
        if row in errors:
            yield Entry(position=position, record=None, error=errors[row])
        else:
            record = None if only_counted else chunk.record(row)
            yield Entry(position=position, record=record, error=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFile:
    """The header of a cache file, and its entries."""

    path: Path
    form: Form
    topic: str | None
    """Topic, id and partition are None where neither the header nor the file's path states them."""
    topic_id: Uuid | None
    partition: int | None
    metadata_partition: int | None
    metadata_topic_offset: int
    """The last metadata offset that the header states; -1 if it states none."""
    entries: FlatEntries | Sequence[Entry]
    """The entries; the last one is torn if the file can't be read to its end."""

    def header(self) -> dict[str, Any]:
        """Return the facts that apply to the whole file as JSON-ready fields."""
        return {
            "position": 0,
            "type": "Header",
            "form": str(self.form),
            "topic": self.topic,
            "topic_id": self.topic_id,
            "partition": self.partition,
            "metadata_partition": self.metadata_partition,
            "metadata_topic_offset": self.metadata_topic_offset,
        }


def cache_files(folder: Path) -> list[Path]:
    """Return the flat files and snapshots in a folder of flat files, or in a broker's log directory.

    Raise OSError as for `_named`.
    """
    return sorted(
        path
        for path in _named(folder, f"*{SUFFIX}", SNAPSHOT_NAME)
        if path.parent == folder or path.name == SNAPSHOT_NAME
    )


def remote_index_files(folder: Path) -> list[Path]:
    """Return the `.remoteindex` files in a broker's log directory, or in a partition's folder.

    Raise OSError as for `_named`.
    """
    return sorted(_named(folder, f"*{flatfile.REMOTE_INDEX_SUFFIX}"))


def _named(folder: Path, *patterns: str) -> Iterator[Path]:
    """Yield the entries of `folder`, and of the folders in it, with a name of one of `patterns`.

    Raise OSError if `folder` or a partition's folder can't be read: it may have a cache. Other folders are
    passed over then, such as lost+found, which only root can read.
    """
    for each in (folder, *(folder / name for name in names_in(folder))):
        try:
            names = names_in(each)
        except OSError:
            if each == folder or parse_partition_folder(each.name) is not None:
                raise
            continue
        yield from (each / name for pattern in patterns for name in fnmatch.filter(names, pattern))


_HEAD_BYTES = 1 << 17
"""The bytes by which the form of a file and of its header is detected."""


def read_cache(path: Path) -> CacheFile:
    """Read the file at `path`. Raise CorruptInputError for no regular file and a bad header, or OSError."""
    with open_found(path) as file:
        head = file.read(0, _HEAD_BYTES)
    try:
        if path.suffix == flatfile.REMOTE_INDEX_SUFFIX:
            return _remote_index(path, read_regular(path))
        if path.name == SNAPSHOT_NAME or _is_snapshot(path, head):
            return _snapshot(path, read_regular(path))
        return _flat(path, head)
    except CorruptInputError as error:
        raise error.within(str(path)) from None


def _is_snapshot(path: Path, head: bytes) -> bool:
    """Return whether a file of any name decodes as a snapshot and does not decode as a flat file."""
    if not head.startswith(b"\0\0\0"):
        return False
    data = read_regular(path)
    is_flat = False
    with suppress(CorruptInputError):
        found = flatfile.read_snapshot(data)
        if found is None or found.damaged:
            return False
        _, start = flatfile.read_header(data)
        is_flat = all(entry.error is None for entry in flatfile.iter_entries(data, start))
    return not is_flat


def _flat(path: Path, head: bytes) -> CacheFile:
    header, start = flatfile.read_header(head)
    named = partition_of(path.name)
    return CacheFile(
        path=path,
        form=Form.UNNAMED if header.topic is None else Form.NAMED,
        topic=header.topic,
        topic_id=header.topic_id,
        partition=None if named is None else named.partition,
        metadata_partition=None,
        metadata_topic_offset=header.metadata_topic_offset,
        entries=FlatEntries(path=path, start=start),
    )


def _snapshot(path: Path, data: bytes) -> CacheFile:
    found = flatfile.read_snapshot(data)
    owner = _owner(path)
    return CacheFile(
        path=path,
        form=Form.SNAPSHOT,
        topic=None if owner is None else owner.topic,
        topic_id=None,
        partition=None if owner is None else owner.partition,
        metadata_partition=None if found is None else found.metadata_partition,
        metadata_topic_offset=-1 if found is None else found.metadata_offset,
        entries=_with_torn(
            [
                Entry(position=e.position, record=e.segment, error=e.error)
                for e in (() if found is None else found.entries)
            ],
            None if found is None else found.torn,
        ),
    )


def _with_torn(entries: list[Entry], torn: CorruptInputError | None) -> list[Entry]:
    if torn is not None:
        entries.append(Entry(position=torn.at or 0, record=None, error=torn, is_torn=True))
    return entries


def _remote_index(path: Path, data: bytes) -> CacheFile:
    """Decode a `.remoteindex` file up to its first damaged entry."""
    owner = _owner(path)
    index, torn = _readable_remote_index(path.name, data)
    return CacheFile(
        path=path,
        form=Form.REMOTE_INDEX,
        topic=None if owner is None else owner.topic,
        topic_id=None,
        partition=None if owner is None else owner.partition,
        metadata_partition=None,
        metadata_topic_offset=-1,
        entries=_with_torn(
            [
                Entry(
                    position=number * flatfile.REMOTE_INDEX_ENTRY_SIZE,
                    record=RemoteIndexEntry(start),
                    error=None,
                )
                for number, start in enumerate(index.start_offsets)
            ],
            torn,
        ),
    )


def _readable_remote_index(name: str, data: bytes) -> tuple[RemoteIndexFile, CorruptInputError | None]:
    """Return the entries before the first damage, and that damage.

    Raise CorruptInputError if the name or the first entry is wrong.
    """
    damage = None
    while True:
        try:
            return RemoteIndexFile.decode(name, data), damage
        except CorruptInputError as error:
            if not error.at:
                raise
            damage, data = error, data[: error.at]


def _owner(path: Path) -> TopicPartition | None:
    """Return the partition whose folder the file is in; None if the folder has no partition's name."""
    topic, dash, number = path.absolute().parent.name.rpartition("-")
    partition = natural_number(number, PARTITION_MAX)
    return TopicPartition(topic, partition) if dash and topic and partition is not None else None


def findings(file: CacheFile, entries: Iterable[Entry] | None = None) -> Iterator[CorruptInputError]:
    """Yield each problem of a cache file; a good file has none.

    Problems are bytes that can't be decoded, entries that no broker writes, a file name that contradicts the
    header, and a `.remoteindex` file that overlaps the next one. `entries` replaces the iterable from which
    entries are taken.
    """
    yield from _name(file)
    for entry in checked_entries(file) if entries is None else entries:
        error = entry.error
        if isinstance(entry.record, StoredRecord | RemoteLogSegmentMetadataSnapshot):
            error = flatfile.impossible_field(entry.record, entry.position)
        if error is not None:
            yield error
    if file.metadata_topic_offset < -1:
        found = str(file.metadata_topic_offset)
        yield CorruptInputError("header, metadata_topic_offset", expected="-1 or more", found=found, at=0)
    if file.form is Form.REMOTE_INDEX:
        yield from _overlap(file)


def checked_entries(file: CacheFile) -> Iterable[Entry]:
    """Return the entries of a file that `findings` examines."""
    entries = file.entries
    return replace(entries, only_counted=True) if isinstance(entries, FlatEntries) else entries


def _overlap(file: CacheFile) -> Iterator[CorruptInputError]:
    """Yield an error if the file has offsets of the partition's next `.remoteindex` file."""
    named = map(flatfile.parse_remote_index_name, names_in(file.path.parent))
    bases = sorted(base for base in named if base is not None)
    starts = [
        (e.position, e.record.start_offset) for e in file.entries if isinstance(e.record, RemoteIndexEntry)
    ]
    following = next((base for base in bases if starts and base > starts[0][1]), None)
    if following is None:
        return
    for position, start_offset in starts:
        if start_offset >= following:
            yield CorruptInputError(
                "remote index",
                expected=f"offsets below {following}, where the next file begins",
                found=str(start_offset),
                at=position,
                source=str(file.path),
            )
            return


def _name(file: CacheFile) -> Iterator[CorruptInputError]:
    named = partition_of(file.path.name)
    if named is None:
        return
    if (named.topic_id, named.topic) != (file.topic_id, file.topic or named.topic):
        yield CorruptInputError(
            "header",
            expected=f"{named.topic_id}:{named.topic}, as the file's name says",
            found=f"{file.topic_id}:{file.topic}",
            at=0,
            source=str(file.path),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCoverage:
    """The events that a cache file contains: those of its partition up to `metadata_topic_offset`.

    A snapshot of Kafka 3 names its `metadata_partition`. Other forms name the user partition. A file with
    `damage` may lack any event: its `metadata_topic_offset` is -1.
    """

    source: str
    """The path of the file."""
    form: Form
    topic_id: Uuid | None
    partition: int | None
    metadata_partition: int | None
    metadata_topic_offset: int
    damage: str | None = None


def coverage_of(path: Path) -> CacheCoverage | CorruptInputError:
    """Return the coverage of the file, or why that is unknown: its header or its name. Raise OSError."""
    try:
        file = read_cache(path)
    except CorruptInputError as error:
        return error
    if file.form is not Form.SNAPSHOT and file.partition is None:
        expected = f"TOPIC-PARTITION-ID{SUFFIX}, because only the name states the partition"
        return CorruptInputError(
            "name of a flat file", expected=expected, found=repr(path.name), source=str(path)
        )
    damage = next(findings(file), None)
    return CacheCoverage(
        source=str(path),
        form=file.form,
        topic_id=file.topic_id,
        partition=file.partition,
        metadata_partition=file.metadata_partition,
        metadata_topic_offset=file.metadata_topic_offset if damage is None else -1,
        damage=None if damage is None else damage.message,
    )


Row = dict[str, Any]


class FileRows(NamedTuple):
    """Rows of one file, and whether one of them reports damage.

    `next_position` is where the entries after them begin; None after the last one.
    """

    rows: Iterable[Row]
    is_damaged: bool
    next_position: int | None = None


def entry_rows(path: Path, position: int | None = None) -> FileRows:
    """Return the header and the first entries of the file, or those of the chunk that begins at `position`.

    The rows are made while they are read. An entry that can't be decoded has a row with its `error`.
    """
    name = {"file": str(path)}
    try:
        cache = read_cache(path)
    except CorruptInputError as error:
        return FileRows([name | {"position": error.at, "type": None, "error": error.message}], True)
    header = [name | cache.header()] if position is None else []
    entries, is_damaged, following = _part(cache.entries, position)
    rows = (name | {"position": entry.position} | entry.fields() for entry in entries)
    return FileRows(chain(header, rows), is_damaged, following)


_LISTED_CHUNKS = 4


def listed_entry_rows(path: Path, position: int | None = None) -> FileRows:
    """Return the rows of several chunks, as `entry_rows`, for another process."""
    rows: list[Row] = []
    is_damaged = False
    for _ in range(_LISTED_CHUNKS):
        part = entry_rows(path, position)
        rows += part.rows
        is_damaged |= part.is_damaged
        position = part.next_position
        if position is None:
            break
    return FileRows(rows, is_damaged, position)


def _part(
    entries: FlatEntries | Sequence[Entry], position: int | None
) -> tuple[Iterable[Entry], bool, int | None]:
    """Return entries from `position` on, whether one is damaged, and where the next ones begin, if any."""
    if not isinstance(entries, FlatEntries):
        return entries, any(entry.error is not None for entry in entries), None
    start = entries.start if position is None else position
    try:
        chunk = next(replace(entries, start=start).chunks(), None)
    except CorruptInputError as error:
        return _with_torn([], error), True, None
    if chunk is None:
        return (), False, None
    is_last = chunk.end >= entries.path.stat().st_size
    return entries_of(chunk), bool(chunk.rows.errors), None if is_last else chunk.end


PROBLEMS_MAX = 1000
"""The problems of one file that are reported: all of them are in memory before the first is printed."""


@dataclass(slots=True)
class _Counted:
    """Entries that are counted while they are read."""

    entries: Iterable[Entry]
    count: int = 0

    def __iter__(self) -> Iterator[Entry]:
        for entry in self.entries:
            self.count += not entry.is_torn
            yield entry


def check_rows(path: Path) -> FileRows:
    """Return one row for a good file, and one row for each problem of a bad file, at most PROBLEMS_MAX."""
    row: Row = {"file": str(path), "form": None, "entries": None, "size_bytes": 0}
    found: list[CorruptInputError] = []
    try:
        with open_found(path) as file:
            row["size_bytes"] = file.size_bytes
        cache = read_cache(path)
        entries = _Counted(checked_entries(cache))
        found.extend(islice(findings(cache, entries), PROBLEMS_MAX))
        row |= {"form": str(cache.form), "entries": entries.count}
    except CorruptInputError as unreadable:
        found.append(unreadable)
    if not found:
        return FileRows([row | {"status": "ok", "position": None, "detail": None}], False)
    rows = [row | _problem(error) for error in found]
    if len(found) == PROBLEMS_MAX:
        detail = f"the rest of the file was not checked after {PROBLEMS_MAX} problems"
        rows.append(row | {"status": "corrupt", "position": None, "detail": detail})
    return FileRows(rows, True)


def _problem(error: CorruptInputError) -> Row:
    status = "unsupported" if isinstance(error, UnsupportedFormatError) else "corrupt"
    return {"status": status, "position": error.at, "detail": error.message}


def found_rows(path: Path, *, epoch: int | None, offset: int | None, position: int | None) -> FileRows:
    """Return the row of the entry at byte `position`, or of the one that serves `offset` of leader `epoch`.

    There are no rows if the file has no such entry. Damaged entries that were read on the way have rows, too:
    one of them may be the entry. A `.remoteindex` file has no leader epochs.
    """
    name = {"file": str(path)}
    damage: list[Entry] = []
    try:
        if path.suffix == flatfile.REMOTE_INDEX_SUFFIX:
            found = _index_entry(path, offset, position)
        else:
            cache = read_cache(path)
            if position is None and offset is not None:
                position = _serving(cache, epoch, offset, damage)
            if position == 0:
                return FileRows([name | cache.header()], False)
            found = None if position is None else _entry_at(cache, position)
    except CorruptInputError as error:
        return FileRows([name | {"position": error.at, "type": None, "error": error.message}], True)
    entries = [*(() if found is None else (found,)), *damage]
    rows = [name | {"position": each.position} | each.fields() for each in entries]
    return FileRows(rows, any(each.error is not None for each in entries))


def _index_entry(path: Path, offset: int | None, position: int | None) -> Entry | None:
    """Return the entry of a `.remoteindex` file with an offset or at a position; None if there is none."""
    base = flatfile.remote_index_base_offset(path.name)
    with open_found(path) as file:
        if offset is not None:
            at = flatfile.find_remote_index_entry(file, base, offset)
        else:
            at = flatfile.remote_index_entry_at(file, base, position or 0)
    return None if at is None else Entry(position=at[0], record=RemoteIndexEntry(at[1]), error=None)


def _serving(cache: CacheFile, epoch: int | None, offset: int, damage: list[Entry]) -> int | None:
    """Return the position of the entry that serves an offset; put damaged entries into `damage`.

    It is the entry that RemoteLogMetadataCache returns after the copies finished in the order of their event
    timestamps, then of the file. The state of a segment is that of its last entry.
    """
    if epoch is None:
        raise UsageError("--epoch is missing", hint=f"{cache.path} has segments of several leader epochs")
    parts: list[Int64s] = []
    try:
        for events, positions in _segment_rows(cache, damage):
            parts.append(_in_epoch(events, positions, epoch))
    except CorruptInputError as error:
        damage.append(Entry(position=error.at or 0, record=None, error=error, is_torn=True))
    return _floor_entry(np.concatenate(parts), offset) if parts else None


_FACTS = (SEGMENT_ID, SEGMENT_ID_LOW, EVENT_TIMESTAMP, STATE)
_ID, _TIME, _STATE, _POSITION, _FIRST, _LAST = slice(0, 2), 2, 3, 4, 5, 6
"""Columns of entries: segment id, event timestamp, state, position, and the offsets in one leader epoch."""


def _in_epoch(events: DecodedEvents, positions: Int64s, epoch: int) -> Int64s:
    """Return the entries of segments; the first offset of one without the leader epoch is -1."""
    rows, epochs = events.rows, events.epochs
    adds = np.flatnonzero(np.isin(rows[:, KIND], (ADD, SNAPSHOT)))
    found = np.full((len(adds), _LAST + 1), -1, np.int64)
    found[:, : len(_FACTS)], found[:, _POSITION] = rows[adds][:, _FACTS], positions[adds]
    counts = rows[adds, EPOCH_COUNT]
    pairs, owners = ranges(rows[adds, EPOCHS_AT], counts), np.repeat(np.arange(len(adds)), counts)
    is_last = np.append(owners[1:] != owners[:-1], True)[: len(owners)]
    starts = epochs[pairs, 1]
    ends = np.where(is_last, rows[adds[owners], END], np.append(starts[1:], 0)[: len(starts)] - 1)
    hits = epochs[pairs, 0] == epoch
    found[owners[hits], _FIRST], found[owners[hits], _LAST] = starts[hits], ends[hits]
    return found


def _floor_entry(entries: Int64s, offset: int) -> int | None:
    """Return the position of the one of `entries`, those of `_in_epoch`, that serves an offset; or None."""
    by_id = np.lexsort(entries[:, _ID].T)
    ids = entries[by_id, _ID]
    is_last = np.append((ids[1:] != ids[:-1]).any(axis=1), True)[: len(ids)]
    found = entries[np.sort(by_id[is_last])]
    found = found[(found[:, _STATE] == FINISHED) & (found[:, _FIRST] >= 0)]
    found = found[np.argsort(found[:, _TIME], kind="stable")]
    at = serving_copy(found[:, _FIRST], found[:, _LAST], offset)
    return None if at is None else int(found[at, _POSITION])


def _segment_rows(cache: CacheFile, damage: list[Entry]) -> Iterator[tuple[DecodedEvents, Int64s]]:
    """Yield the segments of a file, as rows with the positions of their entries."""
    if not isinstance(cache.entries, FlatEntries):
        damage += (entry for entry in cache.entries if entry.error is not None)
        read = [
            (each.position, each.record)
            for each in cache.entries
            if isinstance(each.record, RemoteLogSegmentMetadataSnapshot)
        ]
        if read:
            yield rows_of([segment for _, segment in read]), np.array([at for at, _ in read])
        return
    for chunk in cache.entries.chunks():
        room = PROBLEMS_MAX - len(damage)
        for row, error in islice(sorted(chunk.rows.errors.items()), room):
            damage.append(Entry(position=int(chunk.positions[row]), record=None, error=error))
        yield chunk.rows, chunk.positions


_LENGTH_BYTES_MAX = 5


def _entry_at(cache: CacheFile, position: int) -> Entry | None:
    """Return the entry whose `position` it is, read from there; None if no entry is there."""
    if not isinstance(cache.entries, FlatEntries):
        return next((each for each in cache.entries if each.position == position), None)
    with FileBytes(cache.path) as file:
        # The length before the type has one to five bytes.
        for start in range(position - 1, max(cache.entries.start, position - _LENGTH_BYTES_MAX) - 1, -1):
            entry = _entry_from(file, start, position)
            if entry is not None:
                return entry
    return None


def _entry_from(file: FileBytes, start: int, position: int) -> Entry | None:
    """Return the entry with its length at byte `start` and its type at `position`; None if there is none."""
    try:
        length, body = read_uvarint(file.read(start, position - start), 0)
        if start + body != position or not 0 < length <= file.size_bytes - position:
            return None
        found = flatfile.read_entry(file.read(start, body + length), 0)
    except CorruptInputError:
        return None
    return None if found.record is None else Entry(position=position, record=found.record, error=None)
