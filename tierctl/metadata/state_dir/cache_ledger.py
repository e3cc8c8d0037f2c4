"""Assigns events to the cache files of a state directory, and limits the offsets that may be committed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.metadata.state_dir.cache_file import cache_name
from tierctl.metadata.state_dir.manifest import CacheEntry
from tierctl.metadata.user_partitions import UserPartitionRows, rows_by_user_partition
from tierctl.model import TopicIdPartition
from tierctl.wire.batches.chunks import RecordChunk
from tierctl.wire.crc import crc32c_extend
from tierctl.wire.files.flatfile_values import encode_column

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

    def take(self, chunk: RecordChunk, table: pa.Table) -> tuple[RecordChunk, pa.Table]:
        """Keep a chunk's new events for the caches; return the chunk and `table` with these events only."""
        for damage in chunk.damage:
            self._hold(chunk.partition, damage.offset)
        groups = rows_by_user_partition(table)
        for row in groups.without.tolist():
            # A tombstone has no event; a record that cannot be decoded must be read again by the next run.
            if chunk.values[row].is_valid:
                self._hold(chunk.partition, int(chunk.offsets[row]))
                break
        caches = [self._cache(chunk, groups, at) for at in range(len(groups.keys))]
        lasts = np.array([-1 if cache is None else cache.last_offset for cache in caches], dtype=np.int64)
        is_named = np.array([cache is not None for cache in caches], dtype=bool)
        counts = np.diff(groups.bounds)
        is_new = chunk.offsets[groups.rows] > np.repeat(lasts, counts)
        self._add(chunk, groups, caches, is_new & np.repeat(is_named, counts))
        # `groups.without` are the rows of partitions whose name can't be a file name: they have no cache, but
        # their events are folded, too.
        if is_new.all():
            return chunk, table
        rows = np.sort(np.concatenate([groups.without, groups.rows[is_new]]))
        left = replace(
            chunk,
            offsets=chunk.offsets[rows],
            timestamps_ms=chunk.timestamps_ms[rows],
            values=chunk.values.take(pa.array(rows)),
        )
        return left, table.take(pa.array(rows))

    def _cache(self, chunk: RecordChunk, groups: UserPartitionRows, at: int) -> OpenCache | None:
        """Return the cache of a user partition; if no file can have its name, hold its offset instead."""
        key = groups.keys[at]
        cache = self.caches.get(key)
        if cache is None:
            user_partition = groups.user_partition(at)
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
        entries = encode_column(chunk.offsets[rows], chunk.timestamps_ms[rows], chosen)
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
