"""The caches of user partitions in a state directory: their files, and which events each of them gets."""

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import CorruptInputError
from tierctl.files import BACKUP_SUFFIX, FileSystem, read_regular, write_durably
from tierctl.metadata.state_dir.manifest import CacheEntry
from tierctl.metadata.user_partitions import UserPartitionRows, rows_by_user_partition
from tierctl.model import TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.wire.arrays import ByteSlices
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.files import flatfile
from tierctl.wire.metadata.decode import DecodedEvents, decode_values
from tierctl.wire.primitives import crc32c, crc32c_extend

SUFFIX = ".rlmcache"
REWRITE_BYTES_MAX = 1 << 18
"""Smaller caches are written anew, so that their header is current; larger ones are appended to."""

_NAME_BYTES_MAX = 240
_NAME = re.compile(r"(?P<topic>.{1,249})-(?P<partition>\d{1,10})-(?P<id>[A-Za-z0-9_-]{22})\.rlmcache\Z")


def cache_name(partition: TopicIdPartition) -> str | None:
    """Return the file's name; None if the topic's name is illegal or too long for a file name."""
    if not is_legal_topic_name(partition.topic) or partition.partition < 0:
        return None
    name = f"{partition.topic}-{partition.partition}-{partition.topic_id}{SUFFIX}"
    return name if len(name) <= _NAME_BYTES_MAX else None


def partition_of(name: str) -> TopicIdPartition | None:
    """Return the user partition that a file name states, None if it is no name of a cache."""
    match = _NAME.match(name)
    if match is None or not is_legal_topic_name(match["topic"]):
        return None
    return TopicIdPartition(Uuid(match["id"]), match["topic"], int(match["partition"]))


@dataclass(frozen=True, slots=True)
class LoadedCache:
    """The events of a cache that its manifest entry covers, and the position of the next entry."""

    offsets: list[int]
    events: DecodedEvents
    end: int


def load_cache(path: Path, partition: TopicIdPartition, entry: CacheEntry) -> LoadedCache:
    """Return the events that `entry` of the manifest covers; ignore bytes after them, left by a crash.

    Raises CorruptInputError if events are missing, damaged or of another partition, and OSError.
    """
    data = read_regular(path)
    try:
        header, start = flatfile.read_header(data)
        found = flatfile.decode_values(data, start, entry.events)
    except CorruptInputError as e:
        raise e.within(str(path)) from None
    crc = crc32c(data[start : found.end])
    if len(found.values) < entry.events:
        raise _wrong(path, f"{entry.events} entries", f"{len(found.values)}")
    if crc != entry.crc:
        raise _wrong(path, f"CRC-32C {entry.crc:#010x}", f"{crc:#010x}")
    if (header.topic, header.topic_id) != (partition.topic, partition.topic_id):
        raise _wrong(path, f"a cache of {partition}", f"one of {header.topic_id}:{header.topic}")
    events = decode_values(pa.array(found.values, pa.binary()))
    _check(path, partition, entry, found.offsets, events)
    return LoadedCache(found.offsets, events, found.end)


def _check(
    path: Path, partition: TopicIdPartition, entry: CacheEntry, offsets: list[int], events: DecodedEvents
) -> None:
    """Raise CorruptInputError unless all events are of the partition and end at the expected offset."""
    found = rows_by_user_partition(events)
    for whose in map(found.user_partition, range(len(found))):
        if whose.key != partition.key:
            raise _wrong(path, f"events of {partition}", f"events of {whose}")
    if not offsets or offsets[-1] != entry.last_offset:
        raise _wrong(path, f"{entry.events} values up to offset {entry.last_offset}", f"{len(offsets)}")


@dataclass(frozen=True, slots=True)
class Extension:
    """Encoded entries for one user partition; `last_offset` is the metadata offset of the last entry."""

    partition: TopicIdPartition
    entries: bytes
    last_offset: int


def extend_cache(path: Path, end: int, extension: Extension, *, fs: FileSystem) -> int:
    """Write entries at byte `end`, durably once the caller has synced the folder; return the new end.

    With `end` 0 a new file is made, and an existing file is kept as `.bak`. The manifest covers the old
    entries until it is replaced, so a crash before that loses nothing. Raises OSError.
    """
    old, entries, partition = b"", extension.entries, extension.partition
    if end == 0 and path.exists():
        fs.rename(path, path.with_name(path.name + BACKUP_SUFFIX))
    elif end > REWRITE_BYTES_MAX:
        _append(path, end, entries, fs)
        return end + len(entries)
    elif end:
        data = read_regular(path)
        old = data[flatfile.read_header(data)[1] : end]
    header = flatfile.encode_header(
        flatfile.FlatFileHeader(
            topic=partition.topic, topic_id=partition.topic_id, metadata_topic_offset=extension.last_offset
        )
    )
    write_durably(path, [header, old, entries], fs=fs, sync_folder=False)
    return len(header) + len(old) + len(entries)


def _append(path: Path, end: int, entries: bytes, fs: FileSystem) -> None:
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size > end:
            fs.truncate(fd, end, path)
        os.lseek(fd, end, os.SEEK_SET)
        fs.write(fd, entries, path)
        fs.sync(fd, path)
    finally:
        os.close(fd)


def _wrong(path: Path, expected: str, found: str) -> CorruptInputError:
    return CorruptInputError("cache", expected=expected, found=found, source=str(path))


