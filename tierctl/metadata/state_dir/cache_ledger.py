"""Assigns events to the cache files of a state directory, and limits the offsets that may be committed."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pyarrow as pa

from tierctl.metadata.state_dir.cache_file import cache_name
from tierctl.metadata.state_dir.manifest import CacheEntry
from tierctl.metadata.user_partitions import rows_by_user_partition
from tierctl.model import TopicIdPartition, Uuid
from tierctl.wire.batches.chunks import RecordChunk
from tierctl.wire.batches.head_columns import Int64s
from tierctl.wire.crc import crc32c_extend
from tierctl.wire.files.flatfile_values import encode_values

_Key = tuple[Uuid, int]


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
    pending: bytearray = field(default_factory=bytearray)

    def add(self, chunk: RecordChunk, rows: Int64s) -> int:
        """Encode the events of `rows`, which must be new; return their size in bytes."""
        offsets, timestamps_ms = chunk.offsets[rows].tolist(), chunk.timestamps_ms[rows].tolist()
        entries = encode_values(offsets, timestamps_ms, chunk.values.take(pa.array(rows)).to_pylist())
        self.pending += entries
        self.last_offset = offsets[-1]
        self.events += len(offsets)
        self.crc = crc32c_extend(self.crc, entries)
        return len(entries)

    @property
    def manifest_entry(self) -> CacheEntry:
        """Return the manifest's entry for the cache."""
        return CacheEntry(
            metadata_partition=self.metadata_partition,
            last_offset=self.last_offset,
            events=self.events,
            crc=self.crc,
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
        groups, without = rows_by_user_partition(table)
        for row in without.tolist():
            # A tombstone has no event; a record that cannot be decoded must be read again by the next run.
            if chunk.values[row].is_valid:
                self._hold(chunk.partition, int(chunk.offsets[row]))
                break
        fresh = [without, *(self._keep(user_partition, chunk, rows) for user_partition, rows in groups)]
        rows = np.sort(np.concatenate(fresh))
        if len(rows) == len(chunk.offsets):
            return chunk, table
        left = replace(
            chunk,
            offsets=chunk.offsets[rows],
            timestamps_ms=chunk.timestamps_ms[rows],
            values=chunk.values.take(pa.array(rows)),
        )
        return left, table.take(pa.array(rows))

    def _keep(self, user_partition: TopicIdPartition, chunk: RecordChunk, rows: Int64s) -> Int64s:
        """Add the events of new rows to the partition's cache; return the numbers of these rows.

        If no file can have the partition's name, hold the offset instead and return all rows.
        """
        cache = self.caches.get(user_partition.key)
        if cache is None:
            name = cache_name(user_partition)
            if name is None:
                self._hold(chunk.partition, int(chunk.offsets[rows[0]]))
                return rows
            cache = self.caches[user_partition.key] = OpenCache(user_partition, name, chunk.partition)
        new: Int64s = rows[chunk.offsets[rows] > cache.last_offset]
        if len(new):
            self.pending_bytes += cache.add(chunk, new)
        return new

    def _hold(self, partition: int, offset: int) -> None:
        """Do not let offsets be committed after `offset`, so that the next run reads that record again."""
        self.holds[partition] = min(offset, self.holds.get(partition, offset))