_Key = tuple[bytes, int]
"""Topic id and number of a user partition."""


Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class OpenCache:
    """One cache file: the facts about its content, and encoded entries that are not written yet."""

    partition: TopicIdPartition
    name: str
    metadata_partition: int
    last_offset: int = -1
    end: int = 0
    events: int = 0
    crc: int = 0
    modified_ns: int = -1
    pending: bytearray = field(default_factory=bytearray)

    def add(self, entries: memoryview, events: int, last_offset: int) -> None:
        """Add `events` encoded entries, which must be new."""
        self.pending += entries
        self.last_offset = last_offset
        self.events += events
        self.crc = crc32c_extend(self.crc, np.frombuffer(entries, np.uint8))

    @property
    def manifest_entry(self) -> CacheEntry:
        """Return the manifest's entry for the cache."""
        return CacheEntry(
            metadata_partition=self.metadata_partition,
            last_offset=self.last_offset,
            events=self.events,
            crc=self.crc,
            size_bytes=self.end,
            modified_ns=self.modified_ns,
        )


@dataclass(slots=True)
class CacheLedger:
    """The caches by user partition; `holds` limits the committed offset of metadata partitions."""

    caches: dict[_Key, OpenCache] = field(default_factory=dict)
    holds: dict[int, int] = field(default_factory=dict)
    pending_bytes: int = 0

    def of(self, metadata_partitions: Collection[int]) -> Self:
        """Return the part for some metadata partitions, for a task elsewhere; no entries may be pending."""
        return type(self)(
            {key: c for key, c in self.caches.items() if c.metadata_partition in metadata_partitions},
            {p: offset for p, offset in self.holds.items() if p in metadata_partitions},
        )

    def merge(self, part: Self) -> None:
        """Replace the entries of some metadata partitions by `part`, a result of `of` with events added."""
        self.caches |= part.caches
        self.holds |= part.holds
        self.pending_bytes += part.pending_bytes

    def take(self, chunk: RecordChunk, events: DecodedEvents) -> tuple[RecordChunk, DecodedEvents]:
        """Keep a chunk's new events for the caches; return chunk and decoded events with these only."""
        for damage in chunk.damage:
            self._hold(chunk.partition, damage.offset)
        groups = rows_by_user_partition(events)
        for row in groups.without.tolist():
            # A tombstone has no event; a record that cannot be decoded must be read again by the next run.
            if chunk.values[row].is_valid:
                self._hold(chunk.partition, int(chunk.offsets[row]))
                break
        caches = [self._cache(chunk, groups, at) for at in range(len(groups))]
        lasts = np.array([-1 if cache is None else cache.last_offset for cache in caches], dtype=np.int64)
        is_named = np.array([cache is not None for cache in caches], dtype=bool)
        counts = np.diff(groups.bounds)
        is_new = chunk.offsets[groups.rows] > np.repeat(lasts, counts)
        self._add(chunk, groups, caches, is_new & np.repeat(is_named, counts))
        # `groups.without` are the rows of partitions whose name can't be a file name: they have no cache, but
        # their events are folded, too.
        if is_new.all():
            return chunk, events
        rows = np.sort(np.concatenate([groups.without, groups.rows[is_new]]))
        left = replace(
            chunk,
            offsets=chunk.offsets[rows],
            timestamps_ms=chunk.timestamps_ms[rows],
            slices=ByteSlices.of(chunk.values.take(pa.array(rows))),
        )
        return left, events.take(rows)

    def _cache(self, chunk: RecordChunk, groups: UserPartitionRows, at: int) -> OpenCache | None:
        """Return the cache of a user partition; if no file can have its name, hold its offset instead."""
        user_partition = groups.user_partition(at)
        key = user_partition.topic_id.bytes, user_partition.partition
        cache = self.caches.get(key)
        if cache is None:
            name = cache_name(user_partition)
            if name is None:
                self._hold(chunk.partition, int(chunk.offsets[groups.rows[groups.bounds[at]]]))
                return None
            cache = self.caches[key] = OpenCache(user_partition, name, chunk.partition)
        return cache

    def _add(
        self,
        chunk: RecordChunk,
        groups: UserPartitionRows,
        caches: Sequence[OpenCache | None],
        is_added: Bools,
    ) -> None:
        """Add the events of the chosen rows to the caches."""
        rows = groups.rows[is_added]
        chosen = chunk.values.take(pa.array(rows))
        entries = flatfile.encode_column(chunk.offsets[rows], chunk.timestamps_ms[rows], chosen)
        ends = np.concatenate([[0], np.cumsum(pc.binary_length(entries).to_numpy())])
        data = memoryview(entries.buffers()[2] or b"")
        lasts = np.concatenate([[0], np.cumsum(is_added)])[groups.bounds]
        for cache, first, last in zip(caches, lasts[:-1].tolist(), lasts[1:].tolist(), strict=True):
            if cache is not None and last > first:
                cut = data[int(ends[first]) : int(ends[last])]
                cache.add(cut, last - first, int(chunk.offsets[rows[last - 1]]))
                self.pending_bytes += len(cut)

    def _hold(self, partition: int, offset: int) -> None:
        """Do not let offsets be committed after `offset`, so that the next run reads that record again."""
        self.holds[partition] = min(offset, self.holds.get(partition, offset))
